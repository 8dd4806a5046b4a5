#include "fsserver/lease_table.h"

#include <algorithm>
#include <utility>

namespace tusk::server {
namespace {

constexpr std::uint64_t kNamesOf = 0x9e3779b97f4a7c15u;

std::uint64_t names_key(std::string_view handle) { return node_key(handle) ^ kNamesOf; }

bool about_names(const NodeChange& change) { return change.entries || !change.name.empty(); }

}  // namespace

// ---------------------------------------------------------------- sessions

LeaseTable::Terms LeaseTable::attach(SessionNumber session, TimePoint now, const Client& client) {
  const auto [place, inserted] = holders_.try_emplace(session);
  Holder& holder = place->second;
  if (inserted) holder.floor = holder.lease = ++last_lease_;
  holder.exported = client.exported;
  holder.knows_exclusive = client.knows_exclusive;
  if (!client.right.empty()) holder.conduct = conduct_of(client.right);
  // Who comes and goes too fast to be cut has not answered either.
  const auto asked_twice = [&](const auto& item) {
    return item.second.sent_again && late(holder, item.second, now);
  };
  if (!holder.cut && std::ranges::any_of(holder.sent, asked_twice)) cut(holder, now);
  const bool lost = holder.cut;
  if (lost) lose(session, holder, now);
  // It could not answer while it was away. Once: else one that never answers would never be late.
  for (auto& [number, sent] : holder.sent)
    if (lost || !sent.sent_again) {
      sent.at = now;
      sent.sent_again = true;
      sent.there = false;
    }
  const std::uint64_t exclusive_lost = std::exchange(holder.exclusive_lost, 0);
  if (exclusive_lost != 0)
    (void)send(session, holder, {.items = {}, .exclusive_over = exclusive_lost}, {}, now);
  holder.gone_since.reset();
  holder.heard = kNever;
  holder.presumed_dead = holder.cut_as_dead = holder.cut_as_silent = false;
  return {.floor = holder.floor, .exclusive_over = exclusive_lost};
}

std::shared_ptr<LeaseTable::Conduct> LeaseTable::conduct_of(const std::string& right) {
  std::shared_ptr<Conduct>& conduct = conducts_[right];
  if (!conduct) conduct = std::make_shared<Conduct>();
  return conduct;
}

// A client can have as many sessions and keys as it likes: what counts is the right that let it in.
void LeaseTable::cut(Holder& holder, TimePoint now) const {
  holder.cut = true;
  if (now - holder.conduct->last >= limits_.barred_again) *holder.conduct = {};
  ++holder.conduct->cuts;
  bar(*holder.conduct, now);
}

void LeaseTable::note_silence(Holder& holder, TimePoint now) const {
  if (holder.presumed_dead || holder.awaited) return;
  if (now - holder.conduct->last >= limits_.barred_again) *holder.conduct = {};
  holder.conduct->last = now;
  if (++holder.conduct->silences > limits_.silences_max) bar(*holder.conduct, now);
}

void LeaseTable::bar(Conduct& conduct, TimePoint now) const {
  conduct.last = now;
  conduct.barred = true;
  conduct.barred_until = now + (conduct.cuts > 1 ? limits_.barred_again : limits_.barred_first);
}

void LeaseTable::forgive(TimePoint now) {
  for (auto& [session, holder] : holders_)
    if (holder.conduct->barred && now >= holder.conduct->barred_until) holder.conduct->barred = false;
  std::erase_if(conducts_, [&](const auto& item) {
    return item.second.use_count() == 1 && now - item.second->last >= limits_.barred_again;
  });
}

void LeaseTable::await(SessionNumber session, TimePoint now, const Export* exported) {
  Holder& holder = holders_[session];
  holder.floor = holder.lease = ++last_lease_;
  holder.exported = exported;
  holder.awaited = true;
  holder.gone_since = now;
  holder.blanket = send(session, holder, {.items = {}, .floor = holder.floor}, {}, now).number;
}

bool LeaseTable::awaits(const Export* exported) const {
  return std::ranges::any_of(holders_, [&](const auto& item) {
    return item.second.awaited && in_the_way(item.second, exported);
  });
}

// The handles by which it trusts may be others in the new export. Its connection ends, so nobody is told.
void LeaseTable::replace(const Export* before, const Export* after, TimePoint now) {
  std::vector<Push> unsent;
  for (auto& [session, holder] : holders_) {
    if (holder.exported != before) continue;
    holder.exported = after;
    if (!holder.awaited) take_back_all(session, holder, now, unsent);
  }
}

std::vector<SessionNumber> LeaseTable::trusting(TimePoint now) const {
  std::vector<SessionNumber> sessions;
  for (const auto& [session, holder] : holders_)
    if (!holder.sent.empty() && !over(holder, now)) sessions.push_back(session);
  return sessions;
}

std::vector<SessionNumber> LeaseTable::asked() const {
  std::vector<SessionNumber> sessions;
  for (const auto& [session, holder] : holders_)
    if (!holder.gone_since && !holder.sent.empty()) sessions.push_back(session);
  return sessions;
}

void LeaseTable::note_heard(SessionNumber session, TimePoint at) {
  if (const auto found = holders_.find(session); found != holders_.end()) found->second.heard = at;
}

// A client that did not answer before is not waited for as long as it likes once more. What it was told it
// may still use until its lease of then is over.
void LeaseTable::lose(SessionNumber session, Holder& holder, TimePoint now) {
  // It may have a new connection before its old one is known to be gone.
  const TimePoint since = holder.gone_since.value_or(now);
  std::vector<Push> pushes;
  const bool nothing_told_since = holder.blanket != 0 && holder.young.empty() && holder.old.empty();
  if (!nothing_told_since) take_back_all(session, holder, since, pushes);
  if (exclusive_.holds(session)) (void)recall(session, holder, since, pushes);
  for (auto& [number, sent] : holder.sent)
    sent.trusted_until = std::min(sent.trusted_until, since + limits_.lease + limits_.slack);
  holder.cut = false;
}

std::vector<LeaseTable::Push> LeaseTable::unanswered(SessionNumber session) const {
  std::vector<Push> pushes;
  const auto found = holders_.find(session);
  if (found == holders_.end()) return pushes;
  for (const auto& [number, sent] : found->second.sent) pushes.push_back(sent.push);
  return pushes;
}

void LeaseTable::disconnect(SessionNumber session, TimePoint last_heard) {
  const auto found = holders_.find(session);
  if (found != holders_.end() && !found->second.gone_since) found->second.gone_since = last_heard;
}

std::vector<LeaseTable::ChangeId> LeaseTable::presume_dead(SessionNumber session, TimePoint now) {
  std::vector<ChangeId> released;
  const auto found = holders_.find(session);
  if (found == holders_.end()) return released;
  disconnect(session, now);
  found->second.presumed_dead = true;
  if (over(found->second, now)) clear(session, found->second, released);
  return released;
}

std::vector<LeaseTable::ChangeId> LeaseTable::end(SessionNumber session) {
  std::vector<ChangeId> released;
  const auto found = holders_.find(session);
  if (found == holders_.end()) return released;
  clear(session, found->second, released);
  exclusive_.forget(session);
  holders_.erase(found);
  return released;
}

void LeaseTable::clear(SessionNumber session, Holder& holder, std::vector<ChangeId>& released) {
  const std::uint64_t lost = exclusive_.end(session);
  for (const auto& [number, sent] : holder.sent) release(number, released);
  holder = Holder{.lease = ++last_lease_,
                  .floor = last_lease_,
                  .exclusive_lost = std::max(lost, holder.exclusive_lost),
                  .logs_running = holder.logs_running,
                  .log_at = holder.log_at,
                  .gone_since = holder.gone_since,
                  .heard = holder.heard,
                  .presumed_dead = holder.presumed_dead,
                  .cut_as_dead = holder.cut_as_dead,
                  .cut_as_silent = holder.cut_as_silent,
                  .awaited = holder.awaited,
                  .knows_exclusive = holder.knows_exclusive,
                  .exported = holder.exported,
                  .conduct = holder.conduct};
}

// ---------------------------------------------------------------- what sessions are told

LeaseTable::Grant LeaseTable::grant(SessionNumber session, std::string_view handle, Of of) {
  const auto found = holders_.find(session);
  if (!granting_ || found == holders_.end() || found->second.presumed_dead) return Grant::kNone;
  Holder& holder = found->second;
  const Key key = of == Of::kNode ? node_key(handle) : names_key(handle);
  if (being_changed_by_others(key, session) || exclusive_of_another(session, handle))
    return Grant::kBeingChanged;
  if (holder.conduct->barred) return Grant::kNone;
  if (const auto known = holder.young.find(key); known != holder.young.end()) {
    known->second = Interest::kWhole;
    return Grant::kLease;
  }
  if (!make_room(holder)) return Grant::kNone;
  holder.young.emplace(key, Interest::kWhole);
  holder.old.erase(key);
  return Grant::kLease;
}

std::uint64_t LeaseTable::lease_of(SessionNumber session) const {
  const auto found = holders_.find(session);
  return found == holders_.end() ? 0 : found->second.lease;
}

bool LeaseTable::being_changed_by_others(Key key, SessionNumber session) const {
  const auto [first, last] = changing_.equal_range(key);
  return std::any_of(first, last, [session](const auto& item) { return item.second != session; });
}

// False: full, until the client has answered that it does without the older generation.
bool LeaseTable::make_room(Holder& holder) {
  const std::size_t share = limits_.interests_total / std::max<std::size_t>(holders_.size(), 1);
  const std::size_t generation = std::max<std::size_t>(std::min(limits_.interests_per_session, share) / 2, 1);
  if (holder.young.size() < generation) return true;
  holder.full = !holder.old.empty();
  if (holder.full) return false;
  holder.old.swap(holder.young);
  holder.lease = ++last_lease_;
  return true;
}

// ---------------------------------------------------------------- what changes

std::vector<LeaseTable::Key> LeaseTable::keys_of(const NodeChange& change) {
  std::vector<Key> keys{node_key(change.handle)};
  if (about_names(change)) keys.push_back(names_key(change.handle));
  return keys;
}

LeaseTable::Interest* LeaseTable::find(Holder& holder, Key key) {
  for (Interests* const interests : {&holder.young, &holder.old})
    if (const auto found = interests->find(key); found != interests->end()) return &found->second;
  return nullptr;
}

void LeaseTable::forget(Holder& holder, Key key) {
  holder.young.erase(key);
  holder.old.erase(key);
}

std::vector<NodeChange> LeaseTable::take_back(Holder& holder, const std::vector<NodeChange>& changes,
                                              std::vector<Key>& keys) {
  std::vector<NodeChange> items;
  std::set<Key> just_disturbed;
  for (const NodeChange& change : changes) {
    const Key node = node_key(change.handle);
    Interest* const names = about_names(change) ? find(holder, names_key(change.handle)) : nullptr;
    if (names == nullptr && find(holder, node) == nullptr) continue;
    NodeChange item{.handle = change.handle, .data = change.data};
    if (names != nullptr) {
      const bool first = *names == Interest::kWhole || just_disturbed.contains(names_key(change.handle));
      if (first) just_disturbed.insert(names_key(change.handle));
      item.entries = change.entries || !first;
      if (!item.entries) item.name = change.name;
      if (item.entries)
        forget(holder, names_key(change.handle));
      else
        *names = Interest::kDisturbed;
      keys.push_back(names_key(change.handle));
    }
    forget(holder, node);
    keys.push_back(node);
    items.push_back(std::move(item));
  }
  return items;
}

LeaseTable::Push& LeaseTable::send(SessionNumber session, Holder& holder, Push push, std::vector<Key> keys,
                                   TimePoint now) {
  push.session = session;
  push.number = ++last_push_;
  for (const Key key : keys) holder.of[key] = push.number;
  return holder.sent.emplace(push.number, Sent{std::move(push), std::move(keys), now}).first->second.push;
}

void LeaseTable::take_back_all(SessionNumber session, Holder& holder, TimePoint now,
                               std::vector<Push>& pushes) {
  holder.young.clear();
  holder.old.clear();
  holder.retiring = 0;
  holder.floor = holder.lease = ++last_lease_;
  const Push& push = send(session, holder, {.items = {}, .floor = holder.floor}, {}, now);
  holder.blanket = push.number;
  pushes.push_back(push);
  if (exclusive_.holds(session)) (void)recall(session, holder, now, pushes);
}

bool LeaseTable::over(const Holder& holder, TimePoint now) const {
  if (!holder.gone_since) return false;
  if (now - *holder.gone_since >= limits_.lease + limits_.slack) return true;
  return holder.presumed_dead && holder.logs_running == 0 && now - holder.log_at >= kLogPauseMax;
}

// A client that is away stops using exclusiveness before it stops using leases, if it knows of that. What it
// has sent is done first, as far as it comes without a pause.
bool LeaseTable::exclusive_over(const Holder& holder, TimePoint now) const {
  if (over(holder, now)) return true;
  if (!holder.gone_since || !holder.knows_exclusive) return false;
  return now - *holder.gone_since >= limits_.exclusive + limits_.exclusive_slack &&
         holder.logs_running == 0 && now - holder.log_at >= kLogPauseMax;
}

void LeaseTable::lose_exclusive(SessionNumber session, Holder& holder, std::vector<ChangeId>& released) {
  holder.exclusive_lost = std::max(holder.exclusive_lost, exclusive_.number(session));
  if (holder.recall != 0)
    std::ranges::copy(answered(session, holder.recall), std::back_inserter(released));
  else
    (void)exclusive_.end(session);
}

// A client that is away keeps what nobody else wants.
bool LeaseTable::concerned(SessionNumber session, const Holder& holder, const std::vector<Key>& keys,
                           const Export* exported) const {
  if (in_the_way(holder, exported)) return true;
  return std::ranges::any_of(keys, [&](Key key) {
    return holder.young.contains(key) || holder.old.contains(key) || holder.of.contains(key) ||
           exclusive_.holder(key) == session;
  });
}

LeaseTable::Begun LeaseTable::begin_change(SessionNumber by, const std::vector<NodeChange>& changes,
                                           TimePoint now, const Export* exported, From from) {
  Begun begun;
  Change change{.by = by};
  const auto maker = holders_.find(by);
  const bool recalled = maker != holders_.end() && maker->second.recall != 0;
  const bool waits_for_exclusive = from == From::kRequest || !recalled;
  for (const NodeChange& node : changes)
    for (const Key key : keys_of(node)) {
      change.keys.push_back(key);
      changing_.emplace(key, by);
    }
  for (auto& [session, holder] : holders_) {
    if (session == by) continue;
    if (over(holder, now)) {
      if (concerned(session, holder, change.keys, exported)) clear(session, holder, begun.released);
      continue;
    }
    std::vector<Key> keys;
    if (auto items = take_back(holder, changes, keys); !items.empty())
      begun.pushes.push_back(send(session, holder, {.items = std::move(items)}, std::move(keys), now));
    for (const Key key : change.keys)
      if (const auto sent = holder.of.find(key); sent != holder.of.end())
        change.waits_for.insert(sent->second);
    if (in_the_way(holder, exported)) change.waits_for.insert(holder.blanket);
    const std::uint64_t recalling = recall_for(session, holder, change.keys, now, begun);
    if (recalling != 0 && waits_for_exclusive) change.waits_for.insert(recalling);
  }
  wait(std::move(change), begun);
  return begun;
}

void LeaseTable::wait(Change change, Begun& begun) {
  begun.id = ChangeId(++last_change_);
  begun.may_go_on = change.waits_for.empty();
  for (const std::uint64_t push : change.waits_for) waiting_[push].push_back(last_change_);
  changes_.emplace(last_change_, std::move(change));
}

void LeaseTable::end_change(ChangeId id) {
  const auto found = changes_.find(static_cast<std::uint64_t>(id));
  if (found == changes_.end()) return;
  for (const Key key : found->second.keys) {
    const auto [first, last] = changing_.equal_range(key);
    const auto own =
        std::find_if(first, last, [&](const auto& item) { return item.second == found->second.by; });
    if (own != last) changing_.erase(own);
  }
  changes_.erase(found);
}

LeaseTable::Told LeaseTable::changed(const std::vector<NodeChange>& changes, TimePoint now,
                                     std::optional<SessionNumber> but) {
  Told told;
  for (auto& [session, holder] : holders_) {
    if (session == but) continue;
    const bool ended = exclusive_.holds(session) && std::ranges::any_of(changes, [&](const auto& change) {
                         return exclusive_.holder(node_key(change.handle)) == session;
                       });
    if (ended && !over(holder, now)) (void)recall(session, holder, now, told.pushes);
    std::vector<Key> keys;
    auto items = take_back(holder, changes, keys);
    if (items.empty()) continue;
    if (over(holder, now)) {
      clear(session, holder, told.released);
    } else if (holder.sent.size() >= limits_.pushes_per_session) {
      take_back_all(session, holder, now, told.pushes);
    } else {
      told.pushes.push_back(
          send(session, holder, {.items = std::move(items), .changed = true}, std::move(keys), now));
    }
  }
  return told;
}

LeaseTable::Told LeaseTable::anything_changed(const std::function<bool(SessionNumber)>& concerned,
                                              TimePoint now) {
  Told told;
  for (auto& [session, holder] : holders_)
    if (concerned(session)) take_back_all(session, holder, now, told.pushes);
  return told;
}

// ---------------------------------------------------------------- answers

void LeaseTable::release(std::uint64_t push, std::vector<ChangeId>& released) {
  const auto found = waiting_.find(push);
  if (found == waiting_.end()) return;
  for (const std::uint64_t id : found->second) {
    const auto change = changes_.find(id);
    if (change == changes_.end()) continue;
    change->second.waits_for.erase(push);
    if (change->second.waits_for.empty()) released.push_back(ChangeId(id));
  }
  waiting_.erase(found);
}

std::vector<LeaseTable::ChangeId> LeaseTable::answered(SessionNumber session, std::uint64_t push) {
  std::vector<ChangeId> released;
  const auto found = holders_.find(session);
  if (found == holders_.end()) return released;
  Holder& holder = found->second;
  const auto sent = holder.sent.find(push);
  if (sent == holder.sent.end()) return released;
  for (const Key key : sent->second.keys)
    if (const auto newest = holder.of.find(key); newest != holder.of.end() && newest->second == push)
      holder.of.erase(newest);
  if (holder.blanket == push) holder.blanket = 0;
  if (holder.recall == push) {
    holder.recall = 0;
    (void)exclusive_.end(session);
  }
  if (holder.retiring == push) {
    holder.retiring = 0;
    holder.old.clear();
  }
  holder.sent.erase(sent);
  release(push, released);
  return released;
}

LeaseTable::Overdue LeaseTable::expire(TimePoint now) {
  Overdue overdue;
  forgive(now);
  for (auto& [session, holder] : holders_) expire(session, holder, now, overdue);
  std::erase_if(holders_, [](const auto& item) { return item.second.awaited && item.second.sent.empty(); });
  return overdue;
}

void LeaseTable::expire(SessionNumber session, Holder& holder, TimePoint now, Overdue& overdue) {
  if (holder.presumed_dead && !holder.cut_as_dead && over(holder, now)) {
    holder.cut_as_dead = true;
    overdue.dead.push_back(session);
  }
  if (holder.full && holder.retiring == 0) {
    holder.full = false;
    holder.floor = holder.lease;
    const Push& push = send(session, holder, {.items = {}, .floor = holder.floor}, {}, now);
    holder.retiring = push.number;
    overdue.pushes.push_back(push);
    // Its client uses none of it any more: what it knew of the names may have been told under those leases.
    if (exclusive_.holds(session)) (void)recall(session, holder, now, overdue.pushes);
  }
  if (holder.sent.empty()) return;
  if (over(holder, now)) {
    note_silence(holder, now);
    return clear(session, holder, overdue.released);
  }
  if (holder.recall != 0 && exclusive_over(holder, now)) {
    note_silence(holder, now);
    lose_exclusive(session, holder, overdue.released);
  }
  std::vector<std::uint64_t> ended;
  for (const auto& [number, sent] : holder.sent)
    if (sent.trusted_until <= now) ended.push_back(number);
  for (const std::uint64_t number : ended)
    std::ranges::copy(answered(session, number), std::back_inserter(overdue.released));
  if (holder.sent.empty() || holder.gone_since || holder.cut) return;
  if (silent(holder, now)) {
    if (!std::exchange(holder.cut_as_silent, true)) overdue.silent.push_back(session);
    return;
  }
  if (std::ranges::none_of(holder.sent, [&](const auto& item) { return late(holder, item.second, now); }))
    return;
  cut(holder, now);
  overdue.to_cut.push_back(session);
}

std::size_t LeaseTable::interests(SessionNumber session) const {
  const auto found = holders_.find(session);
  return found == holders_.end() ? 0 : found->second.young.size() + found->second.old.size();
}

bool LeaseTable::holds_any(SessionNumber session) const {
  const auto found = holders_.find(session);
  if (found == holders_.end()) return false;
  const Holder& holder = found->second;
  return !holder.young.empty() || !holder.old.empty() || !holder.sent.empty() || exclusive_.holds(session);
}

std::size_t LeaseTable::interests() const {
  std::size_t sum = 0;
  for (const auto& [session, holder] : holders_) sum += holder.young.size() + holder.old.size();
  return sum;
}

}  // namespace tusk::server

// LeaseTable's exclusiveness: who may have it, when it is taken back.
#include <algorithm>

#include "fsserver/lease_table.h"

namespace tusk::server {

bool LeaseTable::exclusive_of_another(SessionNumber session, std::string_view directory) const {
  if (exclusive_.holders() == 0) return false;
  const auto holder = exclusive_.holder(node_key(directory));
  return holder && *holder != session;
}

std::size_t LeaseTable::exclusive_others(SessionNumber session, const Export* exported) const {
  return static_cast<std::size_t>(std::ranges::count_if(holders_, [&](const auto& item) {
    return item.first != session && item.second.exported == exported && exclusive_.holds(item.first);
  }));
}

bool LeaseTable::free_for(SessionNumber session, std::string_view directory, TimePoint now) const {
  const auto owner = exclusive_.holder(node_key(directory));
  if (owner) return *owner == session;
  if (exclusive_.contested(node_key(directory), now)) return false;
  const std::vector<Key> keys = keys_of({.handle = std::string(directory), .entries = true});
  if (std::ranges::any_of(keys, [&](Key key) { return being_changed_by_others(key, session); })) return false;
  const Export* const exported = holders_.at(session).exported;
  return std::ranges::none_of(holders_, [&](const auto& item) {
    const Holder& other = item.second;
    if (item.first == session || over(other, now)) return false;
    if (in_the_way(other, exported)) return true;
    return std::ranges::any_of(keys, [&](Key key) {
      return other.young.contains(key) || other.old.contains(key) || other.of.contains(key);
    });
  });
}

// Should they come back they must not trust what the new holder changes before it has told anybody.
void LeaseTable::end_leases_of_absent(SessionNumber but, std::string_view directory, TimePoint now) {
  const std::vector<Key> keys = keys_of({.handle = std::string(directory), .entries = true});
  for (auto& [session, holder] : holders_) {
    if (session == but || !over(holder, now)) continue;
    if (std::ranges::none_of(keys, [&](Key key) { return find(holder, key) != nullptr; })) continue;
    holder.young.clear();
    holder.old.clear();
    holder.floor = holder.lease = ++last_lease_;
  }
}

std::uint64_t LeaseTable::exclusive_number(SessionNumber session,
                                           std::span<const std::string_view> directories) const {
  if (!exclusive_.holds(session) || exclusive_.recalling(session)) return 0;
  const bool all = std::ranges::all_of(directories, [&](std::string_view directory) {
    return exclusive_.holder(node_key(directory)) == session;
  });
  return all ? exclusive_.number(session) : 0;
}

std::uint64_t LeaseTable::grant_exclusive(SessionNumber session,
                                          std::span<const std::string_view> directories, TimePoint now) {
  const auto found = holders_.find(session);
  if (found == holders_.end()) return 0;
  const Holder& holder = found->second;
  if (!granting_ || holder.conduct->barred || holder.cut || holder.gone_since || holder.blanket != 0)
    return 0;
  if (exclusive_.recalling(session)) return 0;
  const auto is_free = [&](std::string_view directory) { return free_for(session, directory, now); };
  if (!std::ranges::all_of(directories, is_free)) return 0;
  for (const std::string_view directory : directories) end_leases_of_absent(session, directory, now);
  for (const std::string_view directory : directories)
    if (!exclusive_.grant(session, node_key(directory))) return 0;
  return exclusive_.number(session);
}

std::uint64_t LeaseTable::recall(SessionNumber session, Holder& holder, TimePoint now,
                                 std::vector<Push>& pushes) {
  if (exclusive_.recalling(session)) return holder.recall;
  const Push& push =
      send(session, holder, {.items = {}, .exclusive_over = exclusive_.begin_recall(session)}, {}, now);
  holder.recall = push.number;
  pushes.push_back(push);
  return holder.recall;
}

std::uint64_t LeaseTable::recall_for(SessionNumber session, Holder& holder, const std::vector<Key>& keys,
                                     TimePoint now, Begun& begun) {
  if (!exclusive_.holds(session)) return 0;
  bool wanted = false;
  for (const Key key : keys) {
    if (exclusive_.holder(key) != session) continue;
    exclusive_.contest(key, now);
    wanted = true;
  }
  if (!wanted) return 0;
  if (!exclusive_over(holder, now)) return recall(session, holder, now, begun.pushes);
  lose_exclusive(session, holder, begun.released);
  return 0;
}

LeaseTable::Begun LeaseTable::begin_look(SessionNumber by, std::span<const std::string_view> directories,
                                         TimePoint now) {
  Begun begun;
  Change look{.by = by};
  std::vector<Key> keys;
  for (const std::string_view directory : directories)
    if (exclusive_of_another(by, directory)) keys.push_back(node_key(directory));
  if (keys.empty()) return begun;
  for (auto& [session, holder] : holders_) {
    if (session == by || !exclusive_.holds(session)) continue;
    if (const std::uint64_t push = recall_for(session, holder, keys, now, begun); push != 0)
      look.waits_for.insert(push);
  }
  wait(std::move(look), begun);
  return begun;
}

std::vector<LeaseTable::Push> LeaseTable::end_exclusive(SessionNumber session, TimePoint now) {
  std::vector<Push> pushes;
  const auto found = holders_.find(session);
  if (found != holders_.end() && exclusive_.holds(session)) (void)recall(session, found->second, now, pushes);
  return pushes;
}

void LeaseTable::note_log(SessionNumber session, Log what, TimePoint now) {
  const auto found = holders_.find(session);
  if (found == holders_.end()) return;
  Holder& holder = found->second;
  holder.log_at = now;
  if (what == Log::kBegun) ++holder.logs_running;
  if (what == Log::kDone && holder.logs_running > 0) --holder.logs_running;
}

void LeaseTable::note_there(SessionNumber session, std::uint64_t push) {
  const auto found = holders_.find(session);
  if (found == holders_.end()) return;
  if (const auto sent = found->second.sent.find(push); sent != found->second.sent.end())
    sent->second.there = true;
}

// A client that is there is heard within a round trip: its transport acknowledges the push by itself.
bool LeaseTable::silent(const Holder& holder, TimePoint now) const {
  if (holder.heard == kNever) return false;
  return std::ranges::any_of(holder.sent, [&](const auto& item) {
    const Sent& sent = item.second;
    const Duration patience = sent.push.exclusive_over != 0 ? limits_.silence : limits_.patience;
    return now - std::max(holder.heard, sent.at) >= patience;
  });
}

// Who has much to send first is given time as long as it is at it. What holds up a LOG may be somebody else.
// Who is not there at all is not at it; a LOG that has come may have been sent before its client died.
bool LeaseTable::late(const Holder& holder, const Sent& sent, TimePoint now) const {
  const bool at_it = sent.push.exclusive_over != 0 && sent.there;
  if (!at_it) return now - sent.at >= limits_.patience;
  if (now - sent.at >= limits_.recall_patience) return true;
  return holder.logs_running == 0 && now - std::max(sent.at, holder.log_at) >= limits_.log_patience;
}

}  // namespace tusk::server

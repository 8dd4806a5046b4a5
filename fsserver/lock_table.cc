#include "fsserver/lock_table.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <utility>

namespace tusk::server {
namespace {

// Of a file on which somebody has locks: the node, and what it is opened as for each kind (host_lock.h).
constexpr std::size_t kDescriptorsOfLocked = 3;

bool overlap(const LockWanted& a, const LockWanted& b) { return a.start <= b.end && b.start <= a.end; }

bool same_holder(const LockWanted& a, const LockWanted& b) { return a.kind == b.kind && a.owner == b.owner; }

void answer_all(auto& answers) {
  for (auto& done : answers) done.answer(std::move(done.result));
}

}  // namespace

const LockTable::Held* LockTable::conflict(const File& file, const LockWanted& wanted) {
  const Held* first = nullptr;  // fcntl(2): F_GETLK tells of the first that is in the way
  for (const Held& held : file.held) {
    if (held.kind != wanted.kind || held.owner == wanted.owner || !overlap(held, wanted)) continue;
    if (held.type != LockType::kWrite && wanted.type != LockType::kWrite) continue;
    if (first == nullptr || held.start < first->start) first = &held;
  }
  return first;
}

// By how many ranges a file may come to hold more: the lock itself, and the rest of one that it splits.
std::size_t LockTable::growth(const File& file, const LockWanted& wanted) {
  const bool splits = std::ranges::any_of(file.held, [&](const Held& held) {
    return same_holder(held, wanted) && held.type != wanted.type && held.start < wanted.start &&
           held.end > wanted.end;
  });
  return (wanted.type != LockType::kUnlock ? 1 : 0) + (splits ? 1 : 0);
}

std::size_t LockTable::held_by(std::uint64_t session) const {
  const auto found = held_of_.find(session);
  return found == held_of_.end() ? 0 : found->second;
}

bool LockTable::holds_any(std::uint64_t session) const {
  const std::lock_guard lock(mutex_);
  return held_by(session) > 0 || waiting_of_.contains(session);
}

void LockTable::count(std::uint64_t session, std::size_t before, std::size_t after) {
  const std::size_t held = held_by(session) + after - before;
  if (held == 0)
    held_of_.erase(session);
  else
    held_of_[session] = held;
}

bool LockTable::may_wait(std::uint64_t session) const {
  const auto found = waiting_of_.find(session);
  return waits_.size() + put_aside_.size() < kLockWaitsMax &&
         (found == waiting_of_.end() || found->second < kLockWaitsPerSessionMax);
}

void LockTable::end_wait(std::uint64_t session) {
  const auto found = waiting_of_.find(session);
  if (--found->second == 0) waiting_of_.erase(found);
}

// The owner's locks in the range give way to the new one: cut, split, and joined where they touch.
void LockTable::replace_range(File& file, const LockWanted& wanted) {
  const std::size_t before = file.held.size();
  std::vector<Held> pieces;
  LockWanted merged = wanted;
  std::erase_if(file.held, [&](const Held& held) {
    if (!same_holder(held, wanted)) return false;
    const bool touches = held.start <= wanted.end + 1 && wanted.start <= held.end + 1;
    if (!touches) return false;
    if (held.type == wanted.type) {
      merged.start = std::min(merged.start, held.start);
      merged.end = std::max(merged.end, held.end);
      return true;
    }
    if (!overlap(held, wanted)) return false;
    if (held.start < wanted.start) {
      pieces.push_back(held);
      pieces.back().end = wanted.start - 1;
    }
    if (held.end > wanted.end) {
      pieces.push_back(held);
      pieces.back().start = wanted.end + 1;
    }
    return true;
  });
  file.held.insert(file.held.end(), pieces.begin(), pieces.end());
  if (wanted.type != LockType::kUnlock) file.held.push_back(merged);
  count(wanted.owner.session, before, file.held.size());
}

// The range is locked on the server as strongly as what the clients still hold in it.
bool LockTable::give_back_to_host(File& file, LockKind kind, std::uint64_t start, std::uint64_t end,
                                  std::set<std::uint64_t>* robbed) {
  using enum HostLock::Outcome;
  struct Holders {
    int reading = 0;
    int writing = 0;
  };
  std::map<std::uint64_t, Holders> changes{{start, {}}};  // by how many there are more from there on
  for (const Held& held : file.held) {
    if (held.kind != kind || held.end < start || held.start > end) continue;
    int Holders::*const holders = held.type == LockType::kWrite ? &Holders::writing : &Holders::reading;
    ++(changes[std::max(held.start, start)].*holders);
    if (held.end < end) --(changes[held.end + 1].*holders);
  }
  Holders now;
  for (auto change = changes.begin(); change != changes.end(); ++change) {
    now.reading += change->second.reading;
    now.writing += change->second.writing;
    const std::uint64_t last = std::next(change) == changes.end() ? end : std::next(change)->first - 1;
    const LockType strongest = now.writing > 0   ? LockType::kWrite
                               : now.reading > 0 ? LockType::kRead
                                                 : LockType::kUnlock;
    // Weakening or repeating what is held cannot be refused.
    const auto outcome = file.host.apply(*file.node, kind, strongest, change->first, last);
    if (outcome == kLeased) return false;  // each of the others would find that out by another open(2)
    if (outcome != kInTheWay || robbed == nullptr) continue;
    for (const Held& held : file.held)
      if (held.kind == kind && held.start <= last && held.end >= change->first)
        robbed->insert(held.owner.session);
  }
  return true;
}

void LockTable::settle_with_host(File& file, Answers& answers) {
  const auto of = [](LockKind kind) { return [kind](const Held& held) { return held.kind == kind; }; };
  const bool writes = std::ranges::any_of(file.held, [](const Held& held) {
    return held.kind == LockKind::kPosix && held.type == LockType::kWrite;
  });
  const auto again = [&] { (void)give_back_to_host(file, LockKind::kPosix, 0, kLockEnd); };
  if (writes && !file.host.open_for_writing(*file.node, again)) return;
  std::set<std::uint64_t> robbed;
  for (const LockKind kind : {LockKind::kPosix, LockKind::kFlock})
    if (std::ranges::any_of(file.held, of(kind)) && !give_back_to_host(file, kind, 0, kLockEnd, &robbed))
      return;
  file.owes_host = false;
  if (robbed.empty()) return;
  take_all_of(file, robbed);
  robbed_.merge(robbed);
  serve_waiting(file, answers);
}

bool LockTable::would_deadlock(const File& file, const LockWanted& wanted) const {
  std::size_t looked_at = 0;
  std::set<LockOwner> seen;
  std::vector<LockOwner> next;
  const auto follow = [&](const File& in, const LockWanted& blocked) {
    for (const Held& held : in.held) {
      if (++looked_at > kDeadlockSearchMax) return;
      const bool blocks = held.kind == LockKind::kPosix && held.owner != blocked.owner &&
                          overlap(held, blocked) &&
                          (held.type == LockType::kWrite || blocked.type == LockType::kWrite);
      if (blocks && seen.insert(held.owner).second) next.push_back(held.owner);
    }
  };
  follow(file, wanted);
  while (!next.empty() && looked_at <= kDeadlockSearchMax) {
    const LockOwner owner = next.back();
    next.pop_back();
    if (owner == wanted.owner) return true;
    const auto [first, last] = waits_of_.equal_range(owner);
    for (auto wait = first; wait != last; ++wait) follow(*wait->second.first, wait->second.second->wanted);
  }
  return false;
}

HostLock::Outcome LockTable::grant(File& file, const LockWanted& wanted) {
  using enum HostLock::Outcome;
  const auto again = [&] { (void)give_back_to_host(file, LockKind::kPosix, 0, kLockEnd); };
  const bool writes = wanted.kind == LockKind::kPosix && wanted.type == LockType::kWrite;
  if (writes && !file.host.open_for_writing(*file.node, again)) return kLeased;
  const auto outcome = file.host.apply(*file.node, wanted.kind, wanted.type, wanted.start, wanted.end);
  // A refused change of a flock has lost the one that was there before (flock(2)).
  if (outcome == kInTheWay && wanted.kind == LockKind::kFlock)
    (void)give_back_to_host(file, wanted.kind, wanted.start, wanted.end);
  if (outcome == kDone) replace_range(file, wanted);
  return outcome;
}

void LockTable::unlock(File& file, const LockWanted& wanted) {
  replace_range(file, wanted);
  (void)give_back_to_host(file, wanted.kind, wanted.start, wanted.end);
}

void LockTable::take_from_absent(File& file, const LockWanted& wanted) {
  const std::lock_guard lock(away_mutex_);
  if (away_.empty()) return;
  std::set<std::uint64_t> holders;
  for (const Held& held : file.held) {
    const bool in_the_way = held.kind == wanted.kind && held.owner != wanted.owner && overlap(held, wanted) &&
                            (held.type == LockType::kWrite || wanted.type == LockType::kWrite);
    if (!in_the_way) continue;
    if (!away_.contains(held.owner.session)) return;
    holders.insert(held.owner.session);
  }
  take_all_of(file, holders);
}

void LockTable::take_all_of(File& file, const std::set<std::uint64_t>& sessions) {
  std::vector<Held> taken;
  std::erase_if(file.held, [&](const Held& held) {
    if (!sessions.contains(held.owner.session)) return false;
    taken.push_back(held);
    return true;
  });
  for (const Held& held : taken) {
    count(held.owner.session, 1, 0);
    (void)give_back_to_host(file, held.kind, held.start, held.end);
  }
}

std::optional<Result<void>> LockTable::attempt(File& file, const LockWanted& wanted, How how) {
  using enum HostLock::Outcome;
  // Also of an unlock: it may split.
  const std::size_t more = growth(file, wanted);
  if (more > 0 && file.held.size() + more > kLocksPerFileMax)
    return fail(from_errno(ENOLCK), "too many locks on one file");
  if (more > 0 && held_by(wanted.owner.session) + more > kLocksPerSessionMax)
    return fail(from_errno(ENOLCK), "too many locks of one mount");
  if (wanted.type == LockType::kUnlock) {
    if (!file.held.empty()) unlock(file, wanted);
    return Result<void>{};
  }
  take_from_absent(file, wanted);
  const bool blocked = conflict(file, wanted) != nullptr;
  const HostLock::Outcome outcome = blocked ? kInTheWay : grant(file, wanted);
  if (outcome == kDone) return Result<void>{};
  if (how == How::kReclaim && outcome == kLeased) {
    replace_range(file, wanted);
    file.owes_host = true;
    return Result<void>{};
  }
  if (how == How::kReclaim || (how == How::kNow && outcome != kLeased)) return fail(from_errno(EAGAIN));
  if (blocked && wanted.kind == LockKind::kPosix && would_deadlock(file, wanted))
    return fail(from_errno(EDEADLK));
  if (!may_wait(wanted.owner.session) || file.waiting.size() >= kLockWaitsPerFileMax)
    return how == How::kNow ? fail(from_errno(EAGAIN)) : fail(from_errno(ENOLCK), "too many waiting locks");
  return std::nullopt;
}

void LockTable::add_waiter(PutAside asked, File& file) {
  waits_.emplace(asked.id, asked.key);
  begin_wait(asked.wanted.owner.session);
  file.waiting.push_back({.id = asked.id,
                          .wanted = asked.wanted,
                          .answer = std::move(asked.answer),
                          .blocked_by_host = conflict(file, asked.wanted) == nullptr,
                          .tries = asked.how == How::kNow ? std::optional(kLeaseTries) : std::nullopt});
  if (asked.wanted.kind == LockKind::kPosix)
    waits_of_.emplace(asked.wanted.owner, std::pair(&file, &file.waiting.back()));
}

void LockTable::forget_wait(const Waiter& waiter) {
  waits_.erase(waiter.id);
  end_wait(waiter.wanted.owner.session);
  const auto [first, last] = waits_of_.equal_range(waiter.wanted.owner);
  for (auto wait = first; wait != last; ++wait) {
    if (wait->second.second != &waiter) continue;
    waits_of_.erase(wait);
    return;
  }
}

bool LockTable::decide(PutAside asked, Answers& answers) {
  std::optional<Quota::Place> place;
  const FileKey key = asked.key;
  const bool pays = asked.payer && asked.wanted.type != LockType::kUnlock && !files_.contains(key);
  if (pays) place = asked.payer->take(kDescriptorsOfLocked);
  File& file = files_[key];
  if (!file.node) file.node = asked.node;
  if (place) file.place = std::move(*place);

  auto decided = pays && !place ? std::optional<Result<void>>(fail(from_errno(ENOLCK), "too many files"))
                                : attempt(file, asked.wanted, asked.how);
  const bool waits = !decided;
  if (decided) {
    const bool changed = decided->has_value();
    answers.push_back({std::move(asked.answer), std::move(*decided)});
    if (changed) serve_waiting(file, answers);  // a write lock may have become a read lock
  } else {
    add_waiter(std::move(asked), file);
  }
  drop_if_unused(key);
  return waits;
}

LockWaitId LockTable::lock(FileKey key, const SharedFd& node, const LockWanted& wanted, bool wait,
                           Answer answer, const std::shared_ptr<Quota>& payer) {
  Answers answers;
  LockWaitId id{0};
  {
    const std::lock_guard lock(mutex_);
    const How how = wait ? How::kWait : How::kNow;
    PutAside asked{++last_wait_, key, node, wanted, how, std::move(answer), payer};
    if (!in_grace_ || wanted.type == LockType::kUnlock) {
      const LockWaitId as_waiter = asked.id;
      if (decide(std::move(asked), answers)) id = as_waiter;
    } else if (!may_wait(wanted.owner.session)) {
      answers.push_back({std::move(asked.answer), fail(from_errno(ENOLCK), "too many waiting locks")});
    } else {
      id = asked.id;
      begin_wait(wanted.owner.session);
      put_aside_.push_back(std::move(asked));
    }
  }
  answer_all(answers);
  return id;
}

void LockTable::begin_grace() {
  const std::lock_guard lock(mutex_);
  in_grace_ = true;
}

void LockTable::end_grace() {
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    in_grace_ = false;
    for (PutAside& asked : std::exchange(put_aside_, {})) {
      end_wait(asked.wanted.owner.session);
      (void)decide(std::move(asked), answers);
    }
  }
  answer_all(answers);
}

Result<void> LockTable::reclaim(FileKey key, const SharedFd& node, const LockWanted& wanted,
                                const std::shared_ptr<Quota>& payer) {
  Answers answers;
  Result<void> result;
  {
    const std::lock_guard lock(mutex_);
    (void)decide({LockWaitId{0}, key, node, wanted, How::kReclaim, [](Result<void>) {}, payer}, answers);
    result = answers.front().result;
  }
  answer_all(answers);
  return result;
}

bool LockTable::holds(FileKey key, const LockWanted& wanted) const {
  const std::lock_guard lock(mutex_);
  const auto file = files_.find(key);
  if (file == files_.end()) return false;
  std::map<std::uint64_t, std::uint64_t> ranges;  // of one owner, so they do not overlap
  for (const Held& held : file->second.held)
    if (same_holder(held, wanted)) ranges.emplace(held.start, held.end);
  std::uint64_t from = wanted.start;
  for (const auto& [start, end] : ranges) {
    if (start > from) return false;
    if (end >= wanted.end) return true;
    from = std::max(from, end + 1);
  }
  return false;
}

LockWanted LockTable::test(FileKey key, const SharedFd& node, const LockWanted& wanted) {
  LockWanted free = wanted;
  free.type = LockType::kUnlock;
  const std::lock_guard lock(mutex_);
  File& file = files_[key];
  if (!file.node) file.node = node;
  const Held* const held = conflict(file, wanted);
  if (held != nullptr) free = *held;
  if (wanted.kind == LockKind::kPosix) {
    const HostLock::Holder holder = file.host.test(*file.node, wanted.type, wanted.start, wanted.end);
    if (holder.type != LockType::kUnlock && (held == nullptr || holder.start < held->start)) {
      free.type = holder.type;
      free.start = holder.start;
      free.end = holder.end;
      free.pid = holder.pid;
    }
  }
  drop_if_unused(key);
  return free;
}

LockTable::WaiterPlace LockTable::answer_waiter(File& file, WaiterPlace waiter, Result<void> result,
                                                Answers& answers) {
  answers.push_back({std::move(waiter->answer), std::move(result)});
  forget_wait(*waiter);
  return file.waiting.erase(waiter);
}

void LockTable::serve_waiting(File& file, Answers& answers) {
  using enum HostLock::Outcome;
  // Each needs another descriptor; while the file is leased, thousands of waiters need not find that out.
  std::array<bool, 3> leased{};
  const auto way = [](const LockWanted& wanted) -> std::size_t {
    if (wanted.kind == LockKind::kFlock) return 0;
    return wanted.type == LockType::kWrite ? 1 : 2;
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (auto waiter = file.waiting.begin(); waiter != file.waiting.end();) {
      const bool blocked = conflict(file, waiter->wanted) != nullptr;
      bool& is_leased = leased[way(waiter->wanted)];
      const HostLock::Outcome outcome = blocked     ? kInTheWay
                                        : is_leased ? kLeased
                                                    : grant(file, waiter->wanted);
      is_leased |= outcome == kLeased;
      if (outcome == kDone) {
        waiter = answer_waiter(file, waiter, {}, answers);
        progress = true;
      } else if (outcome == kInTheWay && waiter->tries) {
        waiter = answer_waiter(file, waiter, fail(from_errno(EAGAIN)), answers);
      } else {
        waiter->blocked_by_host = !blocked;
        ++waiter;
      }
    }
  }
}

void LockTable::give_up_on_leases(File& file, Answers& answers) {
  for (auto waiter = file.waiting.begin(); waiter != file.waiting.end();)
    waiter = waiter->tries && --*waiter->tries == 0
                 ? answer_waiter(file, waiter, fail(from_errno(EAGAIN)), answers)
                 : std::next(waiter);
}

template <class Matches>
void LockTable::withdraw_aside(Matches matches, Answers& answers) {
  std::erase_if(put_aside_, [&](PutAside& asked) {
    if (!matches(asked)) return false;
    end_wait(asked.wanted.owner.session);
    answers.push_back({std::move(asked.answer), fail(from_errno(EINTR))});
    return true;
  });
}

void LockTable::cancel(LockWaitId id) {
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    withdraw_aside([id](const PutAside& asked) { return asked.id == id; }, answers);
    if (const auto wait = waits_.find(id); wait != waits_.end()) {
      const FileKey key = wait->second;
      File& file = files_.at(key);
      const auto waiter = std::ranges::find(file.waiting, id, &Waiter::id);
      (void)answer_waiter(file, waiter, fail(from_errno(EINTR)), answers);
      drop_if_unused(key);
    }
  }
  answer_all(answers);
}

template <class Matches>
void LockTable::release_matching(FileKey key, Matches matches, Answers& answers) {
  const auto found = files_.find(key);
  if (found == files_.end()) return;
  File& file = found->second;
  for (auto waiter = file.waiting.begin(); waiter != file.waiting.end();) {
    if (!matches(waiter->wanted)) {
      ++waiter;
      continue;
    }
    waiter = answer_waiter(file, waiter, fail(from_errno(EINTR), "the file was closed"), answers);
  }
  std::vector<Held> released;
  std::erase_if(file.held, [&](const Held& held) {
    const bool match = matches(held);
    if (match) {
      released.push_back(held);
      count(held.owner.session, 1, 0);
    }
    return match;
  });
  for (const Held& held : released) (void)give_back_to_host(file, held.kind, held.start, held.end);
  if (!released.empty()) serve_waiting(file, answers);
  drop_if_unused(key);
}

void LockTable::release_open(FileKey file, std::uint64_t session, std::uint64_t open_id) {
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    release_matching(
        file,
        [&](const LockWanted& held) {
          return held.kind == LockKind::kFlock && held.owner.session == session && held.open_id == open_id;
        },
        answers);
  }
  answer_all(answers);
}

void LockTable::release_file(FileKey file, std::uint64_t session) {
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    release_matching(
        file, [&](const LockWanted& held) { return held.owner.session == session; }, answers);
  }
  answer_all(answers);
}

void LockTable::release_session(std::uint64_t session) {
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    withdraw_aside([&](const PutAside& asked) { return asked.wanted.owner.session == session; }, answers);
    std::vector<FileKey> keys;
    for (const auto& [key, file] : files_) keys.push_back(key);
    for (const FileKey& key : keys)
      release_matching(
          key, [&](const LockWanted& held) { return held.owner.session == session; }, answers);
  }
  answer_all(answers);
}

bool LockTable::mark_away(std::uint64_t session, bool away) {
  const std::lock_guard lock(away_mutex_);
  return away ? away_.insert(session).second : away_.erase(session) > 0;
}

void LockTable::serve_instead_of_absent() {
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [key, file] : files_) {
      if (file.waiting.empty()) continue;
      for (const Waiter& waiter : file.waiting) take_from_absent(file, waiter.wanted);
      serve_waiting(file, answers);
    }
  }
  answer_all(answers);
}

bool LockTable::retry() {
  Answers answers;
  bool still_waiting = false;
  {
    const std::lock_guard lock(mutex_);
    std::vector<FileKey> unused;
    for (auto& [key, file] : files_) {
      const auto host_blocked = [](const Waiter& waiter) { return waiter.blocked_by_host; };
      if (file.owes_host) settle_with_host(file, answers);
      still_waiting |= file.owes_host;
      if (std::ranges::any_of(file.waiting, host_blocked)) {
        serve_waiting(file, answers);
        give_up_on_leases(file, answers);
        still_waiting |= std::ranges::any_of(file.waiting, host_blocked);
      }
      if (file.held.empty() && file.waiting.empty()) unused.push_back(key);
    }
    for (const FileKey& key : unused) drop_if_unused(key);
  }
  answer_all(answers);
  return still_waiting;
}

std::set<std::uint64_t> LockTable::take_robbed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(robbed_, {});
}

void LockTable::drop_if_unused(FileKey key) {
  const auto found = files_.find(key);
  if (found != files_.end() && found->second.held.empty() && found->second.waiting.empty())
    files_.erase(found);
}

std::size_t LockTable::held() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [key, file] : files_) count += file.held.size();
  return count;
}

std::size_t LockTable::waiting() const {
  const std::lock_guard lock(mutex_);
  return waits_.size();
}

}  // namespace tusk::server

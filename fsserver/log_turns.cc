#include "fsserver/log_turns.h"

#include <algorithm>
#include <utility>

namespace tusk::server {
namespace {

bool is_gone(const LogTicket& ticket) { return ticket.waiting && ticket.waiting->gone(); }

}  // namespace

void LogTurns::skip_to(std::uint64_t answered) {
  const std::lock_guard lock(mutex_);
  if (answered != UINT64_MAX) answered_ = std::max(answered_, answered);
  if (!taken_) skip();
}

void LogTurns::skip_beyond(std::uint64_t answered, std::string_view bits) {
  const std::lock_guard lock(mutex_);
  beyond_.clear();  // an attach tells of all
  const std::size_t count = std::min(bits.size() * 8, kEarlyLogsMax);
  if (answered >= UINT64_MAX - count) return;
  for (std::size_t i = 0; i < count; ++i)
    if ((static_cast<unsigned char>(bits[i / 8]) >> (i % 8) & 1) != 0) beyond_.insert(answered + 1 + i);
  if (!taken_) skip();
}

// Not while one has its turn: it has yet to begin, perhaps.
void LogTurns::skip() {
  next_ = std::max(next_, answered_ + 1);
  while (beyond_.contains(next_)) ++next_;
  beyond_.erase(beyond_.begin(), beyond_.lower_bound(next_));
}

void LogTurns::note_sent_before(std::uint64_t sent) {
  const std::lock_guard lock(mutex_);
  sent_before_ = sent;
}

bool LogTurns::may_be_done(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return number <= sent_before_;
}

bool LogTurns::waiting() const {
  const std::lock_guard lock(mutex_);
  return taken_ || !early_.empty();
}

LogTurns::Verdict LogTurns::arrive(LogTicket& ticket, const std::shared_ptr<Quota>& early, ByteCount bytes) {
  const std::lock_guard lock(mutex_);
  if (ticket.number < next_) return Verdict::kRepeat;
  // What the client has taken back of this number makes room for its repeat.
  const auto [first, last] = early_.equal_range(ticket.number);
  for (auto each = first; each != last;) each = is_gone(each->second) ? early_.erase(each) : std::next(each);
  // The next one is always let in: all others wait for it.
  const std::size_t same = early_.count(ticket.number);
  const bool full = early_.size() >= kEarlyLogsMax && ticket.number != next_ && same == 0;
  if (full || same >= kSameLogMax) return Verdict::kFull;
  if (ticket.number != next_) {
    auto place = early->take(bytes);
    if (!place) return Verdict::kNoMemory;
    ticket.early = std::move(*place);
  }
  const std::uint64_t number = ticket.number;
  early_.emplace(number, std::move(ticket));
  return Verdict::kWaits;
}

bool LogTurns::begin(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (number != next_) return false;
  ++next_;
  return true;
}

std::optional<LogTicket> LogTurns::take() {
  const std::lock_guard lock(mutex_);
  return taken_ ? std::nullopt : take_next();
}

std::optional<LogTicket> LogTurns::pass() {
  const std::lock_guard lock(mutex_);
  return take_next();
}

std::optional<LogTicket> LogTurns::take_next() {
  skip();
  const auto first = early_.begin();
  taken_ = first != early_.end() && first->first <= next_;
  if (!taken_) return std::nullopt;
  std::optional<LogTicket> ticket = std::move(first->second);
  ticket->early = {};
  early_.erase(first);
  return ticket;
}

}  // namespace tusk::server

#include "proto/transport/exchanges.h"

#include <algorithm>
#include <iterator>

#include "proto/base/check.h"
#include "proto/base/erasure.h"

namespace tusk::transport {
namespace {

// Data pieces smaller than this are not worth a place at a packet's end: the next packet takes them.
constexpr std::size_t kPieceMin = 64;

// Bytes that were given back are told when they are so large a part of what is granted: were it half of that,
// a peer on a long path could use half of what it has.
constexpr ByteCount kCreditParts = 8;

// But for offset and data.
wire::MessageHeaderFrame header_frame(wire::ExchangeId exchange, const OutgoingMessage& message) {
  wire::MessageHeaderFrame frame;
  frame.exchange = exchange;
  frame.priority = message.priority();
  frame.header_size = message.header_size();
  frame.body_size = message.body_size();
  frame.reply_capacity = message.reply_capacity();
  return frame;
}

}  // namespace

Exchanges::Exchanges(Role role, CreditLimits limits, Allocate allocate)
    : parity_(static_cast<std::uint64_t>(role)), limits_(limits), allocate_(std::move(allocate)) {
  granted_ = {limits.request_bytes, limits.exchanges};
  granting_ = granted_;
}

// ---------------------------------------------------------------- opening, cancelling, answering

wire::ExchangeId Exchanges::open(SharedBytes header, SharedBytes body, MutableSharedBytes reply_place,
                                 wire::Priority priority) {
  TUSK_CHECK(!header.empty() && header.size() <= wire::kMessageHeaderMax);
  TUSK_CHECK(body.size() <= wire::kMessageBodyMax && reply_place.size() <= wire::kMessageBodyMax);
  const wire::ExchangeId exchange(next_index_++ << 1 | parity_);
  waiting_.push_back({exchange, std::move(header), std::move(body), std::move(reply_place), priority});
  start_waiting();
  return exchange;
}

bool Exchanges::credit_allows(const Waiting& waiting) const {
  return used_exchanges_ < granted_.exchanges &&
         used_bytes_ + waiting.header.size() + waiting.body.size() <= granted_.request_bytes;
}

void Exchanges::start_waiting() {
  while (!waiting_.empty() && credit_allows(waiting_.front())) {
    start(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void Exchanges::start(Waiting&& waiting) {
  ++used_exchanges_;
  if (waiting.cancelled) {
    cancels_.push_back({waiting.exchange, 0});
    return;
  }
  used_bytes_ += waiting.header.size() + waiting.body.size();
  unsent_bytes_ += waiting.header.size() + waiting.body.size();
  const ByteCount capacity = waiting.reply_place.size();
  const auto priority = waiting.priority;
  initiated_.emplace(waiting.exchange, Initiated{OutgoingMessage(std::move(waiting.header),
                                                                 std::move(waiting.body), priority, capacity),
                                                 IncomingMessage(std::move(waiting.reply_place))});
  fresh(priority).requests.push_back({waiting.exchange, next_turn_++});
}

void Exchanges::cancel(wire::ExchangeId exchange) {
  const auto waiting = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const Waiting& w) { return w.exchange == exchange; });
  if (waiting != waiting_.end()) {
    *waiting = Waiting{exchange, {}, {}, {}, waiting->priority, true};
    start_waiting();
    return;
  }
  const auto found = initiated_.find(exchange);
  if (found == initiated_.end()) return;
  cancels_.push_back({exchange, found->second.request.size()});
  unsent_bytes_ -= found->second.request.unsent();
  initiated_.erase(found);
}

std::optional<wire::CancelFrame> Exchanges::poll_cancel() {
  if (cancels_.empty()) return std::nullopt;
  const wire::CancelFrame frame = cancels_.front();
  cancels_.pop_front();
  return frame;
}

void Exchanges::reply(wire::ExchangeId exchange, SharedBytes header, SharedBytes body) {
  const auto found = accepted_.find(exchange);
  if (found == accepted_.end()) return;
  Accepted& accepted = found->second;
  TUSK_CHECK(accepted.delivered && !accepted.reply);
  TUSK_CHECK(!header.empty() && header.size() <= wire::kMessageHeaderMax);
  TUSK_CHECK(body.size() <= accepted.request.reply_capacity());
  answered_bytes_ += accepted.request.size();
  ++answered_;
  answer_header_bytes_ += header.size();
  const auto priority = accepted.request.priority();
  accepted.request = IncomingMessage(std::nullopt);  // frees the request's memory
  unsent_bytes_ += header.size() + body.size();
  accepted.reply.emplace(std::move(header), std::move(body), priority, 0);
  fresh(priority).answers.emplace(exchange, next_turn_++);
}

// ---------------------------------------------------------------- incoming frames

Result<Exchanges::Accepted*> Exchanges::accept(wire::ExchangeId exchange) {
  if (finished_.contains(index(exchange))) return nullptr;
  if (index(exchange) >= granting_.exchanges)
    return fail(ErrorCode::kMalformed, "more exchanges than granted");
  return &accepted_.try_emplace(exchange, &allocate_).first->second;
}

Result<void> Exchanges::account(Accepted& accepted) {
  // Body bytes that come before the header names the sizes count as well: they take memory.
  const IncomingMessage& request = accepted.request;
  const ByteCount size = request.knows_sizes() ? request.size() : request.body_received_end();
  opened_bytes_ += size - accepted.accounted;
  accepted.accounted = size;
  if (opened_bytes_ > granting_.request_bytes)
    return fail(ErrorCode::kMalformed, "more request bytes than granted");
  return {};
}

Result<void> Exchanges::handle_header(const wire::MessageHeaderFrame& frame) {
  return handle_part(frame.exchange, [&](IncomingMessage& message) { return message.handle_header(frame); });
}

Result<void> Exchanges::handle_body(const wire::BodyFrame& frame) {
  return handle_part(frame.exchange, [&](IncomingMessage& message) { return message.handle_body(frame); });
}

Result<void> Exchanges::handle_parity(const wire::ParityFrame& frame) {
  return handle_part(frame.exchange,
                     [&](IncomingMessage& message) { return message.handle_parity(frame, parity_budget_); });
}

template <class Take>
Result<void> Exchanges::handle_part(wire::ExchangeId exchange, const Take& take) {
  const auto taken = [&](IncomingMessage& message) {
    const ByteCount before = message.body_arrived();
    Result<void> result = take(message);
    body_bytes_received_ += message.body_arrived() - before;
    return result;
  };
  if (mine(exchange)) {
    const auto found = initiated_.find(exchange);
    if (found == initiated_.end()) {
      if (index(exchange) >= next_index_) return fail(ErrorCode::kMalformed, "a reply to nothing");
      return {};
    }
    IncomingMessage& reply = found->second.reply;
    TUSK_TRY(taken(reply));
    if (reply.complete()) {
      events_.push_back(ReplyArrived{exchange, reply.header(), reply.body_size()});
      unsent_bytes_ -= found->second.request.unsent();
      initiated_.erase(found);
    }
    return {};
  }
  TUSK_ASSIGN(Accepted * accepted, accept(exchange));
  if (!accepted || accepted->delivered) return {};
  IncomingMessage& request = accepted->request;
  TUSK_TRY(taken(request));
  TUSK_TRY(account(*accepted));
  if (request.complete()) {
    accepted->delivered = true;
    events_.push_back(RequestArrived{exchange, request.header(), request.body(), request.reply_capacity(),
                                     request.priority()});
  }
  return {};
}

Result<void> Exchanges::handle_cancel(const wire::CancelFrame& frame) {
  if (mine(frame.exchange)) return fail(ErrorCode::kMalformed, "a cancel of the receiver's own exchange");
  TUSK_ASSIGN(Accepted * accepted, accept(frame.exchange));
  if (!accepted) return {};
  if (!accepted->request.knows_sizes() && !accepted->reply) {
    if (frame.request_bytes < accepted->accounted)
      return fail(ErrorCode::kMalformed, "a cancel of less than was sent");
    opened_bytes_ += frame.request_bytes - accepted->accounted;
  }
  if (opened_bytes_ > granting_.request_bytes)
    return fail(ErrorCode::kMalformed, "more request bytes than granted");
  if (accepted->reply) {
    unsent_bytes_ -= accepted->reply->unsent();
  } else {
    answered_bytes_ += accepted->request.knows_sizes() ? accepted->request.size() : frame.request_bytes;
    if (accepted->delivered) events_.push_back(RequestCancelled{frame.exchange});
  }
  finish_accepted(frame.exchange);
  return {};
}

void Exchanges::handle_credit(const wire::CreditFrame& frame) {
  // Frames may arrive out of order; credit only grows.
  granted_.request_bytes = std::max(granted_.request_bytes, frame.request_bytes);
  granted_.exchanges = std::max(granted_.exchanges, frame.exchanges);
  start_waiting();
}

void Exchanges::finish_accepted(wire::ExchangeId exchange) {
  const auto found = accepted_.find(exchange);
  if (found->second.reply) {
    --answered_;
    answer_header_bytes_ -= found->second.reply->header_size();
    // A peer that lets nothing go out could ask and cancel for ever.
    fresh(found->second.reply->priority()).answers.erase(exchange);
  }
  accepted_.erase(found);
  ++ended_exchanges_;
  finished_.add(index(exchange), index(exchange) + 1);
}

// ---------------------------------------------------------------- outgoing pieces

OutgoingMessage* Exchanges::find_outgoing(wire::ExchangeId exchange, bool** queued_for_repair) {
  if (mine(exchange)) {
    const auto found = initiated_.find(exchange);
    if (found == initiated_.end()) return nullptr;
    if (queued_for_repair) *queued_for_repair = &found->second.queued_for_repair;
    return &found->second.request;
  }
  const auto found = accepted_.find(exchange);
  if (found == accepted_.end() || !found->second.reply) return nullptr;
  if (queued_for_repair) *queued_for_repair = &found->second.queued_for_repair;
  return &*found->second.reply;
}

bool Exchanges::has_outgoing() const {
  return !cancels_.empty() || !repair_.empty() ||
         std::any_of(fresh_.begin(), fresh_.end(), [](const auto& q) { return !q.empty(); });
}

std::optional<Exchanges::Outgoing> Exchanges::cut(wire::ExchangeId exchange, OutgoingMessage& message,
                                                  const OutgoingMessage::Position& position, bool lost,
                                                  std::size_t room) {
  Outgoing out;
  out.exchange = exchange;
  if (position.part == Part::kHeader) {
    out.header = header_frame(exchange, message);
    out.header.offset = position.offset;
    const std::size_t overhead = wire::message_header_frame_overhead(out.header);
    if (room < overhead + std::min<std::size_t>(position.available, kPieceMin)) return std::nullopt;
    out.piece = message.take(position, lost, room - overhead);
    out.header.data = out.piece.data;
  } else {
    const std::size_t open_ended = wire::body_frame_overhead(exchange, position.offset, true);
    const std::size_t sized = wire::body_frame_overhead(exchange, position.offset, false);
    if (room < sized + std::min<std::size_t>(position.available, kPieceMin)) return std::nullopt;
    // Without a length when it fills the packet; else with one, so that more may follow.
    out.body_fills_packet = position.available >= room - sized;
    out.piece = message.take(position, lost, room - (out.body_fills_packet ? open_ended : sized));
  }
  if (!lost) {
    unsent_bytes_ -= out.piece.data.size();
    if (!message.has_unsent()) note_unprotected(exchange, message);
  }
  out.repair = lost;
  if (!lost && message.priority() == wire::Priority::kInteractive) out.urgent_size = message.size();
  return out;
}

std::optional<Exchanges::Outgoing> Exchanges::next_outgoing(std::size_t room) {
  while (!repair_.empty()) {
    const wire::ExchangeId exchange = repair_.front();
    bool* queued = nullptr;
    OutgoingMessage* message = find_outgoing(exchange, &queued);
    const auto position = message ? message->next_lost() : std::nullopt;
    if (position) return cut(exchange, *message, *position, true, room);
    if (queued) *queued = false;
    repair_.pop_front();
  }
  for (Fresh& fresh : fresh_) {
    while (!fresh.empty()) {
      const bool request = fresh.request_is_next();
      const wire::ExchangeId exchange =
          request ? fresh.requests.front().exchange : fresh.answers.begin()->first;
      OutgoingMessage* message = find_outgoing(exchange, nullptr);
      const auto position = message ? message->next_unsent() : std::nullopt;
      if (position) return cut(exchange, *message, *position, false, room);
      if (request)
        fresh.requests.pop_front();
      else
        fresh.answers.erase(fresh.answers.begin());
    }
  }
  return std::nullopt;
}

// What was acknowledged meanwhile goes from the front, so that the queue holds little more than is on its
// way, with a peer that acknowledges what it gets.
void Exchanges::note_unprotected(wire::ExchangeId exchange, const OutgoingMessage& message) {
  const bool small_reply = !mine(exchange) && message.priority() != wire::Priority::kInteractive;
  if (message.body_size() < kUnprotectedMin && !small_reply) return;
  if (unprotected_.size() >= kUnprotectedMax) unprotected_.pop_front();
  while (!unprotected_.empty() && !unacknowledged(unprotected_.front())) unprotected_.pop_front();
  unprotected_.push_back(exchange);
}

std::optional<Exchanges::Unprotected> Exchanges::next_unprotected(std::size_t room) {
  for (; !unprotected_.empty(); unprotected_.pop_front()) {
    const wire::ExchangeId exchange = unprotected_.front();
    OutgoingMessage* message = find_outgoing(exchange, nullptr);
    if (!message) continue;
    if (message->body_size() < kUnprotectedMin) {
      handle_lost(exchange, Part::kHeader, 0, message->header_size());
      handle_lost(exchange, Part::kBody, 0, message->body_size());
      unprotected_.pop_front();
      return std::nullopt;  // one at a time: what is new goes first
    }
    const ByteCount size = message->body_size();
    Unprotected found{.header = header_frame(exchange, *message)};
    found.row_size = room - wire::parity_frame_overhead({exchange, size, size, 0, {}});
    const auto part = message->next_unprotected(found.row_size * erasure::kRowsMax);
    if (!part) continue;
    if (!message->header_acked() &&
        wire::message_header_frame_overhead(found.header) + message->header_size() <= room)
      found.header.data = message->header();
    found.offset = part->offset;
    found.data = part->data;
    found.overdue = part->overdue;
    found.underway = part->underway;
    if (message->priority() == wire::Priority::kInteractive) found.urgent_size = message->size();
    return found;
  }
  return std::nullopt;
}

void Exchanges::handle_acked(wire::ExchangeId exchange, Part part, ByteCount offset, ByteCount length) {
  OutgoingMessage* message = find_outgoing(exchange, nullptr);
  if (!message) return;
  message->handle_acked(part, offset, length);
  if (!mine(exchange) && message->fully_acked()) finish_accepted(exchange);
}

void Exchanges::handle_lost(wire::ExchangeId exchange, Part part, ByteCount offset, ByteCount length) {
  bool* queued = nullptr;
  OutgoingMessage* message = find_outgoing(exchange, &queued);
  if (!message) return;
  message->handle_lost(part, offset, length);
  if (!*queued && message->has_lost()) {
    *queued = true;
    repair_.push_back(exchange);
  }
}

RepeatedLosses::Verdict Exchanges::note_loss(const RepeatedLosses::Seen& seen, wire::ExchangeId exchange,
                                             Part part, ByteCount offset, ByteCount length) {
  OutgoingMessage* message = find_outgoing(exchange, nullptr);
  return message ? message->note_loss(seen, part, offset, length) : RepeatedLosses::Verdict::kChance;
}

// ---------------------------------------------------------------- credit and events

ByteCount Exchanges::request_bytes_now() const {
  return answered_bytes_ == 0 ? limits_.request_bytes
                              : std::max(limits_.request_bytes, limits_.request_bytes_later);
}

bool Exchanges::credit_due() const {
  const ByteCount bytes = request_bytes_now();
  return answered_bytes_ + bytes >= granting_.request_bytes + std::max<ByteCount>(1, bytes / kCreditParts) ||
         ended_exchanges_ + limits_.exchanges >= granting_.exchanges + limits_.exchanges / 2;
}

wire::CreditFrame Exchanges::take_credit() {
  // What was granted stays so, also if less is to be granted from now on (keep_credit).
  granting_.request_bytes = std::max(granting_.request_bytes, answered_bytes_ + request_bytes_now());
  granting_.exchanges = ended_exchanges_ + limits_.exchanges;
  return granting_;
}

std::optional<ExchangeEvent> Exchanges::poll_event() {
  if (events_.empty()) return std::nullopt;
  ExchangeEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace tusk::transport

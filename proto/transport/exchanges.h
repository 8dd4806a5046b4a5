// The exchanges of one connection, both those this side opened and those the peer opened
// (docs/PROTOCOL.md, "Exchanges"): a request message out, a reply message back, in any order, thousands
// at once. Keeps credit, schedules what goes out next, and rebuilds what comes in.
//
// Scheduling: what was lost first, then interactive, bulk and background; within a class first come,
// first served. Pure state: no sockets, clock or threads.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <variant>

#include "proto/base/interval_set.h"
#include "proto/base/result.h"
#include "proto/base/shared_bytes.h"
#include "proto/transport/incoming_message.h"
#include "proto/transport/outgoing_message.h"
#include "proto/wire/frame.h"

namespace tusk::transport {

enum class Role : std::uint8_t { kClient = 0, kServer = 1 };

// What the connection tells the layer above.
struct RequestArrived {
  wire::ExchangeId exchange;
  SharedBytes header;
  SharedBytes body;
  ByteCount reply_capacity = 0;
  wire::Priority priority = wire::Priority::kInteractive;
};
struct ReplyArrived {
  wire::ExchangeId exchange;
  SharedBytes header;
  ByteCount body_size = 0;
};
struct RequestCancelled {
  wire::ExchangeId exchange;
};
using ExchangeEvent = std::variant<RequestArrived, ReplyArrived, RequestCancelled>;

// How much a side lets its peer open; also what it assumes of the peer at the start.
struct CreditLimits {
  ByteCount request_bytes = 64ull << 20;  // of requests not answered yet; both sides begin with that
  std::uint64_t exchanges = 16384;        // likewise
  // If it is more, what the peer has as soon as the first was answered: on a long path that loses packets a
  // request takes three round trips and more until its answer is there.
  ByteCount request_bytes_later = 0;
};

class Exchanges {
 public:
  // `allocate`: for the peer's requests.
  Exchanges(Role role, CreditLimits limits, Allocate allocate = {});
  // Messages refer to it.
  Exchanges(const Exchanges&) = delete;
  Exchanges& operator=(const Exchanges&) = delete;

  // Opens an exchange; waits inside for credit when there is none. `header`: 1 to wire::kMessageHeaderMax
  // bytes; `body` and `reply_place`, which may be empty: wire::kMessageBodyMax at most. More ends the
  // process.
  wire::ExchangeId open(SharedBytes header, SharedBytes body, MutableSharedBytes reply_place,
                        wire::Priority priority);
  // Forgets an exchange that this side opened; unknown ones are ignored.
  void cancel(wire::ExchangeId exchange);
  // What the peer must be told of cancelled exchanges.
  [[nodiscard]] std::optional<wire::CancelFrame> poll_cancel();
  // Answers one that the peer opened, once, after its request was delivered; ignored when it was cancelled
  // meanwhile. `header` as of open(); `body`: no more than the peer has a place for (reply_capacity() of the
  // request, which the peer chose: the caller has to look). Else it ends the process.
  void reply(wire::ExchangeId exchange, SharedBytes header, SharedBytes body);

  // Incoming frames. Errors: the peer broke the protocol.
  [[nodiscard]] Result<void> handle_header(const wire::MessageHeaderFrame& frame);
  [[nodiscard]] Result<void> handle_body(const wire::BodyFrame& frame);
  [[nodiscard]] Result<void> handle_parity(const wire::ParityFrame& frame);
  [[nodiscard]] Result<void> handle_cancel(const wire::CancelFrame& frame);
  void handle_credit(const wire::CreditFrame& frame);

  // The next thing to send, cut to `room` bytes of frame; nullopt: nothing, or no room for it.
  struct Outgoing {
    wire::ExchangeId exchange;
    OutgoingMessage::Piece piece;
    bool body_fills_packet = false;   // written without a length, so it must come last
    bool repair = false;              // goes out again
    ByteCount urgent_size = 0;        // of its message; 0: a repair, or nobody waits for all of it
    wire::MessageHeaderFrame header;  // when piece.part is kHeader
  };
  [[nodiscard]] std::optional<Outgoing> next_outgoing(std::size_t room);
  [[nodiscard]] bool has_outgoing() const;
  void handle_acked(wire::ExchangeId exchange, Part part, ByteCount offset, ByteCount length);
  void handle_lost(wire::ExchangeId exchange, Part part, ByteCount offset, ByteCount length);
  // As OutgoingMessage has it.
  [[nodiscard]] RepeatedLosses::Verdict note_loss(const RepeatedLosses::Seen& seen, wire::ExchangeId exchange,
                                                  Part part, ByteCount offset, ByteCount length);

  // Messages that all went out for the first time and are not acknowledged. No message is among them twice.
  static constexpr ByteCount kUnprotectedMin = 16 * 1024;
  // As many as a peer has exchanges from the start. Beyond that the oldest goes: parity is a gift, and who
  // leaves one unacknowledged, and asks on without a rest, would have all that follow it remembered.
  static constexpr std::size_t kUnprotectedMax = 16'384;
  [[nodiscard]] bool has_unprotected() const { return !unprotected_.empty(); }
  void forget_unprotected() { unprotected_.clear(); }
  // A part of the oldest of them, for which parity is to be made in rows that go into `room` bytes. Parity of
  // a smaller body would be no less than a copy: of such replies that nobody is known to wait for all is
  // queued for repair instead, and the rest is left alone (ProactiveCopies sees to what is urgent). Good
  // until the next call of anything.
  struct Unprotected {
    wire::MessageHeaderFrame header;  // data empty: acknowledged, or larger than a packet
    ByteCount offset;                 // of the part, in the body
    std::span<const std::byte> data;
    ByteCount overdue;  // as OutgoingMessage has it
    ByteCount underway;
    std::size_t row_size;
    ByteCount urgent_size;  // of its message; 0: nobody waits for all of it
  };
  [[nodiscard]] std::optional<Unprotected> next_unprotected(std::size_t room);
  // Some of what this side says in the exchange is not acknowledged.
  [[nodiscard]] bool unacknowledged(wire::ExchangeId exchange) {
    const OutgoingMessage* message = find_outgoing(exchange, nullptr);
    return message && !message->fully_acked();
  }

  // The peer gets no more credit than it has from the start (CreditLimits::request_bytes_later).
  void keep_credit() { limits_.request_bytes_later = 0; }
  // A credit frame is due; taking it counts as sent.
  [[nodiscard]] bool credit_due() const;
  [[nodiscard]] wire::CreditFrame take_credit();

  [[nodiscard]] std::optional<ExchangeEvent> poll_event();

  // Bytes accepted by open() and reply() that never went out yet: lets a server hold back disk reads.
  [[nodiscard]] ByteCount unsent_bytes() const { return unsent_bytes_; }
  // Bytes of bodies that came, each once: neither repeats nor parity.
  [[nodiscard]] ByteCount body_bytes_received() const { return body_bytes_received_; }
  [[nodiscard]] std::size_t open_count() const { return initiated_.size() + waiting_.size(); }
  // Of the peer's exchanges: those not answered yet, or whose answer it has not acknowledged.
  [[nodiscard]] std::size_t served_count() const { return accepted_.size(); }
  // Of these, those with an answer that the peer has not acknowledged.
  [[nodiscard]] std::size_t answered_count() const { return answered_; }
  // Memory that the peer's exchanges take beside what `allocate` gave: the exchanges themselves and the
  // headers of their answers. Bodies of answers are the business of those who read them from disks.
  [[nodiscard]] ByteCount served_bytes() const {
    return accepted_.size() * kExchangeBytes + answer_header_bytes_;
  }

 private:
  // About what one exchange of the peer's takes besides its messages.
  static constexpr ByteCount kExchangeBytes = 512;

  struct Initiated {
    OutgoingMessage request;
    IncomingMessage reply;
    bool queued_for_repair = false;
  };
  struct Accepted {
    explicit Accepted(const Allocate* allocate) : request(std::nullopt, allocate) {}
    IncomingMessage request;
    std::optional<OutgoingMessage> reply;
    ByteCount accounted = 0;  // of the request's size, against the credit
    bool delivered = false;   // handed to the layer above
    bool queued_for_repair = false;
  };
  // What has not all gone out for the first time. Answers go in the order in which they were asked for: what
  // is answered by several threads is answered in some other order, and a reader in order would wait for the
  // last of all that was asked for ahead of it.
  struct Fresh {
    struct Request {
      wire::ExchangeId exchange;
      std::uint64_t turn;
    };
    std::deque<Request> requests;
    std::map<wire::ExchangeId, std::uint64_t> answers;  // their turns; of the peer's exchanges that still are

    [[nodiscard]] bool empty() const { return requests.empty() && answers.empty(); }
    [[nodiscard]] bool request_is_next() const {
      return answers.empty() || (!requests.empty() && requests.front().turn < answers.begin()->second);
    }
  };
  struct Waiting {
    wire::ExchangeId exchange;
    SharedBytes header;
    SharedBytes body;
    MutableSharedBytes reply_place;
    wire::Priority priority;
    bool cancelled = false;  // keeps its place, because the peer counts exchanges by their number
  };

  [[nodiscard]] bool mine(wire::ExchangeId exchange) const { return (exchange.value() & 1) == parity_; }
  [[nodiscard]] static std::uint64_t index(wire::ExchangeId exchange) { return exchange.value() >> 1; }
  void start(Waiting&& waiting);
  void start_waiting();
  [[nodiscard]] ByteCount request_bytes_now() const;
  [[nodiscard]] bool credit_allows(const Waiting& waiting) const;
  [[nodiscard]] Result<Accepted*> accept(wire::ExchangeId exchange);  // nullptr: finished before
  [[nodiscard]] Result<void> account(Accepted& accepted);
  // `take`: gives the message what came of it.
  template <class Take>
  [[nodiscard]] Result<void> handle_part(wire::ExchangeId exchange, const Take& take);
  void finish_accepted(wire::ExchangeId exchange);
  [[nodiscard]] Fresh& fresh(wire::Priority priority) { return fresh_[static_cast<std::size_t>(priority)]; }
  OutgoingMessage* find_outgoing(wire::ExchangeId exchange, bool** queued_for_repair);
  [[nodiscard]] std::optional<Outgoing> cut(wire::ExchangeId exchange, OutgoingMessage& message,
                                            const OutgoingMessage::Position& position, bool lost,
                                            std::size_t room);
  void note_unprotected(wire::ExchangeId exchange, const OutgoingMessage& message);

  const std::uint64_t parity_;
  CreditLimits limits_;
  const Allocate allocate_;

  ParityBudget parity_budget_;  // outlives messages
  std::unordered_map<wire::ExchangeId, Initiated> initiated_;
  std::unordered_map<wire::ExchangeId, Accepted> accepted_;
  std::deque<Waiting> waiting_;
  std::deque<wire::CancelFrame> cancels_;
  std::uint64_t next_index_ = 0;
  IntervalSet finished_;  // indexes of the peer's exchanges that are over

  std::deque<wire::ExchangeId> repair_;
  std::array<Fresh, wire::kPriorityCount> fresh_;
  std::uint64_t next_turn_ = 0;
  std::deque<wire::ExchangeId> unprotected_;  // in the order in which they went out

  // What the peer grants, and what of it is used.
  wire::CreditFrame granted_;
  ByteCount used_bytes_ = 0;
  std::uint64_t used_exchanges_ = 0;
  // What this side granted, and what the peer has opened and given back: bytes when the request is
  // answered, since its memory is free then; the exchange when the answer is acknowledged, since only
  // then nothing is left of it.
  wire::CreditFrame granting_;
  ByteCount opened_bytes_ = 0;
  ByteCount answered_bytes_ = 0;
  std::uint64_t ended_exchanges_ = 0;
  std::size_t answered_ = 0;  // of accepted_
  ByteCount answer_header_bytes_ = 0;

  std::deque<ExchangeEvent> events_;
  ByteCount unsent_bytes_ = 0;
  ByteCount body_bytes_received_ = 0;
};

}  // namespace tusk::transport

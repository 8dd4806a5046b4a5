// Two correct ends over a wire that loses, repeats and reorders: neither may ever accuse the other, every
// call is answered with the right bytes or was cancelled, and at the end nothing is left.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <variant>

#include "proto/base/check.h"
#include "proto/base/erasure.h"
#include "proto/transport/exchanges.h"
#include "tests/fuzz/targets/operations.h"
#include "tests/fuzz/targets/targets.h"

namespace tusk::fuzz {
namespace {

using transport::Exchanges;
using transport::Part;
using transport::Role;
using wire::ExchangeId;

constexpr transport::CreditLimits kLimits{.request_bytes = 8000, .exchanges = 6};
// A request of more than seven eighths of the credit could wait for credit that is never given back.
constexpr std::size_t kBodyMax = 3500;
constexpr std::size_t kHeaderMax = 400;
constexpr int kOperationsMax = 3000;
constexpr int kDrainTurnsMax = 20'000;
constexpr std::size_t kFlyingMax = 200;

SharedBytes content(std::size_t size, std::uint64_t seed) {
  MutableSharedBytes bytes = allocate_bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes.bytes[i] = static_cast<std::byte>(seed * 31 + i * 7);
  return bytes.first(size);
}
bool is_content(std::span<const std::byte> bytes, std::uint64_t seed) {
  return std::ranges::equal(bytes, content(bytes.size(), seed).bytes);
}

class Pair {
 public:
  void operate(Operations& operations) {
    for (int i = 0; i < kOperationsMax && !operations.at_end(); ++i) step(operations);
    drain();
  }

 private:
  // On the wire. Pieces are accounted for by their sender once; the rest is repeated until it arrives.
  struct Piece {
    Exchanges::Outgoing outgoing;
    Bytes data;  // a copy, as in a packet: the sender may forget its own meanwhile
  };
  struct Parity {
    wire::ParityFrame frame;  // without data
    Bytes row;
  };
  struct Flying {
    int to;
    std::variant<Piece, Parity, wire::CancelFrame, wire::CreditFrame> what;
    bool arrived = false;
  };
  struct Call {
    MutableSharedBytes place;
    bool cancelled = false;
    bool answered = false;
  };

  void step(Operations& operations) {
    const int side = operations.flag() ? 1 : 0;
    switch (operations.below(13)) {
      case 0:
      case 1:
        return open(side, operations);
      case 2:
        return cancel(side, operations.u8());
      case 3:
        return reply(side, operations.u8(), operations.u16());
      case 4:
      case 5:
      case 6:
        return send(side, 60 + operations.u16() % 1200);
      case 7:
      case 8:
        return arrive(operations.u8());
      case 9:
        return settle(operations.u8(), true);
      case 10:
        return settle(operations.u8(), false);
      case 11:
        return protect(operations);
      default:
        return speak(side);
    }
  }

  void open(int side, Operations& operations) {
    const std::size_t header = 1 + operations.below(kHeaderMax);
    const std::size_t body = operations.below(kBodyMax);
    const std::size_t place = operations.below(kBodyMax);
    const auto priority = static_cast<wire::Priority>(operations.below(wire::kPriorityCount));
    Call call{allocate_bytes(place)};
    const std::uint64_t seed = calls_[side].size() * 2 + static_cast<std::uint64_t>(side);
    const ExchangeId id =
        ends_[side].open(content(header, seed), content(body, seed + 1), call.place, priority);
    TUSK_CHECK(id.value() == seed);
    calls_[side].emplace(id, std::move(call));
  }

  void cancel(int side, std::uint8_t which) {
    if (calls_[side].empty()) return;
    auto at = std::next(calls_[side].begin(), which % static_cast<std::ptrdiff_t>(calls_[side].size()));
    ends_[side].cancel(at->first);
    if (!at->second.answered) at->second.cancelled = true;
  }

  void reply(int side, std::uint8_t which, std::size_t size) {
    auto& waiting = served_[side];
    if (waiting.empty()) return;
    const auto at = std::next(waiting.begin(), which % static_cast<std::ptrdiff_t>(waiting.size()));
    const auto [id, capacity] = *at;
    waiting.erase(at);
    ends_[side].reply(id, content(3, id.value() + 5),
                      content(capacity == 0 ? 0 : size % capacity, id.value() + 6));
  }

  void send(int side, std::size_t room) {
    if (flying_.size() >= kFlyingMax) return;
    if (const auto outgoing = ends_[side].next_outgoing(room)) {
      const auto data = outgoing->piece.data;
      TUSK_CHECK(!data.empty() && data.size() < room);
      flying_.push_back({1 - side, Piece{*outgoing, Bytes(data.begin(), data.end())}});
    }
  }

  // Parity of any part, in rows of any length, of a body of which something is on its way.
  void protect(Operations& operations) {
    if (flying_.empty() || flying_.size() >= kFlyingMax) return;
    const Flying& flying = flying_[operations.u8() % flying_.size()];
    const auto* piece = std::get_if<Piece>(&flying.what);
    const std::size_t begin = operations.below(kBodyMax);
    const std::size_t row_size = 1 + operations.below(1200);
    const std::size_t index = operations.below(erasure::kParityMax);
    if (!piece || piece->outgoing.piece.part != Part::kBody) return;
    const ExchangeId exchange = piece->outgoing.exchange;
    const std::size_t end = piece->outgoing.piece.offset + piece->data.size();
    if (begin >= end || erasure::rows_of(end - begin, row_size) > erasure::kRowsMax) return;
    const bool reply = (exchange.value() & 1) == static_cast<std::uint64_t>(flying.to);
    const SharedBytes body = content(end, exchange.value() + (reply ? 6 : 1));
    Bytes rows((index + 1) * row_size);
    erasure::encode(body.bytes.subspan(begin), row_size, rows);
    const auto row = std::span(rows).last(row_size);
    const wire::ParityFrame frame{exchange, begin, end - begin, static_cast<std::uint8_t>(index), {}};
    flying_.push_back({flying.to, Parity{frame, Bytes(row.begin(), row.end())}});
  }

  void speak(int side) {
    if (flying_.size() >= kFlyingMax) return;
    if (const auto frame = ends_[side].poll_cancel()) flying_.push_back({1 - side, *frame});
    if (ends_[side].credit_due()) flying_.push_back({1 - side, ends_[side].take_credit()});
  }

  // Something arrives, perhaps again.
  void arrive(std::uint8_t which) {
    if (flying_.empty()) return;
    Flying& flying = flying_[which % flying_.size()];
    flying.arrived = true;
    Exchanges& end = ends_[flying.to];
    if (const auto* credit = std::get_if<wire::CreditFrame>(&flying.what)) {
      end.handle_credit(*credit);
    } else if (const auto* cancelled = std::get_if<wire::CancelFrame>(&flying.what)) {
      TUSK_CHECK(end.handle_cancel(*cancelled));
    } else if (const auto* parity = std::get_if<Parity>(&flying.what)) {
      wire::ParityFrame frame = parity->frame;
      frame.data = parity->row;
      TUSK_CHECK(end.handle_parity(frame));
    } else {
      deliver(end, std::get<Piece>(flying.what));
    }
    look(flying.to);
  }

  static void deliver(Exchanges& end, const Piece& piece) {
    if (piece.outgoing.piece.part == Part::kBody) {
      TUSK_CHECK(end.handle_body({piece.outgoing.exchange, piece.outgoing.piece.offset, piece.data}));
      return;
    }
    wire::MessageHeaderFrame frame = piece.outgoing.header;
    frame.data = piece.data;
    TUSK_CHECK(end.handle_header(frame));
  }

  // The sender learns what became of it: acknowledged if it arrived, else lost; `fair` false: thought lost
  // though it arrived.
  void settle(std::uint8_t which, bool fair) {
    if (flying_.empty()) return;
    const std::size_t at = which % flying_.size();
    const Flying flying = flying_[at];
    if (const auto* piece = std::get_if<Piece>(&flying.what)) {
      Exchanges& end = ends_[1 - flying.to];
      const Part part = piece->outgoing.piece.part;
      const ByteCount offset = piece->outgoing.piece.offset;
      if (flying.arrived && fair) {
        end.handle_acked(piece->outgoing.exchange, part, offset, piece->data.size());
      } else {
        end.handle_lost(piece->outgoing.exchange, part, offset, piece->data.size());
      }
    } else if (!flying.arrived && !std::holds_alternative<Parity>(flying.what)) {
      return;  // the connection repeats these
    }
    flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void look(int side) {
    while (const auto event = ends_[side].poll_event()) {
      if (const auto* request = std::get_if<transport::RequestArrived>(&*event)) {
        TUSK_CHECK(is_content(request->header.bytes, request->exchange.value()));
        TUSK_CHECK(is_content(request->body.bytes, request->exchange.value() + 1));
        TUSK_CHECK(seen_[side].insert(request->exchange).second);
        served_[side].emplace(request->exchange, request->reply_capacity);
      } else if (const auto* reply = std::get_if<transport::ReplyArrived>(&*event)) {
        Call& call = calls_[side].at(reply->exchange);
        TUSK_CHECK(!call.cancelled && !call.answered);
        call.answered = true;
        TUSK_CHECK(is_content(reply->header.bytes, reply->exchange.value() + 5));
        TUSK_CHECK(is_content(call.place.bytes.first(reply->body_size), reply->exchange.value() + 6));
      } else {
        served_[side].erase(std::get<transport::RequestCancelled>(*event).exchange);
      }
    }
  }

  // A kind wire until all is done.
  void drain() {
    for (int turn = 0; !idle(); ++turn) {
      TUSK_CHECK(turn < kDrainTurnsMax);
      for (const int side : {0, 1}) {
        reply(side, 0, 100);
        speak(side);
        send(side, 1200);
      }
      while (!flying_.empty()) {
        arrive(0);
        settle(0, true);
      }
    }
    for (const int side : {0, 1}) {
      TUSK_CHECK(ends_[side].unsent_bytes() == 0);
      for (const auto& [id, call] : calls_[side]) TUSK_CHECK(call.cancelled || call.answered);
    }
  }

  [[nodiscard]] bool idle() {
    for (const int side : {0, 1}) {
      if (ends_[side].open_count() > 0 || ends_[side].served_count() > 0 || ends_[side].has_outgoing())
        return false;
    }
    return flying_.empty();
  }

  Exchanges ends_[2] = {Exchanges(Role::kClient, kLimits), Exchanges(Role::kServer, kLimits)};
  std::map<ExchangeId, Call> calls_[2];
  std::map<ExchangeId, ByteCount> served_[2];  // waiting for an answer, with the room for it
  std::set<ExchangeId> seen_[2];
  std::vector<Flying> flying_;
};

}  // namespace

void run_exchanges(std::span<const std::byte> input) {
  Operations operations(input);
  Pair().operate(operations);
}

std::vector<Bytes> exchanges_seeds() {
  std::vector<Bytes> seeds;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) seeds.push_back(random_operations(seed, 200 * seed));
  return seeds;
}

}  // namespace tusk::fuzz

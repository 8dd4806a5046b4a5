// Where a server sends what is for one client, who may move (RFC 9000 §9). An address that has not shown that
// it receives what is sent there gets at most three times what came from it (§8.1, §9.3.1); if it does not
// show it, all goes to the one before again.
//
// Pure; `Where` is an address, with whatever belongs to it. Not thread-safe.
#pragma once

#include <optional>
#include <utility>

#include "proto/base/strong_int.h"

namespace tusk::rpc {

template <class Where>
class ClientRoute {
 public:
  static constexpr ByteCount kAmplificationMax = 3;

  ClientRoute() = default;
  // By a connection's first datagram, of `size` bytes. `proven`: by a token that was sent there.
  ClientRoute(Where where, bool proven, ByteCount size)
      : where_(std::move(where)), first_unproven_(!proven), budget_(kAmplificationMax * size) {}

  [[nodiscard]] const Where& where() const { return where_; }
  // The last one that has proven itself, or the first one.
  [[nodiscard]] const Where& trusted() const { return before_ ? *before_ : where_; }
  [[nodiscard]] bool unproven() const { return first_unproven_ || before_.has_value(); }
  // Bytes that may go there while it is unproven; the sender takes off what it sends.
  [[nodiscard]] ByteCount& budget() { return budget_; }
  [[nodiscard]] ByteCount budget() const { return budget_; }

  // An authentic packet came from there.
  void handle_received(ByteCount size) { budget_ += kAmplificationMax * size; }
  // The newest one came from elsewhere. True: which is to be challenged. False: it is back at the address
  // before, which has nothing to prove (§9.3), and no challenge counts any more. Whoever sees a packet of the
  // client can have it arrive from another address first; the next one of the client's own ends that.
  [[nodiscard]] bool move(Where to, ByteCount size) {
    budget_ = kAmplificationMax * size;
    const bool back = before_ && to == *before_;
    if (!before_) before_ = std::move(where_);
    where_ = std::move(to);
    if (back) before_.reset();
    return !back;
  }

  // The handshake is over, which only who receives what was sent to the first address can end. False: it was
  // proven before.
  [[nodiscard]] bool prove_first() { return std::exchange(first_unproven_, false); }
  // A challenge was answered. Where it was before, if that proves where it is now: an answer that came while
  // another challenge is `pending` was to that of an earlier address, which has been left since, and whoever
  // has the keys can send it from an address that is somebody else's.
  [[nodiscard]] std::optional<Where> handle_validated(bool pending) {
    if (pending) return std::nullopt;
    return std::exchange(before_, std::nullopt);
  }
  void handle_failed() {
    if (before_) where_ = *std::exchange(before_, std::nullopt);
  }

 private:
  Where where_{};
  std::optional<Where> before_;
  bool first_unproven_ = false;
  ByteCount budget_ = 0;
};

}  // namespace tusk::rpc

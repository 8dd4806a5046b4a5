// When large answers are made: no sooner than the line will take them. A client asks for much ahead of what
// it reads, and 64 of them had 2.7 GiB read from disks at once, of which those who came last saw the first
// byte after ten seconds.
//
// Network thread only.
#pragma once

#include <map>
#include <optional>
#include <unordered_map>

#include "proto/transport/connection.h"

namespace tusk::rpc {

class BulkTurns {
 public:
  // Bulk requests, with so much room for their answers.
  static constexpr ByteCount kBulkMin = 64 << 10;
  // So much may be under way beside what the window holds twice: for the time that disks take.
  static constexpr ByteCount kAheadMin = 8 << 20;

  [[nodiscard]] static bool concerns(const transport::RequestArrived& request) {
    return request.priority != wire::Priority::kInteractive && request.reply_capacity >= kBulkMin &&
           request.body.empty();
  }

  void enter(transport::RequestArrived request) {
    const wire::ExchangeId exchange = request.exchange;
    waiting_.emplace(exchange, std::move(request));
  }
  // The next one that is due, in the order in which they were asked.
  [[nodiscard]] std::optional<transport::RequestArrived> next(const transport::Connection& connection);
  void handle_answered(wire::ExchangeId exchange);
  void handle_cancelled(wire::ExchangeId exchange);

 private:
  std::map<wire::ExchangeId, transport::RequestArrived> waiting_;
  std::unordered_map<wire::ExchangeId, ByteCount> begun_;  // and what its answer may be
  ByteCount begun_bytes_ = 0;
};

}  // namespace tusk::rpc

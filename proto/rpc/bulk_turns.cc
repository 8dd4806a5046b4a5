#include "proto/rpc/bulk_turns.h"

#include <algorithm>
#include <utility>

namespace tusk::rpc {

std::optional<transport::RequestArrived> BulkTurns::next(const transport::Connection& connection) {
  if (waiting_.empty()) return std::nullopt;
  const ByteCount ahead = std::max(kAheadMin, 2 * connection.congestion().window());
  if (begun_bytes_ + connection.unsent_bytes() >= ahead) return std::nullopt;
  transport::RequestArrived request = std::move(waiting_.front());
  waiting_.pop_front();
  begun_.emplace(request.exchange, request.reply_capacity);
  begun_bytes_ += request.reply_capacity;
  return request;
}

void BulkTurns::end(wire::ExchangeId exchange) {
  if (const auto begun = begun_.find(exchange); begun != begun_.end()) {
    begun_bytes_ -= begun->second;
    begun_.erase(begun);
    return;
  }
  std::erase_if(waiting_, [&](const auto& request) { return request.exchange == exchange; });
}

}  // namespace tusk::rpc

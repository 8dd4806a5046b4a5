#include "proto/rpc/bulk_turns.h"

#include <algorithm>
#include <utility>

namespace tusk::rpc {

std::optional<transport::RequestArrived> BulkTurns::next(const transport::Connection& connection) {
  if (waiting_.empty()) return std::nullopt;
  const ByteCount ahead = std::max(kAheadMin, 2 * connection.congestion().window());
  if (begun_bytes_ + connection.unsent_bytes() >= ahead) return std::nullopt;
  transport::RequestArrived request = std::move(waiting_.begin()->second);
  waiting_.erase(waiting_.begin());
  begun_.emplace(request.exchange, request.reply_capacity);
  begun_bytes_ += request.reply_capacity;
  return request;
}

void BulkTurns::handle_answered(wire::ExchangeId exchange) {
  const auto begun = begun_.find(exchange);
  if (begun == begun_.end()) return;
  begun_bytes_ -= begun->second;
  begun_.erase(begun);
}

void BulkTurns::handle_cancelled(wire::ExchangeId exchange) {
  if (waiting_.erase(exchange) == 0) handle_answered(exchange);
}

}  // namespace tusk::rpc

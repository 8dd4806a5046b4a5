#include "proto/rpc/outgoing_calls.h"

#include <cerrno>
#include <utility>
#include <vector>

#include "proto/rpc/message_codec.h"

namespace tusk::rpc {
namespace {

wire::Priority to_wire(Priority priority) { return static_cast<wire::Priority>(priority); }

Result<CallReply> decode_reply(const transport::ReplyArrived& arrived) {
  CallReply reply;
  TUSK_TRY(decode_message(arrived.header.bytes, reply.message));
  if (reply.message.error() != 0)
    return fail(static_cast<ErrorCode>(reply.message.error()), reply.message.message());
  reply.body_size = arrived.body_size;
  return reply;
}

}  // namespace

Completion OutgoingCalls::take(Calls::iterator place) {
  if (place->second.exchange) by_exchange_.erase(*place->second.exchange);
  Completion done = std::move(place->second.call.done);
  calls_.erase(place);
  return done;
}

void OutgoingCalls::start(CallId id, transport::Connection& connection) {
  const auto found = calls_.find(id);
  if (found == calls_.end() || found->second.exchange) return;
  const Call& call = found->second.call;
  const auto exchange =
      connection.open_exchange(call.header, call.body, call.reply_body, to_wire(call.priority));
  found->second.exchange = exchange;
  by_exchange_.emplace(exchange, id);
}

void OutgoingCalls::renew(CallId id) {
  if (const auto found = calls_.find(id); found != calls_.end())
    renew(found->second.call, found->second.call.renew);
}

void OutgoingCalls::renew(CallId id, const Renewal& by) {
  if (const auto found = calls_.find(id); found != calls_.end()) renew(found->second.call, by);
}

void OutgoingCalls::renew(Call& call, const Renewal& by) {
  if (!by) return;
  schema::Request message;
  TUSK_CHECK(decode_message(call.header.bytes, message).has_value());  // we have encoded it
  by(message);
  auto header = encode_message(message);
  TUSK_CHECK(header.has_value());  // messages that are renewed are small
  call.header = std::move(*header);
}

void OutgoingCalls::start_all(transport::Connection& connection, bool resumed, Which which) {
  std::vector<Completion> unknown;
  for (auto place = calls_.begin(); !resumed && place != calls_.end();) {
    const auto found = place++;
    if (found->second.sent_before && found->second.call.adds_up) unknown.push_back(take(found));
  }
  for (auto& [id, entry] : calls_) {
    if (!resumed) renew(entry.call, entry.call.renew);
    if (which == Which::kAll || entry.call.ahead) start(id, connection);
  }
  for (Completion& done : unknown)
    done(fail(from_errno(EIO), "the server restarted: whether this was done nobody knows"));
}

void OutgoingCalls::start_rest(transport::Connection* connection, const Renewal& by) {
  for (auto& [id, entry] : calls_) {
    if (entry.exchange) continue;
    renew(entry.call, by);
    if (connection != nullptr) start(id, *connection);
  }
}

void OutgoingCalls::cancel(CallId id, transport::Connection* connection) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  if (found->second.exchange && connection) connection->cancel_exchange(*found->second.exchange);
  take(found)(fail(ErrorCode::kCancelled));
}

void OutgoingCalls::handle_reply(const transport::ReplyArrived& arrived) {
  const auto by_exchange = by_exchange_.find(arrived.exchange);
  if (by_exchange == by_exchange_.end()) return;
  take(calls_.find(by_exchange->second))(decode_reply(arrived));
}

void OutgoingCalls::detach() {
  by_exchange_.clear();
  for (auto& [id, entry] : calls_)
    if (std::exchange(entry.exchange, std::nullopt)) entry.sent_before = true;
}

void OutgoingCalls::fail_all(const Error& error) {
  auto calls = std::move(calls_);
  calls_.clear();
  by_exchange_.clear();
  for (auto& [id, entry] : calls) entry.call.done(std::unexpected(error));
}

std::vector<Completion> OutgoingCalls::take_in_outage() {
  std::vector<Completion> taken;
  for (auto place = calls_.begin(); place != calls_.end();) {
    const auto found = place++;
    if (!found->second.call.outlives_outages) taken.push_back(take(found));
  }
  return taken;
}

}  // namespace tusk::rpc

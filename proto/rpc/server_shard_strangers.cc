#include <spdlog/spdlog.h>

#include <array>

#include "proto/base/check.h"
#include "proto/crypto/primitives.h"
#include "proto/io/clock.h"
#include "proto/rpc/server_shard.h"
#include "proto/rpc/steering.h"
#include "proto/rpc/strangers.h"
#include "proto/wire/packet_header.h"

namespace tusk::rpc {
namespace {

// Three times what 10 Gbit/s hold at 200 ms: a request of which a piece is lost takes three round trips until
// its answer is there. But no connection alone fills the server's memory. What is granted cannot be taken
// back, so that the share is the same whether others are here or not.
constexpr ByteCount kRequestBytesLater = 768ull << 20;
constexpr double kShareOfOneConnection = 3.0 / 8;

}  // namespace

void ServerShard::handle_stranger(std::size_t socket, const io::Datagram& datagram) {
  if (phase_ != Phase::kServing) return;
  const Stranger stranger = judge_stranger(datagram.bytes);
  switch (stranger.wants) {
    case Stranger::Wants::kNothing:
      return drops_.note(datagram.from);
    case Stranger::Wants::kReset: {
      const auto token = commons_.addresses.reset_token(stranger.to, sockets_[socket].local_address());
      return send_long(socket, datagram, reset_of(stranger.to, token));
    }
    case Stranger::Wants::kAnotherVersion:
      return send_long(socket, datagram, another_version(stranger.header));
    case Stranger::Wants::kConnection:
      return greet(socket, datagram, stranger.header);
  }
}

void ServerShard::greet(std::size_t socket, const io::Datagram& datagram, const wire::LongHeader& header) {
  const bool proven = commons_.addresses.proven(datagram.from, header.to, header.token);
  if (!proven && (full() || !commons_.addresses.trust(io::now())))
    return send_retry(socket, datagram, header);
  if (full() && !make_place()) return turn_away(datagram);
  auto link = std::make_unique<ServerLink>();
  link->id = ConnectionId(std::exchange(next_id_, next_id_ + shards_));
  link->socket = socket;
  link->route = {{datagram.from, datagram.local}, proven, datagram.bytes.size()};
  link->memory = commons_.memory.begin(link->id);
  auto secure =
      SecureConnection::server({*commons_.options.identity, header.to, header.from,
                                connection_id_for(index_, shards_), connection_config(link->memory)},
                               io::now());
  if (secure) link->secure = std::move(*secure);
  if (!secure) spdlog::error("no new connection: {}", secure.error().message());
  if (!secure || !link->secure->handle_datagram(io::now(), datagram.bytes, datagram.ecn)) {
    commons_.memory.end(link->id);
    return drops_.note(datagram.from);
  }
  ++commons_.connections;
  link->unattached = commons_.unattached.enter(link->id);
  ServerLink& kept = *link;
  by_id_.emplace(kept.secure->own_id(), &kept);
  by_id_.emplace(kept.secure->original_id(), &kept);
  links_.emplace(kept.id, std::move(link));
  mark(kept);
}

// Whoever receives at an address can have a connection, so those that have shown no right do not keep others
// out. The oldest goes, in whatever shard: who has one attaches within a few round trips. It hears of it by a
// reset.
bool ServerShard::make_place() {
  const std::optional<ConnectionId> oldest = commons_.unattached.take_oldest();
  if (!oldest) return false;
  ServerShard& its = commons_.shard_with(*oldest);
  if (&its == this)
    give_way(*oldest);
  else
    its.reactor_->post([&its, id = *oldest] { its.give_way(id); });
  return true;
}

void ServerShard::give_way(ConnectionId connection) {
  const auto found = links_.find(connection);
  if (found == links_.end() || found->second->incoming.attached()) return;
  spdlog::debug("{} gives way: it has not attached", found->second->route.where().to.to_string());
  remove(*found->second);
}

void ServerShard::turn_away(const io::Datagram& datagram) {
  if (io::now() < next_full_warning_) return;
  next_full_warning_ = io::now() + DropLog::kInterval;
  spdlog::warn("{} connections are open, the limit: {} has to wait", commons_.connections.load(),
               datagram.from.to_string());
}

transport::ConnectionConfig ServerShard::connection_config(std::shared_ptr<MemoryAccount> memory) const {
  transport::ConnectionConfig config;
  config.allocate_request = [memory = std::move(memory)](std::size_t size) {
    return allocate_counted(memory, size);
  };
  const auto share = kShareOfOneConnection * static_cast<double>(commons_.options.request_memory_max);
  config.credit.request_bytes_later = std::min(kRequestBytesLater, static_cast<ByteCount>(share));
  crypto::random_bytes(std::as_writable_bytes(std::span(&config.seed, 1)));
  config.draw_secret = crypto::random_number;
  return config;
}

void ServerShard::send_retry(std::size_t socket, const io::Datagram& datagram,
                             const wire::LongHeader& header) {
  const auto token = commons_.addresses.retry_token(datagram.from, header.to);
  send_long(socket, datagram, retry_with(header, token));
}

void ServerShard::send_long(std::size_t socket, const io::Datagram& datagram,
                            const wire::LongHeader& header) {
  std::array<std::byte, 256> bytes;
  const std::size_t size = wire::write_long_header(header, bytes);
  const io::OutgoingBatch batch{datagram.from, datagram.local, std::span(bytes).first(size),
                                static_cast<std::uint16_t>(size), 0};
  (void)sockets_[socket].send(std::span(&batch, 1));  // lost when the socket is full, like on any wire
}

}  // namespace tusk::rpc

#include <spdlog/spdlog.h>

#include <array>

#include "proto/base/check.h"
#include "proto/crypto/primitives.h"
#include "proto/io/clock.h"
#include "proto/io/heap.h"
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

// What handshakes may take of a shard's thread: while clients that are let in are heard, and else. The rest
// of an idle machine is for what these clients ask next.
constexpr double kShareBesideData = 0.1;
constexpr double kShareAlone = 0.5;
constexpr Duration kDataLasts = 20ms;
// Answers to strangers in a second; each costs some microseconds.
constexpr double kRetriesPerSecond = 5000, kRetriesAtOnce = 1000;
constexpr double kResetsPerSecond = 1000, kResetsAtOnce = 1000;
// So many ended connections have left enough free memory to be worth a look, which takes milliseconds.
constexpr std::size_t kRemovedMany = 256;
constexpr Duration kGiveBackAfter = 2s;
constexpr Duration kLate = 30s;

}  // namespace

void ServerShard::handle_stranger(std::size_t socket, const io::Datagram& datagram) {
  if (phase_ != Phase::kServing) return;
  const Stranger stranger = judge_stranger(datagram.bytes);
  switch (stranger.wants) {
    case Stranger::Wants::kNothing:
      return drop_garbage(datagram.from);
    case Stranger::Wants::kReset: {
      guard_.note_garbage();
      if (!resets_.take(kResetsPerSecond, kResetsAtOnce, io::now())) return drops_.note(datagram.from);
      const auto token = commons_.addresses.reset_token(stranger.to, sockets_[socket].local_address());
      return send_long(socket, datagram, reset_of(stranger.to, token));
    }
    case Stranger::Wants::kAnotherVersion:
      guard_.note_garbage();
      if (!retries_.take(kRetriesPerSecond, kRetriesAtOnce, io::now())) return drops_.note(datagram.from);
      return send_long(socket, datagram, another_version(stranger.header));
    case Stranger::Wants::kConnection:
      return greet(socket, datagram, stranger.header);
  }
}

void ServerShard::drop_garbage(const io::Address& from) {
  guard_.note_garbage();
  drops_.note(from);
}

void ServerShard::drop_flight(const io::Datagram& datagram, const wire::LongHeader& header) {
  guard_.note_flight(Source(datagram.from), AddressValidation::claim(header.token));
  drops_.note(datagram.from);
}

// Only what costs little happens here: the handshake itself waits for its turn.
void ServerShard::greet(std::size_t socket, const io::Datagram& datagram, const wire::LongHeader& header) {
  const TimePoint now = io::now();
  const Proof proof = commons_.addresses.proof(datagram.from, header.to, header.token);
  if (proof == Proof::kNone) {
    if (full() || !commons_.addresses.trust(now)) {
      if (!retries_.take(kRetriesPerSecond, kRetriesAtOnce, now)) return drop_flight(datagram, header);
      return send_retry(socket, datagram, header);
    }
  } else {
    SourceRates& rates = proof == Proof::kAdmitted ? admitted_rates_ : handshake_rates_;
    if (!rates.admit(Source(datagram.from), proof, now)) return drop_flight(datagram, header);
  }
  if (!flights_.add(proof, socket, datagram, header.to, now)) drop_flight(datagram, header);
}

// One at a time, so that packets of connections are handled in between.
void ServerShard::begin_next_handshake() {
  if (flights_.empty()) return;
  const TimePoint now = io::now();
  handshake_time_.earn(now, now - data_at_ < kDataLasts ? kShareBesideData : kShareAlone);
  if (!handshake_time_.affordable()) return;
  if (auto next = flights_.next(now)) begin_handshake(next->proof, std::move(next->flight));
  handshake_time_.pay(io::now() - now);
}

void ServerShard::begin_handshake(Proof proof, FirstFlight flight) {
  const auto parsed = wire::parse_long_header(flight.bytes);
  if (!parsed || by_id_.contains(flight.original)) return;
  if (full()) {
    const std::optional<ConnectionId> oldest = commons_.unattached.take_oldest();
    if (!oldest) return turn_away(flight.from);
    make_way(oldest);
  }
  auto link = std::make_unique<ServerLink>();
  link->id = ConnectionId(std::exchange(next_id_, next_id_ + shards_));
  link->socket = flight.socket;
  link->route = {{flight.from, flight.local}, proof != Proof::kNone, flight.bytes.size()};
  link->memory = commons_.memory.begin(link->id);
  const auto own_id = connection_id_for(index_, shards_, commons_.addresses.tag());
  auto secure = SecureConnection::server({*commons_.options.identity, flight.original, parsed->header.from,
                                          own_id, connection_config(link->memory)},
                                         io::now());
  if (secure) link->secure = std::move(*secure);
  if (!secure) spdlog::error("no new connection: {}", secure.error().message());
  if (!secure || by_id_.contains(own_id) ||
      !link->secure->handle_datagram(io::now(), flight.bytes, flight.ecn)) {
    commons_.memory.end(link->id);
    return drops_.note(flight.from);
  }
  ++commons_.connections;
  const Source source(flight.from);
  link->unattached = commons_.unattached.enter(link->id, source);
  ServerLink& kept = *link;
  by_id_.emplace(kept.secure->own_id(), &kept);
  by_id_.emplace(kept.secure->original_id(), &kept);
  links_.emplace(kept.id, std::move(link));
  mark(kept);
  make_way(commons_.unattached.take_surplus(source));
}

// Whoever receives at an address can have a connection, so those that have shown no right do not keep others
// out. The oldest goes, in whatever shard: who has one attaches within a few round trips. It hears of it by a
// reset.
void ServerShard::make_way(std::optional<ConnectionId> connection) {
  if (!connection) return;
  ServerShard& its = commons_.shard_with(*connection);
  if (&its == this)
    give_way(*connection);
  else
    its.reactor_->post([&its, id = *connection] { its.give_way(id); });
}

void ServerShard::give_way(ConnectionId connection) {
  const auto found = links_.find(connection);
  if (found == links_.end() || found->second->incoming.attached()) return;
  spdlog::debug("{} gives way: it has not attached", found->second->route.where().to.to_string());
  remove(*found->second);
}

void ServerShard::turn_away(const io::Address& from) {
  if (io::now() < next_full_warning_) return;
  next_full_warning_ = io::now() + DropLog::kInterval;
  spdlog::warn("{} connections are open, the limit: {} has to wait", commons_.connections.load(),
               from.to_string());
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

void ServerShard::filter_sockets(TimePoint now) {
  const auto kernel_drops = [this] {
    std::uint64_t sum = 0;
    for (const io::UdpSocket& socket : sockets_) sum += socket.kernel_drops();
    return sum;
  };
  const FloodGuard::Want want = guard_.decide(now, kernel_drops);
  if (want == FloodGuard::Want::kNothing) return;
  const bool on = want == FloodGuard::Want::kFilter;
  if (on && now >= next_flood_warning_) {
    next_flood_warning_ = now + DropLog::kInterval;
    spdlog::warn(
        "a flood of datagrams that belong to no connection: the kernel drops most of them from now on");
  }
  for (io::UdpSocket& socket : sockets_) {
    const auto done =
        on ? socket.filter(datagram_filter(commons_.addresses.tag(), guard_.thinned())) : socket.filter({});
    if (!done) spdlog::debug("no filter: {}", done.error().message());
  }
}

// The C library keeps what was freed between what is in use. The last of many connections end later than the
// rest: those that never came in, after 10 s.
void ServerShard::give_memory_back(TimePoint now) {
  const bool late = now < late_until_;
  if (removed_ < (late ? 1 : kRemovedMany)) {
    give_back_at_ = kNever;
    return;
  }
  if (give_back_at_ == kNever) give_back_at_ = now + kGiveBackAfter;
  if (now < give_back_at_) return;
  give_back_at_ = kNever;
  removed_ = 0;
  if (!late) late_until_ = now + kLate;
  io::give_back_freed_memory();
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

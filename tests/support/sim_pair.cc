#include "tests/support/sim_pair.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "proto/base/bytes.h"

namespace tusk::support {
namespace {

using transport::Connection;

constexpr std::size_t kSealing = wire::kShortHeaderSize + wire::kTagSize;
// In front of the payload, where the header would be.
constexpr std::size_t kNumberSize = 8;
constexpr std::uint64_t kStallSeed = 0x5ca1ab1e;

std::vector<wire::Frame> frames_of(std::span<const std::byte> datagram) {
  std::vector<wire::Frame> frames;
  ByteReader reader(datagram.subspan(kNumberSize));
  while (!reader.at_end()) {
    const auto frame = wire::read_frame(reader);
    if (!frame) break;
    frames.push_back(*frame);
  }
  return frames;
}

}  // namespace

SimPair::SimPair(const SimOptions& options)
    : SimWorld(options),
      server_ahead_(options.server_clock_ahead),
      stall_every_(options.stall_every),
      stall_length_(options.stall_length),
      stalls_(options.seed ^ kStallSeed) {
  for (const Role role : {Role::kClient, Role::kServer}) {
    transport::ConnectionConfig config = options.connection;
    config.seed = options.seed + static_cast<std::uint64_t>(role);
    if (role == Role::kServer) config.remembered.reset();  // the client tells it
    auto& connection = connections_[static_cast<std::size_t>(role)];
    connection = std::make_unique<Connection>(role, config, local(role), options.handshake_rtt);
    traffic().attach(role, *connection);
    if (stall_every_ > Duration(0)) stall_later(role);
  }
}

void SimPair::stall_later(Role side) {
  const auto drawn = [this](Duration mean) {
    return from_seconds(-to_seconds(mean) * std::log(1 - stalls_.uniform()));
  };
  after(drawn(stall_every_), [this, side, length = drawn(stall_length_)] {
    programs_[static_cast<std::size_t>(side)].asleep_until = now() + length;
    after(length, [this, side] { wake(side); });
  });
}

void SimPair::wake(Role side) {
  auto& waiting = programs_[static_cast<std::size_t>(side)].waiting;
  for (const Packet& packet : std::exchange(waiting, {}))
    connection(side)->handle_packet(local(side), packet.number, packet.payload, packet.size, packet.marked);
  stall_later(side);
}

void SimPair::lose(Role receiver, int count, Predicate predicate) {
  path().add_sieve(receiver,
                   [count, predicate = std::move(predicate)](std::span<std::byte> datagram) mutable {
                     if (count == 0 || !predicate(frames_of(datagram))) return true;
                     --count;
                     return false;
                   });
}

void SimPair::sabotage_repairs() {
  for (const Role receiver : {Role::kClient, Role::kServer}) {
    std::set<std::tuple<std::uint64_t, ByteCount>> seen;
    path().add_sieve(receiver, [seen](std::span<std::byte> datagram) mutable {
      for (const wire::Frame& frame : frames_of(datagram))
        if (const auto* body = std::get_if<wire::BodyFrame>(&frame))
          if (!seen.emplace(body->exchange.value(), body->offset).second) return false;
      return true;
    });
  }
}

void SimPair::transmit() {
  std::array<std::byte, kNumberSize + wire::kDatagramSizeMax> bytes;
  for (const Role sender : {Role::kClient, Role::kServer}) {
    if (asleep(sender)) continue;
    Connection& connection = *this->connection(sender);
    while (const auto packet = connection.poll_packet(local(sender), std::span(bytes).subspan(kNumberSize))) {
      ByteWriter(bytes).u64(packet->number.value());
      packet->copy_tail(std::span(bytes).subspan(kNumberSize));
      path().send(now(), other(sender), std::span(bytes).first(kNumberSize + packet->payload_size),
                  static_cast<std::uint32_t>(packet->payload_size + kSealing), 0);
    }
  }
}

void SimPair::deliver(const SimPath::Arrival& arrival) {
  const wire::PacketNumber number(ByteReader(arrival.bytes).u64());
  if (asleep(arrival.receiver)) {
    const auto payload = arrival.bytes.subspan(kNumberSize);
    programs_[static_cast<std::size_t>(arrival.receiver)].waiting.push_back(
        {number, {payload.begin(), payload.end()}, arrival.size, arrival.marked});
    return;
  }
  connection(arrival.receiver)
      ->handle_packet(local(arrival.receiver), number, arrival.bytes.subspan(kNumberSize), arrival.size,
                      arrival.marked);
}

void SimPair::handle_events() {
  for (const Role side : {Role::kClient, Role::kServer})
    while (auto event = connection(side)->poll_event()) traffic().handle_event(side, *event);
}

TimePoint SimPair::next_timeout(Role side) const {
  const TimePoint next = connections_[static_cast<std::size_t>(side)]->next_timeout();
  if (next == kNever) return next;
  const TimePoint awake = programs_[static_cast<std::size_t>(side)].asleep_until;
  if (side == Role::kClient) return std::max(next, awake);
  return std::max(awake, next < TimePoint(server_ahead_) ? TimePoint() : next - server_ahead_);
}

TimePoint SimPair::next_timeout() const {
  return std::min(next_timeout(Role::kClient), next_timeout(Role::kServer));
}

void SimPair::handle_timeouts() {
  for (const Role side : {Role::kClient, Role::kServer})
    if (next_timeout(side) <= now()) connection(side)->handle_timeout(local(side));
}

}  // namespace tusk::support

// flood KIND ADDRESS:PORT RATE SECONDS [FROM]: datagrams that a server of Tusk does not want, RATE a second,
// from the address FROM (the kernel's choice). Prints how many went out. KIND:
//   noise    random bytes
//   short    the header of a packet for a connection that there is not
//   flights  first flights without a token
//   proven   first flights with a token that an earlier connection was given
//
// For tests/bench/garbage.py and tests/system. Sends only to loopback and 10.0.0.0/8, at most kRateMax a
// second for kSecondsMax.
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "proto/crypto/handshake.h"
#include "proto/crypto/identity.h"
#include "proto/crypto/packet_protection.h"
#include "proto/crypto/primitives.h"
#include "proto/io/clock.h"
#include "proto/io/udp_socket.h"
#include "proto/rpc/secure_connection.h"
#include "proto/rpc/transmit.h"
#include "proto/wire/frame.h"
#include "proto/wire/packet_header.h"

namespace tusk {
namespace {

constexpr double kRateMax = 200'000;
constexpr double kSecondsMax = 120;
constexpr std::size_t kPool = 20'000;  // different datagrams, made beforehand
constexpr std::size_t kSockets = 16;
constexpr std::size_t kAtOnce = 32;
constexpr std::size_t kSmallBytes = 100;

using Datagram = std::vector<std::byte>;

bool near(const io::Address& address) {
  const auto& ip = address.ip();
  if (!address.is_v4()) return address.ip() == io::parse("[::1]:0")->ip();
  return ip[12] == 127 || ip[12] == 10;
}

Datagram noise() {
  Datagram bytes(kSmallBytes);
  crypto::random_bytes(bytes);
  return bytes;
}

Datagram short_packet() {
  Datagram bytes = noise();
  wire::write_short_header({.to = rpc::random_connection_id()}, bytes);
  return bytes;
}

Datagram first_flight(std::span<const std::byte> hello, std::span<const std::byte> token) {
  wire::LongHeader header;
  header.to = rpc::random_connection_id();
  header.from = rpc::random_connection_id();
  header.token = token;
  Datagram bytes(wire::kDatagramSizeMin);
  const std::size_t begin = wire::write_long_header(header, bytes);
  const std::span<std::byte> whole(bytes);
  ByteWriter writer(whole.subspan(begin, whole.size() - begin - wire::kTagSize));
  write_frame(wire::CryptoFrame{0, hello}, writer);
  write_frame(wire::PaddingFrame{writer.room()}, writer);
  auto seal = crypto::PacketProtector::for_handshake(header.to.bytes, true);
  seal.seal(0, whole.first(begin), whole.subspan(begin));
  return bytes;
}

// Finishes one handshake; empty if that fails.
std::vector<std::byte> token_from(const crypto::Identity& identity, const io::Address& server,
                                  const io::Address& from) {
  auto socket = *io::UdpSocket::open({.bind = from});
  auto secure = *rpc::SecureConnection::client({identity, {}, {}, {}, {}}, io::now());
  io::ReceiveBatch batch(2);
  rpc::DatagramQueue queue;
  const auto too_big = [](const io::Address&, std::size_t) {};
  for (const TimePoint until = io::now() + 10s; io::now() < until;) {
    const TimePoint now = io::now();
    socket.receive(batch, [&](const io::Datagram& datagram) {
      (void)secure->handle_datagram(now, datagram.bytes, datagram.ecn);
    });
    if (secure->next_timeout() <= now) secure->handle_timeout(now);
    if (rpc::transmit(*secure, now, {server, {}}, queue, socket, too_big)) (void)queue.flush(socket, too_big);
    while (auto event = secure->poll_event()) {
      auto* told = std::get_if<transport::Event>(&*event);
      if (!told) continue;
      if (auto* token = std::get_if<transport::AddressTokenArrived>(told)) return std::move(token->token);
    }
    pollfd readable{socket.fd(), POLLIN, 0};
    ::poll(&readable, 1, 5);
  }
  return {};
}

std::vector<Datagram> pool_of(std::string_view kind, const io::Address& server, const io::Address& from) {
  std::vector<Datagram> pool;
  const auto identity = *crypto::Identity::generate();
  const auto hello = crypto::Handshake::client(identity)->take_output();
  std::vector<std::byte> token;
  if (kind == "proven") token = token_from(identity, server, from);
  if (kind == "proven" && token.empty()) return pool;
  if (kind != "noise" && kind != "short" && kind != "flights" && kind != "proven") return pool;
  while (pool.size() < kPool)
    pool.push_back(kind == "noise" ? noise() : kind == "short" ? short_packet() : first_flight(hello, token));
  return pool;
}

int run(std::string_view kind, const io::Address& server, double rate, double seconds,
        const io::Address& from) {
  const std::vector<Datagram> pool = pool_of(kind, server, from);
  if (pool.empty()) return std::fprintf(stderr, "flood: nothing to send\n"), 1;
  std::vector<io::UdpSocket> sockets;
  while (sockets.size() < kSockets) sockets.push_back(*io::UdpSocket::open({.bind = from, .gso = false}));
  std::printf("ready\n");
  std::fflush(stdout);
  const TimePoint begun = io::now();
  std::uint64_t sent = 0;
  for (TimePoint now = begun; now < begun + std::chrono::duration<double>(seconds); now = io::now()) {
    const auto due = static_cast<std::uint64_t>(rate * std::chrono::duration<double>(now - begun).count());
    if (sent + kAtOnce > due) {
      ::poll(nullptr, 0, 1);
      continue;
    }
    std::vector<io::OutgoingBatch> batches;
    for (std::size_t i = 0; i < kAtOnce; ++i) {
      const Datagram& datagram = pool[(sent + i) % pool.size()];
      batches.push_back({server, {}, datagram, static_cast<std::uint16_t>(datagram.size()), 0});
    }
    (void)sockets[sent / kAtOnce % kSockets].send(batches);
    sent += kAtOnce;
  }
  std::printf("sent %llu\n", static_cast<unsigned long long>(sent));
  return 0;
}

}  // namespace
}  // namespace tusk

int main(int argc, char** argv) {
  const auto server = argc > 2 ? tusk::io::parse(argv[2]) : tusk::fail(tusk::ErrorCode::kBadConfig, "");
  const auto from = argc > 5 ? tusk::io::parse(argv[5]) : tusk::io::Address::any(0);
  if (argc < 5 || !server || !from) {
    std::fputs("usage: flood noise|short|flights|proven ADDRESS:PORT RATE SECONDS [FROM:0]\n", stderr);
    return 2;
  }
  if (!tusk::near(*server)) return std::fputs("flood: only loopback and 10.0.0.0/8\n", stderr), 2;
  return tusk::run(argv[1], *server, std::min(std::atof(argv[3]), tusk::kRateMax),
                   std::min(std::atof(argv[4]), tusk::kSecondsMax), *from);
}

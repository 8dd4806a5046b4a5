// What the kernel drops for a flooded server, and when.
#include <gtest/gtest.h>
#include <poll.h>

#include "proto/crypto/address_token.h"
#include "proto/io/udp_socket.h"
#include "proto/rpc/datagram_filter.h"
#include "proto/rpc/flood_guard.h"
#include "proto/wire/packet_header.h"

namespace tusk::rpc {
namespace {

constexpr ServerTag kTag{0xa5c3};
const TimePoint kFloodStart{std::chrono::hours(1)};

wire::ConnectionIdBytes tagged(ServerTag tag) { return connection_id_for(0, 1, tag); }

std::vector<std::byte> short_packet(const wire::ConnectionIdBytes& to, std::size_t size = 100) {
  std::vector<std::byte> packet(size);
  wire::write_short_header({.to = to}, packet);
  return packet;
}

std::vector<std::byte> handshake_packet(const wire::ConnectionIdBytes& to, std::size_t size,
                                        std::span<const std::byte> token = {}) {
  std::vector<std::byte> packet(size);
  wire::LongHeader header;
  header.to = to;
  header.token = token;
  wire::write_long_header(header, packet);
  return packet;
}

std::vector<std::byte> token_of(crypto::AddressTokenKind kind) {
  std::vector<std::byte> token(crypto::kAddressTokenBytes);
  token[0] = static_cast<std::byte>(kind);
  return token;
}

class DatagramFilterTest : public testing::TestWithParam<const char*> {
 protected:
  // How many of so many equal datagrams arrive.
  int arrive(const std::vector<std::byte>& datagram, int count = 1) {
    const io::OutgoingBatch out{
        receiver_.local_address(), {}, datagram, static_cast<std::uint16_t>(datagram.size()), 0};
    for (int i = 0; i < count; ++i) EXPECT_EQ(sender_.send(std::span(&out, 1)).batches, 1u);
    const std::byte end{0x5a};
    // What is behind them has come only once they have.
    EXPECT_TRUE(receiver_.filter({}));
    const io::OutgoingBatch last{receiver_.local_address(), {}, std::span(&end, 1), 1, 0};
    EXPECT_EQ(sender_.send(std::span(&last, 1)).batches, 1u);
    int arrived = 0;
    for (bool over = false; !over;) {
      pollfd readable{receiver_.fd(), POLLIN, 0};
      if (::poll(&readable, 1, 10'000) != 1) return -1;
      receiver_.receive(batch_, [&](const io::Datagram& got) {
        if (got.bytes.size() == 1)
          over = true;
        else
          ++arrived;
      });
    }
    filter();
    return arrived;
  }
  void filter(std::vector<Thinned> thinned = {}) {
    thinned_ = std::move(thinned);
    const auto done = receiver_.filter(datagram_filter(kTag, thinned_));
    ASSERT_TRUE(done) << done.error().message();
  }
  Source source() { return Source(*io::parse(std::string(GetParam()) + ":0")); }

  io::UdpSocket receiver_ =
      *io::UdpSocket::open({.bind = *io::parse(std::string(GetParam()) + ":0"), .gro = false});
  io::UdpSocket sender_ =
      *io::UdpSocket::open({.bind = *io::parse(std::string(GetParam()) + ":0"), .gso = false});
  io::ReceiveBatch batch_;
  std::vector<Thinned> thinned_;
};

INSTANTIATE_TEST_SUITE_P(Families, DatagramFilterTest, testing::Values("127.0.0.1", "[::1]"),
                         [](const auto& tested) { return tested.param[0] == '[' ? "IPv6" : "IPv4"; });

TEST_P(DatagramFilterTest, PassesWhatMayBeTheServers) {
  filter();
  EXPECT_EQ(arrive(short_packet(tagged(kTag))), 1);
  auto other_phase = short_packet(tagged(kTag));
  other_phase[0] |= std::byte{4};
  EXPECT_EQ(arrive(other_phase), 1);
  EXPECT_EQ(arrive(handshake_packet(tagged(kTag), 60)), 1) << "the client's second flight";
  EXPECT_EQ(arrive(handshake_packet(tagged(ServerTag{1}), wire::kDatagramSizeMin)), 1) << "a first flight";
}

TEST_P(DatagramFilterTest, DropsWhatCannotBe) {
  filter();
  EXPECT_EQ(arrive(short_packet(tagged(ServerTag{1}))), 0);
  EXPECT_EQ(arrive(short_packet(tagged(kTag), 20)), 0) << "too short to be sealed";
  EXPECT_EQ(arrive(std::vector<std::byte>(3)), 0);
  for (const int first : {0x00, 0x41, 0x48, 0x50, 0x60, 0x80, 0xd0, 0xe0, 0xf0, 0xc1}) {
    auto packet = handshake_packet(tagged(kTag), wire::kDatagramSizeMin);
    packet[0] = static_cast<std::byte>(first);
    EXPECT_EQ(arrive(packet), 0) << first;
  }
  auto version = handshake_packet(tagged(kTag), wire::kDatagramSizeMin);
  version[4] ^= std::byte{1};
  EXPECT_EQ(arrive(version), 0);
  EXPECT_EQ(arrive(handshake_packet(tagged(ServerTag{1}), wire::kDatagramSizeMin - 1)), 0);
  EXPECT_GT(receiver_.kernel_drops(), 10u);
}

TEST_P(DatagramFilterTest, ThinsTheFirstFlightsOfOneKindFromOneSource) {
  constexpr int kCount = 800;
  const auto id = tagged(ServerTag{1});
  const auto none = handshake_packet(id, wire::kDatagramSizeMin);
  const auto earlier =
      handshake_packet(id, wire::kDatagramSizeMin, token_of(crypto::AddressTokenKind::kFuture));
  const auto admitted =
      handshake_packet(id, wire::kDatagramSizeMin, token_of(crypto::AddressTokenKind::kAdmitted));
  const auto thinned_ones = [&](const std::vector<std::byte>& datagram, const Thinned& which) {
    filter({{Source(io::Address::v4({192, 0, 2, 1}, 0)), Proof::kNone}, which});
    return arrive(datagram, kCount);
  };
  for (const auto& [datagram, proof] : {std::pair(none, Proof::kNone), std::pair(earlier, Proof::kEarlier),
                                        std::pair(admitted, Proof::kAdmitted)}) {
    const int passed = thinned_ones(datagram, {source(), proof});
    EXPECT_GT(passed, kCount / 64);
    EXPECT_LT(passed, kCount / 4);
  }
  EXPECT_EQ(thinned_ones(admitted, {source(), Proof::kEarlier}), kCount);
  EXPECT_EQ(thinned_ones(earlier, {source(), Proof::kNone}), kCount);
  EXPECT_EQ(thinned_ones(none, {source(), Proof::kAdmitted}), kCount);
  EXPECT_EQ(thinned_ones(none, {Source(io::Address::v4({192, 0, 2, 2}, 0)), Proof::kNone}), kCount);
  EXPECT_EQ(thinned_ones(short_packet(tagged(kTag)), {source(), Proof::kNone}), kCount);
}

TEST(FloodGuardTest, FiltersAFloodUntilItIsOver) {
  FloodGuard guard;
  TimePoint now = kFloodStart;
  std::uint64_t drops = 1'000'000;
  const auto interval = [&](int garbage, std::uint64_t in_kernel) {
    for (int i = 0; i < garbage; ++i) guard.note_garbage();
    drops += in_kernel;
    now += FloodGuard::kInterval;
    return guard.decide(now, [&] { return drops; });
  };
  EXPECT_EQ(interval(100, 0), FloodGuard::Want::kNothing) << "a few a second are nothing";
  EXPECT_EQ(interval(5000, 0), FloodGuard::Want::kFilter);
  EXPECT_TRUE(guard.thinned().empty());
  for (int i = 0; i < 200; ++i) ASSERT_EQ(interval(0, 5000), FloodGuard::Want::kNothing) << "it goes on";
  int quiet = 0;
  while (interval(1, 1) == FloodGuard::Want::kNothing) ASSERT_LT(++quiet, 100);
  EXPECT_NEAR(quiet * std::chrono::duration<double>(FloodGuard::kInterval).count(), 5, 0.5);
  EXPECT_FALSE(guard.filtering());
  EXPECT_EQ(guard.next_look(), kNever);
}

TEST(FloodGuardTest, ThinsWhoeverSendsTooManyFirstFlights) {
  FloodGuard guard;
  const Source loud(*io::parse("10.0.0.1:1"));
  TimePoint now = kFloodStart;
  const auto interval = [&] {
    for (int i = 0; i < 3000; ++i) {
      guard.note_flight(loud, Proof::kEarlier);
      if (i < 2000)
        guard.note_flight(Source(io::Address::v4(
                              {10, 1, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)}, 1)),
                          Proof::kRetry);
    }
    now += FloodGuard::kInterval;
    return guard.decide(now, [] { return 0; });
  };
  EXPECT_EQ(interval(), FloodGuard::Want::kFilter);
  EXPECT_EQ(guard.thinned(), (std::vector<Thinned>{{loud, Proof::kEarlier}}));
  EXPECT_EQ(interval(), FloodGuard::Want::kNothing) << "it has been said";
}

}  // namespace
}  // namespace tusk::rpc

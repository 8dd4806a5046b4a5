// UdpSocket against the real kernel, on loopback.
#include "proto/io/udp_socket.h"

#include <netinet/in.h>

#include "tests/unit/io/udp_fixture.h"

namespace tusk::io {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Field;

// Both families, and IPv4 as a dual-stack socket sees it.
class UdpSocketTest : public testing::TestWithParam<const char*> {
 protected:
  UdpSocket a = open_socket(GetParam());
  UdpSocket b = open_socket(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Families, UdpSocketTest, testing::Values("127.0.0.1:0", "[::1]:0"),
                         [](const auto& family) { return family.param[0] == '[' ? "IPv6" : "IPv4"; });

TEST_P(UdpSocketTest, CarriesRunsOfAnySegmentSizeWithAShorterLast) {
  for (const std::uint16_t segment : {1, 2, 1199, 1200, 1434, 1472, 8972, 32'000, 65'000}) {
    const std::size_t full = std::min<std::size_t>(10, 400'000 / segment);
    for (const std::size_t last : {std::size_t{0}, std::size_t{1}, std::size_t{segment} / 2}) {
      const Bytes bytes = pattern(full * segment + last);
      const SendResult result =
          send_one(a, {.to = b.local_address(), .bytes = bytes, .segment_size = segment});
      EXPECT_EQ(result.batches, 1u);
      EXPECT_TRUE(result.failures.empty());
      const auto received = receive(b, full + (last > 0));
      for (std::size_t i = 0; i < full; ++i) ASSERT_EQ(received[i].bytes.size(), segment);
      EXPECT_EQ(joined(received), bytes) << "segment " << segment << ", last " << last;
      EXPECT_THAT(received, Each(Field(&Received::from, a.local_address())));
      EXPECT_THAT(received, Each(Field(&Received::local, b.local_address())));
    }
  }
  EXPECT_TRUE(a.gso_enabled());
}

TEST_P(UdpSocketTest, CutsARunToWhatTheKernelTakes) {
  const std::size_t segments = 10 * kMaxGsoSegments + 3;  // more than 64 segments, more than 65,507 bytes
  const Bytes bytes = pattern(segments * 1200 - 7);
  EXPECT_EQ(send_one(a, {.to = b.local_address(), .bytes = bytes, .segment_size = 1200}).batches, 1u);
  EXPECT_EQ(joined(receive(b, segments)), bytes);
  EXPECT_EQ(a.counters().datagrams_sent, segments);
  EXPECT_EQ(a.counters().bytes_sent, bytes.size());
  EXPECT_EQ(a.counters().send_calls, 1u);
}

TEST_P(UdpSocketTest, MergesOnTheWayInAndOut) {
  const Bytes bytes = pattern(40 * 1200);
  (void)send_one(a, {.to = b.local_address(), .bytes = bytes, .segment_size = 1200});
  ASSERT_EQ(receive(b, 40).size(), 40u);
  if (!b.gro_enabled()) GTEST_SKIP() << "skipped, because this kernel has no UDP_GRO";
  EXPECT_EQ(b.counters().receive_merged, 1u);
  EXPECT_EQ(b.counters().datagrams_received, 40u);
  EXPECT_EQ(b.counters().bytes_received, bytes.size());
}

TEST_P(UdpSocketTest, TakesDatagramsOneByOneWithoutGro) {
  UdpSocket plain = open_socket({.bind = parse(GetParam()).value(), .gso = false, .gro = false});
  const Bytes bytes = pattern(40 * 1200);
  (void)send_one(a, {.to = plain.local_address(), .bytes = bytes, .segment_size = 1200});
  EXPECT_EQ(joined(receive(plain, 40)), bytes);
  EXPECT_EQ(plain.counters().receive_merged, 0u);

  (void)send_one(plain, {.to = a.local_address(), .bytes = bytes, .segment_size = 1200});
  EXPECT_EQ(joined(receive(a, 40)), bytes);
  EXPECT_EQ(plain.counters().gso_disabled, 0u) << "never on is not the same as found broken";
}

TEST_P(UdpSocketTest, CarriesTheEcnBits) {
  for (const std::uint8_t ecn : {0, 1, 2, 3}) {
    const Bytes bytes = pattern(2500);
    (void)send_one(a, {.to = b.local_address(), .bytes = bytes, .segment_size = 1000, .ecn = ecn});
    EXPECT_THAT(receive(b, 3), Each(Field(&Received::ecn, ecn)));
  }
}

TEST_P(UdpSocketTest, SendsManyBatchesToManyPeersInOneCall) {
  UdpSocket c = open_socket(GetParam());
  const Bytes bytes = pattern(3000);
  std::vector<OutgoingBatch> batches;
  for (std::size_t i = 0; i < 30; ++i)
    batches.push_back({.to = (i % 2 ? b : c).local_address(), .bytes = bytes, .segment_size = 1000});
  EXPECT_EQ(a.send(batches).batches, batches.size());
  EXPECT_EQ(a.counters().send_calls, 1u);
  receive(b, 45);
  receive(c, 45);
}

TEST_P(UdpSocketTest, TakesMoreBatchesThanFitOneCall) {
  const Bytes bytes = pattern(10);
  const std::vector<OutgoingBatch> batches(kMaxMessagesPerCall * 2 + 1,
                                           {.to = b.local_address(), .bytes = bytes, .segment_size = 10});
  EXPECT_EQ(a.send(batches).batches, batches.size());
  EXPECT_EQ(a.counters().send_calls, 3u);
  receive(b, batches.size());
}

TEST_P(UdpSocketTest, LetsTheReceiverDecryptInPlace) {
  const Bytes bytes = pattern(3000);
  (void)send_one(a, {.to = b.local_address(), .bytes = bytes, .segment_size = 1000});
  ASSERT_TRUE(wait_for(b.fd(), POLLIN));
  ReceiveBatch batch(1);
  std::size_t offset = 0;
  const ReceiveResult result = b.receive(batch, [&](const Datagram& datagram) {
    EXPECT_EQ(datagram.bytes.front(), bytes[offset]) << "overwriting one datagram must not touch the next";
    std::ranges::fill(datagram.bytes, std::byte{0});
    offset += datagram.bytes.size();
  });
  EXPECT_EQ(result.datagrams, 3u);
  EXPECT_TRUE(result.more) << "the only buffer was used";
  EXPECT_EQ(b.receive(batch, [](const Datagram&) { FAIL(); }).datagrams, 0u);
}

TEST_P(UdpSocketTest, DeliversAnEmptyDatagramAsOne) {
  sockaddr_in6 to{};
  socklen_t size = sizeof(to);
  ASSERT_EQ(::getsockname(b.fd(), reinterpret_cast<sockaddr*>(&to), &size), 0);
  ASSERT_EQ(::sendto(a.fd(), nullptr, 0, 0, reinterpret_cast<sockaddr*>(&to), size), 0);
  EXPECT_THAT(sizes(receive(b, 1)), ElementsAre(0u));
}

TEST_P(UdpSocketTest, ReportsADatagramAboveTheMtuAndGoesOn) {
  // One byte above the largest UDP payload, for which no MTU of loopback is enough.
  const Bytes big = pattern(65'530);
  const Bytes small = pattern(100);
  const OutgoingBatch batches[] = {{.to = b.local_address(), .bytes = small, .segment_size = 100},
                                   {.to = b.local_address(), .bytes = big, .segment_size = 65'530},
                                   {.to = b.local_address(), .bytes = small, .segment_size = 50}};
  const SendResult result = a.send(batches);
  EXPECT_EQ(result.batches, 3u);
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].batch, 1u);
  EXPECT_EQ(result.failures[0].code, from_errno(EMSGSIZE));
  EXPECT_EQ(result.failures[0].datagram_bytes, big.size());
  EXPECT_EQ(result.failures[0].datagrams, 1u);
  EXPECT_EQ(a.counters().send_too_big, 1u);
  EXPECT_EQ(a.counters().send_failed, 1u);
  EXPECT_TRUE(a.gso_enabled());
  EXPECT_THAT(sizes(receive(b, 3)), ElementsAre(100u, 50u, 50u));
}

TEST_P(UdpSocketTest, CountsWhatTheKernelDroppedForWantOfBuffer) {
  UdpSocket narrow = open_socket({.bind = parse(GetParam()).value(), .buffer_bytes = 8192});
  constexpr std::size_t kSent = 100;
  const Bytes bytes = pattern(1000);
  const auto send_single = [&] {
    (void)send_one(a, {.to = narrow.local_address(), .bytes = bytes, .segment_size = 1000});
  };
  for (std::size_t i = 0; i < kSent; ++i) send_single();
  ReceiveBatch batch(64);
  std::size_t arrived = 0;
  const auto count = [&](const Datagram&) { ++arrived; };
  while (narrow.receive(batch, count).datagrams > 0) continue;
  send_single();  // the count travels with the next datagram
  ASSERT_TRUE(wait_for(narrow.fd(), POLLIN));
  narrow.receive(batch, count);
  EXPECT_GT(narrow.counters().overflow_drops, 0u);
  EXPECT_EQ(narrow.counters().overflow_drops + arrived, kSent + 1);
  EXPECT_LT(narrow.receive_buffer_bytes(), kWantedBufferBytes);
}

TEST(UdpSocket, ServesBothFamiliesFromOneDualStackSocket) {
  UdpSocket server = open_socket("[::]:0");
  const std::uint16_t port = server.local_address().port();
  for (const char* text : {"127.0.0.1:0", "[::1]:0"}) {
    const Address at = parse(text)->with_port(port);
    UdpSocket client = open_socket("[::]:0");
    const Bytes bytes = pattern(2500);
    (void)send_one(client, {.to = at, .bytes = bytes, .segment_size = 1000, .ecn = 2});
    const auto request = receive(server, 3);
    EXPECT_THAT(request, Each(Field(&Received::local, at)));
    EXPECT_THAT(request, Each(Field(&Received::ecn, 2)));
    EXPECT_EQ(request[0].from.with_port(0), at.with_port(0));

    (void)send_one(
        server,
        {.to = request[0].from, .local = request[0].local, .bytes = bytes, .segment_size = 1000, .ecn = 1});
    const auto answer = receive(client, 3);
    EXPECT_THAT(answer, Each(Field(&Received::from, at)));
    EXPECT_THAT(answer, Each(Field(&Received::ecn, 1)));
  }
}

TEST(UdpSocket, AnswersFromTheAddressItWasReachedAt) {
  // All of 127.0.0.0/8 is this machine; left alone the kernel would answer from 127.0.0.1.
  for (const char* bind : {"[::]:0", "0.0.0.0:0"}) {
    UdpSocket server = open_socket(bind);
    UdpSocket client = open_socket("127.0.0.1:0");
    const Address at = parse("127.8.8.75:0")->with_port(server.local_address().port());
    const Bytes bytes = pattern(100);
    (void)send_one(client, {.to = at, .bytes = bytes, .segment_size = 100});
    const auto request = receive(server, 1);
    ASSERT_EQ(request[0].local, at);
    (void)send_one(server, {.to = request[0].from, .local = at, .bytes = bytes, .segment_size = 100});
    EXPECT_EQ(receive(client, 1)[0].from, at);
    (void)send_one(server, {.to = request[0].from, .bytes = bytes, .segment_size = 100});
    EXPECT_NE(receive(client, 1)[0].from, at) << "canary: without the source address it must differ";
  }
}

TEST(UdpSocket, SurvivesPeersThatAreGoneAndAddressesItCannotReach) {
  UdpSocket socket = open_socket("127.0.0.1:0");
  UdpSocket alive = open_socket("127.0.0.1:0");
  const Address gone = open_socket("127.0.0.1:0").local_address();
  const Bytes bytes = pattern(100);
  const OutgoingBatch batches[] = {
      {.to = gone, .bytes = bytes, .segment_size = 100},
      {.to = parse("[::1]:9").value(), .bytes = bytes, .segment_size = 10},  // an IPv4 socket cannot
      {.to = alive.local_address(),
       .local = parse("192.0.2.1:0").value(),
       .bytes = bytes,
       .segment_size = 100},
      {.to = alive.local_address(), .bytes = bytes, .segment_size = 100}};
  const SendResult result = socket.send(batches);
  EXPECT_EQ(result.batches, 4u);
  ASSERT_EQ(result.failures.size(), 2u);
  EXPECT_EQ(result.failures[0].batch, 1u);
  EXPECT_EQ(result.failures[0].datagrams, 10u);
  EXPECT_EQ(result.failures[1].batch, 2u);
  EXPECT_EQ(socket.counters().send_failed, 11u);
  EXPECT_TRUE(socket.gso_enabled());
  receive(alive, 1);
}

TEST(UdpSocket, SaysWhyItCannotOpen) {
  UdpSocket first = open_socket("127.0.0.1:0");
  const auto taken = UdpSocket::open({.bind = first.local_address()});
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, from_errno(EADDRINUSE));
  EXPECT_THAT(taken.error().message(), testing::HasSubstr(first.local_address().to_string()));
  const auto elsewhere = UdpSocket::open({.bind = parse("192.0.2.1:0").value()});
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().code, from_errno(EADDRNOTAVAIL));
}

TEST(UdpSocket, SharesAPortWhenAsked) {
  UdpSocket first = open_socket({.bind = parse("127.0.0.1:0").value(), .reuse_port = true});
  EXPECT_TRUE(UdpSocket::open({.bind = first.local_address(), .reuse_port = true}));
  EXPECT_FALSE(UdpSocket::open({.bind = first.local_address()}));
}

TEST(UdpSocket, ReportsTheBuffersItGot) {
  UdpSocket socket = open_socket("127.0.0.1:0");
  EXPECT_GT(socket.receive_buffer_bytes(), 0u);
  EXPECT_LE(socket.receive_buffer_bytes(), kWantedBufferBytes);
  UdpSocket small = open_socket({.bind = parse("127.0.0.1:0").value(), .buffer_bytes = 50'000});
  EXPECT_EQ(small.receive_buffer_bytes(), 50'000u);
  EXPECT_EQ(small.send_buffer_bytes(), 50'000u);
}

TEST(UdpSocket, MovesWithItsDescriptor) {
  UdpSocket first = open_socket("127.0.0.1:0");
  const int fd = first.fd();
  UdpSocket second = std::move(first);
  EXPECT_EQ(second.fd(), fd);
  first = open_socket("127.0.0.1:0");
  EXPECT_NE(first.fd(), fd);
}

}  // namespace
}  // namespace tusk::io

// UdpSocket over a kernel that fails on command: every fallback.
#include <netinet/in.h>

#include "tests/unit/io/udp_fixture.h"

namespace tusk::io {
namespace {

class UdpFaults : public testing::Test {
 protected:
  FaultyKernel kernel;
  UdpSocket a = open_socket({.bind = parse("127.0.0.1:0").value(), .syscalls = &kernel});
  UdpSocket b = open_socket("127.0.0.1:0");

  OutgoingBatch to_b(const Bytes& bytes, std::uint16_t segment) {
    return {.to = b.local_address(), .bytes = bytes, .segment_size = segment};
  }
};

TEST_F(UdpFaults, SwitchesGsoOffWhenOnlyRunsFailAndLosesNothing) {
  for (const int error : {EIO, EINVAL}) {
    UdpSocket fresh = open_socket({.bind = parse("127.0.0.1:0").value(), .syscalls = &kernel});
    kernel.send_error = [error](const mmsghdr& message) { return is_gso(message) ? error : 0; };
    const Bytes bytes = pattern(100 * 1200 + 5);
    EXPECT_EQ(send_one(fresh, to_b(bytes, 1200)).batches, 1u);
    EXPECT_EQ(joined(receive(b, 101)), bytes);
    EXPECT_FALSE(fresh.gso_enabled());
    EXPECT_EQ(fresh.counters().gso_disabled, 1u);
    EXPECT_EQ(fresh.counters().send_failed, 0u);
    EXPECT_EQ(fresh.counters().datagrams_sent, 101u);

    kernel.send_error = [](const mmsghdr& message) { return is_gso(message) ? ENOTRECOVERABLE : 0; };
    EXPECT_TRUE(send_one(fresh, to_b(bytes, 1200)).failures.empty()) << "GSO stays off";
    receive(b, 101);
  }
}

TEST_F(UdpFaults, KeepsGsoWhenSingleDatagramsFailAsWell) {
  // Before Linux 6.14 a run with segments above the MTU is EINVAL, a single datagram EMSGSIZE.
  kernel.send_error = [](const mmsghdr& message) { return is_gso(message) ? EINVAL : EMSGSIZE; };
  const SendResult result = send_one(a, to_b(pattern(5000), 1200));
  EXPECT_EQ(result.batches, 1u);
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].code, from_errno(EMSGSIZE));
  EXPECT_EQ(result.failures[0].datagram_bytes, 1200u);
  EXPECT_EQ(result.failures[0].datagrams, 5u);
  EXPECT_TRUE(a.gso_enabled());
  EXPECT_EQ(a.counters().gso_disabled, 0u);
}

TEST_F(UdpFaults, StopsAtAFullBufferAndGoesOnWhereItStopped) {
  // Each run of 100 datagrams is two messages; the buffer takes three messages at a time.
  const Bytes bytes = pattern(100 * 1000);
  const std::vector<OutgoingBatch> all(4, to_b(bytes, 1000));
  int room = 3;
  kernel.send_error = [&](const mmsghdr&) { return room-- > 0 ? 0 : EAGAIN; };

  SendResult result = a.send(all);
  EXPECT_EQ(result.batches, 1u);
  EXPECT_EQ(result.bytes_of_next, 64'000u);
  EXPECT_TRUE(result.failures.empty()) << "a full buffer loses nothing";
  EXPECT_EQ(a.counters().send_blocked, 1u);

  std::vector<OutgoingBatch> rest(all.begin() + 1, all.end());
  rest[0].bytes = rest[0].bytes.subspan(result.bytes_of_next);
  room = 1000;
  EXPECT_EQ(a.send(rest).batches, 3u);
  const auto received = receive(b, 400);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(joined({received.begin() + i * 100, received.begin() + (i + 1) * 100}), bytes);
}

TEST_F(UdpFaults, StopsAtAFullBufferWhileFindingOutAboutGso) {
  kernel.send_error = [](const mmsghdr& message) { return is_gso(message) ? EIO : EAGAIN; };
  const SendResult result = send_one(a, to_b(pattern(5000), 1000));
  EXPECT_EQ(result.batches, 0u);
  EXPECT_EQ(result.bytes_of_next, 0u);
  EXPECT_TRUE(a.gso_enabled()) << "nothing is known yet";
}

TEST_F(UdpFaults, CountsWhatTheNetworkRefusesAndSendsTheRest) {
  for (const int error : {ECONNREFUSED, ENETUNREACH, EHOSTUNREACH, EPERM, ENOBUFS, ENETDOWN}) {
    // The second message fails, behind one that was sent and again at the head of the next call.
    int calls = 0;
    kernel.send_error = [&](const mmsghdr&) { return ++calls == 2 || calls == 3 ? error : 0; };
    const Bytes bytes = pattern(2000);
    const std::vector<OutgoingBatch> batches(3, to_b(bytes, 1000));
    const SendResult result = a.send(batches);
    EXPECT_EQ(result.batches, 3u);
    ASSERT_EQ(result.failures.size(), 1u);
    EXPECT_EQ(result.failures[0].batch, 1u);
    EXPECT_EQ(result.failures[0].code, from_errno(error));
    EXPECT_EQ(result.failures[0].datagrams, 2u);
    receive(b, 4);
  }
  EXPECT_EQ(a.counters().send_failed, 12u);
}

TEST_F(UdpFaults, LosesNothingToAnErrorThatIsGoneAtTheSecondTry) {
  int calls = 0;
  kernel.send_error = [&](const mmsghdr&) { return ++calls == 2 ? ECONNREFUSED : 0; };
  const Bytes bytes = pattern(2000);
  const std::vector<OutgoingBatch> batches(3, to_b(bytes, 1000));
  EXPECT_TRUE(a.send(batches).failures.empty());
  receive(b, 6);
}

TEST_F(UdpFaults, NamesTheBatchThatWasRefused) {
  const Address nowhere = parse("127.0.0.1:9").value();
  kernel.send_error = [&](const mmsghdr& message) {
    return static_cast<const sockaddr_in*>(message.msg_hdr.msg_name)->sin_port == htons(9) ? ENETUNREACH : 0;
  };
  const Bytes bytes = pattern(200);
  const OutgoingBatch batches[] = {
      to_b(bytes, 100), {.to = nowhere, .bytes = bytes, .segment_size = 50}, to_b(bytes, 100)};
  const SendResult result = a.send(batches);
  EXPECT_EQ(result.batches, 3u);
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].batch, 1u);
  EXPECT_EQ(result.failures[0].code, from_errno(ENETUNREACH));
  EXPECT_EQ(result.failures[0].datagrams, 4u);
  receive(b, 4);
}

TEST_F(UdpFaults, MergesReportsAboutOneBatch) {
  a.disable_gso();
  kernel.send_error = [](const mmsghdr&) { return EPERM; };
  const SendResult result = send_one(a, to_b(pattern(5000), 1000));
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].datagrams, 5u);
  kernel.send_error = nullptr;
  EXPECT_TRUE(send_one(a, to_b(pattern(5000), 1000)).failures.empty()) << "reports do not linger";
}

TEST_F(UdpFaults, DropsAndCountsWhatTheKernelCut) {
  for (const int flag : {MSG_TRUNC, MSG_CTRUNC}) {
    kernel.spoil = [flag](mmsghdr& message) { message.msg_hdr.msg_flags |= flag; };
    const Bytes bytes = pattern(100);
    (void)send_one(b, {.to = a.local_address(), .bytes = bytes, .segment_size = 100});
    ASSERT_TRUE(wait_for(a.fd(), POLLIN));
    ReceiveBatch batch;
    EXPECT_EQ(a.receive(batch, [](const Datagram&) { FAIL(); }).datagrams, 0u);
  }
  EXPECT_EQ(a.counters().receive_truncated, 2u);
  kernel.spoil = nullptr;
  (void)send_one(b, {.to = a.local_address(), .bytes = pattern(100), .segment_size = 100});
  receive(a, 1);
}

TEST_F(UdpFaults, ReceivesBehindErrorsThatThePeersCaused) {
  (void)send_one(b, {.to = a.local_address(), .bytes = pattern(100), .segment_size = 100});
  kernel.receive_errors = {ECONNREFUSED, EINTR, EHOSTUNREACH};
  receive(a, 1);
  EXPECT_EQ(a.counters().receive_failed, 2u);
}

TEST_F(UdpFaults, GivesUpForNowWhenEveryReceiveFails) {
  kernel.receive_errors.assign(100, ENOMEM);
  ReceiveBatch batch;
  EXPECT_EQ(a.receive(batch, [](const Datagram&) { FAIL(); }).datagrams, 0u);
  EXPECT_GT(kernel.receive_errors.size(), 50u) << "bounded";
}

TEST_F(UdpFaults, WorksOnAKernelWithoutAnyOption) {
  kernel.refuse_option = [](int, int) { return true; };
  UdpSocket bare = open_socket({.bind = parse("127.0.0.1:0").value(), .syscalls = &kernel});
  EXPECT_FALSE(bare.gso_enabled());
  EXPECT_FALSE(bare.gro_enabled());
  EXPECT_GT(bare.receive_buffer_bytes(), 0u);
  const Bytes bytes = pattern(5000);
  (void)send_one(bare, to_b(bytes, 1000));
  EXPECT_EQ(joined(receive(b, 5)), bytes);
  (void)send_one(b, {.to = bare.local_address(), .bytes = bytes, .segment_size = 1000});
  const auto received = receive(bare, 5);
  EXPECT_EQ(joined(received), bytes);
  EXPECT_EQ(received[0].local, bare.local_address()) << "where it is bound, for want of better";
}

TEST_F(UdpFaults, AsksForLessWithoutThePrivilegeToForceBuffers) {
  kernel.refuse_option = [](int, int name) { return name == SO_RCVBUFFORCE || name == SO_SNDBUFFORCE; };
  UdpSocket modest =
      open_socket({.bind = parse("127.0.0.1:0").value(), .buffer_bytes = 60'000, .syscalls = &kernel});
  EXPECT_EQ(modest.receive_buffer_bytes(), 60'000u);
  EXPECT_EQ(modest.send_buffer_bytes(), 60'000u);
}

TEST_F(UdpFaults, SharingAPortIsVitalWhenAskedFor) {
  kernel.refuse_option = [](int, int name) { return name == SO_REUSEPORT; };
  EXPECT_FALSE(
      UdpSocket::open({.bind = parse("127.0.0.1:0").value(), .reuse_port = true, .syscalls = &kernel}));
}

TEST_F(UdpFaults, ServesIpv4AloneOnAMachineWithoutIpv6) {
  kernel.refuse_family = AF_INET6;
  UdpSocket server = open_socket({.bind = Address::any(0), .syscalls = &kernel});
  EXPECT_TRUE(server.local_address().is_v4());
  EXPECT_TRUE(server.local_address().is_wildcard());
  const Address at = parse("127.0.0.1:0")->with_port(server.local_address().port());
  (void)send_one(b, {.to = at, .bytes = pattern(100), .segment_size = 100});
  EXPECT_EQ(receive(server, 1)[0].local, at);
  const auto v6 = UdpSocket::open({.bind = parse("[::1]:0").value(), .syscalls = &kernel});
  ASSERT_FALSE(v6) << "who asks for an IPv6 address must not get another";
  EXPECT_EQ(v6.error().code, from_errno(EAFNOSUPPORT));
}

}  // namespace
}  // namespace tusk::io

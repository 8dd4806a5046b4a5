// UdpSocket on a loopback with an MTU and addresses of our choice, in a network namespace of its own.
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "proto/io/clock.h"
#include "tests/unit/io/udp_fixture.h"

namespace tusk::io {
namespace {

constexpr char kNotAllowed[] = "skipped, because network namespaces are not allowed here";

struct Loopback {
  int mtu = 65'536;
  std::vector<std::string> ipv6{};  // further addresses
};

// What the kernel takes for SIOCSIFADDR on an IPv6 socket; its header clashes with netinet/in.h.
struct Ipv6AddressRequest {
  in6_addr address;
  std::uint32_t prefix_length;
  int interface;
};

// The kernel takes an IPv6 address into use some time after it was added: first nothing can be bound to
// it, then nothing can be sent to it.
bool wait_until_usable(const Address& address) {
  const TimePoint patience_ends = now() + std::chrono::milliseconds(kPatienceMs);
  while (now() < patience_ends) {
    if (auto socket = UdpSocket::open({.bind = address})) {
      const Bytes bytes = pattern(1);
      const OutgoingBatch to_itself{.to = socket->local_address(), .bytes = bytes, .segment_size = 1};
      if (send_one(*socket, to_itself).failures.empty()) return true;
    }
    std::this_thread::yield();
  }
  return false;
}

bool set_up(const Loopback& loopback) {
  const int v4 = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int v6 = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_mtu = loopback.mtu;
  bool good = ::ioctl(v4, SIOCSIFMTU, &request) == 0;
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  good = good && ::ioctl(v4, SIOCSIFFLAGS, &request) == 0;
  for (const std::string& ip : loopback.ipv6) {
    const Address address = parse("[" + ip + "]:0").value();
    const int interface = static_cast<int>(::if_nametoindex("lo"));
    Ipv6AddressRequest addition{.address = {}, .prefix_length = 128, .interface = interface};
    std::memcpy(&addition.address, address.ip().data(), sizeof(addition.address));
    good = good && ::ioctl(v6, SIOCSIFADDR, &addition) == 0 && wait_until_usable(address);
  }
  ::close(v4);
  ::close(v6);
  return good;
}

// Runs `body` on a thread in a fresh namespace, which ends with it. False when that is not allowed.
bool on_own_loopback(const Loopback& loopback, const std::function<void()>& body) {
  bool ready = false;
  std::thread([&] {
    ready = ::unshare(CLONE_NEWNET) == 0 && set_up(loopback);
    if (ready) body();
  }).join();
  return ready;
}

TEST(UdpOwnLoopback, NeverFragmentsAndReportsTheSizeThatFails) {
  constexpr int kMtu = 1500;
  const bool ran = on_own_loopback({.mtu = kMtu}, [] {
    for (const auto& [bind, largest] :
         {std::pair{"127.0.0.1:0", kMtu - 28}, std::pair{"[::1]:0", kMtu - 48}}) {
      UdpSocket a = open_socket(bind);
      UdpSocket b = open_socket(bind);
      const auto fits = static_cast<std::uint16_t>(largest);
      const Bytes good = pattern(5 * fits);
      EXPECT_TRUE(
          send_one(a, {.to = b.local_address(), .bytes = good, .segment_size = fits}).failures.empty());
      EXPECT_EQ(joined(receive(b, 5)), good);

      for (const std::size_t segments : {1, 5}) {  // a probe, and a run with GSO
        const auto too_big = static_cast<std::uint16_t>(largest + 1);
        const Bytes bad = pattern(segments * too_big);
        const SendResult result =
            send_one(a, {.to = b.local_address(), .bytes = bad, .segment_size = too_big});
        EXPECT_EQ(result.batches, 1u);
        ASSERT_EQ(result.failures.size(), 1u) << bind;
        EXPECT_EQ(result.failures[0].code, from_errno(EMSGSIZE));
        EXPECT_EQ(result.failures[0].datagram_bytes, too_big);
        EXPECT_EQ(result.failures[0].datagrams, segments);
      }
      EXPECT_TRUE(a.gso_enabled());
    }
  });
  if (!ran) GTEST_SKIP() << kNotAllowed;
}

TEST(UdpOwnLoopback, AnswersFromTheIpv6AddressItWasReachedAt) {
  const bool ran = on_own_loopback({.ipv6 = {"2001:db8::1", "2001:db8::2"}}, [] {
    UdpSocket server = open_socket("[::]:0");
    UdpSocket client = open_socket("[::1]:0");
    const Bytes bytes = pattern(2500);
    for (const char* text : {"[2001:db8::1]:0", "[2001:db8::2]:0"}) {
      const Address at = parse(text)->with_port(server.local_address().port());
      (void)send_one(client, {.to = at, .bytes = bytes, .segment_size = 1000});
      const auto request = receive(server, 3);
      EXPECT_EQ(request[0].local, at);
      (void)send_one(server,
                     {.to = request[0].from, .local = at, .bytes = bytes, .segment_size = 1000, .ecn = 2});
      const auto answer = receive(client, 3);
      EXPECT_EQ(answer[0].from, at);
      EXPECT_EQ(answer[0].ecn, 2);
      (void)send_one(server, {.to = request[0].from, .bytes = bytes, .segment_size = 1000});
      EXPECT_NE(receive(client, 3)[0].from, at) << "canary: without the source address it must differ";
    }
  });
  if (!ran) GTEST_SKIP() << kNotAllowed;
}

}  // namespace
}  // namespace tusk::io

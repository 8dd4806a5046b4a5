// A socket that is full, and the connections that wait for it.
#include "proto/rpc/outlet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/io/udp_fixture.h"

namespace tusk::rpc {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class OutletTest : public testing::Test {
 protected:
  OutletTest() {
    kernel_.send_error = [this](const mmsghdr&) { return full_ ? EAGAIN : 0; };
  }

  void send(std::size_t datagrams) {
    outlet_.send([&](DatagramQueue& queue, io::UdpSocket&, const Outlet::TooBig&) {
      for (std::size_t i = 0; i < datagrams; ++i) queue.commit(1000, receiver_.local_address(), {}, true);
      return true;
    });
    outlet_.flush();
  }
  void becomes_writable() {
    auto waits = std::exchange(waits_, {});
    for (const auto& fn : waits) fn();
  }

  io::FaultyKernel kernel_;
  bool full_ = false;
  bool refuses_waits_ = false;
  io::UdpSocket socket_ = io::open_socket({.bind = *io::parse("127.0.0.1:0"), .syscalls = &kernel_});
  io::UdpSocket receiver_ = io::open_socket("127.0.0.1:0");
  std::vector<std::function<void()>> waits_;
  std::vector<ConnectionId> resumed_;
  Outlet outlet_{socket_,
                 [this](std::function<void()> fn) -> Result<void> {
                   if (refuses_waits_) return fail(from_errno(EMFILE));
                   waits_.push_back(std::move(fn));
                   return {};
                 },
                 [](const io::Address&, std::size_t) {},
                 [this](ConnectionId connection) { resumed_.push_back(connection); }};
};

TEST_F(OutletTest, WaitsOnceHoweverOftenOthersTryMeanwhile) {
  full_ = true;
  for (int i = 0; i < 100; ++i) send(1);
  EXPECT_TRUE(outlet_.blocked());
  EXPECT_EQ(waits_.size(), 1u);
  becomes_writable();
  EXPECT_EQ(waits_.size(), 1u) << "there is more than the socket takes at a time";
  full_ = false;
  becomes_writable();
  EXPECT_FALSE(outlet_.blocked());
  EXPECT_THAT(waits_, IsEmpty());
  EXPECT_EQ(socket_.counters().datagrams_sent, 100u);
}

TEST_F(OutletTest, ResumesWhomItHeldUpAndNobodyElse) {
  full_ = true;
  send(1);
  outlet_.hold_up(ConnectionId(7));
  outlet_.hold_up(ConnectionId(3));
  outlet_.flush();
  EXPECT_THAT(resumed_, IsEmpty());
  full_ = false;
  becomes_writable();
  EXPECT_THAT(resumed_, ElementsAre(ConnectionId(7), ConnectionId(3)));
  send(1);
  EXPECT_THAT(resumed_, ElementsAre(ConnectionId(7), ConnectionId(3))) << "once";
}

TEST_F(OutletTest, WhoTriesFirstResumesAll) {
  full_ = true;
  send(1);
  outlet_.hold_up(ConnectionId(7));
  full_ = false;
  outlet_.flush();
  EXPECT_THAT(resumed_, ElementsAre(ConnectionId(7)));
  becomes_writable();
  EXPECT_THAT(resumed_, ElementsAre(ConnectionId(7)));
}

TEST_F(OutletTest, AWaitThatCouldNotBeHadIsAskedForAgain) {
  full_ = refuses_waits_ = true;
  send(1);
  refuses_waits_ = false;
  outlet_.flush();
  EXPECT_EQ(waits_.size(), 1u);
}

}  // namespace
}  // namespace tusk::rpc

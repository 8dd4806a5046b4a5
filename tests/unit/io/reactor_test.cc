#include "proto/io/reactor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proto/io/clock.h"
#include "proto/io/udp_socket.h"

namespace tusk::io {
namespace {

using testing::ElementsAre;

// An eventfd: readable while its count is not zero.
class Event {
 public:
  Event() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Event() { ::close(fd_); }
  void raise() {
    const std::uint64_t one = 1;
    ASSERT_EQ(::write(fd_, &one, sizeof(one)), 8);
  }
  std::uint64_t take() {
    std::uint64_t count = 0;
    return ::read(fd_, &count, sizeof(count)) == 8 ? count : 0;
  }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

class ReactorTest : public testing::Test {
 protected:
  std::unique_ptr<Reactor> reactor = Reactor::create().value();
  std::vector<std::string> log;

  Task note(std::string what) {
    return [this, what = std::move(what)] { log.push_back(what); };
  }
  // Fails the test instead of hanging it.
  void run() {
    Timer watchdog(*reactor);
    watchdog.arm(now() + 20s, [this] {
      ADD_FAILURE() << "nothing ended the loop";
      reactor->stop();
    });
    reactor->run();
  }
};

// --- Timers.

TEST_F(ReactorTest, FiresTimersByDeadlineAndEqualOnesAsArmed) {
  const TimePoint start = now();
  Timer first(*reactor), second(*reactor), third(*reactor), last(*reactor);
  third.arm(start + 3ms, note("third"));
  first.arm(start + 1ms, note("first"));
  second.arm(start + 1ms, note("second"));
  last.arm(start + 4ms, [this] { reactor->stop(); });
  run();
  EXPECT_THAT(log, ElementsAre("first", "second", "third"));
  EXPECT_FALSE(first.armed());
}

TEST_F(ReactorTest, KeepsThePolicyAndTheNiceValueOfItsThread) {
  static constexpr int kNice = 3;
  std::thread([this] {
    ASSERT_EQ(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice), 0);
    for (const int policy : {SCHED_OTHER, SCHED_BATCH}) {
      const sched_param none{};
      ASSERT_EQ(::sched_setscheduler(0, policy, &none), 0);
      reactor->stop();
      reactor->run();
      EXPECT_EQ(::sched_getscheduler(0), policy);
      EXPECT_EQ(::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid())), kNice);
    }
  }).join();
}

TEST_F(ReactorTest, NeverFiresEarly) {
  Timer timer(*reactor);
  int rounds = 0;
  std::function<void()> next = [&] {
    const TimePoint deadline = now() + std::chrono::microseconds(37 * rounds);
    timer.arm(deadline, [&, deadline] {
      EXPECT_GE(now(), deadline);
      if (++rounds < 50) return next();
      reactor->stop();
    });
  };
  next();
  run();
  EXPECT_EQ(rounds, 50);
}

TEST_F(ReactorTest, ForgetsACancelledTimer) {
  Timer cancelled(*reactor), replaced(*reactor), end(*reactor);
  {
    Timer destroyed(*reactor);
    destroyed.arm(now(), note("destroyed"));
  }
  cancelled.arm(now(), note("cancelled"));
  cancelled.cancel();
  cancelled.cancel();
  replaced.arm(now(), note("old"));
  replaced.arm(now() + 1ms, note("new"));
  end.arm(now() + 2ms, [this] { reactor->stop(); });
  run();
  EXPECT_THAT(log, ElementsAre("new"));
}

TEST_F(ReactorTest, LetsATimerCancelOrDestroyAnotherThatIsDueWithIt) {
  const TimePoint due = now();
  Timer killer(*reactor), victim(*reactor);
  auto doomed = std::make_unique<Timer>(*reactor);
  killer.arm(due, [&] {
    victim.cancel();
    doomed.reset();
    reactor->stop();
  });
  victim.arm(due, note("victim"));
  doomed->arm(due, note("doomed"));
  run();
  EXPECT_THAT(log, ElementsAre());
}

TEST_F(ReactorTest, LetsATimerDestroyItself) {
  auto timer = std::make_unique<Timer>(*reactor);
  timer->arm(now(), [&] {
    timer.reset();
    reactor->stop();
  });
  run();
  EXPECT_EQ(timer, nullptr);
}

TEST_F(ReactorTest, DoesNotStarveOthersWhenATimerIsArmedForThePastAgainAndAgain) {
  Timer eager(*reactor);
  Event event;
  std::function<void()> again = [&] { eager.arm(TimePoint(), [&] { again(); }); };
  again();
  ASSERT_TRUE(reactor->watch_readable(event.fd(), [&] { reactor->stop(); }));
  event.raise();
  run();
  reactor->forget(event.fd());
}

TEST_F(ReactorTest, MovesAnArmedTimerBothWays) {
  Timer sooner(*reactor), later(*reactor), end(*reactor);
  sooner.arm(now() + 1h, note("sooner"));
  sooner.arm(now() + 2ms, note("sooner"));
  later.arm(now(), note("too soon"));
  later.arm(now() + 4ms, note("later"));
  end.arm(now() + 6ms, [this] { reactor->stop(); });
  run();
  EXPECT_THAT(log, ElementsAre("sooner", "later"));
}

TEST_F(ReactorTest, TakesNeverAsCancel) {
  Timer timer(*reactor);
  timer.arm(kNever, note("never"));
  EXPECT_FALSE(timer.armed());
  timer.arm(now() + 1h, note("never"));
  EXPECT_LT(timer.deadline(), kNever);
  timer.arm(kNever, note("never"));
  EXPECT_FALSE(timer.armed());
}

// --- Tasks.

TEST_F(ReactorTest, RunsAllTasksOfManyThreadsEachInOrder) {
  constexpr int kThreads = 8;
  constexpr int kTasks = 5000;
  std::array<int, kThreads> next{};
  int left = kThreads * kTasks;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kTasks; ++i)
        reactor->post([&, thread, i] {
          EXPECT_EQ(next[thread]++, i);
          EXPECT_TRUE(reactor->in_reactor_thread());
          if (--left == 0) reactor->stop();
        });
    });
  run();
  EXPECT_EQ(left, 0);
  EXPECT_FALSE(reactor->in_reactor_thread());
}

TEST_F(ReactorTest, WakesForATaskWhileItWaits) {
  // A ping-pong: each task is posted only after the loop took the one before.
  std::unique_ptr<Reactor> other = Reactor::create().value();
  std::jthread thread([&] { other->run(); });
  int rounds = 0;
  std::function<void()> ping = [&] {
    if (++rounds == 1000) {
      other->stop();
      return reactor->stop();
    }
    other->post([&] { reactor->post([&] { ping(); }); });
  };
  reactor->post([&] { ping(); });
  run();
  EXPECT_EQ(rounds, 1000);
}

TEST_F(ReactorTest, RunsATaskPostedByATaskLater) {
  reactor->post([this] {
    reactor->post([this] {
      log.push_back("inner");
      reactor->stop();
    });
    log.push_back("outer");
  });
  run();
  EXPECT_THAT(log, ElementsAre("outer", "inner"));
}

TEST_F(ReactorTest, StopsBeforeItRunsAndRunsAgain) {
  reactor->stop();
  run();
  reactor->post([this] {
    log.push_back("second run");
    reactor->stop();
  });
  run();
  EXPECT_THAT(log, ElementsAre("second run"));
}

TEST_F(ReactorTest, DropsWhatIsLeftWhenItEnds) {
  Event event;
  auto alive = std::make_shared<int>(1);
  reactor->post([alive] {});
  ASSERT_TRUE(reactor->watch_readable(event.fd(), [alive] {}));
  ASSERT_TRUE(reactor->wait_writable_once(event.fd(), [alive] {}));
  reactor.reset();
  EXPECT_EQ(alive.use_count(), 1);
  event.raise();
  EXPECT_EQ(event.take(), 1u) << "the descriptor is still open";
}

// --- Descriptors.

TEST_F(ReactorTest, CallsAgainAndAgainWhileADescriptorIsReadable) {
  Event event;
  int calls = 0;
  ASSERT_TRUE(reactor->watch_readable(event.fd(), [&] {
    if (++calls < 5) return;  // left unread: comes again
    EXPECT_EQ(event.take(), 2u);
    reactor->post([this] { reactor->stop(); });
  }));
  event.raise();
  event.raise();
  run();
  EXPECT_EQ(calls, 5);
  reactor->forget(event.fd());
}

TEST_F(ReactorTest, ForgetsADescriptorFromWithinItsCallback) {
  Event event;
  auto alive = std::make_shared<int>(1);
  ASSERT_TRUE(reactor->watch_readable(event.fd(), [&, alive] {
    log.push_back("readable");
    reactor->forget(event.fd());
    reactor->forget(event.fd());
    reactor->post([this] { reactor->stop(); });
  }));
  event.raise();
  run();
  EXPECT_THAT(log, ElementsAre("readable"));
  EXPECT_EQ(alive.use_count(), 1);
  ASSERT_TRUE(reactor->watch_readable(event.fd(), [this] { reactor->stop(); })) << "and it may come back";
  run();
  reactor->forget(event.fd());
}

TEST_F(ReactorTest, TellsOnceWhenADescriptorBecomesWritable) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  std::array<char, 4096> data{};
  while (::write(ends[0], data.data(), data.size()) > 0) continue;
  Timer end(*reactor);
  ASSERT_TRUE(reactor->wait_writable_once(ends[0], note("replaced")));
  ASSERT_TRUE(reactor->wait_writable_once(ends[0], [&] {
    log.push_back("writable");
    end.arm(now() + 2ms, [&] { reactor->stop(); });
  }));
  ASSERT_TRUE(reactor->watch_readable(ends[0], note("readable")));
  reactor->post([&] {
    EXPECT_THAT(log, ElementsAre()) << "still full";
    while (::read(ends[1], data.data(), data.size()) > 0) continue;
  });
  run();
  EXPECT_THAT(log, ElementsAre("writable"));
  reactor->forget(ends[0]);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(ReactorTest, WaitsForWritabilityAnewFromTheCallback) {
  Event event;  // an eventfd is writable
  int calls = 0;
  std::function<void()> again = [&] {
    if (++calls == 3) return reactor->stop();
    ASSERT_TRUE(reactor->wait_writable_once(event.fd(), [&] { again(); }));
  };
  again();
  run();
  EXPECT_EQ(calls, 3);
}

TEST_F(ReactorTest, SleepsOnWhenBuffersAreFreedAfterAWaitForWritability) {
  // Readiness must not be listened for any longer than asked: each datagram freed would wake the loop.
  auto sender = UdpSocket::open({.bind = parse("127.0.0.1:0").value()}).value();
  auto receiver = UdpSocket::open({.bind = parse("127.0.0.1:0").value()}).value();
  ReceiveBatch batch;
  const std::vector<std::byte> bytes(1000);
  const OutgoingBatch out{.to = receiver.local_address(), .bytes = bytes, .segment_size = 1000};
  constexpr int kRounds = 200;
  int rounds = 0;
  std::function<void()> round = [&] {
    (void)sender.send({&out, 1});
    receiver.receive(batch, [](const Datagram&) {});
    if (++rounds == kRounds) return reactor->stop();
    reactor->post([&] { round(); });
  };
  ASSERT_TRUE(reactor->watch_readable(sender.fd(), note("readable")));
  ASSERT_TRUE(reactor->wait_writable_once(sender.fd(), [&] { round(); }));
  run();
  EXPECT_LE(reactor->counters().events, kRounds + 10u);
  reactor->forget(sender.fd());
}

TEST_F(ReactorTest, ForgetsAWaitForWritability) {
  Event event;
  ASSERT_TRUE(reactor->wait_writable_once(event.fd(), note("writable")));
  reactor->forget(event.fd());
  Timer end(*reactor);
  end.arm(now() + 1ms, [this] { reactor->stop(); });
  run();
  EXPECT_THAT(log, ElementsAre());
}

TEST_F(ReactorTest, RefusesADescriptorThatIsNotOpen) {
  EXPECT_EQ(reactor->watch_readable(-1, [] {}).error().code, from_errno(EBADF));
  EXPECT_EQ(reactor->wait_writable_once(-1, [] {}).error().code, from_errno(EBADF));
}

TEST(Reactor, SaysWhenTheProcessHasNoDescriptorsLeft) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "skipped, because the sanitizers need descriptors themselves to look at an exception";
#endif
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto reactor = Reactor::create();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(reactor);
  EXPECT_EQ(reactor.error().code, from_errno(EMFILE));
}

// --- The idle hook.

TEST_F(ReactorTest, CallsTheIdleHookOnceAfterABatch) {
  int idle_calls = 0;
  for (int i = 0; i < 100; ++i) reactor->post([&] { EXPECT_EQ(idle_calls, 0); });
  Timer due(*reactor);
  due.arm(TimePoint(), [&] { EXPECT_EQ(idle_calls, 0) << "due timers come first"; });
  reactor->on_idle([&] {
    ++idle_calls;
    reactor->stop();
  });
  reactor->post([] {});
  run();
  EXPECT_EQ(idle_calls, 1);
}

TEST_F(ReactorTest, CallsTheIdleHookAlsoWhenADescriptorNeverFallsSilent) {
  Event event;
  event.raise();
  int idle_calls = 0;
  std::uint64_t events = 0;
  ASSERT_TRUE(reactor->watch_readable(event.fd(), [&] { ++events; }));
  reactor->on_idle([&] {
    if (++idle_calls == 10) reactor->stop();
  });
  run();
  EXPECT_EQ(idle_calls, 10);
  EXPECT_LE(events, 10 * kMaxEventsPerBatch);
  reactor->forget(event.fd());
}

}  // namespace
}  // namespace tusk::io

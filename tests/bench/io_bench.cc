// What proto/io costs: loopback throughput of UdpSocket, wake-ups and timers of Reactor.
// One thread sends and receives, so the throughput is that of one core doing both.
#include <benchmark/benchmark.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "proto/io/clock.h"
#include "proto/io/reactor.h"
#include "proto/io/udp_socket.h"

namespace tusk::io {
namespace {

// Arguments: payload bytes of a datagram, GSO and GRO on or off.
void udp_loopback(benchmark::State& state, const char* address) {
  const auto segment = static_cast<std::uint16_t>(state.range(0));
  const bool offload = state.range(1) != 0;
  const UdpOptions options{.bind = parse(address).value(), .gso = offload, .gro = offload};
  auto sender = UdpSocket::open(options);
  auto receiver = UdpSocket::open(options);
  if (!sender || !receiver) return state.SkipWithError("no such address here");

  // About 128 KiB a round: what a pacer sends at 4 Gbit/s in 250 us.
  const std::size_t segments = std::max<std::size_t>(1, 131'072 / segment);
  const std::vector<std::byte> bytes(segments * segment);
  const OutgoingBatch batch{.to = receiver->local_address(), .bytes = bytes, .segment_size = segment};
  ReceiveBatch incoming;
  std::size_t touched = 0;
  for (auto _ : state) {
    (void)sender->send({&batch, 1});
    while (receiver->receive(incoming, [&](const Datagram& datagram) { touched += datagram.bytes.size(); })
               .datagrams)
      continue;
  }
  benchmark::DoNotOptimize(touched);
  state.SetBytesProcessed(static_cast<std::int64_t>(receiver->counters().bytes_received));
  state.SetItemsProcessed(static_cast<std::int64_t>(receiver->counters().datagrams_received));
}
BENCHMARK_CAPTURE(udp_loopback, ipv4, "127.0.0.1:0")
    ->ArgNames({"payload", "offload"})
    ->ArgsProduct({{1200, 1472, 8972}, {0, 1}});
BENCHMARK_CAPTURE(udp_loopback, ipv6, "[::1]:0")
    ->ArgNames({"payload", "offload"})
    ->ArgsProduct({{1200, 1452, 8952}, {0, 1}});
BENCHMARK_CAPTURE(udp_loopback, dual_stack, "[::]:0")->ArgNames({"payload", "offload"})->Args({1472, 1});

// Handling one readable descriptor, idle hook included: the loop's own price for each wake-up.
void reactor_readable(benchmark::State& state) {
  auto reactor = Reactor::create().value();
  const int fd = ::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
  (void)reactor->watch_readable(fd, [] {});  // left unread: readable for ever
  reactor->on_idle([&] {
    if (!state.KeepRunning()) reactor->stop();
  });
  reactor->run();
  state.counters["events_per_batch"] =
      static_cast<double>(reactor->counters().events) / static_cast<double>(reactor->counters().batches);
  state.SetItemsProcessed(static_cast<std::int64_t>(reactor->counters().events));
  reactor->forget(fd);
  ::close(fd);
}
BENCHMARK(reactor_readable);

// How late a timer fires on a sleeping reactor. Argument: microseconds until its deadline.
void timer_lateness(benchmark::State& state) {
  auto reactor = Reactor::create().value();
  Timer timer(*reactor);
  std::vector<Duration> late;
  std::function<void()> next = [&] {
    if (!state.KeepRunning()) return reactor->stop();
    const TimePoint deadline = now() + std::chrono::microseconds(state.range(0));
    timer.arm(deadline, [&, deadline] {
      late.push_back(now() - deadline);
      next();
    });
  };
  reactor->post([&] { next(); });
  reactor->run();
  std::ranges::sort(late);
  const auto percentile = [&](double share) {
    return static_cast<double>(
               late[static_cast<std::size_t>(share * static_cast<double>(late.size() - 1))].count()) /
           1e3;
  };
  state.counters["late_us_p50"] = percentile(0.5);
  state.counters["late_us_p99"] = percentile(0.99);
  state.counters["late_us_max"] = percentile(1.0);
}
BENCHMARK(timer_lateness)->Arg(50)->Arg(250)->Arg(2000)->UseRealTime();

// A shard's next timeout, which moves on with each batch of packets.
void timer_moves_on(benchmark::State& state) {
  auto reactor = Reactor::create().value();
  std::vector<std::unique_ptr<Timer>> others;
  for (int i = 0; i < 100; ++i) {
    others.push_back(std::make_unique<Timer>(*reactor));
    others.back()->arm(now() + std::chrono::hours(1 + i), [] {});
  }
  Timer timer(*reactor);
  TimePoint deadline = now() + 1h;
  timer.arm(deadline, [] {});
  for (auto _ : state) timer.arm(deadline += 1us, [] {});
}
BENCHMARK(timer_moves_on);

// Handing a task to a busy reactor from another thread.
void reactor_post(benchmark::State& state) {
  auto reactor = Reactor::create().value();
  std::atomic<std::int64_t> done = 0;
  std::jthread thread([&] { reactor->run(); });
  std::int64_t posted = 0;
  for (auto _ : state) {
    reactor->post([&] { done.fetch_add(1, std::memory_order_relaxed); });
    if (++posted % 1024 == 0)
      while (posted - done.load() > 65'536) std::this_thread::yield();
  }
  reactor->stop();
}
BENCHMARK(reactor_post)->UseRealTime();

// There and back between two sleeping threads: two wake-ups.
void reactor_ping_pong(benchmark::State& state) {
  auto near = Reactor::create().value();
  auto far = Reactor::create().value();
  std::jthread thread([&] { far->run(); });
  std::function<void()> ping = [&] {
    if (!state.KeepRunning()) {
      far->stop();
      return near->stop();
    }
    far->post([&] { near->post([&] { ping(); }); });
  };
  near->post([&] { ping(); });
  near->run();
}
BENCHMARK(reactor_ping_pong)->UseRealTime();

}  // namespace
}  // namespace tusk::io

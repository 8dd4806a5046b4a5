// Memory to memory through the whole transport, client and server in one process over loopback: what
// the protocol costs without files and FUSE.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "proto/crypto/primitives.h"
#include "proto/io/address.h"
#include "proto/rpc/lanes.h"
#include "proto/rpc/server_endpoint.h"

namespace tusk::rpc {
namespace {

constexpr std::size_t kBlock = 1 << 20;

// What every READ and WRITE carries.
const SharedBytes& block() {
  static const SharedBytes kMade = [] {
    const MutableSharedBytes made = allocate_bytes(kBlock);
    crypto::random_bytes(made.bytes);
    return made.first(kBlock);
  }();
  return kMade;
}

void check_block(std::span<const std::byte> bytes) {
  if (!std::ranges::equal(bytes, block().bytes)) {
    std::fputs("what arrived is not what was sent\n", stderr);
    std::abort();
  }
}

// Compare what arrives: after what is timed, since that costs as much as a tenth of it.
std::atomic<bool> checking = false;

class BlockService final : public Service {
 public:
  void handle_call(std::unique_ptr<IncomingCall> call) override {
    schema::Reply reply;
    if (call->message().has_attach()) {
      reply.mutable_attach()->set_connections_max(LaneOptions::kConnectionsMax);
      return call->reply(std::move(reply));
    }
    if (call->message().has_write()) {
      if (checking) check_block(call->body().bytes);
      reply.mutable_write();
      return call->reply(std::move(reply));
    }
    reply.mutable_read()->set_length(kBlock);
    call->reply(std::move(reply), block());
  }
  void handle_disconnect(const Peer&, bool) override {}
};

// Keeps a number of calls in flight and waits for a count of answers.
class Pump {
 public:
  static constexpr int kInFlight = 32;

  explicit Pump(Channel& channel, bool reading) : channel_(channel), reading_(reading) {
    for (int i = 0; i < kInFlight; ++i) {
      places_.push_back(allocate_bytes(kBlock));
      std::ranges::copy(block().bytes, places_.back().bytes.begin());
    }
  }

  void begin(int blocks) {
    const std::lock_guard lock(mutex_);
    left_ = blocks;
    pending_ = blocks;
    for (int i = 0; i < kInFlight && left_ > 0; ++i) {
      --left_;
      start(i);
    }
  }
  void wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return pending_ == 0; });
  }

 private:
  void start(int slot) {
    const MutableSharedBytes& place = places_[static_cast<std::size_t>(slot)];
    CallRequest request;
    request.priority = Priority::kBulk;
    if (reading_) {
      request.message.mutable_read()->set_length(kBlock);
      if (checking) std::ranges::fill(place.bytes, std::byte{});
      request.reply_body = place;
    } else {
      request.message.mutable_write()->set_length(kBlock);
      request.body = place.first(kBlock);
    }
    channel_.call(std::move(request), [this, slot, bytes = place.bytes](Result<CallReply> reply) {
      if (!reply) std::abort();
      if (reading_ && checking) check_block(bytes);
      const std::lock_guard lock(mutex_);
      if (left_ > 0) {
        --left_;
        start(slot);
      }
      if (--pending_ == 0) done_.notify_one();
    });
  }

  Channel& channel_;
  const bool reading_;
  std::vector<MutableSharedBytes> places_;
  std::mutex mutex_;
  std::condition_variable done_;
  int left_ = 0;
  int pending_ = 0;
};

struct Setup {
  bool reading = true;
  unsigned shards = 0;
  int clients = 1;
  unsigned connections = 1;  // of each
};

// range(0): blocks for each client and round.
void transfer(benchmark::State& state, const Setup& setup) {
  const auto server_identity = *crypto::Identity::generate();
  const auto client_identity = *crypto::Identity::generate();
  BlockService service;
  ServerEndpointOptions server_options;
  server_options.listen = {*io::parse("127.0.0.1:0")};
  server_options.identity = &server_identity;
  server_options.shards = setup.shards;
  const auto endpoint = *ServerEndpoint::start(server_options, service);
  ChannelOptions options;
  options.host = "127.0.0.1";
  options.port = endpoint->local_addresses().front().port();
  options.identity = &client_identity;
  std::vector<std::unique_ptr<Channel>> channels;
  std::vector<std::unique_ptr<Pump>> pumps;
  for (int i = 0; i < setup.clients; ++i) {
    channels.push_back(*connect_with_lanes(options, {.connections = setup.connections}));
    while (channels.back()->stats().connections < setup.connections) std::this_thread::yield();
    pumps.push_back(std::make_unique<Pump>(*channels.back(), setup.reading));
  }
  const int blocks = static_cast<int>(state.range(0));
  for (auto _ : state) {
    for (const auto& pump : pumps) pump->begin(blocks);
    for (const auto& pump : pumps) pump->wait();
  }
  checking = true;
  for (const auto& pump : pumps) pump->begin(Pump::kInFlight);
  for (const auto& pump : pumps) pump->wait();
  checking = false;
  state.SetBytesProcessed(state.iterations() * setup.clients * blocks * static_cast<std::int64_t>(kBlock));
  const PathStats stats = channels.front()->stats();
  state.counters["mtu"] = stats.mtu;
  state.counters["rtt_ms"] = to_seconds(stats.rtt_smoothed) * 1e3;
}

void BM_TransportRead(benchmark::State& state) { transfer(state, {.reading = true}); }
void BM_TransportWrite(benchmark::State& state) { transfer(state, {.reading = false}); }
// range(1): the server's shards.
void BM_TransportReadOfFour(benchmark::State& state) {
  transfer(state, {.shards = static_cast<unsigned>(state.range(1)), .clients = 4});
}

// range(1): the client's connections, and the server's shards.
void BM_TransportReadOfOneMount(benchmark::State& state) {
  const auto connections = static_cast<unsigned>(state.range(1));
  transfer(state, {.shards = connections, .connections = connections});
}

BENCHMARK(BM_TransportRead)->Arg(256)->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_TransportWrite)->Arg(256)->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_TransportReadOfOneMount)
    ->Args({256, 1})
    ->Args({256, 2})
    ->UseRealTime()
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_TransportReadOfFour)
    ->Args({64, 1})
    ->Args({64, 2})
    ->UseRealTime()
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tusk::rpc

// A channel of several connections and a server over loopback.
#include "proto/rpc/lanes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "proto/io/address.h"
#include "proto/io/clock.h"
#include "proto/rpc/lane_policy.h"
#include "proto/rpc/server_endpoint.h"
#include "tests/support/sleeps.h"

namespace tusk::rpc {
namespace {

constexpr auto kLanesPatience = std::chrono::seconds(20);
constexpr Duration kRetrySoon = 20ms;
constexpr std::size_t kBlock = 128 << 10;

std::byte byte_at(std::uint64_t offset) { return static_cast<std::byte>(offset * 131 + (offset >> 8)); }

// One endless file whose bytes say where they are; keeps what it is told to keep.
class LanesService final : public Service {
 public:
  void handle_call(std::unique_ptr<IncomingCall> call) override {
    const schema::Request& request = call->message();
    const std::lock_guard lock(mutex_);
    schema::Reply reply;
    if (request.has_attach()) {
      ++attaches;
      changed.notify_all();
      if (request.attach().lane() && refuses)
        return call->reply_error(ErrorCode::kServerRestarted, "no such session");
      if (request.attach().lane()) lanes.insert(call->peer().connection);
      reply.mutable_attach()->set_connections_max(connections_max);
      reply.mutable_attach()->set_resumed(true);
      return call->reply(std::move(reply));
    }
    ++calls[call->peer().connection];
    if (sends_away && lanes.contains(call->peer().connection)) return call->reply_error(*sends_away);
    if (keeps) {
      kept_of.insert(call->peer().connection);
      kept.push_back(std::move(call));
      changed.notify_all();
      return;
    }
    answer(*call);
  }
  void handle_disconnect(const Peer& peer, bool) override {
    const std::lock_guard lock(mutex_);
    lanes.erase(peer.connection);
    changed.notify_all();
  }

  static void answer(IncomingCall& call) {
    const schema::Request& request = call.message();
    schema::Reply reply;
    if (request.has_write()) {
      for (std::size_t i = 0; i < call.body().size(); ++i)
        if (call.body().bytes[i] != byte_at(request.write().offset() + i))
          return call.reply_error(from_errno(EBADMSG));
      reply.mutable_write()->set_offset(request.write().offset());
      return call.reply(std::move(reply));
    }
    if (!request.has_read()) return call.reply_error(ErrorCode::kUnsupported);
    const std::size_t size = request.read().length();
    const MutableSharedBytes body = allocate_bytes(size);
    for (std::size_t i = 0; i < size; ++i) body.bytes[i] = byte_at(i + request.read().offset());
    reply.mutable_read()->set_length(static_cast<std::uint32_t>(size));
    call.reply(std::move(reply), body.first(size));
  }

  template <class Predicate>
  bool wait_for(Predicate predicate) {
    std::unique_lock lock(mutex_);
    return changed.wait_for(lock, kLanesPatience, [&] { return predicate(*this); });
  }

  // How many calls came over which connection since the last question.
  std::map<ConnectionId, int> take_calls() {
    const std::lock_guard lock(mutex_);
    return std::exchange(calls, {});
  }
  std::set<ConnectionId> lanes_now() {
    const std::lock_guard lock(mutex_);
    return lanes;
  }
  void refuse_lanes() {
    const std::lock_guard lock(mutex_);
    refuses = true;
  }
  int attached() {
    const std::lock_guard lock(mutex_);
    return attaches;
  }

  std::mutex mutex_;
  std::condition_variable changed;
  bool refuses = false;                 // lanes
  std::optional<ErrorCode> sends_away;  // what comes over lanes
  bool keeps = false;                   // what comes, so that no connection is ever done with its share
  unsigned connections_max = 8;
  int attaches = 0;
  std::set<ConnectionId> lanes;
  std::map<ConnectionId, int> calls;
  std::set<ConnectionId> kept_of;
  std::vector<std::unique_ptr<IncomingCall>> kept;
};

// Calls of which each must end once.
class BulkCalls {
 public:
  explicit BulkCalls(Channel& channel) : channel_(channel) {}
  // A test that has failed leaves calls behind, which refer to this.
  ~BulkCalls() { channel_.close(); }
  BulkCalls(const BulkCalls&) = delete;
  BulkCalls& operator=(const BulkCalls&) = delete;

  CallId read(std::uint64_t offset, std::size_t size = kBlock, Priority priority = Priority::kBulk) {
    const MutableSharedBytes place = allocate_bytes(size);
    CallRequest request;
    request.message.mutable_read()->set_length(static_cast<std::uint32_t>(size));
    request.message.mutable_read()->set_offset(offset);
    request.reply_body = place;
    request.priority = priority;
    return make(std::move(request), [place, offset] {
      for (std::size_t i = 0; i < place.size(); ++i)
        if (place.bytes[i] != byte_at(offset + i)) return false;
      return true;
    });
  }
  CallId write(std::uint64_t offset, std::size_t size = kBlock) {
    const MutableSharedBytes bytes = allocate_bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes.bytes[i] = byte_at(offset + i);
    CallRequest request;
    request.message.mutable_write()->set_length(static_cast<std::uint32_t>(size));
    request.message.mutable_write()->set_offset(offset);
    request.body = bytes.first(size);
    request.priority = Priority::kBulk;
    return make(std::move(request), [] { return true; });
  }

  // All have ended.
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLanesPatience, [&] { return ended_ >= made_; });
  }
  int ended_with(ErrorCode code) {
    const std::lock_guard lock(mutex_);
    return results_[code];
  }
  int ended_well() { return ended_with(ErrorCode::kOk); }
  int made() const { return made_; }
  int wrong() const { return wrong_; }

 private:
  CallId make(CallRequest request, std::move_only_function<bool()> right) {
    ++made_;
    return channel_.call(std::move(request), [this, right = std::move(right),
                                              ended = false](const Result<CallReply>& reply) mutable {
      if (std::exchange(ended, true) || (reply && !right())) ++wrong_;
      const std::lock_guard lock(mutex_);
      ++results_[reply ? ErrorCode::kOk : reply.error().code];
      ++ended_;
      changed_.notify_all();
    });
  }

  Channel& channel_;
  std::atomic<int> made_ = 0;
  std::atomic<int> wrong_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
  std::map<ErrorCode, int> results_;
};

class LanesTest : public testing::Test {
 protected:
  void start_server(std::uint16_t port = 0) {
    ServerEndpointOptions options;
    options.listen = {*io::parse("127.0.0.1:" + std::to_string(port))};
    options.identity = &server_identity_;
    options.shards = 3;
    auto endpoint = ServerEndpoint::start(options, service_);
    ASSERT_TRUE(endpoint) << endpoint.error().message();
    endpoint_ = std::move(*endpoint);
    port_ = endpoint_->local_addresses().front().port();
  }
  void connect(LaneOptions lanes, bool background = false) {
    ChannelOptions options;
    options.host = "127.0.0.1";
    options.port = port_;
    options.identity = &client_identity_;
    options.server_fingerprint = server_identity_.fingerprint();
    options.background = background;
    lanes.retry_after = kRetrySoon;
    auto channel = connect_with_lanes(std::move(options), lanes);
    ASSERT_TRUE(channel) << channel.error().message();
    channel_ = std::move(*channel);
  }
  [[nodiscard]] bool has_connections(unsigned connections) const {
    for (const TimePoint end = io::now() + kLanesPatience; io::now() < end; std::this_thread::yield())
      if (channel_->stats().connections == connections) return true;
    return false;
  }
  static void be_quiet_for(Duration pause) {
    for (const TimePoint end = io::now() + pause; io::now() < end;) std::this_thread::yield();
  }
  void keep_what_comes() {
    const std::lock_guard lock(service_.mutex_);
    service_.keeps = true;
  }
  // What came over lanes stays unanswered.
  void answer_what_came_over_the_main_connection() {
    const std::lock_guard lock(service_.mutex_);
    service_.keeps = false;
    for (const auto& call : service_.kept)
      if (!service_.lanes.contains(call->peer().connection)) LanesService::answer(*call);
  }

  crypto::Identity server_identity_ = *crypto::Identity::generate();
  crypto::Identity client_identity_ = *crypto::Identity::generate();
  LanesService service_;
  std::unique_ptr<ServerEndpoint> endpoint_;
  std::unique_ptr<Channel> channel_;
  std::uint16_t port_ = 0;
};

TEST_F(LanesTest, AllCarryBulkBytesAndOnlyTheMainOneTheRest) {
  start_server();
  connect({.connections = 3});
  ASSERT_TRUE(has_connections(3));
  BulkCalls calls(*channel_);
  for (std::uint64_t i = 0; i < 24; ++i) {
    calls.read(i * kBlock + 7);
    calls.write(i * kBlock);
  }
  ASSERT_TRUE(calls.wait());
  EXPECT_EQ(calls.ended_well(), calls.made());
  EXPECT_EQ(calls.wrong(), 0);
  const auto shares = service_.take_calls();
  EXPECT_EQ(shares.size(), 3u);
  for (const auto& [connection, count] : shares) EXPECT_GE(count, 4);
  for (std::uint64_t i = 0; i < 24; ++i) calls.read(i, kBlock, Priority::kInteractive);
  for (std::uint64_t i = 0; i < 24; ++i) calls.read(i, 4096);
  ASSERT_TRUE(calls.wait());
  const auto others = service_.take_calls();
  EXPECT_EQ(others.size(), 1u);
  EXPECT_FALSE(service_.lanes_now().contains(others.begin()->first));
}

TEST_F(LanesTest, ALaneThatDiesInTheMiddleLosesNothing) {
  start_server();
  connect({.connections = 3});
  ASSERT_TRUE(has_connections(3));
  keep_what_comes();
  BulkCalls calls(*channel_);
  for (std::uint64_t i = 0; i < 8; ++i) {
    calls.read(i * kBlock);
    calls.write(i * kBlock);
  }
  ASSERT_TRUE(service_.wait_for([](LanesService& s) { return s.kept.size() == 16; }));
  EXPECT_EQ(service_.kept_of.size(), 3u);
  answer_what_came_over_the_main_connection();
  for (const ConnectionId lane : service_.lanes_now()) endpoint_->disconnect(lane, "a test");
  ASSERT_TRUE(calls.wait());
  EXPECT_EQ(calls.ended_well(), calls.made());
  EXPECT_EQ(calls.wrong(), 0);
  EXPECT_TRUE(has_connections(3)) << "what was lost comes back";
}

// What is told of a lane that says nothing is old by then, and tells of its end nevertheless.
TEST_F(LanesTest, ALaneThatDiesInPeaceIsNoticed) {
  start_server();
  connect({.connections = 3, .limits = {.interval = 10ms}});
  ASSERT_TRUE(has_connections(3));
  be_quiet_for(300ms);
  service_.refuse_lanes();
  endpoint_->disconnect(*service_.lanes_now().begin(), "a test");
  BulkCalls calls(*channel_);
  const TimePoint end = io::now() + kLanesPatience;
  while (channel_->stats().connections != 2 && io::now() < end) {
    calls.read(0);
    ASSERT_TRUE(calls.wait());
  }
  EXPECT_EQ(channel_->stats().connections, 2u);
  EXPECT_EQ(calls.ended_well(), calls.made());
}

// Without the session's main connection it answers nothing over them; one that is about to go says so.
TEST_F(LanesTest, WhatALaneIsNotGoodForGoesOverTheMainConnection) {
  for (const ErrorCode code : {ErrorCode::kConnectionLost, ErrorCode::kPeerClosed}) {
    start_server();
    connect({.connections = 3});
    ASSERT_TRUE(has_connections(3));
    {
      const std::lock_guard lock(service_.mutex_);
      service_.sends_away = code;
    }
    BulkCalls calls(*channel_);
    for (std::uint64_t i = 0; i < 12; ++i) calls.read(i * kBlock);
    ASSERT_TRUE(calls.wait());
    EXPECT_EQ(calls.ended_well(), calls.made());
    EXPECT_EQ(calls.wrong(), 0);
    const std::lock_guard lock(service_.mutex_);
    service_.sends_away.reset();
  }
}

TEST_F(LanesTest, AServerThatRefusesThemIsAServerWithOne) {
  start_server();
  service_.refuse_lanes();
  connect({.connections = 3});
  ASSERT_TRUE(service_.wait_for([](LanesService& s) { return s.attaches > 3; })) << "it asks again";
  BulkCalls calls(*channel_);
  for (std::uint64_t i = 0; i < 8; ++i) calls.read(i * kBlock);
  ASSERT_TRUE(calls.wait());
  EXPECT_EQ(calls.ended_well(), calls.made());
  EXPECT_EQ(channel_->stats().connections, 1u);
}

TEST_F(LanesTest, NobodyAsksAServerThatKnowsNone) {
  start_server();
  service_.connections_max = 0;
  connect({.connections = 3});
  BulkCalls calls(*channel_);
  calls.read(0);
  ASSERT_TRUE(calls.wait());
  channel_->close();
  EXPECT_EQ(service_.attached(), 1);
}

TEST_F(LanesTest, AMountInTheBackgroundHasOne) {
  start_server();
  connect({.connections = 3}, true);
  BulkCalls calls(*channel_);
  calls.read(0);
  ASSERT_TRUE(calls.wait());
  channel_->close();
  EXPECT_EQ(service_.attached(), 1);
}

// What is a second's work for a core elsewhere is any byte here.
TEST_F(LanesTest, ThereAreMoreWhileOneIsTooFewAndOneAgainInPeace) {
  start_server();
  connect({.connections = 0,
           .cores = 5,
           .limits = {.bytes_per_second = 0, .samples = 1, .interval = 120ms},
           .idle = 300ms});
  BulkCalls calls(*channel_);
  const TimePoint end = io::now() + kLanesPatience;
  while (channel_->stats().connections < 3 && io::now() < end) {
    for (std::uint64_t i = 0; i < 4; ++i) calls.read(i * kBlock);
    ASSERT_TRUE(calls.wait());
  }
  EXPECT_TRUE(has_connections(3)) << "one for two cores";
  EXPECT_TRUE(has_connections(1));
  calls.read(0);
  ASSERT_TRUE(calls.wait());
  EXPECT_EQ(calls.ended_well(), calls.made());
}

TEST_F(LanesTest, ClosesWhileBusy) {
  start_server();
  connect({.connections = 4});
  ASSERT_TRUE(has_connections(4));
  keep_what_comes();
  BulkCalls calls(*channel_);
  for (std::uint64_t i = 0; i < 16; ++i) calls.read(i * kBlock);
  ASSERT_TRUE(service_.wait_for([](LanesService& s) { return s.kept_of.size() == 4; }));
  const TimePoint begun = io::now();
  channel_->close();
  EXPECT_LT(io::now() - begun, 2s);
  ASSERT_TRUE(calls.wait());
  EXPECT_EQ(calls.ended_with(ErrorCode::kPeerClosed), calls.made());
  EXPECT_EQ(calls.wrong(), 0);
  calls.read(0);
  ASSERT_TRUE(calls.wait()) << "a closed one refuses";
}

// What moves on from a lane while all is closed ends, too.
TEST_F(LanesTest, ClosesWhileItsLanesBreak) {
  start_server();
  for (int round = 0; round < 5; ++round) {
    connect({.connections = 4});
    ASSERT_TRUE(has_connections(4));
    keep_what_comes();
    BulkCalls calls(*channel_);
    for (std::uint64_t i = 0; i < 16; ++i) calls.read(i * kBlock);
    ASSERT_TRUE(service_.wait_for([](LanesService& s) { return s.kept.size() == 16; }));
    const std::jthread breaking([&] {
      for (const ConnectionId lane : service_.lanes_now()) endpoint_->disconnect(lane, "a test");
    });
    channel_->close();
    ASSERT_TRUE(calls.wait());
    EXPECT_EQ(calls.ended_with(ErrorCode::kPeerClosed), calls.made());
    EXPECT_EQ(calls.wrong(), 0);
    const std::lock_guard lock(service_.mutex_);
    service_.keeps = false;
    service_.kept.clear();
  }
}

TEST_F(LanesTest, WhatIsCancelledEnds) {
  start_server();
  connect({.connections = 2});
  ASSERT_TRUE(has_connections(2));
  keep_what_comes();
  BulkCalls calls(*channel_);
  std::vector<CallId> ids;
  for (std::uint64_t i = 0; i < 8; ++i) ids.push_back(calls.read(i * kBlock));
  ASSERT_TRUE(service_.wait_for([](LanesService& s) { return s.kept_of.size() == 2; }));
  for (const CallId id : ids) channel_->cancel(id);
  ASSERT_TRUE(calls.wait());
  EXPECT_EQ(calls.ended_with(ErrorCode::kCancelled), calls.made());
}

// A server that is gone answers on no connection, and programs are told so by all.
TEST_F(LanesTest, TheOutagePolicyHoldsForAll) {
  start_server();
  connect({.connections = 3});
  ASSERT_TRUE(has_connections(3));
  channel_->change_outage_policy({.fail_after = std::chrono::seconds(1)});
  endpoint_.reset();
  BulkCalls calls(*channel_);
  for (std::uint64_t i = 0; i < 6; ++i) calls.read(i * kBlock);
  ASSERT_TRUE(calls.wait());
  EXPECT_EQ(calls.ended_with(ErrorCode::kTimedOut), calls.made());
}

// Nobody has asked the server anything, so it owes nothing.
TEST_F(LanesTest, SilenceInPeaceIsNoOutage) {
  start_server();
  connect({.connections = 3});
  ASSERT_TRUE(has_connections(3));
  channel_->change_outage_policy({.fail_after = std::chrono::seconds(1)});
  be_quiet_for(1200ms);
  BulkCalls calls(*channel_);
  for (std::uint64_t i = 0; i < 6; ++i) calls.read(i * kBlock);
  ASSERT_TRUE(calls.wait());
  EXPECT_EQ(calls.ended_well(), calls.made());
  EXPECT_EQ(channel_->stats().connections, 3u);
}

TEST_F(LanesTest, AllComeBackWhenTheServerIsRestarted) {
  start_server();
  connect({.connections = 3});
  ASSERT_TRUE(has_connections(3));
  endpoint_.reset();
  BulkCalls calls(*channel_);
  for (std::uint64_t i = 0; i < 6; ++i) calls.read(i * kBlock);
  start_server(port_);
  ASSERT_TRUE(calls.wait());
  EXPECT_EQ(calls.ended_well(), calls.made());
  EXPECT_TRUE(has_connections(3));
}

// Laptops are asleep or away for days.
TEST_F(LanesTest, AnOutageDoesNotWakeTheKeeperAllTheTime) {
  const support::Sleeps older = support::sleeps_of_the_first();
  start_server();
  connect({.connections = 3, .limits = {.interval = 10ms}});
  ASSERT_TRUE(has_connections(3));
  endpoint_.reset();
  BulkCalls calls(*channel_);  // by which it is noticed
  for (const TimePoint end = io::now() + kLanesPatience;
       channel_->stats().connections != 1 && io::now() < end;) {
    calls.read(0);
    be_quiet_for(20ms);
  }
  ASSERT_EQ(channel_->stats().connections, 1u);
  be_quiet_for(2s);
  const support::Sleeps before = support::sleeps_of_others(older);
  be_quiet_for(3s);
  // The main connection, which tries to come back, and the keeper, which looked 20 times a second.
  EXPECT_LE(support::sleeps_since(before), 40u);
  start_server(port_);
  EXPECT_TRUE(has_connections(3));
  EXPECT_TRUE(calls.wait());
}

TEST_F(LanesTest, ManyThreadsCallAndCancelWhileLanesComeAndGo) {
  start_server();
  connect({.connections = 4});
  BulkCalls calls(*channel_);
  std::atomic<bool> over = false;
  std::jthread breaking([&] {
    while (!over) {
      for (const ConnectionId lane : service_.lanes_now()) endpoint_->disconnect(lane, "a test");
      std::this_thread::yield();
    }
  });
  {
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < 3; ++thread)
      threads.emplace_back([&, thread] {
        for (std::uint64_t i = 0; i < 40; ++i) {
          const CallId id = i % 2 == 0 ? calls.read(i * kBlock + thread) : calls.write(i);
          if (i % 8 == 5) channel_->cancel(id);
        }
      });
  }
  EXPECT_TRUE(calls.wait());
  over = true;
  breaking.join();
  EXPECT_EQ(calls.ended_well() + calls.ended_with(ErrorCode::kCancelled), calls.made());
  EXPECT_EQ(calls.wrong(), 0);
  channel_->close();
}

// ---------------------------------------------------------------- which and when

TEST(LaneChoice, OnlyWhatMayBeDoneTwiceAndInAnyOrder) {
  const auto with = [](auto edit) {
    CallRequest request;
    request.priority = Priority::kBulk;
    request.body = allocate_bytes(kBlock).first(kBlock);
    request.reply_body = allocate_bytes(kBlock);
    edit(request);
    return may_take_a_lane(request);
  };
  EXPECT_TRUE(with([](CallRequest& r) { r.message.mutable_read(); }));
  EXPECT_FALSE(with([](CallRequest& r) { r.message.mutable_write(); }));
  EXPECT_FALSE(with([](CallRequest& r) {
    r.message.mutable_read();
    r.message.set_sequence(1);
  }));
  EXPECT_FALSE(with([](CallRequest& r) {
    r.message.mutable_read();
    r.priority = Priority::kInteractive;
  }));
  EXPECT_FALSE(with([](CallRequest& r) { r.message.mutable_log(); }));
  EXPECT_FALSE(with([](CallRequest& r) { r.message.mutable_walk(); }));
}

class LanePolicyTest : public testing::Test {
 protected:
  // Seconds in which one connection computed and carried so much.
  int wanted_in(int seconds, double busy, double bytes_per_second) {
    int wanted = 0;
    for (int i = 0; i < seconds; ++i) {
      now_ += 1s;
      load_.cpu += from_seconds(busy);
      load_.bytes += static_cast<ByteCount>(bytes_per_second);
      wanted += policy_.note(now_, std::span(&load_, 1)) ? 1 : 0;
    }
    return wanted;
  }

  LanePolicy policy_{LanePolicy::Limits()};
  LanePolicy::Load load_;
  TimePoint now_ = TimePoint() + 100s;
};

TEST_F(LanePolicyTest, ABusyThreadOrAFastConnectionWantsOneMoreEveryThreeSeconds) {
  EXPECT_EQ(wanted_in(30, 0.6, 2.9e9 / 8), 0);
  EXPECT_EQ(wanted_in(9, 0.8, 1e6), 3);
  EXPECT_EQ(wanted_in(9, 0.1, 3.1e9 / 8), 3);
}

TEST_F(LanePolicyTest, AShortBurstDoesNot) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(wanted_in(2, 1, 1e9), 0);
    EXPECT_EQ(wanted_in(1, 0.1, 1e6), 0);
  }
}

TEST_F(LanePolicyTest, AConnectionThatIsMadeAnewIsNotAFastOne) {
  (void)wanted_in(1, 0.1, 1e9);
  for (int i = 0; i < 10; ++i) {
    load_.bytes = 0;
    EXPECT_EQ(wanted_in(1, 0.1, 1e6 - 1e5 * i), 0);
  }
}

TEST_F(LanePolicyTest, QuestionsThatComeSoonerChangeNothing) {
  (void)wanted_in(1, 0, 0);
  for (int i = 0; i < 20; ++i) {
    now_ += 100ms;
    load_.cpu += 100ms;
    EXPECT_FALSE(policy_.note(now_, std::span(&load_, 1)));
  }
}

}  // namespace
}  // namespace tusk::rpc

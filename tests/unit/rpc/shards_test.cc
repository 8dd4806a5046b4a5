// A server of several shards on one port: which shard gets what, by the kernel and without it.
#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "proto/io/udp_socket.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/request_memory.h"
#include "proto/rpc/server_endpoint.h"
#include "proto/rpc/steering.h"
#include "proto/wire/packet_header.h"

namespace tusk::rpc {
namespace {

constexpr auto kShardsPatience = std::chrono::seconds(20);
constexpr unsigned kShards = 3;  // does not divide 256
constexpr int kClients = 24;     // all in one shard: once in 10^11 runs

TEST(Steering, GivesOutIdsThatLeadHome) {
  for (const unsigned shards : {1U, 2U, 3U, 7U, 64U}) {
    for (unsigned shard = 0; shard < shards; ++shard) {
      std::set<std::byte> first;
      for (int i = 0; i < 64; ++i) {
        const wire::ConnectionIdBytes id = connection_id_for(shard, shards, ServerTag{0x1234});
        EXPECT_EQ(shard_of(id, shards), shard);
        first.insert(id.bytes[0]);
      }
      EXPECT_GT(first.size(), 1u) << "no longer random";
    }
  }
}

// The sockets of a shared port, in the order in which they were bound.
std::vector<io::UdpSocket> shared_port(unsigned sockets) {
  std::vector<io::UdpSocket> shared;
  shared.push_back(*io::UdpSocket::open({.bind = *io::parse("127.0.0.1:0")}));
  EXPECT_TRUE(shared.front().share_port());
  while (shared.size() < sockets)
    shared.push_back(*io::UdpSocket::open({.bind = shared.front().local_address(), .reuse_port = true}));
  return shared;
}

// Which of them a datagram came to.
std::optional<unsigned> arrives_at(std::vector<io::UdpSocket>& sockets, io::ReceiveBatch& batch) {
  std::vector<pollfd> waiting;
  for (const io::UdpSocket& socket : sockets) waiting.push_back({socket.fd(), POLLIN, 0});
  const int patience = static_cast<int>(std::chrono::milliseconds(kShardsPatience).count());
  if (poll(waiting.data(), waiting.size(), patience) != 1) return std::nullopt;
  for (unsigned i = 0; i < sockets.size(); ++i)
    if (waiting[i].revents != 0 && sockets[i].receive(batch, [](const io::Datagram&) {}).datagrams == 1)
      return i;
  return std::nullopt;
}

TEST(Steering, TheKernelAgrees) {
  std::vector<io::UdpSocket> sockets = shared_port(kShards);
  const auto steered = sockets.front().steer(steering_program(kShards));
  ASSERT_TRUE(steered) << steered.error().message();
  io::UdpSocket sender = *io::UdpSocket::open({});
  io::ReceiveBatch batch;
  const auto goes_to = [&](std::span<const std::byte> datagram) {
    const io::OutgoingBatch out{
        sockets.front().local_address(), {}, datagram, static_cast<std::uint16_t>(datagram.size()), 0};
    EXPECT_EQ(sender.send(std::span(&out, 1)).batches, 1u);
    return arrives_at(sockets, batch);
  };
  for (int value = 0; value < 256; ++value) {
    wire::ConnectionIdBytes id;
    id.bytes[0] = static_cast<std::byte>(value);
    std::array<std::byte, wire::kDatagramSizeMin> bytes{};
    wire::write_short_header({.to = id}, bytes);
    EXPECT_EQ(goes_to(bytes), shard_of(id, kShards)) << value;
    bytes = {};
    wire::LongHeader handshake;
    handshake.to = id;
    wire::write_long_header(handshake, bytes);
    EXPECT_EQ(goes_to(bytes), shard_of(id, kShards)) << value;
  }
  // Without an id: anywhere, but somewhere.
  const std::array<std::byte, 3> cut{std::byte{0xc0}, std::byte{1}, std::byte{2}};
  EXPECT_TRUE(goes_to(cut));
  EXPECT_TRUE(goes_to(std::span(cut).first(1)));
}

TEST(RequestMemory, NamesThoseWhoHoldMostOnce) {
  RequestMemory memory(100);
  std::map<int, std::shared_ptr<MemoryAccount>> accounts;
  for (const int holds : {10, 60, 20, 30}) {
    accounts[holds] = memory.begin(ConnectionId(static_cast<std::uint64_t>(holds)));
    EXPECT_TRUE(memory.take_victims().empty());
    accounts[holds]->add(static_cast<ByteCount>(holds));
  }
  const auto victims = memory.take_victims();  // 120 of 100
  ASSERT_EQ(victims.size(), 1u);
  EXPECT_EQ(victims.front().connection, ConnectionId(60));
  EXPECT_EQ(victims.front().held, 60u);
  EXPECT_TRUE(memory.take_victims().empty());
  // What it leaves behind the others do not pay for, but for what is more than as much again.
  memory.end(ConnectionId(60));
  EXPECT_TRUE(memory.take_victims().empty());
  accounts[60]->add(110);  // 170, beside 60 of the others
  const auto more = memory.take_victims();
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(more.front().connection, ConnectionId(30));
}

TEST(RequestMemory, ConnectionsOfOneMountHoldTogether) {
  RequestMemory memory(100);
  std::map<int, std::shared_ptr<MemoryAccount>> accounts;
  for (const int id : {1, 2, 3, 4}) {
    const ConnectionId connection(static_cast<std::uint64_t>(id));
    accounts[id] = memory.begin(connection);
    if (id <= 2) memory.count_together(connection, "one mount", "one right");
    accounts[id]->add(id == 3 ? 35 : 25);
  }
  const auto victims = memory.take_victims();  // 110 of 100: 50 and 35 and 25
  ASSERT_EQ(victims.size(), 2u);
  for (const auto& victim : victims) {
    EXPECT_LE(victim.connection, ConnectionId(2));
    EXPECT_EQ(victim.held, 50u);
  }
  EXPECT_TRUE(memory.take_victims().empty());
}

// However many mounts it spreads what it holds over.
TEST(RequestMemory, MountsOfTheRightThatHoldsMostGoFirst) {
  RequestMemory memory(100);
  std::vector<std::shared_ptr<MemoryAccount>> accounts;
  for (std::uint64_t id = 1; id <= 9; ++id) {
    accounts.push_back(memory.begin(ConnectionId(id)));
    memory.count_together(ConnectionId(id), std::to_string(id), id == 9 ? "honest" : "hostile");
    accounts.back()->add(id == 9 ? 30 : 10);
  }
  const auto victims = memory.take_victims();  // 110 of 100
  ASSERT_EQ(victims.size(), 1u);
  EXPECT_NE(victims.front().connection, ConnectionId(9));
}

// Lets everybody in, and notes which thread serves whom.
class NotingService final : public Service {
 public:
  void handle_call(std::unique_ptr<IncomingCall> call) override {
    {
      const std::lock_guard lock(mutex_);
      threads_[call->peer().connection].insert(std::this_thread::get_id());
    }
    schema::Reply reply;
    if (call->message().has_attach()) reply.mutable_attach()->set_max_read(1 << 20);
    if (call->message().has_statfs()) reply.mutable_empty();
    call->reply(std::move(reply));
  }
  void handle_disconnect(const Peer&, bool) override {}

  using Threads = std::map<ConnectionId, std::set<std::thread::id>>;
  [[nodiscard]] Threads threads() const {
    const std::lock_guard lock(mutex_);
    return threads_;
  }

 private:
  mutable std::mutex mutex_;
  Threads threads_;
};

class ShardsTest : public testing::Test {
 protected:
  void SetUp() override {
    ServerEndpointOptions options;
    options.listen = {*io::parse("127.0.0.1:0")};
    options.identity = &server_identity_;
    options.shards = kShards;
    auto endpoint = ServerEndpoint::start(options, service_);
    ASSERT_TRUE(endpoint) << endpoint.error().message();
    endpoint_ = std::move(*endpoint);
  }

  [[nodiscard]] io::Address address() const { return endpoint_->local_addresses().front(); }

  std::unique_ptr<Channel> connect() {
    ChannelOptions options;
    options.host = "127.0.0.1";
    options.port = address().port();
    options.identity = &client_identity_;
    options.server_fingerprint = server_identity_.fingerprint();
    auto channel = Channel::connect(options);
    EXPECT_TRUE(channel) << channel.error().message();
    return channel ? std::move(*channel) : nullptr;
  }

  static bool answers(Caller& caller) {
    auto answered = std::make_shared<std::promise<bool>>();
    auto future = answered->get_future();
    CallRequest request;
    request.message.mutable_statfs();
    caller.call(std::move(request),
                [answered](const Result<CallReply>& reply) { answered->set_value(reply.has_value()); });
    return future.wait_for(kShardsPatience) == std::future_status::ready && future.get();
  }

  void connect_all() {
    for (int i = 0; i < kClients; ++i) {
      clients_.push_back(connect());
      ASSERT_TRUE(clients_.back());
    }
    for (const auto& client : clients_) EXPECT_TRUE(answers(*client));
  }

  crypto::Identity server_identity_ = *crypto::Identity::generate();
  crypto::Identity client_identity_ = *crypto::Identity::generate();
  NotingService service_;
  std::unique_ptr<ServerEndpoint> endpoint_;
  std::vector<std::unique_ptr<Channel>> clients_;
};

TEST_F(ShardsTest, EachClientIsServedByOneOfSeveralThreads) {
  connect_all();
  std::set<std::thread::id> all;
  for (const auto& [connection, threads] : service_.threads()) {
    EXPECT_EQ(threads.size(), 1u);
    all.insert(threads.begin(), threads.end());
  }
  EXPECT_GT(all.size(), 1u);
  EXPECT_EQ(endpoint_->connections().size(), static_cast<std::size_t>(kClients));
}

TEST_F(ShardsTest, ClientsAreReachedWhereverTheyAre) {
  connect_all();
  for (const auto& client : clients_)
    client->observe(
        {.pushed = [](const schema::Request&, std::move_only_function<void()> answer) { answer(); }});
  for (const auto& info : endpoint_->connections()) {
    auto answered = std::make_shared<std::promise<bool>>();
    auto future = answered->get_future();
    CallRequest push;
    push.message.mutable_invalidate();
    endpoint_->call(info.peer.connection, std::move(push),
                    [answered](const Result<CallReply>& reply) { answered->set_value(reply.has_value()); });
    ASSERT_EQ(future.wait_for(kShardsPatience), std::future_status::ready);
    EXPECT_TRUE(future.get());
  }
}

TEST_F(ShardsTest, WhatTheKernelBringsToTheWrongOneIsHandedOver) {
  // Whoever is of the group may say who gets what: from now on the first gets all.
  auto of_the_group = io::UdpSocket::open({.bind = address(), .reuse_port = true});
  ASSERT_TRUE(of_the_group) << of_the_group.error().message();
  ASSERT_TRUE(of_the_group->steer({BPF_STMT(BPF_RET | BPF_K, 0)}));
  connect_all();
  std::set<std::thread::id> all;
  for (const auto& [connection, threads] : service_.threads()) all.insert(threads.begin(), threads.end());
  EXPECT_GT(all.size(), 1u);
}

TEST_F(ShardsTest, ThePortIsTakenAllTheSame) {
  EXPECT_FALSE(ServerEndpoint::check({address()}));
  ServerEndpointOptions second;
  second.listen = {address()};
  second.identity = &server_identity_;
  second.shards = kShards;
  const auto refused = ServerEndpoint::start(second, service_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, from_errno(EADDRINUSE));
}

TEST_F(ShardsTest, EndsWithClientsInAllOfThem) {
  connect_all();
  endpoint_.reset();
  for (const auto& client : clients_) {
    client->close();
    EXPECT_FALSE(client->stats().connected);
  }
}

}  // namespace
}  // namespace tusk::rpc

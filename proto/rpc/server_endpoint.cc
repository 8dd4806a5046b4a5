#include "proto/rpc/server_endpoint.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "proto/rpc/message_codec.h"
#include "proto/rpc/server_shard.h"
#include "proto/rpc/steering.h"

namespace tusk::rpc {
namespace {

class Endpoint final : public ServerEndpoint {
 public:
  Endpoint(std::unique_ptr<ServerCommons> commons, std::vector<io::Address> addresses,
           std::vector<std::unique_ptr<ServerShard>> shards)
      : commons_(std::move(commons)), addresses_(std::move(addresses)), shards_(std::move(shards)) {}

  // All say goodbye at the same time.
  ~Endpoint() override {
    for (const auto& shard : shards_) shard->leave();
    for (const auto& shard : shards_) shard->join();
    for (const auto& shard : shards_) shard->refuse_the_rest();
  }

  Result<void> start() {
    for (const auto& shard : shards_) commons_->shards.push_back(shard.get());
    for (const auto& shard : shards_) TUSK_TRY(shard->start());
    return {};
  }

  [[nodiscard]] std::vector<io::Address> local_addresses() const override { return addresses_; }

  void call(ConnectionId connection, CallRequest request, Completion done) override {
    Result<SharedBytes> header = encode_message(request.message);
    if (!header) return done(std::unexpected(header.error()));
    commons_->shard_with(connection)
        .call(connection, {std::move(*header), std::move(request.body), std::move(request.reply_body),
                           request.priority, std::move(done)});
  }

  void disconnect(ConnectionId connection, std::string reason) override {
    commons_->shard_with(connection).disconnect(connection, std::move(reason));
  }

  [[nodiscard]] std::vector<ConnectionInfo> connections() const override {
    std::vector<ConnectionInfo> found;
    std::size_t done = 0;
    std::mutex mutex;
    std::condition_variable ready;
    for (const auto& shard : shards_)
      shard->visit(
          [&](const ConnectionInfo& info) {
            const std::lock_guard lock(mutex);
            found.push_back(info);
          },
          [&] {
            const std::lock_guard lock(mutex);
            ++done;
            ready.notify_one();
          });
    std::unique_lock lock(mutex);
    ready.wait(lock, [&] { return done == shards_.size(); });
    return found;
  }

 private:
  const std::unique_ptr<ServerCommons> commons_;
  const std::vector<io::Address> addresses_;
  const std::vector<std::unique_ptr<ServerShard>> shards_;
};

Result<io::UdpSocket> open_socket(const io::Address& address, bool reuse_port) {
  auto socket = io::UdpSocket::open({.bind = address, .reuse_port = reuse_port});
  if (socket) return socket;
  const bool busy = socket.error().code == from_errno(EADDRINUSE);
  return fail(socket.error().code, "cannot listen on UDP " + address.to_string() +
                                       (busy ? " (another tuskd? choose another port with --listen)" : ""));
}

// The first socket has the port for itself, so that a second tuskd is told; only then it is shared.
Result<std::vector<io::UdpSocket>> open_sockets(const io::Address& address, unsigned shards) {
  std::vector<io::UdpSocket> sockets;
  TUSK_ASSIGN(io::UdpSocket first, open_socket(address, false));
  sockets.push_back(std::move(first));
  if (shards == 1) return sockets;
  TUSK_TRY(sockets.front().share_port());
  while (sockets.size() < shards) {
    TUSK_ASSIGN(io::UdpSocket next, open_socket(sockets.front().local_address(), true));
    sockets.push_back(std::move(next));
  }
  // Without it the shards hand over to each other what is not theirs: that is slower, and nothing else.
  if (const auto steered = sockets.front().steer(steering_program(shards)); !steered)
    spdlog::warn("the kernel does not steer packets: {}", steered.error().message());
  return sockets;
}

// More would be for lines of more than 100 Gbit/s.
constexpr unsigned kShardsByItself = 16;

unsigned shards_wanted(unsigned wanted) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  return wanted > 0 ? std::min(wanted, kShardsMax) : std::min(cores, kShardsByItself);
}

}  // namespace

Result<void> ServerEndpoint::check(const std::vector<io::Address>& listen) {
  std::vector<io::UdpSocket> sockets;
  for (const io::Address& address : listen) {
    TUSK_ASSIGN(io::UdpSocket socket, open_socket(address, false));
    sockets.push_back(std::move(socket));
  }
  return {};
}

Result<std::unique_ptr<ServerEndpoint>> ServerEndpoint::start(ServerEndpointOptions options,
                                                              Service& service) {
  TUSK_CHECK(options.identity && !options.listen.empty());
  const unsigned count = shards_wanted(options.shards);
  std::vector<io::Address> addresses;
  std::vector<std::vector<io::UdpSocket>> sockets(count);
  for (const io::Address& address : options.listen) {
    TUSK_ASSIGN(auto opened, open_sockets(address, count));
    addresses.push_back(opened.front().local_address());
    for (unsigned i = 0; i < count; ++i) sockets[i].push_back(std::move(opened[i]));
  }
  auto commons = std::make_unique<ServerCommons>(std::move(options), service);
  std::vector<std::unique_ptr<ServerShard>> shards;
  for (unsigned i = 0; i < count; ++i) {
    TUSK_ASSIGN(auto reactor, io::Reactor::create());
    shards.push_back(
        std::make_unique<ServerShard>(*commons, i, count, std::move(reactor), std::move(sockets[i])));
  }
  auto endpoint = std::make_unique<Endpoint>(std::move(commons), std::move(addresses), std::move(shards));
  TUSK_TRY(endpoint->start());
  return endpoint;
}

}  // namespace tusk::rpc

// A channel, a server, and somebody who has got at the token that ends their connection.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "proto/io/clock.h"
#include "proto/io/udp_socket.h"
#include "proto/rpc/address_validation.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/server_endpoint.h"
#include "proto/wire/packet_header.h"

namespace tusk::rpc {
namespace {

class WelcomingService final : public Service {
 public:
  void handle_call(std::unique_ptr<IncomingCall> call) override {
    schema::Reply reply;
    reply.mutable_attach();
    ++attaches;
    call->reply(std::move(reply));
  }
  void handle_disconnect(const Peer&, bool) override {}

  std::atomic<int> attaches = 0;
};

io::UdpSocket loopback_socket() { return *io::UdpSocket::open({.bind = *io::parse("127.0.0.1:0")}); }

void send_to(io::UdpSocket& socket, const io::Address& to, std::span<const std::byte> datagram) {
  const io::OutgoingBatch batch{to, {}, datagram, static_cast<std::uint16_t>(datagram.size()), 0};
  (void)socket.send(std::span(&batch, 1));
}

// Between a client and a server. Learns where the client is and what it calls the server.
class Between {
 public:
  explicit Between(io::Address server) : server_(server), thread_([this](auto stop) { run(stop); }) {}

  [[nodiscard]] std::uint16_t port() const { return to_client_.local_address().port(); }
  // As from the server's address, by what the client knows.
  void send_to_client(std::vector<std::byte> datagram) {
    const std::lock_guard lock(mutex_);
    forged_ = std::move(datagram);
  }
  [[nodiscard]] io::Address client() const {
    const std::lock_guard lock(mutex_);
    return client_;
  }
  [[nodiscard]] wire::ConnectionIdBytes id() const {
    const std::lock_guard lock(mutex_);
    return id_;
  }

 private:
  void run(const std::stop_token& stop) {
    io::ReceiveBatch batch;
    while (!stop.stop_requested()) {
      std::array<pollfd, 2> readable{pollfd{to_client_.fd(), POLLIN, 0}, pollfd{to_server_.fd(), POLLIN, 0}};
      ::poll(readable.data(), readable.size(), 5);
      to_client_.receive(batch, [&](const io::Datagram& datagram) {
        {
          const std::lock_guard lock(mutex_);
          client_ = datagram.from;
          if (const auto parsed = wire::parse_short_header(datagram.bytes)) id_ = parsed->header.to;
        }
        send_to(to_server_, server_, datagram.bytes);
      });
      to_server_.receive(
          batch, [&](const io::Datagram& datagram) { send_to(to_client_, client(), datagram.bytes); });
      std::vector<std::byte> forged;
      {
        const std::lock_guard lock(mutex_);
        forged.swap(forged_);
      }
      if (!forged.empty()) send_to(to_client_, client(), forged);
    }
  }

  const io::Address server_;
  io::UdpSocket to_client_ = loopback_socket();
  io::UdpSocket to_server_ = loopback_socket();
  mutable std::mutex mutex_;
  io::Address client_;
  wire::ConnectionIdBytes id_;
  std::vector<std::byte> forged_;
  std::jthread thread_;
};

bool within(Duration patience, const std::function<bool()>& done) {
  for (const TimePoint end = io::now() + patience; io::now() < end; std::this_thread::yield())
    if (done()) return true;
  return false;
}

TEST(Resets, AreBelievedFromTheServersAddressAndIdOnly) {
  const crypto::Identity server_identity = *crypto::Identity::generate();
  const crypto::Identity client_identity = *crypto::Identity::generate();
  WelcomingService service;
  ServerEndpointOptions listening;
  listening.listen = {*io::parse("127.0.0.1:0")};
  listening.identity = &server_identity;
  auto endpoint = ServerEndpoint::start(listening, service);
  ASSERT_TRUE(endpoint);
  const io::Address server = (*endpoint)->local_addresses().front();
  Between between(server);
  ChannelOptions options;
  options.host = "127.0.0.1";
  options.port = between.port();
  options.identity = &client_identity;
  auto channel = Channel::connect(options);
  ASSERT_TRUE(channel);
  ASSERT_TRUE(within(20s, [&] { return between.id() != wire::ConnectionIdBytes(); }));

  const auto token = AddressValidation(server_identity, 0).reset_token(between.id(), server);
  const auto reset_from = [&](const wire::ConnectionIdBytes& id) {
    wire::LongHeader header;
    header.type = wire::LongType::kReset;
    header.from = id;
    header.token = token;
    std::vector<std::byte> datagram(wire::long_header_size(token.size()));
    (void)wire::write_long_header(header, datagram);
    return datagram;
  };
  io::UdpSocket elsewhere = loopback_socket();
  send_to(elsewhere, between.client(), reset_from(between.id()));
  EXPECT_FALSE(within(500ms, [&] { return service.attaches > 1; })) << "from somewhere else";
  between.send_to_client(reset_from({}));
  EXPECT_FALSE(within(500ms, [&] { return service.attaches > 1; })) << "of another connection";
  between.send_to_client(reset_from(between.id()));
  EXPECT_TRUE(within(20s, [&] { return service.attaches > 1; })) << "a true one";
}

}  // namespace
}  // namespace tusk::rpc

// A server that gets far more first flights than it can answer: others come in, connections go on, and what
// the flood took is given back.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "proto/crypto/handshake.h"
#include "proto/rpc/server_endpoint.h"
#include "proto/wire/frame.h"
#include "tests/unit/rpc/raw_client.h"

namespace tusk::rpc {
namespace {

class AdmittingService final : public Service {
 public:
  void handle_call(std::unique_ptr<IncomingCall> call) override {
    schema::Reply reply;
    reply.mutable_attach();
    call->reply(std::move(reply));
  }
  void handle_disconnect(const Peer&, bool) override {}
};

class HandshakeFloodTest : public testing::Test {
 protected:
  static constexpr double kRate = 5000;

  HandshakeFloodTest() {
    ServerEndpointOptions options;
    options.listen = {*io::parse("127.0.0.1:0")};
    options.identity = &server_identity_;
    options.answers_patience = 20ms;
    auto endpoint = ServerEndpoint::start(std::move(options), service_);
    TUSK_CHECK(endpoint.has_value());
    endpoint_ = std::move(*endpoint);
    port_ = endpoint_->local_addresses().front().port();
  }
  ~HandshakeFloodTest() override { stop(); }

  RawClient client(const char* from = "127.0.0.1") {
    return {client_identity_, port_, *io::parse(std::string(from) + ":0")};
  }

  // Such as a client begins with that once had a connection from there.
  std::vector<std::byte> first_flight(std::span<const std::byte> hello, std::span<const std::byte> token) {
    wire::LongHeader header;
    header.to = random_connection_id();
    header.from = random_connection_id();
    header.token = token;
    std::vector<std::byte> bytes(wire::kDatagramSizeMin);
    const std::size_t begin = wire::write_long_header(header, bytes);
    const std::span<std::byte> whole(bytes);
    ByteWriter writer(whole.subspan(begin, whole.size() - begin - wire::kTagSize));
    write_frame(wire::CryptoFrame{0, hello}, writer);
    write_frame(wire::PaddingFrame{writer.room()}, writer);
    auto seal = crypto::PacketProtector::for_handshake(header.to.bytes, true);
    seal.seal(0, whole.first(begin), whole.subspan(begin));
    return bytes;
  }

  // From 127.0.0.9, kRate a second, until stop().
  void flood(std::vector<std::byte> token) {
    const auto hello = crypto::Handshake::client(client_identity_)->take_output();
    flooding_ = std::thread([this, hello, token = std::move(token)] {
      auto socket = *io::UdpSocket::open({.bind = *io::parse("127.0.0.9:0"), .gso = false});
      const io::Address server = endpoint_->local_addresses().front();
      const TimePoint begun = io::now();
      for (std::uint64_t sent = 0; !over_;) {
        const auto due =
            static_cast<std::uint64_t>(kRate * std::chrono::duration<double>(io::now() - begun).count());
        for (; sent < due; ++sent) {
          const auto flight = first_flight(hello, token);
          const io::OutgoingBatch batch{server, {}, flight, static_cast<std::uint16_t>(flight.size()), 0};
          (void)socket.send(std::span(&batch, 1));
        }
        std::this_thread::sleep_for(2ms);
      }
    });
  }
  void stop() {
    over_ = true;
    if (flooding_.joinable()) flooding_.join();
  }
  std::vector<std::byte> token_of(const char* from) {
    RawClient first = client(from);
    EXPECT_TRUE(first.run_until([&] { return !first.address_token().empty(); }));
    return first.address_token();
  }

  const crypto::Identity server_identity_ = *crypto::Identity::generate();
  const crypto::Identity client_identity_ = *crypto::Identity::generate();
  AdmittingService service_;
  std::unique_ptr<ServerEndpoint> endpoint_;
  std::uint16_t port_ = 0;
  std::atomic<bool> over_ = false;
  std::thread flooding_;
};

TEST_F(HandshakeFloodTest, AClientFromAnotherAddressComesInWithinTwoSeconds) {
  flood(token_of("127.0.0.9"));
  std::this_thread::sleep_for(
      1s);  // what a server that answers in order is behind by then does not fit in two
  for (int i = 0; i < 3; ++i) {
    RawClient guest = client();
    const TimePoint begun = io::now();
    ASSERT_TRUE(guest.connect() && guest.attach());
    EXPECT_LT(io::now() - begun, 2s);
  }
}

TEST_F(HandshakeFloodTest, AClientWithAnotherProofComesInFromTheSameAddress) {
  flood(token_of("127.0.0.9"));
  std::this_thread::sleep_for(1s);
  RawClient guest = client("127.0.0.9");
  const TimePoint begun = io::now();
  ASSERT_TRUE(guest.connect() && guest.attach());
  EXPECT_LT(io::now() - begun, 2s);
}

TEST_F(HandshakeFloodTest, WhoWasLetInIsGivenAnotherToken) {
  RawClient guest = client();
  ASSERT_TRUE(guest.connect());
  ASSERT_TRUE(guest.run_until([&] { return !guest.address_token().empty(); }));
  const auto before = guest.address_token();
  ASSERT_TRUE(guest.attach());
  ASSERT_TRUE(guest.run_until([&] { return guest.address_token() != before; }));
}

}  // namespace
}  // namespace tusk::rpc

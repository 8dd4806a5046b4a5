// What an endpoint lets peers do that have shown no right yet, or that ask for more than is good for others;
// and what it owes to all of them when it leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>

#include "proto/base/text.h"
#include "proto/rpc/memory_account.h"
#include "proto/rpc/server_endpoint.h"
#include "tests/support/sleeps.h"
#include "tests/unit/rpc/raw_client.h"

namespace tusk::rpc {
namespace {

constexpr std::size_t kMebibyte = 1 << 20;

// Lets everybody in who asks, and keeps all other calls.
class KeepingService final : public Service {
 public:
  void handle_call(std::unique_ptr<IncomingCall> call) override {
    if (call->message().has_attach()) {
      schema::Reply reply;
      reply.mutable_attach();
      return call->reply(std::move(reply));
    }
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(call));
  }
  void handle_disconnect(const Peer&, bool) override {}

  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return kept_.size();
  }
  std::vector<std::unique_ptr<IncomingCall>> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(kept_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<IncomingCall>> kept_;
};

class StrangersTest : public testing::Test {
 protected:
  void start(ServerEndpointOptions options = {}, std::uint16_t port = 0) {
    options.listen = {*io::parse("127.0.0.1:" + std::to_string(port))};
    options.identity = &server_identity_;
    options.answers_patience = answers_patience_;
    auto endpoint = ServerEndpoint::start(std::move(options), service_);
    ASSERT_TRUE(endpoint) << endpoint.error().message();
    endpoint_ = std::move(*endpoint);
    port_ = endpoint_->local_addresses().front().port();
  }
  RawClient client() { return {client_identity_, port_}; }

  static SharedBytes write_header() {
    schema::Request request;
    request.mutable_write();
    return *encode_message(request);
  }
  static SharedBytes read_header() {
    schema::Request request;
    request.mutable_read();
    return *encode_message(request);
  }
  // A request that says nothing, of so many bytes unpacked.
  static SharedBytes long_header(std::size_t size, Packing packing) {
    schema::Request request;
    for (std::size_t i = 0; i < size; ++i) request.mutable_caller()->add_groups(0);
    return *encode_message(request, packing);
  }

  crypto::Identity server_identity_ = *crypto::Identity::generate();
  crypto::Identity client_identity_ = *crypto::Identity::generate();
  KeepingService service_;
  Duration answers_patience_ = 20ms;  // clients of these tests leave without a word
  std::unique_ptr<ServerEndpoint> endpoint_;
  std::uint16_t port_ = 0;
};

// ---------------------------------------------------------------- before an attach

TEST_F(StrangersTest, NothingIsUnpackedForThem) {
  start();
  for (const auto& [header, what] : {std::pair(long_header(600, Packing::kWhereItPays), "packed"),
                                     std::pair(long_header(17'000, Packing::kNever), "long")}) {
    RawClient stranger = client();
    ASSERT_TRUE(stranger.connect());
    stranger.ask(header);
    ASSERT_TRUE(stranger.run_to_the_end()) << what;
    EXPECT_EQ(stranger.closed()->code, ErrorCode::kMalformed) << what;
  }
  EXPECT_EQ(service_.count(), 0u);
}

TEST_F(StrangersTest, TheyMaySendLittle) {
  start();
  RawClient stranger = client();
  ASSERT_TRUE(stranger.connect());
  stranger.ask(write_header(), kMebibyte);
  ASSERT_TRUE(stranger.run_to_the_end());
  EXPECT_EQ(stranger.closed()->code, ErrorCode::kLimitExceeded);
}

TEST_F(StrangersTest, TheyHaveToAttachInTime) {
  ServerEndpointOptions options;
  options.attach_patience = 200ms;
  start(std::move(options));
  RawClient guest = client();
  ASSERT_TRUE(guest.connect() && guest.attach());
  RawClient stranger = client();
  ASSERT_TRUE(stranger.connect());
  ASSERT_TRUE(stranger.run_to_the_end());
  EXPECT_EQ(stranger.closed()->code, ErrorCode::kTimedOut);
  EXPECT_TRUE(guest.attach()) << "who is in stays in";
}

TEST_F(StrangersTest, TheyGiveWayWhenThereIsNoPlaceInWhateverShardTheyAre) {
  constexpr int kPlaces = 8;
  ServerEndpointOptions options;
  options.connections_max = kPlaces;
  options.shards = 3;
  start(std::move(options));
  std::vector<RawClient> strangers, guests;
  for (int i = 0; i < kPlaces; ++i) {
    strangers.push_back(client());
    ASSERT_TRUE(strangers.back().connect());
  }
  for (int i = 0; i < kPlaces; ++i) {
    guests.push_back(client());
    ASSERT_TRUE(guests.back().connect() && guests.back().attach());
  }
  RawClient late = client();
  EXPECT_FALSE(late.connect(100ms)) << "nobody who is in gives way";
  for (RawClient& guest : guests) EXPECT_TRUE(guest.attach());
}

// ---------------------------------------------------------------- addresses that are not proven

TEST_F(StrangersTest, WhoMayNotBeThereGetsLittleAndIsHardlyLookedAt) {
  const support::Sleeps older = support::sleeps_of_the_first();
  start();
  RawClient silent = client();
  // Long enough for the server to repeat its flight more often than it may.
  ByteCount bytes = 0;
  for (const auto& packet : silent.call_and_fall_silent(2500ms)) bytes += packet.size();
  EXPECT_GT(bytes, 0u);
  EXPECT_LE(bytes, 3 * wire::kDatagramSizeMin);
  const support::Sleeps before = support::sleeps_of_others(older);
  EXPECT_TRUE(silent.hear(1s).empty());
  EXPECT_LE(support::sleeps_since(before), 20u);
}

TEST_F(StrangersTest, ManyThatMayNotBeThereMakeOthersProveTheirAddress) {
  ServerEndpointOptions options;
  options.unproven_max = 2;
  start(std::move(options));
  const auto first_answer = [this] {
    RawClient silent = client();
    auto heard = silent.call_and_fall_silent(100ms);
    if (heard.empty()) return wire::LongType::kVersionNegotiation;
    return wire::parse_long_header(heard.front())->header.type;
  };
  EXPECT_EQ(first_answer(), wire::LongType::kHandshake);
  EXPECT_EQ(first_answer(), wire::LongType::kHandshake);
  EXPECT_EQ(first_answer(), wire::LongType::kRetry);
  RawClient guest = client();
  EXPECT_TRUE(guest.connect() && guest.attach()) << "who proves it comes in";
}

TEST_F(StrangersTest, TheTokenOfARetryIsGoodForItsConnectionOnly) {
  ServerEndpointOptions options;
  options.unproven_max = 0;
  start(std::move(options));
  RawClient silent = client();
  const auto heard = silent.call_and_fall_silent(300ms);
  ASSERT_FALSE(heard.empty());
  const auto retry = wire::parse_long_header(heard.front());
  ASSERT_TRUE(retry && retry->header.type == wire::LongType::kRetry);
  const auto answers_to = [&](const wire::ConnectionIdBytes& original) {
    std::vector<std::byte> datagram(wire::kDatagramSizeMin);
    wire::LongHeader header;
    header.type = wire::LongType::kHandshake;
    header.to = original;
    header.from = retry->header.to;
    header.token = retry->header.token;
    (void)wire::write_long_header(header, datagram);
    silent.send(datagram);
    return silent.hear(300ms).size();
  };
  EXPECT_EQ(answers_to(retry->header.from), 0u) << "its address is proven; what it says is nonsense";
  wire::ConnectionIdBytes another = retry->header.from;
  another.bytes[0] ^= std::byte{1};
  EXPECT_EQ(answers_to(another), 1u) << "asked to come again";
}

// ---------------------------------------------------------------- resets

// After a crash the server hears of a connection that is not there any more, as often as not in a mere probe.
TEST_F(StrangersTest, TheSmallestPacketOfAForgottenConnectionIsToldSo) {
  start();
  RawClient stranger = client();
  std::array<std::byte, wire::kShortHeaderSize + 1 + 16> probe{};
  wire::ShortHeader header;
  header.to.bytes[0] = std::byte{1};
  (void)wire::write_short_header(header, probe);
  stranger.send(probe);
  const auto heard = stranger.hear(500ms);
  ASSERT_EQ(heard.size(), 1u);
  const auto reset = wire::parse_long_header(heard[0]);
  ASSERT_TRUE(reset);
  EXPECT_EQ(reset->header.type, wire::LongType::kReset);
  EXPECT_EQ(reset->header.from, header.to);
  EXPECT_LE(heard[0].size(), 3 * probe.size());
  stranger.send(heard[0]);
  EXPECT_TRUE(stranger.hear(100ms).empty()) << "a reset is never answered";
}

// Servers that share a state directory: who asks one for a token to a connection of the other gets another
// one.
TEST_F(StrangersTest, WhatEndsAConnectionIsKnownToItsServerOnlyAndThereAlsoAfterARestart) {
  const auto token = [this] {
    RawClient stranger = client();
    std::array<std::byte, 100> packet{};
    wire::ShortHeader header;
    header.to.bytes[0] = std::byte{1};
    (void)wire::write_short_header(header, packet);
    stranger.send(packet);
    const auto heard = stranger.hear(300ms);
    const auto reset = heard.empty() ? std::nullopt : wire::parse_long_header(heard[0]);
    if (!reset || reset->header.type != wire::LongType::kReset) return std::vector<std::byte>();
    return std::vector<std::byte>(reset->header.token.begin(), reset->header.token.end());
  };
  start();
  const std::uint16_t port = port_;
  const std::vector<std::byte> given = token();
  EXPECT_EQ(given.size(), wire::kResetTokenSize);
  std::unique_ptr<ServerEndpoint> first = std::move(endpoint_);
  start();
  ASSERT_NE(port_, port);
  const std::vector<std::byte> other = token();
  EXPECT_EQ(other.size(), wire::kResetTokenSize);
  EXPECT_NE(other, given);
  first.reset();
  start({}, port);
  EXPECT_EQ(token(), given);
}

// ---------------------------------------------------------------- memory

TEST_F(StrangersTest, GuestsMayNotSendBombs) {
  start();
  RawClient guest = client();
  ASSERT_TRUE(guest.connect() && guest.attach());
  guest.ask(long_header(300'000, Packing::kWhereItPays));
  ASSERT_TRUE(guest.run_to_the_end());
  EXPECT_EQ(guest.closed()->code, ErrorCode::kMalformed);
}

TEST_F(StrangersTest, WhoHoldsTooMuchIsDisconnected) {
  ServerEndpointOptions options;
  options.request_memory_max = 8 * kMebibyte;
  start(std::move(options));
  RawClient modest = client();
  ASSERT_TRUE(modest.connect() && modest.attach());
  modest.ask(write_header(), kMebibyte);
  ASSERT_TRUE(modest.run_until([&] { return service_.count() == 1; }));
  RawClient greedy = client();
  ASSERT_TRUE(greedy.connect() && greedy.attach());
  for (int i = 0; i < 3; ++i) greedy.ask(write_header(), 4 * kMebibyte);
  ASSERT_TRUE(greedy.run_to_the_end());
  EXPECT_EQ(greedy.closed()->code, ErrorCode::kLimitExceeded);
  EXPECT_TRUE(modest.attach()) << "others stay";
}

TEST_F(StrangersTest, ACallThatTakesNoBytesKeepsNone) {
  start();
  RawClient guest = client();
  ASSERT_TRUE(guest.connect() && guest.attach());
  guest.ask(read_header(), kMebibyte);
  ASSERT_TRUE(guest.run_until([&] { return service_.count() == 1; }));
  EXPECT_TRUE(service_.take().front()->body().empty());
}

TEST(MemoryAccount, CountsUntilTheLastOwnerLetsGo) {
  const auto whole = std::make_shared<MemoryAccount>();
  SharedBytes kept;
  {
    const auto part = std::make_shared<MemoryAccount>(whole);
    const MutableSharedBytes bytes = allocate_counted(part, 1000);
    kept = bytes.first(10);
    EXPECT_EQ(part->held(), 1000u);
  }
  EXPECT_EQ(whole->held(), 1000u) << "a few bytes keep all of them";
  kept = {};
  EXPECT_EQ(whole->held(), 0u);
}

// ---------------------------------------------------------------- the end

TEST_F(StrangersTest, AnswersArriveBeforeTheGoodbye) {
  answers_patience_ = 20s;
  start();
  RawClient guest = client();
  ASSERT_TRUE(guest.connect() && guest.attach());
  for (int i = 0; i < 8; ++i) guest.ask(read_header(), 0, kMebibyte);
  ASSERT_TRUE(guest.run_until([&] { return service_.count() == 8; }));
  for (const auto& call : service_.take()) {
    schema::Reply reply;
    reply.mutable_read();
    call->reply(std::move(reply), allocate_bytes(kMebibyte).first(kMebibyte));
  }
  const auto gone = std::async(std::launch::async, [&] { endpoint_.reset(); });
  ASSERT_TRUE(guest.run_to_the_end());
  EXPECT_EQ(guest.closed()->code, ErrorCode::kPeerClosed);
  EXPECT_EQ(guest.replies().size(), 1u + 8u) << "the attach and all that was answered";
}

TEST_F(StrangersTest, AClientThatIsGoneDoesNotKeepTheServer) {
  start();
  RawClient guest = client();
  ASSERT_TRUE(guest.connect() && guest.attach());
  guest.ask(read_header());
  ASSERT_TRUE(guest.run_until([&] { return service_.count() == 1; }));
  service_.take().front()->reply_error(ErrorCode::kUnsupported);
  const TimePoint begun = io::now();
  endpoint_.reset();
  EXPECT_LT(io::now() - begun, 5s);
}

TEST(Printable, KeepsTheLogToOneLine) {
  EXPECT_EQ(printable("laptop"), "laptop");
  EXPECT_EQ(printable("a\nroot entered\x1b[2J\x7f\xc3"), "a?root entered?[2J??");
  EXPECT_EQ(printable(std::string(1000, 'x')).size(), 255u);
}

}  // namespace
}  // namespace tusk::rpc

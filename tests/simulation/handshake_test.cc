// Real TLS over bad paths: it gets through, or it ends with the right reason; a server keeps nothing of
// those who do not finish.
#include "tests/simulation/secure_vocabulary.h"

namespace tusk::simulation {
namespace {

TEST(Handshake, TakesThreeRoundTripsWithTheRetry) {
  SecurePair pair(secure_wan());
  ASSERT_TRUE(pair.connect(1s));
  // The retry, hello against hello, and the client's certificate on its way.
  EXPECT_LT(pair.established_at(Role::kClient), TimePoint(2 * 40ms + 5ms));
  EXPECT_LT(pair.established_at(Role::kServer), TimePoint(2 * 40ms + 20ms + 5ms));
  EXPECT_EQ(pair.front().counters().retries, 1u);
  expect_transfer_works(pair);
}

TEST(Handshake, MeasuresTheRoundTripInSpiteOfTheRetry) {
  SecurePair pair(secure_wan());
  ASSERT_TRUE(pair.connect(1s));
  for (const Role side : {Role::kClient, Role::kServer}) {
    const auto& rtt = pair.connection(side)->rtt();
    if (!rtt.has_sample()) continue;
    EXPECT_GT(rtt.smoothed(), 38ms);
    EXPECT_LT(rtt.smoothed(), 50ms);
  }
}

TEST(Handshake, ATokenOfAnEarlierConnectionSparesTheRetry) {
  SecureOptions options = secure_wan();
  {
    SecurePair first(options);
    ASSERT_TRUE(first.connect(1s));
    first.run_for(1s);
    options.address_token = first.traffic().address_token();
  }
  ASSERT_FALSE(options.address_token.empty());
  SecurePair second(options);  // the same seed: the same server key
  ASSERT_TRUE(second.connect(1s));
  EXPECT_EQ(second.front().counters().retries, 0u);
  EXPECT_LT(second.established_at(Role::kClient), TimePoint(45ms));
}

class HandshakeUnderLoss : public testing::TestWithParam<int> {};

TEST_P(HandshakeUnderLoss, GetsThrough) {
  const double loss = GetParam() / 100.0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SecurePair pair(secure_wan_with([&](LinkParameters& link) { link.loss = loss; }, seed));
    // Where half of all packets are lost a server may give up a try; a client then tries again.
    const bool connected = pair.connect(30s);
    if (!connected && loss >= 0.5) continue;
    ASSERT_TRUE(connected) << "seed " << seed;
    pair.fetch(1000);
    EXPECT_TRUE(pair.run_to_rest(120s)) << "seed " << seed;
    EXPECT_THAT(pair.complaints(), testing::IsEmpty()) << "seed " << seed;
  }
}
INSTANTIATE_TEST_SUITE_P(Percent, HandshakeUnderLoss, testing::Values(0, 5, 10, 20, 30, 40, 50),
                         testing::PrintToStringParamName());

TEST(Handshake, MostlyGetsThroughEvenWhenHalfIsLost) {
  int connected = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SecurePair pair(secure_wan_with([&](LinkParameters& link) { link.loss = 0.5; }, seed));
    connected += pair.connect(30s);
  }
  EXPECT_GE(connected, 36);
}

TEST(Handshake, SurvivesReorderingDuplicationAndDamage) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SecureOptions options = secure_wan_with(
        [&](LinkParameters& link) {
          link.reorder = 0.4;
          link.reorder_max = 300ms;
          link.duplicate = 0.5;
          link.corrupt = 0.1;
        },
        seed);
    options.world.path.deliver_damaged = true;
    SecurePair pair(options);
    ASSERT_TRUE(pair.connect(20s)) << "seed " << seed;
    expect_transfer_works(pair, 20s);
    EXPECT_EQ(pair.front().counters().connections, 1u) << "seed " << seed;
  }
}

TEST(Handshake, TruncatedPacketsAreDropped) {
  SecurePair pair(secure_wan());
  const Recorder to_server(pair, Role::kServer);
  const Recorder to_client(pair, Role::kClient);
  // Every datagram is followed by every shorter form of it.
  pair.every(5ms, [&] {
    if (to_server.datagrams.empty() || to_client.datagrams.empty()) return;
    for (std::size_t size = 0; size < 1232; size += 37) {
      pair.forge(
          Role::kServer,
          std::span(to_server.datagrams.back()).first(std::min(size, to_server.datagrams.back().size() - 1)));
      pair.forge(
          Role::kClient,
          std::span(to_client.datagrams.back()).first(std::min(size, to_client.datagrams.back().size() - 1)));
    }
  });
  ASSERT_TRUE(pair.connect(5s));
  expect_transfer_works(pair);
}

TEST(Handshake, GarbageInBetweenIsDropped) {
  SecurePair pair(secure_wan());
  pair.every(500us, [&] {
    for (const Role receiver : {Role::kServer, Role::kClient})
      pair.forge(receiver, random_datagram(pair.random(), 1 + pair.random().below(1400)));
  });
  ASSERT_TRUE(pair.connect(5s));
  expect_transfer_works(pair);
}

TEST(Handshake, AHandshakeThatIsAbandonedIsForgottenByTheServer) {
  SecurePair pair(secure_wan());
  // The client's second flight never arrives.
  pair.path().add_sieve(Role::kServer, [&](auto) { return pair.front().secure() == nullptr; });
  pair.run_until([&] { return pair.front().secure() != nullptr; }, 1s);
  ASSERT_NE(pair.front().secure(), nullptr);
  pair.run_until([&] { return first_closed(pair, Role::kServer) != ErrorCode::kOk; }, 30s);
  EXPECT_EQ(first_closed(pair, Role::kServer), ErrorCode::kTimedOut);
  EXPECT_LT(pair.elapsed(), 11s);
}

TEST(Handshake, AnotherServersKeyIsRefused) {
  SecureOptions options = secure_wan();
  options.expected_server.emplace().bytes.fill(std::byte{0x42});
  SecurePair pair(options);
  EXPECT_FALSE(pair.connect(5s));
  EXPECT_EQ(first_closed(pair, Role::kClient), ErrorCode::kFingerprintMismatch);
  pair.run_for(1s);
  EXPECT_FALSE(pair.established(Role::kServer));
  // The alert tells the server at once, so it need not wait for its patience to end.
  EXPECT_NE(first_closed(pair, Role::kServer), ErrorCode::kOk);
}

TEST(Handshake, TheServersSilenceIsNoError) {
  SecureOptions options = secure_wan();
  options.world.path.to_server.outage = true;
  SecurePair pair(options);
  EXPECT_FALSE(pair.connect(60s));
  EXPECT_TRUE(pair.traffic().closed().empty());
  // The first flight was repeated with ever longer pauses, two seconds at most.
  EXPECT_GE(pair.path().statistics(Role::kServer).packets_in, 30u);
  EXPECT_LE(pair.path().statistics(Role::kServer).packets_in, 40u);
}

TEST(Handshake, AServerAnswersAStrangerWithLessThanItGot) {
  SecurePair pair(secure_wan());
  ASSERT_TRUE(pair.connect(1s));
  pair.run_for(1s);  // what the two have to say to each other
  const auto& sent = pair.path().statistics(Role::kClient);
  const ByteCount before = sent.bytes_in;
  wire::LongHeader hello;
  hello.to = rpc::random_connection_id();
  hello.from = rpc::random_connection_id();
  const Datagram first_flight = long_packet(hello, wire::kDatagramSizeMin);
  for (int i = 0; i < 100; ++i) pair.forge(Role::kServer, first_flight, 99);
  pair.run_for(1s);
  EXPECT_LT(sent.bytes_in - before, 100 * first_flight.size() / 4);
  EXPECT_EQ(pair.front().counters().connections, 1u);
}

TEST(Handshake, SmallFirstPacketsAreNotAnswered) {
  SecurePair pair(secure_wan());
  wire::LongHeader hello;
  hello.to = rpc::random_connection_id();
  pair.forge(Role::kServer, long_packet(hello, 1000));
  pair.run_for(10ms);
  EXPECT_EQ(pair.front().counters().retries, 0u);
}

TEST(Handshake, AnUnknownVersionIsAnsweredWithOurs) {
  SecurePair pair(secure_wan());
  const Recorder to_client(pair, Role::kClient);
  wire::LongHeader hello;
  hello.version = wire::kVersion + 1;
  hello.to = rpc::random_connection_id();
  hello.from = rpc::random_connection_id();
  pair.forge(Role::kServer, long_packet(hello, wire::kDatagramSizeMin), 99);
  pair.run_for(30ms);
  EXPECT_EQ(pair.front().counters().version_negotiations, 1u);
  const auto answer = std::ranges::find_if(to_client.datagrams, [&](const Datagram& datagram) {
    const auto parsed = wire::parse_long_header(datagram);
    return parsed && parsed->header.type == wire::LongType::kVersionNegotiation;
  });
  ASSERT_NE(answer, to_client.datagrams.end());
  EXPECT_EQ(wire::parse_long_header(*answer)->header.version, wire::kVersion);
  EXPECT_EQ(wire::parse_long_header(*answer)->header.to, hello.from);
}

}  // namespace
}  // namespace tusk::simulation

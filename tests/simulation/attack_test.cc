// An attacker on the path or beside it: what it sends is dropped, and what it changes counts as lost.
#include <utility>

#include "tests/simulation/secure_vocabulary.h"

namespace tusk::simulation {
namespace {

constexpr ByteCount kAttackedBytes = 4 * kMiB;

TEST(Attack, ReplayedPacketsAreDropped) {
  SecurePair pair(secure_wan());
  const Recorder to_server(pair, Role::kServer);
  const Recorder to_client(pair, Role::kClient);
  ASSERT_TRUE(pair.connect(1s));
  stream_both_ways(pair, kAttackedBytes);
  expect_well(pair, 10s);
  const auto client = pair.client().connection().stats();
  const auto server = pair.front().secure()->connection().stats();
  // The same bytes from elsewhere, too: old packets must not move the client.
  for (const Datagram& datagram : to_server.datagrams) {
    pair.forge(Role::kServer, datagram);
    pair.forge(Role::kServer, datagram, 99);
  }
  for (const Datagram& datagram : to_client.datagrams) pair.forge(Role::kClient, datagram);
  pair.run_for(2s);
  EXPECT_EQ(pair.client().connection().stats().packets_received, client.packets_received);
  EXPECT_EQ(pair.front().secure()->connection().stats().packets_received, server.packets_received);
  EXPECT_EQ(pair.front().client_address(), pair.client_address());
  EXPECT_EQ(pair.front().counters().connections, 1u);
  expect_transfer_works(pair);
}

TEST(Attack, ReplaysWhileTheTransferRunsChangeNothing) {
  SecurePair pair(secure_wan());
  const Recorder to_server(pair, Role::kServer);
  const Recorder to_client(pair, Role::kClient);
  ASSERT_TRUE(pair.connect(1s));
  stream_both_ways(pair, kAttackedBytes);
  pair.every(1ms, [&] {
    for (const Recorder* recorder : {&to_server, &to_client})
      if (!recorder->datagrams.empty() && pair.elapsed() < 2s)
        pair.forge(recorder == &to_server ? Role::kServer : Role::kClient,
                   recorder->datagrams[pair.random().below(recorder->datagrams.size())]);
  });
  expect_well(pair, 10s);
}

TEST(Attack, ChangedPacketsAreDropped) {
  SecureOptions options = secure_wan_with([](LinkParameters& link) { link.corrupt = 0.03; });
  options.world.path.deliver_damaged = true;
  SecurePair pair(options);
  ASSERT_TRUE(pair.connect(10s));
  stream_both_ways(pair, kAttackedBytes);
  expect_well(pair, 20s);
  EXPECT_GT(pair.client().drops().unauthenticated, 10u);
}

TEST(Attack, EveryBitOfAPacketIsProtected) {
  SecurePair pair(secure_wan());
  ASSERT_TRUE(pair.connect(1s));
  pair.run_for(500ms);
  const Recorder to_server(pair, Role::kServer);
  pair.fetch(100);
  expect_well(pair, 2s);
  const auto before = pair.front().secure()->connection().stats().packets_received;
  ASSERT_FALSE(to_server.datagrams.empty());
  const Datagram original = to_server.datagrams.front();
  for (std::size_t bit = 0; bit < original.size() * 8; ++bit) {
    Datagram changed = original;
    changed[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    pair.forge(Role::kServer, changed, 99);
  }
  pair.run_for(1s);
  EXPECT_EQ(pair.front().secure()->connection().stats().packets_received, before);
  EXPECT_EQ(pair.front().client_address(), pair.client_address());
  expect_transfer_works(pair);
}

// A client that has moved answers the challenge in a packet from an address that is somebody else's, and is
// not heard any more. Which packet that is one cannot see from outside: one of those that are tried.
TEST(Attack, AChallengeIsNotAnsweredForAnotherAddress) {
  constexpr SimAddress kVictim = 99;
  int stolen = 0;
  for (Duration from = 35ms; from < 50ms; from += 250us) {
    SecurePair pair(secure_wan());
    ASSERT_TRUE(pair.connect(1s));
    pair.traffic().stream(64 * kMiB, 8 * kMiB, Kind::kFetch);
    pair.run_for(500ms);
    pair.move_client();
    const Duration moved = pair.elapsed();
    bool forged = false;
    pair.path().add_sieve(Role::kServer, [&, from](std::span<std::byte> datagram) {
      const Duration since = pair.elapsed() - moved;
      if (since < from - 10ms) return true;
      if (since >= from && !std::exchange(forged, true)) pair.forge(Role::kServer, datagram, kVictim);
      return false;
    });
    pair.run_for(100ms);
    stolen += pair.front().client_address() == kVictim;
    pair.run_for(5s);
    EXPECT_NE(pair.front().client_address(), kVictim) << to_seconds(from);
  }
  EXPECT_GT(stolen, 0);
}

// Somebody beside the client sends on what he sees from an address of his own, and is faster. The client's
// next packet ends that, whatever the address that he made up answers, so that he costs no more than a packet
// or two.
TEST(Attack, PacketsThatOvertakeTheirOriginalsDoNotHoldTheLineUp) {
  static constexpr SimAddress kElsewhere = 99;
  static constexpr ByteCount kFetched = 16 * kMiB;
  const auto fetched_within = [](bool overtaken) {
    SecurePair pair(secure_wan());
    EXPECT_TRUE(pair.connect(1s));
    pair.run_for(500ms);
    int moved = 0;
    Duration next = pair.elapsed();
    pair.path().add_sieve(Role::kServer, [&](std::span<std::byte> datagram) {
      if (overtaken && pair.elapsed() >= next) {
        next = pair.elapsed() + 50ms;
        pair.forge(Role::kServer, datagram, kElsewhere);
      }
      moved += pair.front().client_address() == kElsewhere;
      return true;
    });
    const Duration begun = pair.elapsed();
    pair.traffic().stream(kFetched, 8 * kMiB, Kind::kFetch);
    expect_well(pair, 60s);
    if (overtaken) {
      EXPECT_GT(moved, 10);
    } else {
      EXPECT_EQ(moved, 0);
    }
    const Duration took = pair.elapsed() - begun;
    pair.run_for(5s);  // the last packet of all may have been one of them
    EXPECT_EQ(pair.front().client_address(), pair.client_address());
    return took;
  };
  EXPECT_LT(to_seconds(fetched_within(true)), 1.2 * to_seconds(fetched_within(false)));
}

// ------------------------------------------------ packets without keys

Datagram forged(wire::LongType type, const wire::ConnectionIdBytes& to,
                std::span<const std::byte> token = {}) {
  wire::LongHeader header;
  header.type = type;
  header.to = to;
  header.from = rpc::random_connection_id();
  header.token = token;
  return long_packet(header);
}

TEST(Attack, AForgedRetryByAStrangerIsDropped) {
  SecurePair pair(secure_wan());
  const Datagram token(40, std::byte{1});
  pair.forge(Role::kClient, forged(wire::LongType::kRetry, rpc::random_connection_id(), token));
  ASSERT_TRUE(pair.connect(200ms));
  EXPECT_EQ(pair.client().drops().unexpected, 1u);
}

TEST(Attack, AForgedRetryByOneWhoSeesThePacketsCostsOneRoundTrip) {
  SecurePair pair(secure_wan());
  const Datagram token(40, std::byte{1});
  pair.forge(Role::kClient, forged(wire::LongType::kRetry, pair.client().own_id(), token));
  ASSERT_TRUE(pair.connect(1s));
  EXPECT_LT(pair.elapsed(), 4 * 40ms);
  expect_transfer_works(pair);
}

TEST(Attack, ARetryIsTooLateOnceTheServerWasHeard) {
  SecurePair pair(secure_wan());
  ASSERT_TRUE(pair.connect(1s));
  const auto before = pair.client().drops().unexpected;
  const Datagram token(40, std::byte{1});
  pair.forge(Role::kClient, forged(wire::LongType::kRetry, pair.client().own_id(), token));
  pair.forge(Role::kClient, forged(wire::LongType::kVersionNegotiation, pair.client().own_id()));
  expect_transfer_works(pair);
  EXPECT_EQ(pair.client().drops().unexpected, before + 2);
}

TEST(Attack, AForgedVersionNegotiationByAStrangerIsDropped) {
  SecurePair pair(secure_wan());
  pair.forge(Role::kClient, forged(wire::LongType::kVersionNegotiation, rpc::random_connection_id()));
  EXPECT_TRUE(pair.connect(1s));
}

TEST(Attack, AForgedResetIsDropped) {
  SecurePair pair(secure_wan());
  ASSERT_TRUE(pair.connect(1s));
  pair.run_for(500ms);
  const Datagram guess(wire::kResetTokenSize, std::byte{7});
  pair.forge(Role::kClient, forged(wire::LongType::kReset, pair.client().own_id(), guess));
  pair.forge(Role::kClient, forged(wire::LongType::kReset, pair.client().own_id()));
  expect_transfer_works(pair);
}

TEST(Attack, ATrueResetEndsTheConnectionAtOnce) {
  SecurePair pair(secure_wan());
  ASSERT_TRUE(pair.connect(1s));
  pair.run_for(500ms);
  pair.front().forget_connection();
  pair.store(kKiB);
  const Duration asked = pair.elapsed();
  pair.run_until([&] { return pair.client().closed(); }, 10s);
  EXPECT_EQ(first_closed(pair, Role::kClient), ErrorCode::kServerRestarted);
  EXPECT_LT(pair.elapsed() - asked, 60ms);
}

// Who waits for an answer sends probes and pings, which are smaller than a reset.
TEST(Attack, ATrueResetAnswersTheSmallestPacketsAndIsNeverAnswered) {
  SecurePair pair(secure_wan());
  ASSERT_TRUE(pair.connect(1s));
  pair.run_for(500ms);
  pair.front().forget_connection();
  const Recorder to_server(pair, Role::kServer);
  const Recorder to_client(pair, Role::kClient);
  pair.run_until([&] { return pair.client().closed(); }, 12s);
  EXPECT_EQ(first_closed(pair, Role::kClient), ErrorCode::kServerRestarted);
  ASSERT_EQ(to_server.datagrams.size(), 1u);
  ASSERT_EQ(to_client.datagrams.size(), 1u);
  const std::size_t reset = to_client.datagrams.front().size();
  EXPECT_LT(to_server.datagrams.front().size(), reset);
  EXPECT_LE(reset, 3 * to_server.datagrams.front().size());
  pair.forge(Role::kServer, to_client.datagrams.front());
  pair.run_for(1s);
  EXPECT_EQ(to_client.datagrams.size(), 1u);
}

// A handshake packet that anybody can seal who saw the original id and the receiver's.
Datagram forged_handshake(SecurePair& pair, Role receiver, std::uint32_t number,
                          std::span<const std::byte> frames) {
  auto seal =
      crypto::PacketProtector::for_handshake(pair.client().original_id().bytes, receiver == Role::kServer);
  wire::LongHeader header;
  header.to = pair.secure(receiver)->own_id();
  header.from = pair.secure(receiver == Role::kServer ? Role::kClient : Role::kServer)->own_id();
  header.packet_number_low = number;
  Datagram datagram = long_packet(header, frames.size() + wire::kTagSize);
  const std::size_t size = datagram.size() - frames.size() - wire::kTagSize;
  std::ranges::copy(frames, datagram.begin() + static_cast<std::ptrdiff_t>(size));
  seal.seal(number, std::span(datagram).first(size), std::span(datagram).subspan(size));
  return datagram;
}

TEST(Attack, ForgedHandshakeBytesDoNotEndAnEstablishedConnection) {
  SecurePair pair(secure_wan());
  ASSERT_TRUE(pair.connect(1s));
  pair.run_for(500ms);
  // An alert in clear, at every place where TLS might go on to read.
  const Datagram alert = {std::byte{0x15}, std::byte{3}, std::byte{3}, std::byte{0},
                          std::byte{2},    std::byte{2}, std::byte{40}};
  std::uint32_t number = 1000;
  for (const Role receiver : {Role::kServer, Role::kClient})
    for (ByteCount offset = 0; offset < 3000; ++offset) {
      Datagram frame(alert.size() + wire::kCryptoFrameOverhead);
      ByteWriter writer(frame);
      write_frame(wire::CryptoFrame{offset, alert}, writer);
      frame.resize(writer.written());
      pair.forge(receiver, forged_handshake(pair, receiver, ++number, frame));
    }
  pair.run_for(2s);
  EXPECT_THAT(pair.complaints(), testing::IsEmpty());
  EXPECT_EQ(pair.client().drops().unauthenticated, 0u) << "they were whole";
  expect_transfer_works(pair);
}

TEST(Attack, ForgedHandshakePacketsDoNotEndAHandshake) {
  // Anybody who saw the first packet can seal handshake packets: bad ones are dropped.
  SecurePair pair(secure_wan());
  auto seal = crypto::PacketProtector::for_handshake(pair.client().original_id().bytes, false);
  std::uint32_t number = 1000;
  pair.every(5ms, [&] {
    if (pair.elapsed() > 1s) return;
    wire::LongHeader header;
    header.to = pair.client().own_id();
    header.from = rpc::random_connection_id();
    header.packet_number_low = ++number;
    Datagram datagram = long_packet(header, 40 + wire::kTagSize);
    const std::size_t size = datagram.size() - 40 - wire::kTagSize;
    datagram[size] = std::byte{0x3f};  // no frame's type
    seal.seal(number, std::span(datagram).first(size), std::span(datagram).subspan(size));
    if (pair.established(Role::kClient)) pair.forge(Role::kClient, datagram);
  });
  ASSERT_TRUE(pair.connect(5s));
  expect_transfer_works(pair);
}

}  // namespace
}  // namespace tusk::simulation

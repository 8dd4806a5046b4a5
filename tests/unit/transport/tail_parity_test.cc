// Parity of what goes out last: of which messages, how much, and that it brings back what was lost.
#include "proto/transport/tail_parity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "proto/base/erasure.h"
#include "tests/golden/samples/wire_text.h"

namespace tusk::transport {
namespace {

using golden::Bytes;
using wire::ExchangeId;

constexpr std::size_t kRoom = 1443;  // of a packet of 1472
constexpr double kLoss = 0.01;

// ---------------------------------------------------------------- how much

TEST(TailParity, IsForPathsThatLoseAFewPackets) {
  EXPECT_TRUE(TailParity::worthwhile(100ms, 0.001));
  EXPECT_FALSE(TailParity::worthwhile(1ms, 0.001)) << "a repair is there soon";
  EXPECT_FALSE(TailParity::worthwhile(100ms, 0));
  EXPECT_FALSE(TailParity::worthwhile(100ms, 0.1)) << "a queue overflows, perhaps";
}

TEST(TailParity, GrowsWithWhatMayBeMissing) {
  EXPECT_EQ(TailParity::rows_for(0, 190, 0.001), 4u);
  EXPECT_EQ(TailParity::rows_for(0, 190, 0.01), 10u);
  EXPECT_EQ(TailParity::rows_for(2, 190, 0.01), 12u) << "what is overdue is lost";
  EXPECT_EQ(TailParity::rows_for(0, 0.5, 0.001), 2u) << "no more than if all of it is missing";
  EXPECT_EQ(TailParity::rows_for(0, 240, 0.05), erasure::kParityMax);
}

// ---------------------------------------------------------------- of what

SharedBytes bytes_of(std::size_t size, unsigned seed) {
  MutableSharedBytes bytes = allocate_bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes.bytes[i] = static_cast<std::byte>(i * 7 + (i >> 8) + seed);
  return bytes.first(size);
}

// A client that sends requests, and a server that gets some of it.
class TailTest : public testing::Test {
 protected:
  ExchangeId open(std::size_t body, std::size_t header = 30) {
    return client_.open(bytes_of(header, 1), bytes_of(body, 2), {}, wire::Priority::kBulk);
  }
  // Sends all there is; `arrives` says by number what the server gets.
  template <class Arrives>
  void send(const Arrives& arrives, std::size_t room = kRoom) {
    for (int i = 0;; ++i) {
      const auto sent = client_.next_outgoing(room);
      if (!sent) return;
      sent_.push_back(*sent);
      if (!arrives(i)) continue;
      if (sent->piece.part == Part::kHeader) {
        ASSERT_TRUE(server_.handle_header(sent->header));
      } else {
        ASSERT_TRUE(server_.handle_body({sent->exchange, sent->piece.offset, sent->piece.data}));
      }
    }
  }
  void acknowledge(const Exchanges::Outgoing& sent) {
    client_.handle_acked(sent.exchange, sent.piece.part, sent.piece.offset, sent.piece.data.size());
  }
  // Makes and delivers the parity of all that has none; the result says how many packets that were.
  int protect(double loss = kLoss, std::size_t room = kRoom) {
    int packets = 0;
    while (const auto part = client_.next_unprotected(room)) {
      tail_.protect(*part, loss);
      while (tail_.pending()) {
        ++packets;
        Bytes packet(room);
        const std::size_t size = tail_.frame_size();
        EXPECT_LE(size, room);
        ByteWriter writer(packet);
        EXPECT_EQ(tail_.write_next(writer).exchange, part->header.exchange);
        EXPECT_EQ(writer.written(), size);
        const auto frames = golden::decode_all(std::span(packet).first(writer.written()));
        EXPECT_TRUE(frames);
        for (const wire::Frame& frame : *frames) {
          if (const auto* header = std::get_if<wire::MessageHeaderFrame>(&frame)) {
            EXPECT_TRUE(server_.handle_header(*header));
          } else {
            EXPECT_TRUE(server_.handle_parity(std::get<wire::ParityFrame>(frame)));
          }
        }
      }
    }
    return packets;
  }
  // How many requests have come; each must be right.
  int requests() {
    int count = 0;
    while (const auto event = server_.poll_event()) {
      const auto& request = std::get<RequestArrived>(*event);
      EXPECT_TRUE(std::ranges::equal(request.body.bytes, bytes_of(request.body.size(), 2).bytes));
      ++count;
    }
    return count;
  }

  Exchanges client_{Role::kClient, {}};
  Exchanges server_{Role::kServer, {}};
  TailParity tail_;
  std::vector<Exchanges::Outgoing> sent_;
};

TEST_F(TailTest, BringsBackWhatWasLost) {
  open(256 * 1024);
  send([](int i) { return i != 20 && i != 77 && i != 78; });
  EXPECT_EQ(requests(), 0);
  EXPECT_EQ(protect(), 1 + 10) << "the header, and parity";
  EXPECT_EQ(requests(), 1);
  EXPECT_EQ(server_.body_bytes_received(), 256u * 1024) << "what parity restored, too";
}

TEST_F(TailTest, BringsBackTheHeaderToo) {
  open(256 * 1024);
  send([](int i) { return i > 1; });
  protect();
  EXPECT_EQ(requests(), 1);
}

TEST_F(TailTest, DoesNotRepeatLargeHeaders) {
  open(256 * 1024, 10'000);
  send([](int i) { return i != 1 && i != 30; });
  protect();
  EXPECT_EQ(requests(), 0);
  ASSERT_TRUE(server_.handle_header(sent_[1].header));
  EXPECT_EQ(requests(), 1) << "with the header it is of use";
}

TEST_F(TailTest, CoversBodiesOfAnySizeInParts) {
  for (const std::size_t body : {Exchanges::kUnprotectedMin, std::size_t{345'601}, std::size_t{1} << 20,
                                 std::size_t{wire::kMessageBodyMax}}) {
    open(body);
    send([](int i) { return i % 100 != 3; });
    protect();
    EXPECT_EQ(requests(), 1) << body;
  }
}

TEST_F(TailTest, GoesIntoPacketsOfAnySize) {
  for (const std::size_t room : {1203u, 1443u, 8943u}) {
    open(256 * 1024);
    send([](int i) { return i != 5; }, room);
    protect(kLoss, room);
    EXPECT_EQ(requests(), 1) << room;
  }
}

TEST_F(TailTest, IsMadeOnceForAMessage) {
  open(100'000);
  EXPECT_FALSE(client_.has_unprotected()) << "it has not gone out";
  send([](int) { return false; });
  EXPECT_TRUE(client_.has_unprotected());
  EXPECT_GT(protect(), 0);
  EXPECT_FALSE(client_.has_unprotected());
  client_.handle_lost(sent_[3].exchange, Part::kBody, sent_[3].piece.offset, 1000);
  send([](int) { return false; });
  EXPECT_EQ(protect(), 0) << "a repair is no new message";
}

TEST_F(TailTest, IsOfWhatIsNotAcknowledged) {
  open(100'000);
  send([](int) { return true; });
  for (std::size_t i = 0; i < 40; ++i) acknowledge(sent_[i]);
  for (std::size_t i = 41; i < 60; ++i) acknowledge(sent_[i]);
  const auto part = client_.next_unprotected(kRoom);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->offset, sent_[40].piece.offset);
  EXPECT_EQ(part->overdue, sent_[40].piece.data.size());
  EXPECT_EQ(part->underway, 100'000 - sent_[60].piece.offset);
  EXPECT_TRUE(part->header.data.empty()) << "the peer has it";
  for (const auto& sent : sent_) acknowledge(sent);
  EXPECT_FALSE(client_.next_unprotected(kRoom));
}

TEST_F(TailTest, IsNotForSmallRequestsNorForTheForgotten) {
  open(Exchanges::kUnprotectedMin - 1);
  send([](int) { return false; });
  EXPECT_FALSE(client_.has_unprotected());
  const ExchangeId gone = open(100'000);
  send([](int) { return false; });
  client_.cancel(gone);
  EXPECT_EQ(protect(), 0);
  open(100'000);
  send([](int) { return false; });
  client_.forget_unprotected();
  EXPECT_EQ(protect(), 0);
}

// A long transfer that never rests must not remember all its messages.
TEST_F(TailTest, WhatIsAcknowledgedIsForgotten) {
  for (int i = 0; i < 50; ++i) {
    open(20'000);
    send([](int) { return true; });
    for (const auto& sent : sent_) acknowledge(sent);
    sent_.clear();
  }
  open(20'000);
  send([](int) { return true; });
  const auto part = client_.next_unprotected(kRoom);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->header.exchange, ExchangeId(100));
}

// ---------------------------------------------------------------- replies

TEST(TailOfReplies, GoesWhereTheReplyGoes) {
  Exchanges client(Role::kClient, {});
  Exchanges server(Role::kServer, {});
  const MutableSharedBytes place = allocate_bytes(100'000);
  const ExchangeId call = client.open(bytes_of(10, 1), {}, place, wire::Priority::kBulk);
  ASSERT_TRUE(server.handle_header(client.next_outgoing(kRoom)->header));
  ASSERT_TRUE(server.poll_event());
  server.reply(call, bytes_of(10, 3), bytes_of(100'000, 2));
  while (server.next_outgoing(kRoom)) {
  }
  // Nothing of it arrived but for the header's copy and one row, which is not enough ...
  TailParity tail;
  tail.protect(*server.next_unprotected(kRoom), kLoss);
  Bytes packet(2 * kRoom);
  ByteWriter writer(packet);
  ASSERT_EQ(tail.write_next(writer).kind, SentFrame::Kind::kHeader);
  ASSERT_EQ(tail.write_next(writer).kind, SentFrame::Kind::kParity);
  const auto frames = golden::decode_all(std::span(packet).first(writer.written()));
  ASSERT_TRUE(frames);
  for (const wire::Frame& frame : *frames) {
    if (const auto* header = std::get_if<wire::MessageHeaderFrame>(&frame)) {
      ASSERT_TRUE(client.handle_header(*header));
    } else {
      ASSERT_TRUE(client.handle_parity(std::get<wire::ParityFrame>(frame)));
    }
  }
  EXPECT_FALSE(client.poll_event());
  // ... until all but one piece of it has.
  ASSERT_TRUE(client.handle_body({call, 1300, bytes_of(100'000, 2).bytes.subspan(1300)}));
  const auto event = client.poll_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(std::get<ReplyArrived>(*event).body_size, 100'000u);
  EXPECT_TRUE(std::ranges::equal(place.bytes, bytes_of(100'000, 2).bytes));
}

// Parity of what fits into a packet is a copy of it.
TEST(TailOfReplies, SmallOnesOfWhatIsNotUrgentGoOutAgain) {
  for (const auto priority : {wire::Priority::kInteractive, wire::Priority::kBulk}) {
    Exchanges client(Role::kClient, {});
    Exchanges server(Role::kServer, {});
    const ExchangeId call = client.open(bytes_of(10, 1), {}, {}, priority);
    ASSERT_TRUE(server.handle_header(client.next_outgoing(kRoom)->header));
    ASSERT_TRUE(server.poll_event());
    server.reply(call, bytes_of(10, 3), {});
    EXPECT_FALSE(server.has_unprotected());
    ASSERT_TRUE(server.next_outgoing(kRoom));
    EXPECT_FALSE(server.next_outgoing(kRoom));
    EXPECT_FALSE(server.next_unprotected(kRoom)) << "no parity";
    const auto again = server.next_outgoing(kRoom);
    ASSERT_EQ(again.has_value(), priority == wire::Priority::kBulk);
    EXPECT_FALSE(server.next_unprotected(kRoom));
    EXPECT_FALSE(server.next_outgoing(kRoom)) << "once";
    if (!again) continue;
    EXPECT_TRUE(again->repair);
    ASSERT_TRUE(client.handle_header(again->header));
    EXPECT_TRUE(client.poll_event());
  }
}

// A client may leave one answer unacknowledged, and ask on without a rest.
TEST(TailOfReplies, OfManyTheOldestIsForgotten) {
  for (const std::size_t calls : {Exchanges::kUnprotectedMax, Exchanges::kUnprotectedMax + 1}) {
    Exchanges client(Role::kClient, {});
    Exchanges server(Role::kServer, {});
    for (std::size_t i = 0; i < calls; ++i) {
      const ExchangeId call = client.open(bytes_of(10, 1), {}, {}, wire::Priority::kBulk);
      ASSERT_TRUE(server.handle_header(client.next_outgoing(kRoom)->header));
      ASSERT_TRUE(server.poll_event());
      server.reply(call, bytes_of(10, 3), {});
      const auto sent = server.next_outgoing(kRoom);
      ASSERT_TRUE(sent);
      ASSERT_TRUE(client.handle_header(sent->header));
      if (i > 0) server.handle_acked(call, Part::kHeader, 0, 10);
      if (server.credit_due()) client.handle_credit(server.take_credit());
    }
    EXPECT_EQ(server.served_count(), 1u);
    EXPECT_FALSE(server.next_unprotected(kRoom)) << "no parity";
    EXPECT_EQ(server.next_outgoing(kRoom).has_value(), calls == Exchanges::kUnprotectedMax) << calls;
  }
}

TEST(TailOfReplies, ToNothingIsMalformedAndToTheForgottenIsIgnored) {
  Exchanges client(Role::kClient, {});
  const Bytes row(100);
  const wire::ParityFrame parity{ExchangeId(0), 0, 1000, 0, row};
  const auto refused = client.handle_parity(parity);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kMalformed);
  client.cancel(client.open(bytes_of(10, 1), {}, allocate_bytes(1000), wire::Priority::kBulk));
  EXPECT_TRUE(client.handle_parity(parity));
  Exchanges server(Role::kServer, {.request_bytes = 1000, .exchanges = 4});
  EXPECT_TRUE(server.handle_parity({ExchangeId(6), 0, 1000, 0, row}));
  EXPECT_FALSE(server.handle_parity({ExchangeId(8), 0, 1000, 0, row})) << "more exchanges than granted";
}

}  // namespace
}  // namespace tusk::transport

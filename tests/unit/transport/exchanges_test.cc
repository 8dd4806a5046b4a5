// Calls over a wire that the test moves by hand: credit, cancelling at every stage, order of sending,
// and what a broken peer may not do.
#include "proto/transport/exchanges.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/transport/malformed.h"

namespace tusk::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using wire::ExchangeId;
using wire::Priority;

constexpr std::size_t kPacketRoom = 1200;  // of a packet
constexpr CreditLimits kDefaultCredit{};
constexpr CreditLimits kLittle{.request_bytes = 1000, .exchanges = 4};

// ---------------------------------------------------------------- vocabulary

SharedBytes bytes_of(std::size_t size) {
  MutableSharedBytes bytes = allocate_bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes.bytes[i] = static_cast<std::byte>(i * 7);
  return bytes.first(size);
}
SharedBytes text_bytes(std::string_view text) { return copy_bytes(as_byte_span(text)); }

struct Call {
  std::string_view header = "hello";
  std::size_t body = 0;
  std::size_t room_for_reply = 0;
  Priority priority = Priority::kInteractive;
};

using SentPiece = Exchanges::Outgoing;

// One end, and what it told the layer above.
struct End {
  End(Role role, CreditLimits limits) : exchanges(role, limits) {}

  ExchangeId open(const Call& call) {
    return exchanges.open(text_bytes(call.header), bytes_of(call.body), allocate_bytes(call.room_for_reply),
                          call.priority);
  }
  void reply(ExchangeId exchange, std::size_t body = 0) {
    exchanges.reply(exchange, text_bytes("answer"), bytes_of(body));
  }
  // What happened since the last look: "request 0", "reply 0", "cancelled 0".
  std::vector<std::string> events() {
    std::vector<std::string> texts;
    while (const auto event = exchanges.poll_event()) {
      if (const auto* request = std::get_if<RequestArrived>(&*event)) {
        EXPECT_TRUE(std::ranges::equal(request->body.bytes, bytes_of(request->body.size()).bytes));
        texts.push_back(fmt::format("request {}", request->exchange.value()));
      } else if (const auto* reply = std::get_if<ReplyArrived>(&*event)) {
        EXPECT_EQ(as_text(reply->header.bytes), "answer");
        texts.push_back(fmt::format("reply {}", reply->exchange.value()));
      } else {
        texts.push_back(fmt::format("cancelled {}", std::get<RequestCancelled>(*event).exchange.value()));
      }
    }
    return texts;
  }

  Exchanges exchanges;
};

Result<void> deliver(End& to, const SentPiece& sent) {
  if (sent.piece.part == Part::kHeader) return to.exchanges.handle_header(sent.header);
  return to.exchanges.handle_body({sent.exchange, sent.piece.offset, sent.piece.data});
}
void acknowledge(End& from, const SentPiece& sent) {
  from.exchanges.handle_acked(sent.exchange, sent.piece.part, sent.piece.offset, sent.piece.data.size());
}
void lose(End& from, const SentPiece& sent) {
  from.exchanges.handle_lost(sent.exchange, sent.piece.part, sent.piece.offset, sent.piece.data.size());
}

class ExchangesTest : public testing::Test {
 protected:
  explicit ExchangesTest(CreditLimits limits = kDefaultCredit)
      : client_(Role::kClient, limits), server_(Role::kServer, limits) {}

  std::vector<SentPiece> take_all(End& from, std::size_t room = kPacketRoom) {
    std::vector<SentPiece> sent;
    while (auto next = from.exchanges.next_outgoing(room)) sent.push_back(*next);
    return sent;
  }
  // Everything that `from` has to send arrives and is acknowledged.
  void move(End& from, End& to) {
    while (const auto cancel = from.exchanges.poll_cancel()) ASSERT_TRUE(to.exchanges.handle_cancel(*cancel));
    if (from.exchanges.credit_due()) to.exchanges.handle_credit(from.exchanges.take_credit());
    for (const SentPiece& sent : take_all(from)) {
      ASSERT_TRUE(deliver(to, sent));
      acknowledge(from, sent);
    }
  }
  void to_server() { move(client_, server_); }
  void to_client() { move(server_, client_); }

  // Nothing is left of any call on either side.
  void expect_nothing_left() {
    EXPECT_EQ(client_.exchanges.open_count(), 0u);
    EXPECT_EQ(server_.exchanges.served_count(), 0u);
    EXPECT_EQ(client_.exchanges.unsent_bytes(), 0u);
    EXPECT_EQ(server_.exchanges.unsent_bytes(), 0u);
    EXPECT_FALSE(client_.exchanges.next_outgoing(kPacketRoom));
    EXPECT_FALSE(server_.exchanges.next_outgoing(kPacketRoom));
  }

  End client_;
  End server_;
};

class LittleCreditTest : public ExchangesTest {
 protected:
  LittleCreditTest() : ExchangesTest(kLittle) {}
};

// ---------------------------------------------------------------- calls

TEST_F(ExchangesTest, ACallGoesThereAndBack) {
  const auto call = client_.open({.body = 5000, .room_for_reply = 7000});
  EXPECT_EQ(client_.exchanges.unsent_bytes(), 5005u);
  to_server();
  EXPECT_EQ(client_.exchanges.unsent_bytes(), 0u);
  EXPECT_THAT(server_.events(), ElementsAre("request 0"));
  server_.reply(call, 6999);
  to_client();
  EXPECT_THAT(client_.events(), ElementsAre("reply 0"));
  expect_nothing_left();
}

TEST_F(ExchangesTest, TheReplyGoesToItsPlace) {
  const MutableSharedBytes place = allocate_bytes(3000);
  const auto call = client_.exchanges.open(text_bytes("read"), {}, place, Priority::kBulk);
  to_server();
  server_.reply(call, 3000);
  to_client();
  EXPECT_TRUE(std::ranges::equal(place.bytes, bytes_of(3000).bytes));
}

TEST_F(ExchangesTest, EachSideCountsItsOwn) {
  EXPECT_EQ(client_.open({}), ExchangeId(0));
  EXPECT_EQ(client_.open({}), ExchangeId(2));
  EXPECT_EQ(server_.open({}), ExchangeId(1));
  EXPECT_EQ(server_.open({}), ExchangeId(3));
  to_server();
  to_client();
  EXPECT_THAT(server_.events(), ElementsAre("request 0", "request 2"));
  EXPECT_THAT(client_.events(), ElementsAre("request 1", "request 3"));
}

TEST_F(ExchangesTest, PiecesMayComeInAnyOrderAndTwice) {
  client_.open({.body = 5000});
  std::vector<SentPiece> pieces = take_all(client_);
  ASSERT_GE(pieces.size(), 5u);
  std::reverse(pieces.begin(), pieces.end());
  for (int repeat = 0; repeat < 2; ++repeat)
    for (const SentPiece& piece : pieces) ASSERT_TRUE(deliver(server_, piece));
  EXPECT_THAT(server_.events(), ElementsAre("request 0")) << "told once";
  EXPECT_EQ(server_.exchanges.body_bytes_received(), 5000u) << "counted once";
}

TEST_F(ExchangesTest, RepliesMayComeBeforeTheRequestIsAcknowledged) {
  const auto call = client_.open({.room_for_reply = 100});
  const auto request = take_all(client_);
  ASSERT_TRUE(deliver(server_, request[0]));
  server_.reply(call);
  to_client();
  EXPECT_THAT(client_.events(), ElementsAre("reply 0"));
  lose(client_, request[0]);
  EXPECT_FALSE(client_.exchanges.next_outgoing(kPacketRoom)) << "nobody needs it any more";
  acknowledge(client_, request[0]);
}

TEST_F(ExchangesTest, PiecesOfAFinishedCallAreIgnored) {
  const auto call = client_.open({.body = 100, .room_for_reply = 100});
  const auto request = take_all(client_);
  for (const SentPiece& piece : request) ASSERT_TRUE(deliver(server_, piece));
  server_.reply(call, 100);
  const auto reply = take_all(server_);
  for (const SentPiece& piece : reply) {
    ASSERT_TRUE(deliver(client_, piece));
    acknowledge(server_, piece);
  }
  for (const SentPiece& piece : request) EXPECT_TRUE(deliver(server_, piece));
  for (const SentPiece& piece : reply) EXPECT_TRUE(deliver(client_, piece));
  EXPECT_EQ(server_.exchanges.served_count(), 0u);
  EXPECT_THAT(client_.events(), ElementsAre("reply 0"));
}

TEST_F(ExchangesTest, TheServerForgetsOnceTheReplyIsAcknowledged) {
  const auto call = client_.open({.room_for_reply = 5000});
  to_server();
  server_.reply(call, 5000);
  const auto reply = take_all(server_);
  for (std::size_t i = 0; i + 1 < reply.size(); ++i) acknowledge(server_, reply[i]);
  EXPECT_EQ(server_.exchanges.served_count(), 1u);
  acknowledge(server_, reply.back());
  EXPECT_EQ(server_.exchanges.served_count(), 0u);
}

// ---------------------------------------------------------------- order of sending

TEST_F(ExchangesTest, InteractiveGoesBeforeBulkBeforeBackground) {
  client_.open({.body = 3000, .priority = Priority::kBackground});
  client_.open({.body = 3000, .priority = Priority::kBulk});
  client_.open({.priority = Priority::kInteractive});
  std::vector<std::uint64_t> order;
  for (const SentPiece& sent : take_all(client_))
    if (order.empty() || order.back() != sent.exchange.value()) order.push_back(sent.exchange.value());
  EXPECT_THAT(order, ElementsAre(4, 2, 0));
}

TEST_F(ExchangesTest, AnInteractiveCallOvertakesABulkCallHalfWay) {
  client_.open({.body = 100'000, .priority = Priority::kBulk});
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(client_.exchanges.next_outgoing(kPacketRoom)->exchange, ExchangeId(0));
  client_.open({});
  EXPECT_EQ(client_.exchanges.next_outgoing(kPacketRoom)->exchange, ExchangeId(2));
  EXPECT_EQ(client_.exchanges.next_outgoing(kPacketRoom)->exchange, ExchangeId(0));
}

TEST_F(ExchangesTest, OfOnePriorityTheFirstComesFirst) {
  client_.open({.body = 3000, .priority = Priority::kBulk});
  client_.open({.body = 3000, .priority = Priority::kBulk});
  const auto sent = take_all(client_);
  EXPECT_TRUE(std::ranges::is_sorted(sent, {}, &SentPiece::exchange));
}

TEST_F(ExchangesTest, WhatWasLostGoesBeforeAllElse) {
  client_.open({.body = 3000, .priority = Priority::kBackground});
  auto sent = take_all(client_);
  client_.open({});
  lose(client_, sent[1]);
  const auto again = client_.exchanges.next_outgoing(kPacketRoom);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->exchange, ExchangeId(0));
  EXPECT_EQ(again->piece.offset, sent[1].piece.offset);
  EXPECT_EQ(again->piece.data.size(), sent[1].piece.data.size());
  EXPECT_EQ(client_.exchanges.next_outgoing(kPacketRoom)->exchange, ExchangeId(2));
}

TEST_F(ExchangesTest, RepliesKeepThePriorityOfTheirRequest) {
  const auto background = client_.open({.room_for_reply = 5000, .priority = Priority::kBackground});
  const auto interactive = client_.open({.room_for_reply = 5000});
  to_server();
  server_.reply(background, 5000);
  server_.reply(interactive, 5000);
  EXPECT_EQ(server_.exchanges.next_outgoing(kPacketRoom)->exchange, interactive);
}

TEST_F(ExchangesTest, AnswersGoOutInTheOrderOfTheirQuestionsAsFarAsTheyAreThere) {
  std::vector<ExchangeId> asked;
  for (int i = 0; i < 5; ++i)
    asked.push_back(client_.open({.room_for_reply = 3000, .priority = Priority::kBulk}));
  to_server();
  for (const int answered : {3, 1, 4, 2}) server_.reply(asked[static_cast<std::size_t>(answered)], 3000);
  EXPECT_EQ(server_.exchanges.next_outgoing(kPacketRoom)->exchange, asked[1]);
  server_.reply(asked[0], 3000);
  const auto sent = take_all(server_);
  EXPECT_EQ(sent.front().exchange, asked[0]);
  EXPECT_TRUE(std::ranges::is_sorted(sent, {}, &SentPiece::exchange));
}

TEST_F(ExchangesTest, AnAnswerDoesNotWaitForRequestsThatCameLater) {
  const auto call = client_.open({.room_for_reply = 100});
  to_server();
  const auto before = server_.open({});
  server_.reply(call, 100);
  const auto after = server_.open({});
  std::vector<ExchangeId> order;
  for (const SentPiece& sent : take_all(server_)) order.push_back(sent.exchange);
  order.erase(std::unique(order.begin(), order.end()), order.end());
  EXPECT_THAT(order, ElementsAre(before, call, after));
}

TEST_F(ExchangesTest, AnswersThatNobodyWantsAnyMoreWaitForNothing) {
  for (int i = 0; i < 100; ++i) {
    const auto call = client_.open({.room_for_reply = 3000, .priority = Priority::kBulk});
    to_server();
    server_.reply(call, 3000);
    client_.exchanges.cancel(call);
    while (const auto cancel = client_.exchanges.poll_cancel())
      ASSERT_TRUE(server_.exchanges.handle_cancel(*cancel));
    EXPECT_FALSE(server_.exchanges.has_outgoing()) << "also where nothing may go out for ever";
  }
  (void)server_.events();
  expect_nothing_left();
}

TEST_F(ExchangesTest, PiecesFitTheRoom) {
  client_.open({.body = 10'000, .priority = Priority::kBulk});
  for (std::size_t room = 120; room < 1500; room += 37) {
    const auto sent = client_.exchanges.next_outgoing(room);
    if (!sent) continue;
    const std::size_t overhead =
        sent->piece.part == Part::kHeader
            ? wire::message_header_frame_overhead(sent->header)
            : wire::body_frame_overhead(sent->exchange, sent->piece.offset, sent->body_fills_packet);
    if (sent->body_fills_packet) {
      EXPECT_EQ(overhead + sent->piece.data.size(), room);
    } else {
      EXPECT_LE(overhead + sent->piece.data.size(), room);
    }
  }
}

TEST_F(ExchangesTest, WithoutRoomNothingIsTaken) {
  client_.open({.body = 10'000});
  EXPECT_FALSE(client_.exchanges.next_outgoing(10));
  EXPECT_TRUE(client_.exchanges.has_outgoing());
  EXPECT_EQ(client_.exchanges.unsent_bytes(), 10'005u);
}

// ---------------------------------------------------------------- credit

TEST_F(LittleCreditTest, ACallWaitsForBytesOfCredit) {
  const auto first = client_.open({.body = 800});
  client_.open({.body = 400});
  to_server();
  EXPECT_THAT(server_.events(), ElementsAre("request 0"));
  EXPECT_EQ(client_.exchanges.open_count(), 2u);
  server_.reply(first);
  ASSERT_TRUE(server_.exchanges.credit_due());
  to_client();
  to_server();
  EXPECT_THAT(server_.events(), ElementsAre("request 2"));
}

TEST_F(LittleCreditTest, ASmallCallDoesNotOvertakeOneThatWaits) {
  client_.open({.body = 900});
  client_.open({.body = 900});
  client_.open({});
  to_server();
  EXPECT_THAT(server_.events(), ElementsAre("request 0"));
}

TEST_F(LittleCreditTest, ACallWaitsForTheNumberOfCalls) {
  for (int i = 0; i < 6; ++i) client_.open({});
  to_server();
  EXPECT_THAT(server_.events(), ElementsAre("request 0", "request 2", "request 4", "request 6"));
  server_.reply(ExchangeId(4));
  to_client();
  EXPECT_FALSE(server_.exchanges.credit_due()) << "not for every single one";
  server_.reply(ExchangeId(0));
  to_client();
  EXPECT_TRUE(server_.exchanges.credit_due()) << "half of it is free";
  to_client();
  to_server();
  EXPECT_THAT(server_.events(), ElementsAre("request 8", "request 10"));
}

TEST_F(LittleCreditTest, WhoAcknowledgesNoAnswerGetsNoMoreOfThem) {
  for (int i = 0; i < 4; ++i) client_.open({});
  to_server();
  const ByteCount asked = server_.exchanges.served_bytes();
  for (std::uint64_t i = 0; i < 4; ++i) server_.reply(ExchangeId(2 * i));
  const auto answers = take_all(server_);
  EXPECT_FALSE(server_.exchanges.credit_due()) << "the answers are still kept";
  EXPECT_EQ(server_.exchanges.answered_count(), 4u);
  EXPECT_EQ(server_.exchanges.served_bytes(), asked + 4 * std::string_view("answer").size());
  for (const SentPiece& sent : answers) acknowledge(server_, sent);
  EXPECT_TRUE(server_.exchanges.credit_due());
  EXPECT_EQ(server_.exchanges.answered_count(), 0u);
  EXPECT_EQ(server_.exchanges.served_bytes(), 0u);
}

TEST_F(LittleCreditTest, BytesAreGivenBackWithTheAnswer) {
  const auto call = client_.open({.body = 900});
  to_server();
  server_.reply(call);
  EXPECT_TRUE(server_.exchanges.credit_due()) << "the request's memory is free";
}

TEST_F(LittleCreditTest, CreditNeverShrinks) {
  client_.exchanges.handle_credit({5000, 10});
  client_.exchanges.handle_credit({1000, 4});
  for (int i = 0; i < 10; ++i) client_.open({.body = 400});
  const auto sent = take_all(client_);
  EXPECT_EQ(std::ranges::count(sent, Part::kHeader, [](const SentPiece& s) { return s.piece.part; }), 10);
}

TEST_F(LittleCreditTest, AThousandCallsGoThroughALittleCredit) {
  int answered = 0;
  for (int i = 0; i < 1000; ++i) client_.open({.body = 90, .room_for_reply = 50});
  for (int turn = 0; turn < 2000 && answered < 1000; ++turn) {
    to_server();
    while (const auto event = server_.exchanges.poll_event())
      server_.reply(std::get<RequestArrived>(*event).exchange, 50);
    to_client();
    answered += static_cast<int>(client_.events().size());
  }
  EXPECT_EQ(answered, 1000);
  to_server();
  expect_nothing_left();
}

// ---------------------------------------------------------------- more than granted

wire::MessageHeaderFrame request_frame(std::uint64_t index, ByteCount body_size) {
  static const SharedBytes kHeader = text_bytes("x");
  return {ExchangeId(2 * index), Priority::kBulk, 1, body_size, 0, 0, kHeader.bytes};
}

TEST_F(LittleCreditTest, MoreExchangesThanGrantedAreAnError) {
  EXPECT_TRUE(server_.exchanges.handle_header(request_frame(3, 0)));
  EXPECT_TRUE(is_malformed(server_.exchanges.handle_header(request_frame(4, 0))));
  EXPECT_TRUE(is_malformed(server_.exchanges.handle_cancel({ExchangeId(8), 0})));
  EXPECT_TRUE(is_malformed(server_.exchanges.handle_header(request_frame(kVarintMax / 2, 0))));
}

TEST_F(LittleCreditTest, MoreBytesThanGrantedAreAnError) {
  EXPECT_TRUE(server_.exchanges.handle_header(request_frame(0, 998)));
  EXPECT_TRUE(server_.exchanges.handle_header(request_frame(1, 0)));
  EXPECT_TRUE(is_malformed(server_.exchanges.handle_header(request_frame(2, 0))));
}

TEST_F(LittleCreditTest, BodiesWithoutAHeaderCountToo) {
  const SharedBytes data = bytes_of(400);
  EXPECT_TRUE(server_.exchanges.handle_body({ExchangeId(0), 0, data.bytes}));
  EXPECT_TRUE(server_.exchanges.handle_body({ExchangeId(2), 0, data.bytes}));
  EXPECT_TRUE(server_.exchanges.handle_body({ExchangeId(2), 0, data.bytes})) << "repeats are free";
  EXPECT_TRUE(is_malformed(server_.exchanges.handle_body({ExchangeId(4), 0, data.bytes})));
}

TEST_F(LittleCreditTest, BodiesThatCameFirstAreCountedOnce) {
  const SharedBytes data = bytes_of(400);
  EXPECT_TRUE(server_.exchanges.handle_body({ExchangeId(0), 500, data.bytes}));
  EXPECT_TRUE(server_.exchanges.handle_header(request_frame(0, 900)));
  EXPECT_TRUE(server_.exchanges.handle_body({ExchangeId(0), 0, data.bytes}));
  EXPECT_TRUE(server_.exchanges.handle_header(request_frame(1, 98)));
  EXPECT_TRUE(is_malformed(server_.exchanges.handle_header(request_frame(2, 0))));
}

class LaterCreditTest : public ExchangesTest {
 protected:
  LaterCreditTest() : ExchangesTest({.request_bytes = 1000, .exchanges = 100, .request_bytes_later = 8000}) {}
};

TEST_F(LaterCreditTest, IsMoreOnceTheFirstRequestWasAnswered) {
  for (int i = 0; i < 20; ++i) client_.open({.header = "h", .body = 499});
  to_server();
  EXPECT_THAT(server_.events(), ElementsAre("request 0", "request 2"));
  EXPECT_FALSE(server_.exchanges.credit_due());
  server_.reply(ExchangeId(0));
  EXPECT_TRUE(server_.exchanges.credit_due());
  to_client();
  to_server();
  EXPECT_EQ(server_.events().size(), 15u) << "8000 bytes not answered, of which one request was there before";
}

TEST_F(LaterCreditTest, WhatWasGrantedStaysSo) {
  client_.open({.header = "h", .body = 499});
  to_server();
  server_.reply(ExchangeId(0));
  const ByteCount granted = server_.exchanges.take_credit().request_bytes;
  server_.exchanges.keep_credit();
  EXPECT_GE(server_.exchanges.take_credit().request_bytes, granted);
}

TEST_F(LaterCreditTest, IsToldByEighths) {
  for (int i = 0; i < 40; ++i) client_.open({.header = "h", .body = 499});
  to_server();
  server_.events();
  server_.reply(ExchangeId(0));
  to_client();
  to_server();
  server_.events();
  server_.reply(ExchangeId(2));
  EXPECT_FALSE(server_.exchanges.credit_due());
  server_.reply(ExchangeId(4));
  EXPECT_TRUE(server_.exchanges.credit_due()) << "1000 of 8000";
}

TEST_F(ExchangesTest, TellsRepairsFromWhatGoesOutForTheFirstTime) {
  client_.open({.body = 5000, .priority = Priority::kBulk});
  const auto sent = take_all(client_);
  ASSERT_GE(sent.size(), 3u);
  for (const SentPiece& piece : sent) EXPECT_FALSE(piece.repair);
  lose(client_, sent[1]);
  lose(client_, sent[2]);
  const auto repairs = take_all(client_);
  ASSERT_EQ(repairs.size(), 2u);
  for (const SentPiece& piece : repairs) EXPECT_TRUE(piece.repair);
}

TEST_F(LittleCreditTest, ACancelOfMoreThanGrantedIsAnError) {
  EXPECT_TRUE(server_.exchanges.handle_cancel({ExchangeId(0), 1000}));
  EXPECT_TRUE(is_malformed(server_.exchanges.handle_cancel({ExchangeId(2), 1})));
  EXPECT_TRUE(is_malformed(server_.exchanges.handle_cancel({ExchangeId(4), kVarintMax})));
}

TEST_F(ExchangesTest, ACancelOfLessThanCameIsAnError) {
  const SharedBytes data = bytes_of(400);
  ASSERT_TRUE(server_.exchanges.handle_body({ExchangeId(0), 0, data.bytes}));
  EXPECT_TRUE(is_malformed(server_.exchanges.handle_cancel({ExchangeId(0), 399})));
}

TEST_F(ExchangesTest, AReplyToNothingIsAnError) {
  const SharedBytes data = bytes_of(4);
  EXPECT_TRUE(is_malformed(client_.exchanges.handle_header(request_frame(0, 0))));
  EXPECT_TRUE(is_malformed(client_.exchanges.handle_body({ExchangeId(0), 0, data.bytes})));
}

TEST_F(ExchangesTest, AReplyLargerThanItsPlaceIsAnError) {
  const auto call = client_.open({.room_for_reply = 100});
  const SharedBytes data = bytes_of(101);
  EXPECT_TRUE(is_malformed(client_.exchanges.handle_header(request_frame(call.value() / 2, 101))));
  EXPECT_TRUE(is_malformed(client_.exchanges.handle_body({call, 0, data.bytes})));
}

TEST_F(ExchangesTest, OnlyTheOpenerMayCancel) {
  const auto call = client_.open({});
  EXPECT_TRUE(is_malformed(client_.exchanges.handle_cancel({call, 5})));
}

// ---------------------------------------------------------------- cancelling, stage by stage

class CancelTest : public LittleCreditTest {
 protected:
  // All of the credit is free again: so much can be opened as at the start.
  void expect_credit_whole() {
    to_server();
    to_client();
    if (!server_.exchanges.credit_due()) client_.exchanges.handle_credit(server_.exchanges.take_credit());
    server_.events();
    for (std::uint64_t i = 0; i < kLittle.exchanges; ++i)
      client_.open({.header = "h", .body = kLittle.request_bytes / kLittle.exchanges - 1});
    to_server();
    EXPECT_EQ(server_.events().size(), kLittle.exchanges);
  }
};

TEST_F(CancelTest, BeforeAnythingWasSent) {
  const auto call = client_.open({.body = 800});
  client_.exchanges.cancel(call);
  EXPECT_EQ(client_.exchanges.open_count(), 0u);
  EXPECT_EQ(client_.exchanges.unsent_bytes(), 0u);
  to_server();
  EXPECT_THAT(server_.events(), IsEmpty()) << "it never heard of the call";
  expect_nothing_left();
  expect_credit_whole();
}

TEST_F(CancelTest, HalfWay) {
  const auto call = client_.open({.header = "h", .body = 900});
  const auto header = client_.exchanges.next_outgoing(120);
  ASSERT_TRUE(deliver(server_, *header));
  const auto piece = client_.exchanges.next_outgoing(120);
  ASSERT_TRUE(deliver(server_, *piece));
  client_.exchanges.cancel(call);
  lose(client_, *piece);
  EXPECT_FALSE(client_.exchanges.next_outgoing(kPacketRoom));
  to_server();
  EXPECT_THAT(server_.events(), IsEmpty());
  expect_nothing_left();
  expect_credit_whole();
}

TEST_F(CancelTest, WhenOnlyBodyPiecesArrived) {
  const auto call = client_.open({.header = "h", .body = 900});
  const auto pieces = take_all(client_, 300);
  ASSERT_TRUE(deliver(server_, pieces.back()));
  client_.exchanges.cancel(call);
  to_server();
  EXPECT_TRUE(deliver(server_, pieces.front())) << "late, and of no interest";
  EXPECT_THAT(server_.events(), IsEmpty());
  expect_nothing_left();
  expect_credit_whole();
}

TEST_F(CancelTest, OvertakingTheWholeRequest) {
  const auto call = client_.open({.body = 900});
  const auto pieces = take_all(client_);
  client_.exchanges.cancel(call);
  to_server();
  for (const SentPiece& piece : pieces) EXPECT_TRUE(deliver(server_, piece));
  EXPECT_THAT(server_.events(), IsEmpty());
  expect_nothing_left();
  expect_credit_whole();
}

TEST_F(CancelTest, WhileTheServerWorks) {
  const auto call = client_.open({.body = 900, .room_for_reply = 100});
  to_server();
  EXPECT_THAT(server_.events(), ElementsAre("request 0"));
  client_.exchanges.cancel(call);
  to_server();
  EXPECT_THAT(server_.events(), ElementsAre("cancelled 0"));
  server_.reply(call, 100);
  EXPECT_FALSE(server_.exchanges.next_outgoing(kPacketRoom)) << "an answer that nobody waits for";
  expect_nothing_left();
  expect_credit_whole();
}

TEST_F(CancelTest, WhileTheReplyIsUnderWay) {
  const auto call = client_.open({.body = 900, .room_for_reply = 5000});
  to_server();
  server_.reply(call, 5000);
  const auto piece = server_.exchanges.next_outgoing(kPacketRoom);
  client_.exchanges.cancel(call);
  EXPECT_TRUE(deliver(client_, *piece)) << "they crossed";
  to_server();
  EXPECT_EQ(server_.exchanges.unsent_bytes(), 0u);
  lose(server_, *piece);
  expect_nothing_left();
  EXPECT_THAT(client_.events(), IsEmpty());
  EXPECT_EQ(server_.exchanges.answered_count(), 0u);
  EXPECT_EQ(server_.exchanges.served_bytes(), 0u);
  expect_credit_whole();
}

TEST_F(CancelTest, AfterTheReplyCame) {
  const auto call = client_.open({});
  to_server();
  server_.reply(call);
  to_client();
  client_.exchanges.cancel(call);
  EXPECT_FALSE(client_.exchanges.poll_cancel());
  EXPECT_THAT(client_.events(), ElementsAre("reply 0"));
}

TEST_F(CancelTest, WhileWaitingForCreditKeepsItsNumber) {
  const auto first = client_.open({.body = 900});
  const auto waiting = client_.open({.body = 900});
  client_.open({.body = 50});
  client_.exchanges.cancel(waiting);
  client_.exchanges.cancel(waiting);
  to_server();
  // The third has the credit that the second gave up, and still its own number.
  EXPECT_THAT(server_.events(), ElementsAre("request 0", "request 4"));
  server_.reply(first);
  server_.reply(ExchangeId(4));
  to_client();
  to_server();
  expect_nothing_left();
  expect_credit_whole();
}

TEST_F(CancelTest, OfOneBehindAWaitingCallDoesNotOvertakeIt) {
  client_.open({.body = 900});
  client_.open({.body = 900});
  const auto third = client_.open({.body = 50});
  client_.exchanges.cancel(third);
  EXPECT_FALSE(client_.exchanges.poll_cancel()) << "its turn has not come";
  EXPECT_EQ(client_.exchanges.open_count(), 3u);
}

TEST_F(CancelTest, TwiceOrOfNothingIsHarmless) {
  const auto call = client_.open({.body = 100});
  client_.exchanges.cancel(call);
  client_.exchanges.cancel(call);
  client_.exchanges.cancel(ExchangeId(4711));
  const auto frame = client_.exchanges.poll_cancel();
  ASSERT_TRUE(frame);
  EXPECT_FALSE(client_.exchanges.poll_cancel());
  ASSERT_TRUE(server_.exchanges.handle_cancel(*frame));
  EXPECT_TRUE(server_.exchanges.handle_cancel(*frame)) << "sent twice, for it seemed lost";
  EXPECT_THAT(server_.events(), IsEmpty());
}

using ExchangesDeathTest = ExchangesTest;

TEST_F(ExchangesDeathTest, AnsweringTwiceOrTooMuchIsOurOwnBug) {
  const auto call = client_.open({.room_for_reply = 10});
  to_server();
  EXPECT_DEATH(server_.reply(call, 11), "invariant broken");
  server_.reply(call, 10);
  EXPECT_DEATH(server_.reply(call, 10), "invariant broken");
}

}  // namespace
}  // namespace tusk::transport

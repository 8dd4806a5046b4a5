// Parity on its way in: it fills holes whichever comes first, and costs nothing that a hostile peer could
// use.
#include "proto/transport/incoming_parity.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "proto/base/erasure.h"
#include "proto/base/random.h"
#include "proto/transport/incoming_message.h"
#include "tests/golden/samples/wire_text.h"
#include "tests/unit/transport/malformed.h"

namespace tusk::transport {
namespace {

using golden::Bytes;
using golden::counting_bytes;
using wire::ExchangeId;

// ---------------------------------------------------------------- vocabulary

constexpr ByteCount kBody = 20'000;
constexpr ByteCount kRow = 1400;
constexpr ByteCount kRowCost = kRow + IncomingParity::kRowOverhead;

// What a sender has, and a message that is being rebuilt from it.
class ParityIn : public testing::Test {
 protected:
  ParityIn() : body_(kBody) {
    Random random(3);
    for (std::byte& b : body_) b = static_cast<std::byte>(random.next());
  }

  [[nodiscard]] Result<void> header(ByteCount body_size = kBody) {
    return message_.handle_header({ExchangeId(0), wire::Priority::kBulk, 10, body_size, 0, 0, header_});
  }
  [[nodiscard]] Result<void> piece(ByteCount begin, ByteCount end) {
    return message_.handle_body({ExchangeId(0), begin, std::span(body_).subspan(begin, end - begin)});
  }
  [[nodiscard]] Result<void> parity(std::uint8_t index, ByteCount begin = 0, ByteCount end = kBody,
                                    ByteCount row = kRow) {
    Bytes rows((index + 1) * row);
    erasure::encode(std::span(body_).subspan(begin, end - begin), row, rows);
    return message_.handle_parity(
        {ExchangeId(0), begin, end - begin, index, std::span(rows).subspan(index * row, row)}, budget_);
  }
  // All but these bytes.
  void body_without(ByteCount begin, ByteCount end) {
    ASSERT_TRUE(begin == 0 || piece(0, begin));
    ASSERT_TRUE(end == kBody || piece(end, kBody));
  }
  [[nodiscard]] bool whole() const {
    return message_.complete() && std::ranges::equal(message_.body().bytes, body_);
  }

  const Bytes header_ = counting_bytes(10);
  Bytes body_;
  ParityBudget budget_;
  const ByteCount budget_before_ = budget_.left;
  IncomingMessage message_{std::nullopt};
};

// ---------------------------------------------------------------- in any order

TEST_F(ParityIn, FillsAHoleThatIsThereAlready) {
  ASSERT_TRUE(header());
  body_without(3000, 4300);
  EXPECT_FALSE(message_.complete());
  ASSERT_TRUE(parity(0));
  EXPECT_TRUE(whole());
  EXPECT_EQ(budget_.left, budget_before_);
}

TEST_F(ParityIn, WaitsForTheBody) {
  ASSERT_TRUE(header());
  ASSERT_TRUE(parity(1));
  EXPECT_EQ(budget_.left, budget_before_ - kRowCost);
  body_without(kBody - 1300, kBody);
  EXPECT_TRUE(whole());
  EXPECT_EQ(budget_.left, budget_before_);
}

TEST_F(ParityIn, WaitsForTheHeader) {
  ASSERT_TRUE(parity(0));
  body_without(0, 1300);
  EXPECT_FALSE(message_.complete());
  ASSERT_TRUE(header());
  EXPECT_TRUE(whole());
}

TEST_F(ParityIn, WaitsForMoreParity) {
  ASSERT_TRUE(header());
  body_without(2000, 4500);
  ASSERT_TRUE(parity(5));
  ASSERT_TRUE(parity(5));
  EXPECT_FALSE(message_.complete()) << "the same twice is one";
  EXPECT_EQ(budget_.left, budget_before_ - kRowCost);
  ASSERT_TRUE(parity(2));
  EXPECT_TRUE(whole());
}

TEST_F(ParityIn, IsOfAPartOnly) {
  ASSERT_TRUE(header());
  ASSERT_TRUE(parity(0, 10'000, 15'000));
  body_without(14'000, 15'100);
  EXPECT_FALSE(message_.complete());
  ASSERT_TRUE(piece(14'500, 15'100));
  EXPECT_TRUE(whole());
}

TEST_F(ParityIn, MayHaveRowsOfSeveralSizes) {
  ASSERT_TRUE(header());
  body_without(2000, 3500);
  ASSERT_TRUE(parity(0));
  ASSERT_TRUE(parity(0, 0, kBody, 1200));
  EXPECT_FALSE(message_.complete()) << "they cannot be added up";
  ASSERT_TRUE(parity(0, 0, kBody, 1500));
  EXPECT_TRUE(whole());
  EXPECT_EQ(budget_.left, budget_before_);
}

TEST_F(ParityIn, OfWhatIsThereIsForgotten) {
  ASSERT_TRUE(header());
  ASSERT_TRUE(piece(0, 10'000));
  ASSERT_TRUE(parity(0, 0, 10'000));
  EXPECT_EQ(budget_.left, budget_before_);
  ASSERT_TRUE(parity(0, 0, 15'000));
  ASSERT_TRUE(piece(10'000, kBody));
  EXPECT_EQ(budget_.left, budget_before_);
  EXPECT_TRUE(whole());
}

TEST_F(ParityIn, GoesStraightToThePlaceOfAReply) {
  message_ = IncomingMessage(allocate_bytes(kBody + 500));
  ASSERT_TRUE(parity(0));
  body_without(7000, 8000);
  EXPECT_FALSE(message_.complete());
  ASSERT_TRUE(header());
  EXPECT_TRUE(whole());
}

// ---------------------------------------------------------------- what a broken peer sends

TEST_F(ParityIn, PastTheBodysEndIsMalformedWhicheverComesFirst) {
  ASSERT_TRUE(parity(0, 100, kBody));
  EXPECT_TRUE(is_malformed(header(kBody - 1)));
  ASSERT_TRUE(header());
  const Bytes row = counting_bytes(kRow);
  EXPECT_TRUE(is_malformed(message_.handle_parity({ExchangeId(0), 1, kBody, 0, row}, budget_)));
  message_ = IncomingMessage(allocate_bytes(kBody));
  EXPECT_TRUE(is_malformed(message_.handle_parity({ExchangeId(0), 1, kBody, 0, row}, budget_)));
  EXPECT_TRUE(message_.handle_parity({ExchangeId(0), 0, kBody, 0, row}, budget_));
}

TEST_F(ParityIn, TakesNoMoreMemoryThanTheBudgetAllows) {
  budget_.left = 2 * kRowCost + 1;
  ASSERT_TRUE(header());
  body_without(1000, 8000);
  for (std::uint8_t i = 0; i < 8; ++i) ASSERT_TRUE(parity(i));
  EXPECT_FALSE(message_.complete());
  EXPECT_EQ(budget_.left, 1u);
  ASSERT_TRUE(piece(2000, 7000));
  EXPECT_TRUE(whole()) << "what there was room for is of use";
  EXPECT_EQ(budget_.left, 2 * kRowCost + 1);
}

TEST_F(ParityIn, CountsWhereTheRestOfTheMessageDoes) {
  std::vector<std::size_t> sizes;
  const Allocate allocate = [&](std::size_t size) {
    sizes.push_back(size);
    return allocate_bytes(size);
  };
  message_ = IncomingMessage(std::nullopt, &allocate);
  ASSERT_TRUE(parity(0));
  ASSERT_TRUE(parity(0));
  EXPECT_EQ(sizes, (std::vector<std::size_t>{kRow}));
}

TEST_F(ParityIn, GivesItsMemoryBackWithTheMessage) {
  ASSERT_TRUE(parity(0));
  ASSERT_TRUE(parity(1));
  EXPECT_LT(budget_.left, budget_before_);
  message_ = IncomingMessage(std::nullopt);
  EXPECT_EQ(budget_.left, budget_before_);
}

TEST_F(ParityIn, KeepsSomePartsAndRowsOfAMessageOnly) {
  const Bytes row = counting_bytes(10);
  for (ByteCount part = 0; part < 100; ++part)
    for (std::uint8_t i = 0; i < erasure::kParityMax; ++i)
      ASSERT_TRUE(message_.handle_parity({ExchangeId(0), part, 100, i, row}, budget_));
  EXPECT_EQ(budget_.left,
            budget_before_ - IncomingParity::kRowsMax * (row.size() + IncomingParity::kRowOverhead));
  message_ = IncomingMessage(std::nullopt);
  for (ByteCount part = 0; part < 100; ++part)
    ASSERT_TRUE(message_.handle_parity({ExchangeId(0), part, 100, 0, row}, budget_));
  EXPECT_EQ(budget_.left,
            budget_before_ - IncomingParity::kPartsMax * (row.size() + IncomingParity::kRowOverhead));
}

TEST_F(ParityIn, IsNotLookedAtForEver) {
  // A peer that sends a body byte by byte, with parity that never suffices.
  ASSERT_TRUE(header());
  ASSERT_TRUE(parity(0));
  EXPECT_LT(budget_.left, budget_before_);
  for (ByteCount at = 0; at < IncomingParity::kLooksMax; ++at) ASSERT_TRUE(piece(at, at + 1));
  EXPECT_EQ(budget_.left, budget_before_) << "it is given up";
  ASSERT_TRUE(piece(0, kBody));
  EXPECT_TRUE(whole());
}

}  // namespace
}  // namespace tusk::transport

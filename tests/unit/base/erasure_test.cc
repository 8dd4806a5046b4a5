// What was lost comes back, whatever was lost, as long as no column lost more than there is parity.
#include "proto/base/erasure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "proto/base/random.h"

namespace tusk::erasure {
namespace {

// ---------------------------------------------------------------- vocabulary

using Bytes = std::vector<std::byte>;

Bytes random_content(std::size_t size, std::uint64_t seed) {
  Random random(seed);
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
  return bytes;
}

// Some bytes, their parity, and what of both is still there.
class Coded {
 public:
  Coded(std::size_t size, std::size_t row_size, std::size_t parity)
      : row_size_(row_size), content_(random_content(size, size + row_size)), parity_(parity * row_size) {
    encode(content_, row_size, parity_);
    for (std::size_t i = 0; i < parity; ++i) keep_.push_back(i);
  }
  [[nodiscard]] std::size_t size() const { return content_.size(); }
  void lose_parity(std::size_t index) { std::erase(keep_, index); }
  void keep_parity(std::vector<std::size_t> indices) { keep_ = std::move(indices); }

  // Loses these, overwrites them with something else, and has them restored.
  [[nodiscard]] bool comes_back(const std::vector<Interval>& missing) const {
    Bytes damaged = content_;
    for (const Interval& run : missing)
      for (std::size_t i = run.begin; i < run.end; ++i) damaged[i] ^= std::byte{0xa5};
    const Bytes before = damaged;
    std::vector<ParityRow> rows;
    for (const std::size_t i : keep_)
      rows.push_back({static_cast<std::uint8_t>(i), std::span(parity_).subspan(i * row_size_, row_size_)});
    if (restore(damaged, missing, row_size_, rows)) return damaged == content_;
    EXPECT_EQ(damaged, before) << "it gave up half way";
    return false;
  }

 private:
  std::size_t row_size_;
  Bytes content_;
  Bytes parity_;
  std::vector<std::size_t> keep_;
};

// ---------------------------------------------------------------- rows

TEST(Erasure, BringsBackEveryPairOfRows) {
  constexpr std::size_t kRow = 50;
  const Coded coded(12 * kRow, kRow, 2);
  for (std::size_t a = 0; a < 12; ++a)
    for (std::size_t b = a + 1; b < 12; ++b)
      EXPECT_TRUE(coded.comes_back({{a * kRow, (a + 1) * kRow}, {b * kRow, (b + 1) * kRow}}))
          << a << ", " << b;
}

TEST(Erasure, EveryRowOfParityWillDo) {
  constexpr std::size_t kRow = 64;
  Coded coded(10 * kRow, kRow, kParityMax);
  for (std::size_t i = 0; i < kParityMax; ++i)
    for (std::size_t j = 0; j < kParityMax; ++j) {
      if (i == j) continue;
      coded.keep_parity({i, j});
      EXPECT_TRUE(coded.comes_back({{0, kRow}, {7 * kRow, 8 * kRow}})) << i << ", " << j;
    }
}

TEST(Erasure, BringsBackAsMuchAsThereIsParity) {
  constexpr std::size_t kRow = 40;
  const Coded coded(kRowsMax * kRow, kRow, kParityMax);
  EXPECT_TRUE(coded.comes_back({{100 * kRow, (100 + kParityMax) * kRow}}));
  EXPECT_FALSE(coded.comes_back({{100 * kRow, (100 + kParityMax) * kRow + 1}}));
}

TEST(Erasure, NothingMissingIsRestoredByNothing) {
  Coded coded(100, 10, 1);
  EXPECT_TRUE(coded.comes_back({}));
  coded.lose_parity(0);
  EXPECT_TRUE(coded.comes_back({}));
  EXPECT_FALSE(coded.comes_back({{5, 6}}));
}

// ---------------------------------------------------------------- what is lost begins anywhere

TEST(Erasure, ARunOfARowsLengthNeedsOneRowOfParityWhereverItBegins) {
  constexpr std::size_t kRow = 37;
  const Coded coded(9 * kRow + 5, kRow, 1);
  for (std::size_t at = 0; at + kRow <= coded.size(); ++at) {
    EXPECT_TRUE(coded.comes_back({{at, at + kRow}})) << at;
    const bool end = at + kRow == coded.size();
    EXPECT_EQ(coded.comes_back({{at, at + kRow + (end ? 0 : 1)}}), end) << at;
  }
}

TEST(Erasure, RunsInDifferentColumnsShareARowOfParity) {
  const Coded coded(1000, 100, 1);
  EXPECT_TRUE(coded.comes_back({{0, 30}, {230, 290}, {590, 600}}));
  EXPECT_FALSE(coded.comes_back({{0, 30}, {229, 290}}));
}

TEST(Erasure, TheLastRowMayBeShort) {
  for (std::size_t last = 1; last <= 20; ++last) {
    const Coded coded(5 * 20 + last, 20, 2);
    EXPECT_TRUE(coded.comes_back({{100, 100 + last}})) << last;
    EXPECT_TRUE(coded.comes_back({{80, 100 + last}})) << last;
    EXPECT_TRUE(coded.comes_back({{3, 23}, {100, 100 + last}})) << last;
  }
}

TEST(Erasure, OneRowThatIsNotFull) {
  const Coded coded(7, 1400, 1);
  EXPECT_TRUE(coded.comes_back({{0, 7}}));
  EXPECT_TRUE(coded.comes_back({{6, 7}}));
}

// As packets are lost of a message: whatever random sizes and places, it comes back if and only if no column
// misses more than there is parity.
TEST(Erasure, DecidesByTheFullestColumn) {
  Random random(5);
  int came_back = 0;
  for (int run = 0; run < 400; ++run) {
    const std::size_t row = 1 + random.below(200);
    const std::size_t size = 1 + random.below(60 * row);
    const std::size_t parity = 1 + random.below(6);
    const Coded coded(size, row, parity);
    IntervalSet lost;
    for (std::uint64_t i = 0, losses = random.below(parity + 2); i < losses; ++i) {
      const std::size_t at = random.below(size);
      lost.add(at, std::min<std::size_t>(size, at + 1 + random.below(row)));
    }
    std::vector<std::size_t> columns(row);
    for (const Interval& run_of_bytes : lost.intervals())
      for (std::size_t i = run_of_bytes.begin; i < run_of_bytes.end; ++i) ++columns[i % row];
    const bool possible = *std::ranges::max_element(columns) <= parity;
    came_back += possible;
    ASSERT_EQ(coded.comes_back(lost.intervals()), possible) << run;
  }
  EXPECT_GT(came_back, 100);
}

TEST(Erasure, LooksNotAtCrumbs) {
  const Coded coded(4000, 1000, 1);
  std::vector<Interval> few;
  for (std::size_t i = 0; i < runs_max(1); ++i) few.push_back({10 * i, 10 * i + 1});
  EXPECT_TRUE(coded.comes_back(few));
  few.push_back({900, 901});
  EXPECT_FALSE(coded.comes_back(few));
}

}  // namespace
}  // namespace tusk::erasure

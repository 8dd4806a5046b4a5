// A path that was used before: the first transfer starts as fast as the line was then, if the line is still
// like that. In virtual time.
#include <cstdio>

#include "tests/simulation/vocabulary.h"

namespace tusk::simulation {
namespace {

using transport::RememberedPath;

constexpr double kGigabitOfPayload = 1e9 / 8 * 1472 / 1500;  // bytes/s
constexpr RememberedPath kGigabitFarAway{
    .round_trip = 200ms, .sent = kGigabitOfPayload, .received = kGigabitOfPayload};

struct Outcome {
  Duration took{};
  std::uint64_t dropped = 0;  // by the queue
};

Outcome transfer(std::uint64_t rate, Kind kind, const std::optional<RememberedPath>& remembered,
                 double loss = 0, Duration rtt = 200ms) {
  SimOptions options = symmetric_path(rate, rtt, loss, 50ms, 11);
  options.handshake_rtt = rtt;
  options.connection.remembered = remembered;
  SimPair pair(options);
  pair.run_for(2 * rtt);  // a mount that has just come about: one train has been heard of
  const TimePoint start = pair.now();
  constexpr ByteCount kSize = (kSanitized ? 16 : 128) * kMiB;
  pair.traffic().stream(kSize, kSize, kind);
  EXPECT_TRUE(pair.run_until([&] { return pair.traffic().bytes_done() >= kSize; }, 60s));
  const Outcome outcome{pair.now() - start,
                        pair.path()
                            .statistics(kind == Kind::kFetch ? Role::kClient : Role::kServer)
                            .drops[static_cast<std::size_t>(DropCause::kQueue)]};
  EXPECT_TRUE(pair.run_to_rest(70s));
  EXPECT_THAT(pair.complaints(), testing::IsEmpty());
  return outcome;
}

class RememberedLine : public testing::TestWithParam<Kind> {};

TEST_P(RememberedLine, IsFullFromTheFirstRoundTripOn) {
  if (kSanitized) GTEST_SKIP() << "skipped, because a gigabyte takes too long with sanitizers";
  for (const double loss : {0.0, 0.001, 0.01}) {
    SCOPED_TRACE(loss);
    const Outcome known = transfer(kGbit, GetParam(), kGigabitFarAway, loss);
    const Outcome unknown = transfer(kGbit, GetParam(), std::nullopt, loss);
    std::printf("  known %.0f ms, unknown %.0f ms\n", to_seconds(known.took) * 1e3,
                to_seconds(unknown.took) * 1e3);
    EXPECT_EQ(known.dropped, 0u);
    EXPECT_LT(known.took + 60ms, unknown.took);
    const Duration limit = from_seconds(128.0 * kMiB / (kGigabitOfPayload * 1434 / 1472 * (1 - loss)));
    // The question, the last bytes, and what repairs take. A store also waits for credit where some of it is
    // lost.
    if (GetParam() == Kind::kFetch) {
      EXPECT_LT(known.took, limit + 200ms + 60ms);
    }
  }
}

// A train tells it before anything else leaves.
TEST_P(RememberedLine, ThatHasBecomeNarrowerIsNotOverrun) {
  for (const std::uint64_t rate : {300 * kMbit, 650 * kMbit, 750 * kMbit, 900 * kMbit}) {
    SCOPED_TRACE(rate);
    const Outcome known = transfer(rate, GetParam(), kGigabitFarAway);
    const Outcome unknown = transfer(rate, GetParam(), std::nullopt);
    EXPECT_EQ(known.dropped, 0u);
    EXPECT_LE(known.took, unknown.took);
  }
}

TEST_P(RememberedLine, OfAnotherLengthIsAnotherLine) {
  const Outcome known = transfer(kGbit, GetParam(), kGigabitFarAway, 0, 100ms);
  const Outcome unknown = transfer(kGbit, GetParam(), std::nullopt, 0, 100ms);
  EXPECT_EQ(known.took, unknown.took);
}

// What never was cannot be started at; trains have the last word.
TEST_P(RememberedLine, ThatWasNeverSoWideChangesNothing) {
  RememberedPath boasted = kGigabitFarAway;
  boasted.sent *= 1e6;
  boasted.received *= 1e6;
  EXPECT_EQ(transfer(kGbit, GetParam(), boasted).took, transfer(kGbit, GetParam(), std::nullopt).took);
}

INSTANTIATE_TEST_SUITE_P(Ways, RememberedLine, testing::Values(Kind::kFetch, Kind::kStore),
                         [](const auto& kind) { return kind.param == Kind::kFetch ? "Fetch" : "Store"; });

}  // namespace
}  // namespace tusk::simulation

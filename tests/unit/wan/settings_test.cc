#include "tests/system/wan/settings.h"

#include <gtest/gtest.h>

#include "tests/system/wan/quantity.h"

namespace tusk::wan {
namespace {

TEST(Quantity, UnderstandsUnits) {
  EXPECT_EQ(parse_rate("1gbit"), 1'000'000'000U);
  EXPECT_EQ(parse_rate("2.5mbit"), 2'500'000U);
  EXPECT_EQ(parse_rate("unlimited"), 0U);
  EXPECT_EQ(parse_size("64kb"), 64'000U);
  EXPECT_EQ(parse_size("1mib"), 1'048'576U);
  EXPECT_EQ(parse_size("1500"), 1500U);
  EXPECT_EQ(parse_duration("50ms"), 50ms);
  EXPECT_EQ(parse_duration("1.5s"), 1500ms);
  EXPECT_EQ(parse_duration("0"), 0ns);
  EXPECT_DOUBLE_EQ(*parse_fraction("0.1%"), 0.001);
  EXPECT_DOUBLE_EQ(*parse_fraction("1"), 1);
}

TEST(Quantity, RefusesWhatItDoesNotUnderstand) {
  for (const char* text : {"", "fast", "1gb", "-1mbit", "1 gbit", "1e99gbit", "nan", "inf"}) {
    EXPECT_FALSE(parse_rate(text)) << text;
  }
  for (const char* text : {"", "5", "5m", "ms", "-1ms"}) EXPECT_FALSE(parse_duration(text)) << text;
  for (const char* text : {"101%", "2", "-0.1", "5ms"}) EXPECT_FALSE(parse_fraction(text)) << text;
  for (const char* text : {"1bit", "kb"}) EXPECT_FALSE(parse_size(text)) << text;
}

TEST(Settings, ANameAloneGoesToBothDirections) {
  const auto path = with_changes({}, "rate=100mbit,ab-delay=46ms,ba-loss=1%");
  ASSERT_TRUE(path);
  EXPECT_EQ(path->ab.rate, 100'000'000U);
  EXPECT_EQ(path->ba.rate, 100'000'000U);
  EXPECT_EQ(path->ab.delay, 46ms);
  EXPECT_EQ(path->ba.delay, 0ms);
  EXPECT_DOUBLE_EQ(path->ba.loss, 0.01);
}

TEST(Settings, OneQueueLimitReplacesTheOther) {
  const auto in_time = with_changes({}, "queue=64kb,queue=5ms");
  ASSERT_TRUE(in_time);
  EXPECT_EQ(in_time->ab.queue_time, 5ms);
  EXPECT_EQ(in_time->ab.queue_bytes, 0U);
  const auto in_bytes = with_changes(*in_time, "queue=64kb");
  ASSERT_TRUE(in_bytes);
  EXPECT_EQ(in_bytes->ab.queue_time, 0ms);
  EXPECT_EQ(in_bytes->ab.queue_bytes, 64'000U);
}

TEST(Settings, EveryExampleIsAccepted) {
  for (const Setting& setting : settings()) {
    support::LinkParameters parameters;
    EXPECT_TRUE(setting.apply(parameters, setting.example)) << setting.name;
  }
}

TEST(Settings, MistakesAreNamed) {
  for (const char* changes : {"rate", "rate=", "colour=red", "xy-rate=1gbit", "outage=perhaps",
                              "burst-length=0.5", "queue=0", "reorder-min=20ms", "rate=1gbit,,loss=1%"}) {
    const auto path = with_changes({}, changes);
    ASSERT_FALSE(path) << changes;
    EXPECT_EQ(path.error().code, ErrorCode::kBadConfig);
    EXPECT_FALSE(path.error().context.empty());
  }
}

}  // namespace
}  // namespace tusk::wan

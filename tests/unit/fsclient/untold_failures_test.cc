#include "fsclient/untold_failures.h"

#include <gtest/gtest.h>

namespace tusk::client {
namespace {

TEST(UntoldFailures, CountOnceAndUntilTheyAreTold) {
  UntoldFailures untold;
  const auto first = untold.add("first");
  const auto second = untold.note("second");
  EXPECT_EQ(untold.value().count, 1u) << "somebody will be told of the second";
  EXPECT_EQ(untold.value().last, "first");
  untold.count(second);
  untold.count(second);
  EXPECT_EQ(untold.value().count, 2u);
  EXPECT_EQ(untold.value().last, "second");
  untold.tell(second);
  untold.tell(second);
  untold.count(second);
  EXPECT_TRUE(untold.told(second));
  EXPECT_EQ(untold.value().count, 1u);
  EXPECT_EQ(untold.value().last, "first") << "of those that nobody was told of";
  untold.tell(first);
  EXPECT_EQ(untold.value().count, 0u);
  EXPECT_EQ(untold.value().last, "");
}

TEST(UntoldFailures, OnlyTheNewestHaveWords) {
  UntoldFailures untold;
  const auto first = untold.add("first");
  for (std::uint64_t i = 1; i < UntoldFailures::kTextsMax; ++i) (void)untold.note("told");
  EXPECT_EQ(untold.value().last, "first");
  (void)untold.note("one more");
  EXPECT_EQ(untold.value().last, "see the daemon's log");
  EXPECT_TRUE(untold.counts(first));
}

}  // namespace
}  // namespace tusk::client

#include "fsclient/untold_failures.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>

#include "client.h"

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

TEST(UntoldFailures, AreANumberBeyondABound) {
  UntoldFailures untold;
  const auto open = untold.note("somebody writes, and will be told");
  const auto first = untold.add("first");
  std::uint64_t newest = 0;
  for (std::uint64_t i = 0; i < UntoldFailures::kOneByOneMax; ++i) newest = untold.add("more");
  EXPECT_EQ(untold.value().count, UntoldFailures::kOneByOneMax + 1);
  EXPECT_FALSE(untold.counts(first)) << "it cannot be told any more";
  untold.tell(first);
  untold.count(first);
  EXPECT_EQ(untold.value().count, UntoldFailures::kOneByOneMax + 1);
  EXPECT_FALSE(untold.told(open));
  untold.tell(newest);
  EXPECT_EQ(untold.value().count, UntoldFailures::kOneByOneMax);
}

TEST(UntoldOfDirectory, LetsThoseGoThatWereToldElsewhere) {
  UntoldFailures untold;
  UntoldOfDirectory here;
  const auto first = untold.add("first");
  here.add(first, untold);
  for (std::size_t i = 0; i < 10 * UntoldOfDirectory::kFew; ++i) {
    const auto next = untold.add("told by its name");
    here.add(next, untold);
    untold.tell(next);
  }
  EXPECT_LE(here.size(), UntoldOfDirectory::kFew);
  EXPECT_TRUE(here.any_counts(untold));
  here.tell(untold);
  EXPECT_TRUE(untold.told(first));
  EXPECT_EQ(here.size(), 0u);
}

TEST(UntoldOfDirectory, KeepsAllThatNobodyWasTold) {
  UntoldFailures untold;
  UntoldOfDirectory here;
  for (std::size_t i = 0; i < 10 * UntoldOfDirectory::kFew; ++i) here.add(untold.add("lost"), untold);
  here.tell(untold);
  EXPECT_EQ(untold.value().count, 0u);
}

class LastErrorLogged : public testing::Test {
 protected:
  LastErrorLogged() {
    auto logger =
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(logged));
    logger->set_pattern("%v");
    spdlog::set_default_logger(std::move(logger));
  }
  ~LastErrorLogged() override { spdlog::set_default_logger(before); }
  void set(const std::string& text, bool to_log) {
    Deferred after;
    last.set(text, after, to_log);
  }

  std::shared_ptr<spdlog::logger> before = spdlog::default_logger();
  std::ostringstream logged;
  LastError last;
};

TEST_F(LastErrorLogged, AlsoIfItWasHeldBackBefore) {
  set("first", true);
  set("second", false);
  EXPECT_EQ(last.value().first, "second");
  EXPECT_EQ(logged.str(), "first\n");
  set("second", true);
  set("second", true);
  EXPECT_EQ(logged.str(), "first\nsecond\n");
  EXPECT_EQ(last.value().second, 4u);
}

TEST_F(LastErrorLogged, OnceAlsoIfAnotherWasHeldBackBetween) {
  set("first", true);
  set("second", false);
  set("first", true);
  EXPECT_EQ(logged.str(), "first\n");
}

class UntoldWrites : public Client {
 protected:
  UntoldWrites() {
    server.fault = [](const schema::Request& r) {
      return r.has_write() ? std::optional<Error>({from_errno(ENOSPC), ""}) : std::nullopt;
    };
  }
  void fail_to_write(Handle file) {
    write(file, 0, "lost");
    scheduler.advance(2 * WriteBehind::kDirtyAge);
    settle();
  }
  std::uint64_t untold() const { return filesystem->untold_failures().count; }
};

TEST_F(UntoldWrites, CountAlsoIfALaterWriterClosesLast) {
  const Handle killed = create("a");
  fail_to_write(killed);
  const Handle later = open("a");
  filesystem->release(killed, false);
  EXPECT_EQ(untold(), 0u) << "the later one may be told, if more fails";
  close(later);
  EXPECT_EQ(untold(), 1u);
}

TEST_F(UntoldWrites, DoNotCountOnceOneOfTheWritersWasTold) {
  const Handle one = create("a");
  const Handle other = open("a");
  fail_to_write(one);
  EXPECT_FALSE(flush(other));
  const Handle later = open("a");
  for (const Handle file : {one, other, later}) filesystem->release(file, false);
  EXPECT_EQ(untold(), 0u);
}

}  // namespace
}  // namespace tusk::client

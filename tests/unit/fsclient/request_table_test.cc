#include "fsclient/request_table.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "manual_scheduler.h"

namespace tusk::client {
namespace {

constexpr std::uint64_t bit(int signal) { return 1ull << (signal - 1); }

std::string proc_status(const SignalSets& sets) {
  const auto line = [](const char* label, std::uint64_t set) {
    char text[64];
    std::snprintf(text, sizeof text, "%s:\t%016llx\n", label, static_cast<unsigned long long>(set));
    return std::string(text);
  };
  return "Name:\tcp\n" + line("SigPnd", 0) + line("ShdPnd", sets.pending) + line("SigBlk", sets.blocked) +
         line("SigIgn", sets.ignored) + line("SigCgt", sets.caught) + "CapInh:\t0\n";
}

bool ends(const SignalSets& sets) {
  const auto parsed = SignalSets::parse(proc_status(sets));
  EXPECT_TRUE(parsed.has_value());
  return parsed && (parsed->kill() || parsed->ask_to_end());
}

TEST(SignalSets, OnlyRequestsToEndCountWhereAProgramCatchesThem) {
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    const bool asks = signal == SIGINT || signal == SIGTERM || signal == SIGQUIT || signal == SIGHUP;
    if (signal == SIGKILL || signal == SIGSTOP) continue;
    EXPECT_EQ(ends({.pending = bit(signal), .caught = bit(signal)}), asks) << signal;
  }
}

TEST(SignalSets, ASignalThatKillsByDefaultEndsAWait) {
  for (const int signal : {SIGKILL, SIGTERM, SIGALRM, SIGUSR1, SIGPIPE, SIGSEGV, SIGRTMIN})
    EXPECT_TRUE(ends({.pending = bit(signal)})) << signal;
  for (const int signal : {SIGCHLD, SIGURG, SIGWINCH, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU})
    EXPECT_FALSE(ends({.pending = bit(signal)})) << signal;
}

TEST(SignalSets, ASignalBehindAHarmlessOneKills) {
  const SignalSets sets{.pending = bit(SIGALRM) | bit(SIGTERM), .caught = bit(SIGALRM)};
  EXPECT_TRUE(sets.kill());
  EXPECT_FALSE(sets.ask_to_end());
}

TEST(SignalSets, ABlockedOrIgnoredSignalEndsNothing) {
  EXPECT_FALSE(ends({.pending = bit(SIGTERM), .blocked = bit(SIGTERM)}));
  EXPECT_FALSE(ends({.pending = bit(SIGTERM), .ignored = bit(SIGTERM)}));
  EXPECT_TRUE(ends({.pending = bit(SIGKILL), .blocked = ~0ull}));
  EXPECT_FALSE(ends({}));
}

TEST(SignalSets, AnIncompleteStatusTellsNothing) {
  EXPECT_FALSE(SignalSets::parse("").has_value());
  EXPECT_FALSE(SignalSets::parse("Name:\tcp\nSigPnd:\t0\nShdPnd:\t0\n").has_value());
}

TEST(SignalSets, ThisThreadIsReadable) { EXPECT_EQ(verdict_of(::gettid()), ThreadVerdict::kWaits); }

TEST(SignalSets, AThreadThatIsGoneIsToldFromOneThatIsHidden) {
  constexpr pid_t kNone = (1 << 22) + 1;  // above every number that Linux gives
  EXPECT_EQ(verdict_of(kNone), ThreadVerdict::kGone);
  EXPECT_EQ(verdict_of(0), ThreadVerdict::kUnknown);
}

TEST(SignalSets, AnExitByASignalIsToldFromOthers) {
  const auto stat = [](const char* flags, const char* code) {
    std::string text = "12 (a) b) D 1 2 3 4 5 " + std::string(flags);
    for (int field = 10; field < 52; ++field) text += " 7";
    return text + " " + code + "\n";
  };
  EXPECT_EQ(verdict_of_stat(stat("4194308", "9")), ThreadVerdict::kKilled);
  EXPECT_EQ(verdict_of_stat(stat("4", "139")), ThreadVerdict::kKilled);  // a core dump
  EXPECT_EQ(verdict_of_stat(stat("4", "256")), ThreadVerdict::kExits);   // exit(1)
  EXPECT_EQ(verdict_of_stat(stat("4194304", "9")), ThreadVerdict::kWaits);
  EXPECT_EQ(verdict_of_stat(""), ThreadVerdict::kUnknown);
}

class Requests : public testing::Test {
 protected:
  using Ends = RequestTable::Ends;

  std::uint64_t arrive(Ends ends = Ends::kWhenAsked) { return table.add(&ended_early, 1, ends, interrupt); }
  std::uint64_t begin(Ends ends = Ends::kWhenAsked) {
    const std::uint64_t id = arrive(ends);
    table.note_begun(id);
    return id;
  }
  void look(int times = 1) {
    for (int i = 0; i < times; ++i) scheduler.advance(RequestTable::kLookEvery);
  }

  ManualScheduler scheduler;
  ThreadVerdict verdict = ThreadVerdict::kWaits;
  bool silent = false;
  int ended_early = 0;
  std::shared_ptr<Interrupt> interrupt = std::make_shared<Interrupt>();
  RequestTable table{scheduler, [this] { return silent; },
                     [](void* request) { ++*static_cast<int*>(request); }, [this](pid_t) { return verdict; }};
};

constexpr int kSecond = std::chrono::seconds(1) / RequestTable::kLookEvery;

TEST_F(Requests, AHarmlessSignalEndsNoWaitHoweverLongItLasts) {
  const auto id = begin();
  table.handle_interrupt(id);
  look(100 * kSecond);
  EXPECT_FALSE(interrupt->fired());
  EXPECT_TRUE(table.take(id));
}

TEST_F(Requests, ASignalThatAsksTheProcessToEndEndsAWaitAtOnce) {
  verdict = ThreadVerdict::kAsked;
  table.handle_interrupt(begin());
  EXPECT_TRUE(interrupt->fired());
}

TEST_F(Requests, ALaterSignalIsSeenThoughTheKernelDoesNotTellOfIt) {
  table.handle_interrupt(begin());
  look(20 * kSecond);
  verdict = ThreadVerdict::kAsked;
  look();
  EXPECT_TRUE(interrupt->fired());
}

TEST_F(Requests, WithoutAnInterruptOnlyAKilledProcessEndsAWait) {
  (void)begin();
  verdict = ThreadVerdict::kAsked;
  look(5);
  EXPECT_FALSE(interrupt->fired());
  verdict = ThreadVerdict::kKilled;
  look();
  EXPECT_TRUE(interrupt->fired());
  EXPECT_EQ(ended_early, 1);  // nobody hears what the operation would come to
}

TEST_F(Requests, AnOperationThatDoesNotGiveUpIsAnsweredInItsPlace) {
  verdict = ThreadVerdict::kAsked;
  const auto id = begin();
  table.handle_interrupt(id);
  look(kSecond);
  EXPECT_EQ(ended_early, 0);
  look(kSecond);
  EXPECT_EQ(ended_early, 1);
  EXPECT_FALSE(table.take(id));
}

// With the answer to a FLUSH the kernel may release the handle that the handler has yet to look up.
TEST_F(Requests, ARequestIsNotAnsweredAsLongAsItsHandlerRuns) {
  verdict = ThreadVerdict::kKilled;
  const auto id = arrive();
  table.handle_interrupt(id);
  EXPECT_TRUE(interrupt->fired());
  look(10 * kSecond);
  EXPECT_EQ(ended_early, 0);
  table.note_begun(id);
  look();
  EXPECT_EQ(ended_early, 1);
}

TEST_F(Requests, AnAnsweredRequestIsNotAnsweredAgain) {
  verdict = ThreadVerdict::kAsked;
  const auto id = begin();
  table.handle_interrupt(id);
  EXPECT_TRUE(table.take(id));
  look(5 * kSecond);
  EXPECT_EQ(ended_early, 0);
}

TEST_F(Requests, AnySignalEndsAWaitForALockAfterAWhile) {
  table.handle_interrupt(begin(Ends::kByAnySignal));
  look(2);
  EXPECT_FALSE(interrupt->fired());
  look(kSecond);
  EXPECT_TRUE(interrupt->fired());
}

TEST_F(Requests, APageOfAMappingIsNeverAnsweredInItsPlace) {
  verdict = ThreadVerdict::kKilled;
  const auto id = begin(Ends::kWithProcess);
  look(5 * kSecond);
  EXPECT_TRUE(interrupt->fired());
  EXPECT_EQ(ended_early, 0);
  EXPECT_TRUE(table.take(id));
}

TEST_F(Requests, OnlyPagesToReadEndWithTheThreadThatAskedForThem) {
  verdict = ThreadVerdict::kGone;
  const auto direct = begin();
  look(5);
  EXPECT_EQ(ended_early, 0);
  EXPECT_TRUE(table.take(direct));
  (void)begin(Ends::kWithThread);
  look(2);
  EXPECT_EQ(ended_early, 1);
}

TEST_F(Requests, AnExitWaitsUntilTheServerIsSilent) {
  (void)begin();
  verdict = ThreadVerdict::kExits;
  look(60 * kSecond);
  EXPECT_FALSE(interrupt->fired());
  silent = true;
  look();
  EXPECT_TRUE(interrupt->fired());
}

TEST_F(Requests, WhereTheThreadCannotBeSeenAnySignalEndsAWaitAfterAWhile) {
  verdict = ThreadVerdict::kUnknown;
  table.handle_interrupt(begin());
  look(2);
  EXPECT_FALSE(interrupt->fired());
  look(kSecond);
  EXPECT_TRUE(interrupt->fired());
}

TEST_F(Requests, LooksEndWithTheLastRequestAndBeginAgain) {
  EXPECT_TRUE(table.take(begin()));
  look();
  verdict = ThreadVerdict::kKilled;
  const auto later = begin();
  look(2);
  EXPECT_TRUE(interrupt->fired());
  EXPECT_FALSE(table.take(later));
}

}  // namespace
}  // namespace tusk::client

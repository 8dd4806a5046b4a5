// The lease table in virtual time: who is told what, and when a change may be made.
#include "fsserver/lease_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tusk::server {
namespace {

using namespace std::chrono_literals;
using Of = LeaseTable::Of;
using Grant = LeaseTable::Grant;
using testing::IsEmpty;
using testing::SizeIs;

constexpr SessionNumber kWriter = 1;
constexpr SessionNumber kReader = 2;
constexpr SessionNumber kOther = 3;

class Leases : public testing::Test {
 protected:
  explicit Leases(LeaseLimits limits = {}) : table(limits, 1000) {
    for (const SessionNumber session : {kWriter, kReader, kOther}) (void)table.attach(session, now);
  }

  static std::vector<NodeChange> node(const std::string& handle, bool data = false) {
    return {{.handle = handle, .data = data}};
  }
  static std::vector<NodeChange> name(const std::string& directory, const std::string& of) {
    return {{.handle = directory, .name = of}};
  }
  LeaseTable::Begun change(const std::vector<NodeChange>& changes, SessionNumber by = kWriter) {
    return table.begin_change(by, changes, now);
  }

  TimePoint now{1h};
  LeaseTable table;
};

TEST_F(Leases, NobodyIsAskedAboutWhatNobodyWasTold) {
  const auto begun = change(node("file"));
  EXPECT_TRUE(begun.may_go_on);
  EXPECT_THAT(begun.pushes, IsEmpty());
}

TEST_F(Leases, AChangeWaitsForThoseWhoWereTold) {
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  const auto begun = change(node("file", true));
  EXPECT_FALSE(begun.may_go_on);
  ASSERT_THAT(begun.pushes, SizeIs(1));
  EXPECT_EQ(begun.pushes[0].session, kReader);
  EXPECT_EQ(begun.pushes[0].items, node("file", true));
  EXPECT_THAT(table.answered(kReader, begun.pushes[0].number), testing::ElementsAre(begun.id));
}

TEST_F(Leases, WhoChangesSomethingKeepsItsOwnLease) {
  EXPECT_EQ(table.grant(kWriter, "file", Of::kNode), Grant::kLease);
  EXPECT_TRUE(change(node("file")).may_go_on);
  EXPECT_EQ(table.interests(kWriter), 1u);
}

TEST_F(Leases, AWriterBesideAnIdleReaderAsksOnce) {
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  const auto first = change(node("file"));
  (void)table.answered(kReader, first.pushes.at(0).number);
  table.end_change(first.id);
  EXPECT_TRUE(change(node("file")).may_go_on);
}

TEST_F(Leases, ASecondChangeWaitsForTheSamePush) {
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  const auto first = change(node("file"));
  const auto second = change(node("file"), kOther);
  EXPECT_FALSE(second.may_go_on);
  EXPECT_THAT(second.pushes, IsEmpty());
  EXPECT_THAT(table.answered(kReader, first.pushes.at(0).number),
              testing::UnorderedElementsAre(first.id, second.id));
}

TEST_F(Leases, NobodyIsGrantedWhatIsBeingChanged) {
  const auto begun = change(node("file"));
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kBeingChanged);
  EXPECT_EQ(table.grant(kWriter, "file", Of::kNode), Grant::kLease) << "the change's own answer";
  table.end_change(begun.id);
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
}

TEST_F(Leases, TwoWhoChangeTheSameAreNotGrantedEachOthersState) {
  const auto first = change(node("file"));
  const auto second = change(node("file"), kOther);
  EXPECT_EQ(table.grant(kWriter, "file", Of::kNode), Grant::kBeingChanged);
  table.end_change(second.id);
  EXPECT_EQ(table.grant(kWriter, "file", Of::kNode), Grant::kLease);
  table.end_change(first.id);
}

TEST_F(Leases, OfNamesOneIsTakenBackThenAll) {
  EXPECT_EQ(table.grant(kReader, "dir", Of::kNames), Grant::kLease);
  const auto first = change(name("dir", "a"));
  EXPECT_EQ(first.pushes.at(0).items, name("dir", "a"));
  (void)table.answered(kReader, first.pushes[0].number);
  const auto second = change(name("dir", "b"));
  EXPECT_EQ(second.pushes.at(0).items, (std::vector<NodeChange>{{.handle = "dir", .entries = true}}));
  (void)table.answered(kReader, second.pushes[0].number);
  EXPECT_TRUE(change(name("dir", "c")).may_go_on);
}

TEST_F(Leases, ARenameTakesBackTwoNames) {
  EXPECT_EQ(table.grant(kReader, "dir", Of::kNames), Grant::kLease);
  const std::vector<NodeChange> both{{.handle = "dir", .name = "a"}, {.handle = "dir", .name = "b"}};
  EXPECT_EQ(change(both).pushes.at(0).items, both);
}

TEST_F(Leases, WhoAsksAgainBetweenTwoChangesLosesOneNameEachTime) {
  for (const char* const changed : {"a", "b", "c"}) {
    EXPECT_EQ(table.grant(kReader, "dir", Of::kNames), Grant::kLease);
    const auto begun = change(name("dir", changed));
    EXPECT_EQ(begun.pushes.at(0).items, name("dir", changed));
    (void)table.answered(kReader, begun.pushes[0].number);
    table.end_change(begun.id);
  }
}

TEST_F(Leases, ANameChangesTheAttributesOfItsDirectory) {
  EXPECT_EQ(table.grant(kReader, "dir", Of::kNode), Grant::kLease);
  const auto begun = change(name("dir", "a"));
  EXPECT_EQ(begun.pushes.at(0).items, node("dir")) << "it was told no names";
}

TEST_F(Leases, ChangesByLocalProgramsAreToldAfterwards) {
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  EXPECT_THAT(table.changed(node("file"), now).pushes, SizeIs(1));
  EXPECT_THAT(table.changed(node("file"), now).pushes, IsEmpty());
}

TEST_F(Leases, ASilentClientIsCutAndWaitedForUntilItsLeaseIsOver) {
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  const auto begun = change(node("file"));
  now += 3900ms;
  EXPECT_THAT(table.expire(now).to_cut, IsEmpty());
  now += 100ms;
  EXPECT_THAT(table.expire(now).to_cut, testing::ElementsAre(kReader));
  table.disconnect(kReader, now);
  now += 10'400ms;
  EXPECT_THAT(table.expire(now).released, IsEmpty());
  now += 100ms;
  EXPECT_THAT(table.expire(now).released, testing::ElementsAre(begun.id));
  EXPECT_EQ(table.interests(kReader), 0u);
}

TEST_F(Leases, AClientThatComesBackIsToldAgainAndKeepsTheRest) {
  const std::uint64_t floor = table.attach(kReader, now).floor;
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  EXPECT_EQ(table.grant(kReader, "other", Of::kNode), Grant::kLease);
  table.disconnect(kReader, now);
  const auto begun = change(node("file"));
  EXPECT_FALSE(begun.may_go_on);
  now += 3s;
  EXPECT_EQ(table.attach(kReader, now).floor, floor);
  const auto again = table.unanswered(kReader);
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_THAT(table.answered(kReader, again[0].number), testing::ElementsAre(begun.id));
  EXPECT_EQ(table.interests(kReader), 1u);
}

TEST_F(Leases, AClientThatDidNotAnswerGetsNothingBackWhenItComesAgain) {
  const std::uint64_t floor = table.attach(kReader, now).floor;
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  const auto begun = change(node("file"));
  now += 4s;
  EXPECT_THAT(table.expire(now).to_cut, SizeIs(1));
  table.disconnect(kReader, now);
  now += 1s;
  EXPECT_GT(table.attach(kReader, now).floor, floor);
  EXPECT_EQ(table.interests(kReader), 0u);
  // Its kernel may use what it has until the lease of then is over, not longer.
  now += 9400ms;
  EXPECT_THAT(table.expire(now).released, IsEmpty());
  now += 100ms;
  EXPECT_THAT(table.expire(now).released, testing::ElementsAre(begun.id));
}

TEST_F(Leases, AClientThatWasAwayHasTimeToAnswerWhenItIsBack) {
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  table.disconnect(kReader, now);
  (void)change(node("file"));
  now += 5s;
  (void)table.attach(kReader, now);
  now += 1s;
  EXPECT_THAT(table.expire(now).to_cut, IsEmpty());
  now += 3s;
  EXPECT_THAT(table.expire(now).to_cut, SizeIs(1));
}

TEST_F(Leases, AClientMayBeBackBeforeItsOldConnectionIsGone) {
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  const auto begun = change(node("file"));
  now += 4s;
  EXPECT_THAT(table.expire(now).to_cut, SizeIs(1));
  (void)table.attach(kReader, now);
  now += 10'500ms;
  EXPECT_THAT(table.expire(now).released, testing::ElementsAre(begun.id));
}

// The connections of a client that authenticates and never answers a push.
class LeasesOfOneRight : public Leases {
 protected:
  void attach(SessionNumber session, const std::string& right = "token") {
    (void)table.attach(session, now, LeaseTable::Client{.right = right});
  }
  void expect_cut_after_a_change(SessionNumber session) {
    EXPECT_EQ(table.grant(session, "file", Of::kNode), Grant::kLease);
    const auto begun = change(node("file"));
    now += 4s;
    EXPECT_THAT(table.expire(now).to_cut, testing::ElementsAre(session));
    table.end_change(begun.id);
    table.disconnect(session, now);
  }
};

TEST_F(LeasesOfOneRight, ALetPushTimeOutCostsAllSessionsOfTheRightTheirNewLeases) {
  attach(kReader);
  attach(kOther);
  EXPECT_EQ(table.grant(kOther, "other", Of::kNode), Grant::kLease);
  expect_cut_after_a_change(kReader);
  for (const SessionNumber session : {kReader, kOther, SessionNumber{4}, SessionNumber{5}}) {
    attach(session);
    EXPECT_EQ(table.grant(session, "file", Of::kNode), Grant::kNone) << session;
    const std::string_view directory = "directory";
    EXPECT_EQ(table.grant_exclusive(session, std::span(&directory, 1), now), 0u) << session;
  }
  EXPECT_EQ(table.interests(kOther), 1u) << "what it has stays";
  attach(6, "another token");
  EXPECT_EQ(table.grant(6, "file", Of::kNode), Grant::kLease);
}

TEST_F(LeasesOfOneRight, IsBarredForAMinuteAndTheSecondTimeForTen) {
  attach(kReader);
  expect_cut_after_a_change(kReader);
  now += 61s;
  (void)table.expire(now);
  attach(kOther);
  expect_cut_after_a_change(kOther);
  now += 9min;
  (void)table.expire(now);
  attach(kReader);
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kNone);
  now += 1min;
  (void)table.expire(now);
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
}

TEST_F(LeasesOfOneRight, FallsSilentFourTimesUnpunished) {
  for (SessionNumber session = 10; session < 15; ++session) {
    attach(session);
    EXPECT_EQ(table.grant(session, "file", Of::kNode), Grant::kLease) << session;
    const auto begun = change(node("file"));
    table.note_heard(session, now);
    now += 4s;
    const auto overdue = table.expire(now);
    EXPECT_THAT(overdue.to_cut, IsEmpty());
    EXPECT_THAT(overdue.silent, testing::ElementsAre(session));
    EXPECT_THAT(table.expire(now).silent, IsEmpty()) << "once";
    table.disconnect(session, now - 4s);
    now += 6'500ms;
    EXPECT_THAT(table.expire(now).released, testing::ElementsAre(begun.id))
        << "a lease after it was last heard";
    table.end_change(begun.id);
  }
  attach(20);
  EXPECT_EQ(table.grant(20, "file", Of::kNode), Grant::kNone);
}

// Sessions of the server process before, of which nobody knows what they trust.
class LeasesOfBefore : public Leases {
 protected:
  LeasesOfBefore() {
    (void)table.attach(kWriter, now, &exported());
    table.await(kBefore, now, &exported());
  }
  [[nodiscard]] const Export& exported() const { return *reinterpret_cast<const Export*>(this); }
  LeaseTable::Begun change_here(const std::vector<NodeChange>& changes) {
    return table.begin_change(kWriter, changes, now, &exported());
  }
  static constexpr SessionNumber kBefore = 100;
};

TEST_F(LeasesOfBefore, LetChangesWaitUntilTheyAreBack) {
  const auto begun = change_here(node("file"));
  EXPECT_FALSE(begun.may_go_on);
  EXPECT_THAT(begun.pushes, IsEmpty()) << "there is nobody to ask";
  EXPECT_THAT(table.end(kBefore), testing::ElementsAre(begun.id));
  EXPECT_TRUE(change_here(node("file")).may_go_on);
}

TEST_F(LeasesOfBefore, LetChangesWaitForOneLeaseAtMost) {
  const auto begun = change_here(node("file"));
  now += 10'400ms;
  EXPECT_THAT(table.expire(now).released, IsEmpty());
  EXPECT_TRUE(table.awaits(&exported()));
  now += 100ms;
  EXPECT_THAT(table.expire(now).released, testing::ElementsAre(begun.id));
  EXPECT_FALSE(table.awaits(&exported()));
  EXPECT_EQ(table.sessions(), 3u) << "nothing of it is left";
}

TEST_F(LeasesOfBefore, LetOthersBeToldUnderLeasesAndChangeOtherExports) {
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  EXPECT_TRUE(change(node("file"), kReader).may_go_on);
}

TEST_F(LeasesOfBefore, LetNobodyHaveADirectoryForItself) {
  const std::string_view directory = "directory";
  EXPECT_EQ(table.grant_exclusive(kWriter, std::span(&directory, 1), now), 0u);
  (void)table.end(kBefore);
  EXPECT_NE(table.grant_exclusive(kWriter, std::span(&directory, 1), now), 0u);
}

TEST_F(Leases, AServerThatEndsGrantsNothingAndKnowsWhoMayTrustSomething) {
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  table.grant_nothing();
  EXPECT_EQ(table.grant(kOther, "file", Of::kNode), Grant::kNone);
  const auto told = table.anything_changed([](SessionNumber) { return true; }, now);
  for (const auto& push : told.pushes)
    if (push.session != kReader) (void)table.answered(push.session, push.number);
  EXPECT_THAT(table.trusting(now), testing::ElementsAre(kReader));
  table.disconnect(kReader, now);
  EXPECT_THAT(table.trusting(now + 10'500ms), IsEmpty());
}

// `kWriter` has a directory for itself; `kReader` wants to look at it.
class ExclusivenessOfTheSilent : public Leases {
 protected:
  explicit ExclusivenessOfTheSilent(bool knows = true) {
    (void)table.attach(kWriter, now, LeaseTable::Client{.knows_exclusive = knows});
    EXPECT_EQ(table.grant(kWriter, directory, Of::kNames), Grant::kLease);
    EXPECT_NE(table.grant_exclusive(kWriter, std::span(&directory, 1), now), 0u);
  }
  LeaseTable::Begun look() { return table.begin_look(kReader, std::span(&directory, 1), now); }

  const std::string_view directory = "directory";
};

TEST_F(ExclusivenessOfTheSilent, EndsSoonAfterSomebodyWantsIt) {
  const auto begun = look();
  EXPECT_FALSE(begun.may_go_on);
  table.note_heard(kWriter, now - 1s);
  const TimePoint heard = now - 1s;
  now += 1900ms;
  EXPECT_THAT(table.expire(now).silent, IsEmpty());
  now += 100ms;
  EXPECT_THAT(table.expire(now).silent, testing::ElementsAre(kWriter));
  EXPECT_THAT(table.expire(now).released, IsEmpty()) << "its connection may still be there";
  table.disconnect(kWriter, heard);
  EXPECT_THAT(table.expire(now).released, testing::ElementsAre(begun.id));
}

TEST_F(ExclusivenessOfTheSilent, IsWaitedForAsLongAsItsClientMayUseIt) {
  table.disconnect(kWriter, now);
  const auto begun = look();
  now += 2240ms;
  EXPECT_THAT(table.expire(now).released, IsEmpty());
  now += 10ms;
  EXPECT_THAT(table.expire(now).released, testing::ElementsAre(begun.id));
}

TEST_F(ExclusivenessOfTheSilent, IsNotWaitedForLaterAndItsLeasesStay) {
  table.disconnect(kWriter, now);
  now += 3s;
  EXPECT_TRUE(look().may_go_on);
  EXPECT_EQ(table.interests(kWriter), 1u);
  EXPECT_FALSE(change(name("directory", "a"), kReader).may_go_on) << "its leases last longer";
}

TEST_F(ExclusivenessOfTheSilent, IsToldToBeOverBeforeItsClientTrustsAnything) {
  const std::uint64_t number = table.exclusive_number(kWriter, std::span(&directory, 1));
  table.disconnect(kWriter, now);
  now += 3s;
  (void)look();
  EXPECT_EQ(table.attach(kWriter, now).exclusive_over, number);
  EXPECT_EQ(table.attach(kWriter, now).exclusive_over, 0u) << "once";
}

TEST_F(ExclusivenessOfTheSilent, IsStillItsOwnIfNobodyWantedIt) {
  const std::uint64_t number = table.exclusive_number(kWriter, std::span(&directory, 1));
  table.disconnect(kWriter, now);
  now += 5min;
  EXPECT_TRUE(change(node("something else"), kReader).may_go_on);
  EXPECT_EQ(table.attach(kWriter, now).exclusive_over, 0u);
  EXPECT_EQ(table.exclusive_number(kWriter, std::span(&directory, 1)), number);
  EXPECT_EQ(table.interests(kWriter), 1u);
}

TEST_F(ExclusivenessOfTheSilent, OfAnotherEndsTheLeasesOfOneThatIsAwayForLong) {
  const std::string_view other = "other";
  EXPECT_EQ(table.grant(kWriter, other, Of::kNames), Grant::kLease);
  const std::uint64_t floor = table.attach(kWriter, now).floor;
  table.disconnect(kWriter, now);
  now += 5min;
  EXPECT_NE(table.grant_exclusive(kReader, std::span(&other, 1), now), 0u);
  EXPECT_GT(table.attach(kWriter, now).floor, floor);
}

TEST_F(ExclusivenessOfTheSilent, IsTakenOnlyAfterTheLogsThatHaveCome) {
  table.disconnect(kWriter, now);
  const auto begun = look();
  table.note_log(kWriter, LeaseTable::Log::kBegun, now);
  now += 5s;
  EXPECT_THAT(table.expire(now).released, IsEmpty());
  table.note_log(kWriter, LeaseTable::Log::kDone, now);
  now += 200ms;
  EXPECT_THAT(table.expire(now).released, testing::ElementsAre(begun.id));
}

class ExclusivenessOfAnOldClient : public ExclusivenessOfTheSilent {
 protected:
  ExclusivenessOfAnOldClient() : ExclusivenessOfTheSilent(false) {}
};

TEST_F(ExclusivenessOfAnOldClient, LastsAsLongAsItsLeases) {
  table.disconnect(kWriter, now);
  const auto begun = look();
  now += 10'400ms;
  EXPECT_THAT(table.expire(now).released, IsEmpty());
  now += 100ms;
  EXPECT_THAT(table.expire(now).released, testing::ElementsAre(begun.id));
}

TEST_F(Leases, WhoComesAndGoesWithoutAnswersIsNotWaitedForForEver) {
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  const auto begun = change(node("file"));
  std::vector<LeaseTable::ChangeId> released;
  for (int second = 0; second < 20 && released.empty(); ++second) {
    table.disconnect(kReader, now);
    released = table.expire(now).released;
    (void)table.attach(kReader, now);
    now += 1s;
  }
  EXPECT_THAT(released, testing::ElementsAre(begun.id));
}

TEST_F(Leases, NobodyWaitsForWhoHoldsNothingOfThisExport) {
  const auto* const elsewhere = reinterpret_cast<const Export*>(this);
  (void)table.attach(kReader, now, elsewhere);
  (void)table.anything_changed([](SessionNumber session) { return session == kReader; }, now);
  EXPECT_TRUE(change(node("file")).may_go_on);
  EXPECT_FALSE(table.begin_change(kWriter, node("file"), now, elsewhere).may_go_on);
}

TEST_F(Leases, OfAClientLongGoneNobodyWaits) {
  const std::uint64_t floor = table.attach(kReader, now).floor;
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  table.disconnect(kReader, now);
  now += 11s;
  EXPECT_TRUE(change(node("file")).may_go_on);
  EXPECT_GT(table.attach(kReader, now).floor, floor);
}

TEST_F(Leases, OfAClientThatIsSaidToBeDeadNobodyWaits) {
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  const auto waiting = change(node("file"));
  EXPECT_FALSE(waiting.may_go_on);
  EXPECT_THAT(table.presume_dead(kReader, now), testing::ElementsAre(waiting.id));
  EXPECT_TRUE(change(node("file")).may_go_on);
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kNone) << "a call of it that is still running";
  EXPECT_THAT(table.expire(now).dead, testing::ElementsAre(kReader));
  EXPECT_THAT(table.expire(now).dead, IsEmpty()) << "once";
}

TEST_F(Leases, WhatADeadClientHasSentIsDoneFirst) {
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  table.note_log(kReader, LeaseTable::Log::kBegun, now);
  EXPECT_THAT(table.presume_dead(kReader, now), IsEmpty());
  const auto waiting = change(node("file"));
  EXPECT_FALSE(waiting.may_go_on);
  now += 3s;
  EXPECT_THAT(table.expire(now).released, IsEmpty()) << "it is still being carried out";
  table.note_log(kReader, LeaseTable::Log::kDone, now);
  EXPECT_THAT(table.expire(now).released, IsEmpty()) << "the next one may be about to begin";
  now += 200ms;
  EXPECT_THAT(table.expire(now).released, testing::ElementsAre(waiting.id));
}

TEST_F(Leases, WhoWasSaidToBeDeadAndComesBackIsWaitedForAgain) {
  (void)table.presume_dead(kReader, now);
  (void)table.attach(kReader, now);
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  EXPECT_FALSE(change(node("file")).may_go_on);
}

TEST_F(Leases, WhoOwesAnAnswerMayStillUseWhatWasTakenBack) {
  EXPECT_FALSE(table.holds_any(kReader));
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  const auto begun = change(node("file"));
  EXPECT_EQ(table.interests(kReader), 0u);
  EXPECT_TRUE(table.holds_any(kReader));
  (void)table.answered(kReader, begun.pushes.at(0).number);
  EXPECT_FALSE(table.holds_any(kReader));
}

TEST_F(Leases, AnUnmountEndsTheWaiting) {
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  const auto begun = change(node("file"));
  EXPECT_THAT(table.end(kReader), testing::ElementsAre(begun.id));
}

TEST_F(Leases, WhenChangesWereMissedEverythingIsTakenBackAndWaitedFor) {
  EXPECT_EQ(table.grant(kReader, "file", Of::kNode), Grant::kLease);
  const std::uint64_t lease = table.lease_of(kReader);
  const auto told = table.anything_changed([](SessionNumber session) { return session == kReader; }, now);
  ASSERT_THAT(told.pushes, SizeIs(1));
  EXPECT_GT(told.pushes[0].floor, lease);
  const auto begun = change(node("anything"));
  EXPECT_FALSE(begun.may_go_on);
  EXPECT_THAT(table.answered(kReader, told.pushes[0].number), testing::ElementsAre(begun.id));
}

class FewLeases : public Leases {
 protected:
  FewLeases() : Leases({.interests_per_session = 4, .pushes_per_session = 2}) {}
};

TEST_F(FewLeases, TheOlderHalfIsTakenBackForTheNew) {
  const std::uint64_t first = table.lease_of(kReader);
  for (const char* const file : {"a", "b", "c", "d"})
    EXPECT_EQ(table.grant(kReader, file, Of::kNode), Grant::kLease);
  EXPECT_EQ(table.grant(kReader, "e", Of::kNode), Grant::kNone) << "no room before the client has answered";
  const auto overdue = table.expire(now);
  ASSERT_THAT(overdue.pushes, SizeIs(1));
  EXPECT_GT(overdue.pushes[0].floor, first);
  EXPECT_THAT(change(node("a")).pushes, SizeIs(1)) << "until then it is told of all";
  (void)table.answered(kReader, overdue.pushes[0].number);
  EXPECT_EQ(table.grant(kReader, "e", Of::kNode), Grant::kLease);
  EXPECT_THAT(change(node("b")).pushes, IsEmpty());
  EXPECT_THAT(change(node("c")).pushes, SizeIs(1));
}

TEST_F(FewLeases, TooManyPushesBecomeOne) {
  for (const char* const file : {"a", "b", "c"}) (void)table.grant(kReader, file, Of::kNode);
  EXPECT_EQ(table.changed(node("a"), now).pushes.at(0).floor, 0u);
  EXPECT_EQ(table.changed(node("b"), now).pushes.at(0).floor, 0u);
  EXPECT_GT(table.changed(node("c"), now).pushes.at(0).floor, 0u);
  EXPECT_EQ(table.interests(kReader), 0u);
}

}  // namespace
}  // namespace tusk::server

// What ends a mount's trust besides pushes: time without contact, a right that has ended, a server that
// crashed.
#include <gtest/gtest.h>

#include "fsclient/exclusive_use.h"
#include "fsclient/trust.h"
#include "leased.h"
#include "manual_scheduler.h"

namespace tusk::client {
namespace {

using namespace std::chrono_literals;

class LeaseTerms : public testing::Test {
 protected:
  TimePoint confirmed{1h};
  LeaseTrust trust{1s, [this] { return confirmed; }};
  const Learnt learnt{confirmed, 7};
};

TEST_F(LeaseTerms, ExclusivenessEndsBeforeLeases) {
  trust.set_terms(10s, 7, 2s);
  EXPECT_TRUE(trust.waited_for(confirmed + 1999ms));
  EXPECT_FALSE(trust.waited_for(confirmed + 2s));
  EXPECT_TRUE(trust.may_use(Fact::kListing, learnt, confirmed + 9999ms));
  EXPECT_FALSE(trust.may_use(Fact::kListing, learnt, confirmed + 10s));
}

TEST_F(LeaseTerms, OfAServerThatDoesNotSayExclusivenessLastsAsLong) {
  trust.set_terms(10s, 7);
  EXPECT_TRUE(trust.waited_for(confirmed + 9999ms));
  EXPECT_FALSE(trust.waited_for(confirmed + 10s));
}

TEST_F(LeaseTerms, NothingLastsWhereNothingIsConfirmed) {
  trust.set_terms(10s, 7, 2s);
  confirmed = TimePoint::min();
  EXPECT_FALSE(trust.waited_for(TimePoint{1h}));
  EXPECT_FALSE(trust.covered(learnt, TimePoint{1h}));
}

class UseOfExclusiveness : public testing::Test {
 protected:
  ManualScheduler scheduler;
  std::vector<bool> said;
  ExclusiveUse use{scheduler, [this](bool often) { said.push_back(often); }};
};

TEST_F(UseOfExclusiveness, LetsTheServerHearMoreOftenForAWhile) {
  use.note();
  use.note();
  EXPECT_EQ(said, std::vector{true});
  scheduler.advance(29s);
  use.note();
  scheduler.advance(2s);
  EXPECT_EQ(said, std::vector{true}) << "used within the time";
  scheduler.advance(60s);
  EXPECT_EQ(said, (std::vector{true, false}));
  use.note();
  EXPECT_EQ(said, (std::vector{true, false, true}));
}

class RightThatEnds : public Leased {
 protected:
  RightThatEnds() {
    server.put("a", "bytes");
    node = lookup("a").node;
    (void)attributes(node);
  }
  void refuse() {
    scheduler.advance(1ms);
    server.fault = [](const schema::Request&) {
      return std::optional(Error{from_errno(EACCES), "no right"});
    };
    filesystem->handle_outage({from_errno(EACCES), "no right"});
    settle();
  }
  NodeId node;
};

TEST_F(RightThatEnds, IsFeltByWhatIsUnderALease) {
  const auto before = getattrs();
  EXPECT_TRUE(attributes(node));
  EXPECT_EQ(getattrs(), before) << "under a lease";
  refuse();
  scheduler.advance(1s);  // beyond the lifetime of what no lease covers
  EXPECT_FALSE(attributes(node));
}

TEST_F(RightThatEnds, AndIsGivenAgainLetsTheMountGoOn) {
  refuse();
  server.fault = nullptr;
  filesystem->handle_attached(server.attached());
  settle();
  EXPECT_TRUE(attributes(node));
  const auto before = getattrs();
  scheduler.advance(5s);
  EXPECT_TRUE(attributes(node));
  EXPECT_EQ(getattrs(), before) << "under a lease again";
}

TEST_F(RightThatEnds, IsNotWhatAnOutageIs) {
  const auto before = getattrs();
  filesystem->handle_outage({ErrorCode::kTimedOut, "out of reach"});
  scheduler.advance(5s);
  EXPECT_TRUE(attributes(node));
  EXPECT_EQ(getattrs(), before);
}

TEST_F(Leased, TheGraceOfACrashedServerIsToldForItsTime) {
  EXPECT_EQ(filesystem->grace_remaining(), Duration::zero());
  schema::AttachReply attached = server.attached();
  attached.set_grace_ms(4000);
  filesystem->handle_attached(attached);
  EXPECT_EQ(filesystem->grace_remaining(), 4s);
  scheduler.advance(5s);
  EXPECT_EQ(filesystem->grace_remaining(), Duration::zero());
}

}  // namespace
}  // namespace tusk::client

// Which connection's changes are let in, and when.
#include "fsserver/change_gate.h"

#include <gtest/gtest.h>

#include <optional>

namespace tusk::server {
namespace {

using Verdict = ChangeGate::Verdict;

constexpr rpc::ConnectionId kOldest(1);
constexpr rpc::ConnectionId kNewer(2);
constexpr rpc::ConnectionId kNewest(3);

class ChangeGates : public testing::Test {
 protected:
  void SetUp() override { let_in(kOldest); }
  void let_in(rpc::ConnectionId connection) { EXPECT_TRUE(gate->let_in(connection)); }
  const std::shared_ptr<ChangeGate> gate = std::make_shared<ChangeGate>();
};

TEST_F(ChangeGates, LetInTheNewestConnectionOnly) {
  EXPECT_EQ(gate->enter(kOldest).verdict, Verdict::kIn);
  EXPECT_EQ(gate->enter(kNewer).verdict, Verdict::kOutdated);
  let_in(kNewer);
  EXPECT_EQ(gate->current(), kNewer);
  EXPECT_EQ(gate->enter(kOldest).verdict, Verdict::kOutdated);
  EXPECT_EQ(gate->enter(kNewer).verdict, Verdict::kIn);
}

TEST_F(ChangeGates, HaveTheNewOneWaitForAllThatAreInsideByOlderOnes) {
  int ready = 0;
  std::optional<ChangeGate::Entry> first = gate->enter(kOldest);
  let_in(kNewer);
  let_in(kNewest);
  std::optional<ChangeGate::Entry> more;
  EXPECT_EQ(gate->enter(kNewest).verdict, Verdict::kWait);
  EXPECT_TRUE(gate->wait([&] {
    ++ready;
    more = gate->enter(kNewest);
  }));
  EXPECT_EQ(ready, 0);
  first.reset();
  EXPECT_EQ(ready, 1);
  EXPECT_EQ(more->verdict, Verdict::kIn);
  EXPECT_FALSE(gate->wait([&] { ++ready; }));
  EXPECT_EQ(ready, 1);
}

TEST_F(ChangeGates, DoNotHoldUpOneConnectionBehindItself) {
  const auto one = gate->enter(kOldest);
  let_in(kOldest);
  const auto two = gate->enter(kOldest);
  EXPECT_EQ(two.verdict, Verdict::kIn);
}

TEST_F(ChangeGates, KnowWhoCameInWhenEvenIfAConnectionIsTheNewestAgain) {
  std::optional<ChangeGate::Entry> old = gate->enter(kOldest);
  let_in(kNewer);
  let_in(kOldest);
  EXPECT_EQ(gate->enter(kOldest).verdict, Verdict::kWait);
  old.reset();
  EXPECT_EQ(gate->enter(kOldest).verdict, Verdict::kIn);
}

TEST_F(ChangeGates, GoByTheClientsOwnNumbersWhereItSaysThem) {
  EXPECT_TRUE(gate->let_in(kNewest, 3));
  EXPECT_FALSE(gate->let_in(kNewer, 2));
  EXPECT_EQ(gate->current(), kNewest);
  EXPECT_TRUE(gate->let_in(kNewest, 3));
  EXPECT_TRUE(gate->let_in(kNewer));
}

TEST_F(ChangeGates, OutliveTheirSession) {
  ChangeGate::Entry inside = std::make_shared<ChangeGate>()->enter({});
  EXPECT_EQ(inside.verdict, Verdict::kIn);
  inside.pass = {};
}

}  // namespace
}  // namespace tusk::server

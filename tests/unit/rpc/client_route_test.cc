// Where a server sends what is for a client that moves, or for somebody who says that it is one.
#include "proto/rpc/client_route.h"

#include <gtest/gtest.h>

#include <string>

namespace tusk::rpc {
namespace {

using Route = ClientRoute<std::string>;

TEST(ClientRouteTest, WhoHasProvenNothingGetsThreeTimesWhatItSent) {
  Route route("home", false, 100);
  EXPECT_TRUE(route.unproven());
  EXPECT_EQ(route.budget(), 300u);
  route.handle_received(50);
  EXPECT_EQ(route.budget(), 450u);
  EXPECT_TRUE(route.prove_first());
  EXPECT_FALSE(route.unproven());
  EXPECT_FALSE(route.prove_first());
}

TEST(ClientRouteTest, ANewAddressIsTrustedOnceItAnswers) {
  Route route("home", true, 100);
  EXPECT_TRUE(route.move("away", 10));
  EXPECT_EQ(route.where(), "away");
  EXPECT_EQ(route.trusted(), "home");
  EXPECT_EQ(route.budget(), 30u);
  EXPECT_EQ(route.handle_validated(false), "home");
  EXPECT_EQ(route.trusted(), "away");
  EXPECT_FALSE(route.unproven());
  route.handle_failed();
  EXPECT_EQ(route.where(), "away") << "there is nothing to go back to";
}

TEST(ClientRouteTest, WhoDoesNotAnswerLosesItAgain) {
  Route route("home", true, 100);
  EXPECT_TRUE(route.move("away", 10));
  EXPECT_TRUE(route.move("farther away", 10));
  route.handle_failed();
  EXPECT_EQ(route.where(), "home");
  EXPECT_FALSE(route.unproven());
}

TEST(ClientRouteTest, AnAnswerFromElsewhereProvesNothing) {
  Route route("home", true, 100);
  EXPECT_TRUE(route.move("attacker", 10));
  // The packet with the answer to the attacker's challenge says that it is from there.
  EXPECT_TRUE(route.move("victim", 10));
  EXPECT_FALSE(route.handle_validated(true));
  EXPECT_TRUE(route.unproven());
  route.handle_failed();
  EXPECT_EQ(route.where(), "home");
}

// Somebody else had one packet of the client arrive from elsewhere first, or two.
TEST(ClientRouteTest, WhoIsBackWhereItWasHasNothingToProve) {
  Route route("home", true, 100);
  EXPECT_TRUE(route.move("attacker", 10));
  EXPECT_TRUE(route.move("attacker's friend", 10));
  EXPECT_FALSE(route.move("home", 10));
  EXPECT_EQ(route.where(), "home");
  EXPECT_EQ(route.trusted(), "home");
  EXPECT_FALSE(route.unproven());
  route.handle_failed();
  EXPECT_EQ(route.where(), "home");
  EXPECT_FALSE(route.handle_validated(false)) << "there is nothing to be told";
  EXPECT_TRUE(route.move("attacker", 10)) << "who has been there and did not prove it must prove it";
  EXPECT_EQ(route.trusted(), "home");
}

TEST(ClientRouteTest, OnlyTheLastProvenAddressHasNothingToProve) {
  Route route("home", true, 100);
  EXPECT_TRUE(route.move("away", 10));
  EXPECT_TRUE(route.handle_validated(false));
  EXPECT_TRUE(route.move("home", 10)) << "somebody else may be there by now";
  EXPECT_TRUE(route.unproven());
}

// By a packet of the same batch as the one that ended the handshake.
TEST(ClientRouteTest, TheFirstAddressIsNotProvenByComingBackToIt) {
  Route route("home", false, 100);
  EXPECT_TRUE(route.move("away", 10));
  EXPECT_FALSE(route.move("home", 10));
  EXPECT_TRUE(route.unproven());
  EXPECT_EQ(route.budget(), 30u);
}

}  // namespace
}  // namespace tusk::rpc

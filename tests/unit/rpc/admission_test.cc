#include "proto/rpc/admission.h"

#include <gtest/gtest.h>

namespace tusk::rpc {
namespace {

constexpr Duration kBelieved = 20s;

class AdmissionTest : public testing::Test {
 protected:
  static crypto::Fingerprint key(std::byte first) {
    crypto::Fingerprint key;
    key.bytes[0] = first;
    return key;
  }

  const crypto::Fingerprint key_ = key(std::byte{1});
  Admission admission_{std::nullopt, kBelieved};
  TimePoint now_ = TimePoint{} + 1h;
};

TEST_F(AdmissionTest, TheFirstKeyThatLetsUsInIsExpectedFromThenOn) {
  EXPECT_EQ(admission_.expected_key(), std::nullopt);
  EXPECT_FALSE(admission_.ever_let_in());
  admission_.handle_welcome(key_);
  EXPECT_EQ(admission_.expected_key(), key_);
  EXPECT_TRUE(admission_.ever_let_in());
}

TEST_F(AdmissionTest, ARefusalCountsFromWhoHasLetUsInAndUntilTheNextWelcome) {
  admission_.handle_refusal({ErrorCode::kNoSuchExport, "it has no films"});
  EXPECT_FALSE(admission_.refused()) << "a mount that never came about";
  admission_.handle_welcome(key_);
  EXPECT_FALSE(admission_.refusal());
  admission_.handle_refusal({ErrorCode::kNoSuchExport, "it has no films"});
  EXPECT_TRUE(admission_.refused());
  EXPECT_FALSE(admission_.key_changed());
  EXPECT_EQ(admission_.refused_error().code, from_errno(EACCES));
  EXPECT_EQ(admission_.refused_error().context, "the server refuses this mount: it has no films");
  admission_.handle_welcome(key_);
  EXPECT_FALSE(admission_.refused());
}

TEST_F(AdmissionTest, WhatMayPassIsNoRefusal) {
  admission_.handle_welcome(key_);
  admission_.handle_refusal({ErrorCode::kLimitExceeded, "too many clients"});
  EXPECT_FALSE(admission_.refused());
  EXPECT_EQ(admission_.refusal()->context, "too many clients");
}

TEST_F(AdmissionTest, AnotherKeyIsBelievedAfterAWhileInWhichTheExpectedOneWasNotShown) {
  admission_.handle_welcome(key_);
  EXPECT_FALSE(admission_.handle_other_key("another", now_));
  EXPECT_FALSE(admission_.handle_other_key("another", now_ + kBelieved - 1s));
  admission_.handle_expected_key();
  EXPECT_FALSE(admission_.handle_other_key("another", now_ + kBelieved));
  EXPECT_FALSE(admission_.refused());
  EXPECT_TRUE(admission_.handle_other_key("another", now_ + 2 * kBelieved));
  EXPECT_TRUE(admission_.key_changed());
  EXPECT_EQ(admission_.refused_error().context, "the server has another key than it had: another");
  EXPECT_EQ(admission_.expected_key(), key_) << "it is not trusted for that";
}

}  // namespace
}  // namespace tusk::rpc

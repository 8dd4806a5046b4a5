// What becomes of calls when a connection ends and another begins.
#include "proto/rpc/outgoing_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "proto/rpc/message_codec.h"

namespace tusk::rpc {
namespace {

class Calls : public testing::Test {
 protected:
  // What the call with this id ended with.
  void add(std::uint64_t id, bool adds_up, bool outlives_outages = false) {
    const std::string_view text = "request";
    calls_.add(CallId(id),
               {copy_bytes(as_byte_span(text)),
                {},
                {},
                Priority::kBulk,
                [this, id](const Result<CallReply>& reply) { ended_.emplace(id, reply.error().code); },
                adds_up,
                outlives_outages});
  }
  static transport::Connection connection() {
    return transport::Connection(transport::Role::kClient, {}, TimePoint() + 1s, 10ms);
  }

  OutgoingCalls calls_;
  std::map<std::uint64_t, ErrorCode> ended_;
};

TEST_F(Calls, AreSentAgainInTheSameSession) {
  transport::Connection first = connection();
  add(1, true);
  add(2, false);
  calls_.start_all(first, false);
  calls_.detach();
  transport::Connection second = connection();
  calls_.start_all(second, true);
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(calls_.count(), 2u);
}

TEST_F(Calls, ThatAddUpAreNotSentAgainToAServerThatForgotThem) {
  transport::Connection first = connection();
  add(1, true);
  add(2, false);
  calls_.start_all(first, false);
  calls_.detach();
  add(3, true);  // never sent yet
  transport::Connection second = connection();
  calls_.start_all(second, false);
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_.at(1), from_errno(EIO));
  EXPECT_EQ(calls_.count(), 2u);
}

TEST_F(Calls, AreMadeAnewForAServerThatDoesNotRememberTheSession) {
  schema::Request request;
  request.mutable_log()->set_number(1);
  std::vector<std::uint64_t> renewed;
  OutgoingCalls::Call call;
  call.header = encode_message(request).value();
  call.renew = [&](schema::Request& message) {
    renewed.push_back(message.log().number());
    message.mutable_log()->set_number(message.log().number() + 1);
  };
  calls_.add(CallId(1), std::move(call));
  transport::Connection first = connection();
  calls_.start_all(first, true);
  calls_.detach();
  transport::Connection second = connection();
  calls_.start_all(second, true);
  EXPECT_THAT(renewed, testing::IsEmpty());
  calls_.detach();
  transport::Connection third = connection();
  calls_.start_all(third, false);
  calls_.renew(CallId(1));
  calls_.renew(CallId(2));  // has ended
  EXPECT_THAT(renewed, testing::ElementsAre(1, 2));
}

TEST_F(Calls, SomeOutliveOutages) {
  transport::Connection open = connection();
  add(1, false);
  add(2, false, true);
  calls_.start_all(open, false);
  for (Completion& done : calls_.take_in_outage()) done(fail(ErrorCode::kTimedOut));
  EXPECT_EQ(ended_, (std::map<std::uint64_t, ErrorCode>{{1, ErrorCode::kTimedOut}}));
  EXPECT_EQ(calls_.count(), 1u);
  calls_.fail_all({ErrorCode::kPeerClosed, ""});
  EXPECT_EQ(ended_.at(2), ErrorCode::kPeerClosed);
}

}  // namespace
}  // namespace tusk::rpc

#include "proto/rpc/push_listener.h"

#include <gmock/gmock.h>

#include <string>

namespace tusk::rpc {
namespace {

schema::Request push_about(const std::string& handle) {
  schema::Request request;
  request.mutable_invalidate()->add_items()->set_handle(handle);
  return request;
}

TEST(PushListener, WhoListensLateIsToldWhatCameBeforeInItsOrder) {
  PushListener pushes;
  int answers = 0;
  const auto answer = [&answers] { ++answers; };
  pushes.handle(push_about("a"), answer);
  pushes.handle(push_about("b"), answer);
  EXPECT_EQ(answers, 0) << "what it takes back may be told already";

  std::vector<std::string> heard;
  pushes.begin([&](const schema::Request& request, std::move_only_function<void()> done) {
    heard.push_back(request.invalidate().items(0).handle());
    done();
  });
  pushes.handle(push_about("c"), answer);
  EXPECT_THAT(heard, testing::ElementsAre("a", "b", "c"));
  EXPECT_EQ(answers, 3);
}

TEST(PushListener, WhereNobodyWantsToHearTheyAreAnswered) {
  PushListener pushes;
  int answers = 0;
  pushes.handle(push_about("a"), [&answers] { ++answers; });
  pushes.begin({});
  pushes.handle(push_about("b"), [&answers] { ++answers; });
  EXPECT_EQ(answers, 2);
}

TEST(PushListener, WhatAConnectionBroughtThatIsLostComesAgain) {
  PushListener pushes;
  int answers = 0;
  pushes.handle(push_about("a"), [&answers] { ++answers; });
  pushes.handle_lost();
  pushes.handle(push_about("a"), [&answers] { ++answers; });
  pushes.begin({});
  EXPECT_EQ(answers, 1);
}

TEST(PushListener, HoldsOnlySoManyBytes) {
  PushListener pushes;
  std::size_t answers = 0;
  const std::string large(PushListener::kWaitingBytesMax / 4, 'x');
  for (int i = 0; i < 10; ++i) pushes.handle(push_about(large), [&answers] { ++answers; });
  pushes.begin({});
  EXPECT_EQ(answers, 3u);
}

TEST(PushListener, HoldsOnlySoMany) {
  PushListener pushes;
  std::size_t answers = 0;
  for (std::size_t i = 0; i < PushListener::kWaitingMax + 10; ++i)
    pushes.handle(push_about("a"), [&answers] { ++answers; });
  pushes.begin({});
  EXPECT_EQ(answers, PushListener::kWaitingMax) << "the server still waits for the others";
}

}  // namespace
}  // namespace tusk::rpc

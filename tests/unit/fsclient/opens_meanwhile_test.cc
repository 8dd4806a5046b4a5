// Large files of which all is known under a lease are open at once; the server is asked meanwhile.
#include "leased.h"

namespace tusk::client {
namespace {

using schema::Request;
using std::chrono::milliseconds;
using std::chrono::seconds;

class LargeFile : public Leased {
 protected:
  LargeFile() {
    server.put("large", content);
    server.put("small", "small");
  }
  std::uint64_t opens() const { return server.seen(Request::kOpen); }
  std::uint64_t closes() const { return server.seen(Request::kClose); }
  // Without the server's answer.
  std::optional<Handle> open_alone(NodeId node, const Asker& asker = {}) {
    const auto opened = new_answer<OpenReply>();
    filesystem->open(asker, node, O_RDONLY, into(opened));
    if (!opened->has_value()) return std::nullopt;
    EXPECT_TRUE(**opened);
    return (**opened)->handle;
  }
  bool is_open_alone(NodeId node, const Asker& asker = {}) {
    const auto opened = new_answer<OpenReply>();
    filesystem->open(asker, node, O_RDONLY, into(opened));
    const bool alone = opened->has_value();
    close(finished(opened)->handle);
    EXPECT_EQ(server.open_files(), 0u);
    return alone;
  }

  const std::string content = pattern(2 * kMiB);
};

TEST_F(LargeFile, IsOpenBeforeTheServerHasOpenedIt) {
  const NodeId node = lookup("large").node;
  const auto file = open_alone(node);
  ASSERT_TRUE(file);
  EXPECT_EQ(server.open_files(), 0u);
  EXPECT_TRUE(read(*file, kMiB, 1000) == content.substr(kMiB, 1000));
  EXPECT_EQ(server.open_files(), 1u);
  close(*file);
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(LargeFile, WhoWantsAPageDoesNotWaitForTheBlockAroundIt) {
  const auto file = open_alone(lookup("large").node);
  ASSERT_TRUE(file);
  const auto page = begin_read(*file, 0, 16 * kKiB);
  const auto kinds = server.waiting_kinds();
  const auto read_at = std::ranges::find(kinds, Request::kRead);
  ASSERT_GT(std::ranges::count(kinds, Request::kRead), 1) << "what follows is asked for, too";
  server.answer(static_cast<std::size_t>(read_at - kinds.begin()));
  scheduler.run();
  ASSERT_TRUE(page->has_value());
  EXPECT_TRUE(text_of(**page) == content.substr(0, 16 * kKiB));
  EXPECT_TRUE(read(*file, 16 * kKiB, 2 * kMiB) == content.substr(16 * kKiB));
  EXPECT_EQ(filesystem->counters().fetched.load(), content.size()) << "each byte once";
  close(*file);
}

// Whoever goes on reading waits for it.
TEST_F(LargeFile, WhatFollowsAPageDoesNotStandBehindLargeTransfers) {
  const auto file = open_alone(lookup("large").node);
  ASSERT_TRUE(file);
  const auto page = begin_read(*file, 0, 16 * kKiB);
  ByteCount asked = 0;
  for (const auto& waiting : server.waiting()) {
    const auto& read = waiting.request.message.read();
    if (!waiting.request.message.has_read() || read.offset() >= kBlockSize) continue;
    asked += read.length();
    EXPECT_EQ(waiting.request.priority, rpc::Priority::kInteractive) << read.offset();
  }
  EXPECT_EQ(asked, kBlockSize);
  settle();
  close(*file);
}

TEST_F(LargeFile, WhatFollowsAPageIsGivenUpWithTheLastClose) {
  const auto file = open_alone(lookup("large").node);
  ASSERT_TRUE(file);
  const auto page = begin_read(*file, 0, 16 * kKiB);
  while (!page->has_value()) {
    server.answer();
    scheduler.run();
  }
  EXPECT_THAT(server.waiting_kinds(), testing::Contains(Request::kRead));
  filesystem->release(*file, false);
  EXPECT_THAT(server.waiting_kinds(), testing::Not(testing::Contains(Request::kRead)));
  settle();
}

TEST_F(LargeFile, ClosedAtOnceItIsClosedAtTheServerTooOnceThatHasOpenedIt) {
  const NodeId node = lookup("large").node;
  const auto file = open_alone(node);
  ASSERT_TRUE(file);
  filesystem->release(*file, false);
  settle();
  EXPECT_EQ(opens(), 1u);
  EXPECT_EQ(closes(), 1u);
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(LargeFile, IsNotTakenAwayBeforeTheServerHasOpenedIt) {
  const NodeId node = lookup("large").node;
  const auto file = open_alone(node);
  ASSERT_TRUE(file);
  bool answered = false;
  filesystem->handle_pushed(push(server.node_of("large").handle(), true), [&answered] { answered = true; });
  while (scheduler.run()) {
  }
  EXPECT_FALSE(answered) << "whoever wants to remove it waits";
  settle();
  EXPECT_TRUE(answered);
  server.erase("large");
  EXPECT_TRUE(read(*file, 0, 1000) == content.substr(0, 1000));
  close(*file);
}

TEST_F(LargeFile, AnOpenThatTheServerRefusesEndsTheWaitingOfOthers) {
  const NodeId node = lookup("large").node;
  server.fault = [](const Request& request) {
    return request.has_open() ? std::optional(Error{from_errno(EMFILE), "too many"}) : std::nullopt;
  };
  const auto file = open_alone(node);
  ASSERT_TRUE(file);
  EXPECT_TRUE(take_back(push(server.node_of("large").handle(), true)));
  EXPECT_TRUE(read(*file, 0, 1000) == content.substr(0, 1000)) << "by its handle";
  close(*file);
  EXPECT_EQ(closes(), 0u);
}

TEST_F(LargeFile, IsNotTakenAwayEitherWhileAProgramHereChangesItsDirectory) {
  const auto file = open_alone(lookup("large").node);
  ASSERT_TRUE(file);
  auto removed = new_answer<void>();
  filesystem->remove({}, kRootNode, "small", false, into(removed));  // pushes do not wait for the kernel now
  schema::Request both = push_name("large");
  both.mutable_invalidate()->add_items()->set_handle(server.node_of("large").handle());
  bool answered = false;
  filesystem->handle_pushed(both, [&answered] { answered = true; });
  EXPECT_FALSE(answered);
  settle();
  EXPECT_TRUE(answered);
  EXPECT_EQ(server.open_files(), 1u);
  close(*file);
}

TEST_F(LargeFile, IsOpenAtTheServerBeforeItsLeasesAreOver) {
  const auto file = open_alone(lookup("large").node);
  ASSERT_TRUE(file);
  schema::Request floor;
  floor.mutable_invalidate()->set_lease_floor(server.lease + 1);
  bool answered = false;
  filesystem->handle_pushed(floor, [&answered] { answered = true; });
  while (scheduler.run()) {
  }
  EXPECT_FALSE(answered);
  settle();
  EXPECT_TRUE(answered);
  close(*file);
}

// Its own OPEN would reach the server behind the change.
TEST_F(LargeFile, IsNotOpenedAloneWhileThisMountTakesItAway) {
  server.put("replaced", content);
  const NodeId removed = lookup("large").node, replaced = lookup("replaced").node;
  const auto removal = new_answer<void>(), renaming = new_answer<void>();
  filesystem->remove({}, kRootNode, "large", false, into(removal));
  filesystem->rename({}, kRootNode, "small", kRootNode, "replaced", 0, into(renaming));
  EXPECT_FALSE(open_alone(removed));
  EXPECT_FALSE(open_alone(replaced));
  settle();
  EXPECT_TRUE(finished(removal));
  EXPECT_TRUE(finished(renaming));
}

TEST_F(LargeFile, IsNotOpenedAloneWhileThisMountMayLockTheProgramOut) {
  const NodeId node = lookup("large").node;
  auto changed = new_answer<AttributesReply>();
  filesystem->set_attributes({}, node, std::nullopt, {.mode = 0600}, into(changed));
  EXPECT_FALSE(open_alone(node));
  settle();
  EXPECT_TRUE(finished(changed));
  EXPECT_TRUE(open_alone(node)) << "and is again afterwards";
}

TEST_F(LargeFile, IsOpenedAloneAgainWhenARemovalHasFailed) {
  const NodeId node = lookup("large").node;
  server.fault = [](const Request& request) {
    return request.has_remove() ? std::optional(Error{from_errno(EACCES), "no"}) : std::nullopt;
  };
  auto removed = new_answer<void>();
  filesystem->remove({}, kRootNode, "large", false, into(removed));
  settle();
  (void)lookup("large");
  EXPECT_TRUE(is_open_alone(node));
}

TEST(OpensMeanwhile, APushWaitsForThoseThatWereThereWhenItCame) {
  OpensMeanwhile opens;
  bool answered = false;
  const auto push = std::make_shared<PushAnswer>([&answered] { answered = true; });
  const auto first = opens.begin();
  const auto second = opens.begin();
  opens.hold_back(push);
  push->let_go();
  const auto later = opens.begin();
  EXPECT_TRUE(opens.end(first).empty());
  EXPECT_FALSE(answered);
  for (const auto& waiting : opens.end(second)) waiting->handle_opened();
  EXPECT_TRUE(answered);
  EXPECT_TRUE(opens.end(later).empty());
}

TEST(OpensMeanwhile, EachPushWaitsForAllBeforeIt) {
  OpensMeanwhile opens;
  int answered = 0;
  const auto one = std::make_shared<PushAnswer>([&answered] { ++answered; });
  const auto another = std::make_shared<PushAnswer>([&answered] { ++answered; });
  const auto first = opens.begin();
  opens.hold_back(one);
  const auto second = opens.begin();
  opens.hold_back(another);
  one->let_go();
  another->let_go();
  for (const auto& waiting : opens.end(second)) waiting->handle_opened();
  EXPECT_EQ(answered, 0);
  for (const auto& waiting : opens.end(first)) waiting->handle_opened();
  EXPECT_EQ(answered, 2);
}

TEST_F(LargeFile, WhoOpensOneAfterTheOtherWaitsForTheServerInTheEnd) {
  constexpr int kMany = 100;
  const NodeId node = lookup("large").node;
  int alone = 0;
  for (int i = 0; i < kMany; ++i) {
    const auto opened = new_answer<OpenReply>();
    filesystem->open({}, node, O_RDONLY, into(opened));
    if (!opened->has_value()) continue;
    ++alone;
    filesystem->release((**opened)->handle, false);
  }
  EXPECT_GT(alone, 10);
  EXPECT_LT(alone, kMany);
  settle();
  EXPECT_EQ(server.open_files(), static_cast<std::size_t>(kMany - alone));
}

TEST_F(LargeFile, GoneBeforeTheServerCouldOpenItIsNotTakenForOneThatIsAllHere) {
  const NodeId node = lookup("large").node;
  server.fault = [](const Request& request) {
    return request.has_open() ? std::optional(Error{from_errno(ESTALE), "gone"}) : std::nullopt;
  };
  const auto file = open_alone(node);
  ASSERT_TRUE(file);
  settle();
  EXPECT_TRUE(take_back(push(server.node_of("large").handle(), true)));
  server.fault = [](const Request&) { return std::optional(Error{from_errno(ESTALE), "gone"}); };
  EXPECT_FALSE(attributes(node));
  filesystem->release(*file, false);
}

TEST_F(LargeFile, IsOpenAtTheServerBeforeThisMountRemovesIt) {
  const NodeId node = lookup("large").node;
  const auto file = open_alone(node);
  ASSERT_TRUE(file);
  auto removed = new_answer<void>();
  filesystem->remove({}, kRootNode, "large", false, into(removed));
  EXPECT_TRUE(finished(removed));
  EXPECT_TRUE(read(*file, 0, 1000) == content.substr(0, 1000));
  close(*file);
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(LargeFile, WhoIsKilledWaitsForThatNoLongerAndRemovesNothing) {
  const auto file = open_alone(lookup("large").node);
  ASSERT_TRUE(file);
  const auto interrupt = std::make_shared<Interrupt>();
  auto removed = new_answer<void>();
  filesystem->remove({.interrupt = interrupt}, kRootNode, "large", false, into(removed));
  EXPECT_FALSE(removed->has_value());
  interrupt->fire();
  scheduler.advance(kInterruptGrace);
  ASSERT_TRUE(removed->has_value());
  EXPECT_EQ((*removed)->error().code, ErrorCode::kCancelled);
  const auto another = open_alone(lookup("large").node);
  EXPECT_TRUE(another) << "nothing is in its way any more, although the server has not answered";
  settle();
  if (another) close(*another);
  EXPECT_EQ(server.seen(Request::kRemove), 0u);
  EXPECT_EQ(server.open_files(), 1u) << "which was asked for all the same";
  close(*file);
}

TEST_F(LargeFile, SecondOpensAreOpensOfTheirOwn) {
  const Handle first = open("large", O_RDONLY);
  const Handle second = open("large", O_RDONLY);
  EXPECT_EQ(opens(), 2u);
  close(first);
  EXPECT_TRUE(read(second, 0, 1000) == content.substr(0, 1000));
  close(second);
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(LargeFile, WaitsForTheServerOnceItsLeaseIsOver) {
  const NodeId node = lookup("large").node;
  EXPECT_TRUE(take_back(push(server.node_of("large").handle(), true)));
  EXPECT_FALSE(is_open_alone(node));
}

TEST_F(LargeFile, WaitsForTheServerWhileSomebodyIsChangingIt) {
  server.being_changed = true;
  EXPECT_FALSE(is_open_alone(lookup("large").node));
}

TEST_F(LargeFile, WaitsForAServerThatHasForgottenWhatItTold) {
  const NodeId node = lookup("large").node;
  scheduler.advance(milliseconds(1));
  schema::AttachReply reply = server.attached();
  reply.set_resumed(false);
  (void)reattach(reply);
  EXPECT_FALSE(is_open_alone(node));
}

TEST_F(LargeFile, WaitsForTheServerForWhomThatMayRefuse) {
  server.chmod("large", S_IFREG | 0640);
  const NodeId node = lookup("large").node;
  EXPECT_FALSE(is_open_alone(node, {.uid = 1000})) << "of a group, perhaps";
  EXPECT_TRUE(is_open_alone(node, {.uid = 0}));
  server.chmod("large", S_IFREG | 0644);
  EXPECT_TRUE(take_back(push(server.node_of("large").handle())));
  EXPECT_FALSE(is_open_alone(lookup("large").node, {.uid = 1000})) << "or of an access control list";
  server.no_xattrs = true;
  EXPECT_TRUE(take_back(push(server.node_of("large").handle())));
  EXPECT_TRUE(is_open_alone(lookup("large").node, {.uid = 1000}));
}

TEST_F(LargeFile, IsKeptInThePagesOfTheKernelIfItIsStillTheSame) {
  const Handle first = open("large", O_RDONLY);
  EXPECT_FALSE(last_open.keep_cache);
  EXPECT_TRUE(read(first, 0, kMiB) == content.substr(0, kMiB));
  close(first);
  const Handle second = open("large", O_RDONLY);
  EXPECT_TRUE(last_open.keep_cache);
  close(second);
}

TEST_F(LargeFile, ASmallOneComesWithItsOpen) { EXPECT_FALSE(is_open_alone(lookup("small").node)); }

class LargeFileWithoutLeases : public Client {};

TEST_F(LargeFileWithoutLeases, IsOpenedAtTheServer) {
  server.put("large", pattern(2 * kMiB));
  const NodeId node = lookup("large").node;
  const auto opened = new_answer<OpenReply>();
  filesystem->open({}, node, O_RDONLY, into(opened));
  EXPECT_FALSE(opened->has_value());
  close(finished(opened)->handle);
  EXPECT_EQ(server.seen(Request::kClose), 1u);
}

TEST_F(LargeFile, RootIsLookedAtBeforeAnybodyAsks) {
  scheduler.advance(milliseconds(1));
  filesystem->look_at_root();
  settle();
  EXPECT_EQ(getattrs(), 1u);
  scheduler.advance(seconds(5));
  EXPECT_TRUE(attributes(kRootNode));
  EXPECT_EQ(getattrs(), 1u);
}

}  // namespace
}  // namespace tusk::client

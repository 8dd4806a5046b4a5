// Large files are opened at the server when they are looked up.
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
  // Somebody looks at it and does not open it; then the kernel forgets it.
  void only_look(const std::string& name) {
    (void)lookup(name);
    scheduler.advance(OpensAhead::kKept + milliseconds(1));
    settle();
    EXPECT_TRUE(take_back(push_name(name)));
  }

  const std::string content = pattern(2 * kMiB);
};

TEST_F(LargeFile, IsOpenedWithItsName) {
  const Handle file = open("large", O_RDONLY);
  EXPECT_EQ(opens(), 0u);
  EXPECT_EQ(server.open_files(), 1u);
  EXPECT_TRUE(read(file, kMiB, 1000) == content.substr(kMiB, 1000));
  scheduler.advance(seconds(60));
  settle();
  EXPECT_EQ(server.open_files(), 1u);
  close(file);
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(LargeFile, IsReadThoughItWasRemovedSinceItWasOpenedWithItsName) {
  const Handle file = open("large", O_RDONLY);
  server.erase("large");
  EXPECT_TRUE(take_back(push_name("large")));
  EXPECT_TRUE(read(file, 0, 1000) == content.substr(0, 1000));
  close(file);
}

TEST_F(LargeFile, ThatNobodyOpensIsClosedAgain) {
  (void)lookup("large");
  EXPECT_EQ(server.open_files(), 1u);
  scheduler.advance(OpensAhead::kKept + milliseconds(1));
  settle();
  EXPECT_EQ(server.open_files(), 0u);
  EXPECT_EQ(closes(), 1u);
  const Handle file = open("large", O_RDONLY);
  EXPECT_EQ(opens(), 1u);
  close(file);
}

TEST_F(LargeFile, IsNotOpenedWithItsNameForWhoOnlyLooks) {
  for (int i = 0; i < OpensAhead::kVainMax; ++i) only_look("large");
  const auto before = closes();
  only_look("large");
  EXPECT_EQ(closes(), before);

  close(open("large", O_RDONLY));  // until somebody opens one
  EXPECT_EQ(opens(), 1u);
  EXPECT_TRUE(take_back(push_name("large")));
  close(open("large", O_RDONLY));
  EXPECT_EQ(opens(), 1u);
}

TEST_F(LargeFile, IsOpenedAtTheServerOnceItsLeaseIsOver) {
  const NodeId node = lookup("large").node;
  EXPECT_TRUE(take_back(push(server.node_of("large").handle(), true)));
  auto opened = new_answer<OpenReply>();
  filesystem->open({}, node, O_RDONLY, into(opened));
  const Handle file = finished(opened)->handle;
  EXPECT_EQ(opens(), 1u);
  close(file);
  scheduler.advance(OpensAhead::kKept + milliseconds(1));
  settle();
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(LargeFile, IsOpenedAtTheServerForASecondTime) {
  const Handle first = open("large", O_RDONLY);
  const Handle second = open("large", O_RDONLY);
  EXPECT_EQ(opens(), 1u);
  close(first);
  EXPECT_TRUE(read(second, 0, 1000) == content.substr(0, 1000));
  close(second);
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(LargeFile, IsOpenedAtTheServerForWriting) {
  close(open("large", O_RDWR));
  EXPECT_EQ(opens(), 1u);
  scheduler.advance(OpensAhead::kKept + milliseconds(1));
  settle();
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(LargeFile, IsClosedIfTheLookupWasInterrupted) {
  auto answer = new_answer<EntryReply>();
  const Asker asker{.interrupt = std::make_shared<Interrupt>()};
  filesystem->lookup(asker, kRootNode, "large", into(answer));
  asker.interrupt->fire();
  scheduler.advance(seconds(10));
  EXPECT_FALSE(finished(answer));
  EXPECT_EQ(closes(), 1u) << "it may have been done all the same";
}

TEST_F(LargeFile, IsClosedIfNobodyKnowsWhetherTheLookupWasDone) {
  server.fault = [](const Request& request) {
    return request.has_lookup() ? std::optional(Error{ErrorCode::kTimedOut, "out of reach"}) : std::nullopt;
  };
  auto answer = new_answer<EntryReply>();
  filesystem->lookup({}, kRootNode, "large", into(answer));
  EXPECT_FALSE(finished(answer));
  EXPECT_EQ(closes(), 1u);
}

TEST_F(LargeFile, IsClosedAtOnceIfWhatWasToldWithItIsUnderNoLease) {
  server.being_changed = true;
  (void)lookup("large");
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(LargeFile, IsNotKeptOpenByNobodyWhenItIsRemoved) {
  (void)lookup("large");
  auto removed = new_answer<void>();
  filesystem->remove({}, kRootNode, "large", false, into(removed));
  EXPECT_TRUE(finished(removed));
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(LargeFile, IsNotKeptOpenByNobodyWhenItIsReplaced) {
  (void)lookup("large");
  auto renamed = new_answer<void>();
  filesystem->rename({}, kRootNode, "small", kRootNode, "large", 0, into(renamed));
  EXPECT_TRUE(finished(renamed));
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(LargeFile, IsOpenedAtTheServerThatHasForgottenWhatWasOpenedWithNames) {
  const NodeId node = lookup("large").node;
  schema::AttachReply reply = server.attached();
  reply.set_resumed(false);
  (void)reattach(reply);
  scheduler.advance(milliseconds(1));
  EXPECT_TRUE(attributes(node)) << "and has told it under a lease again";
  auto opened = new_answer<OpenReply>();
  filesystem->open({}, node, O_RDONLY, into(opened));
  EXPECT_TRUE(finished(opened));
  EXPECT_EQ(opens(), 1u);
}

TEST_F(LargeFile, ManyAreNotAllOpenedWithTheirNames) {
  constexpr int kMany = 100;
  for (int i = 0; i < kMany; ++i) server.put("large" + std::to_string(i), content);
  for (int i = 0; i < kMany; ++i)
    filesystem->lookup({}, kRootNode, "large" + std::to_string(i), into(new_answer<EntryReply>()));
  settle();
  EXPECT_EQ(server.open_files(), static_cast<std::size_t>(OpensAhead::kAtOnceMax));
  scheduler.advance(OpensAhead::kKept + milliseconds(1));
  settle();
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(LargeFile, ThatIsLookedUpAgainIsOpenOnce) {
  (void)lookup("large");
  EXPECT_TRUE(take_back(push_name("large")));
  const Handle file = open("large", O_RDONLY);
  EXPECT_EQ(opens(), 0u);
  EXPECT_EQ(server.open_files(), 1u);
  close(file);
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(LargeFile, IsKeptInThePagesOfTheKernelIfItIsStillTheSame) {
  const Handle first = open("large", O_RDONLY);
  EXPECT_FALSE(last_open.keep_cache);
  EXPECT_TRUE(read(first, 0, kMiB) == content.substr(0, kMiB));
  close(first);
  EXPECT_TRUE(take_back(push_name("large")));
  const Handle second = open("large", O_RDONLY);
  EXPECT_EQ(opens(), 0u);
  EXPECT_TRUE(last_open.keep_cache);
  close(second);
}

TEST_F(LargeFile, ASmallOneIsNotOpenedWithItsName) {
  close(open("small", O_RDONLY));
  EXPECT_EQ(opens(), 1u);
}

class LargeFileWithoutLeases : public Client {};

TEST_F(LargeFileWithoutLeases, IsOpenedAtTheServer) {
  server.put("large", pattern(2 * kMiB));
  close(open("large", O_RDONLY));
  EXPECT_EQ(server.seen(Request::kOpen), 1u);
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

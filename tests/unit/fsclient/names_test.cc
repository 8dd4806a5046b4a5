// Names and attributes: what is remembered, for how long, and what makes it forgotten.
#include <barrier>
#include <thread>

#include "client.h"

namespace tusk::client {
namespace {

class Knowing : public Client {};

TEST_F(Knowing, ALookupIsRememberedForItsLifetime) {
  server.put("a", "x");
  const EntryReply first = lookup("a");
  EXPECT_NE(first.node, NodeId());
  EXPECT_EQ(first.entry_lifetime, std::chrono::seconds(1));
  EXPECT_EQ(lookup("a").node, first.node);
  EXPECT_EQ(server.seen(schema::Request::kLookup), 1u);
  scheduler.advance(std::chrono::milliseconds(600));
  EXPECT_EQ(lookup("a").entry_lifetime, std::chrono::milliseconds(400));  // not a new second for the kernel
  scheduler.advance(std::chrono::milliseconds(400));
  EXPECT_EQ(lookup("a").node, first.node);
  EXPECT_EQ(server.seen(schema::Request::kLookup), 2u);
}

TEST_F(Knowing, AnAbsenceIsRememberedMoreBriefly) {
  EXPECT_EQ(lookup("a").node, NodeId());
  EXPECT_EQ(lookup("a").node, NodeId());
  EXPECT_EQ(server.seen(schema::Request::kLookup), 1u);
  server.put("a", "x");
  scheduler.advance(LifetimeTrust::kAbsenceMax);
  EXPECT_NE(lookup("a").node, NodeId());
}

TEST_F(Knowing, WhatWeMakeOurselvesIsKnownAtOnce) {
  EXPECT_EQ(lookup("a").node, NodeId());
  filesystem->release(create("a"), false);
  EXPECT_EQ(lookup("a").node, last_node);
  auto removed = new_answer<void>();
  filesystem->remove({}, kRootNode, "a", false, into(removed));
  EXPECT_TRUE(finished(removed));
  EXPECT_EQ(lookup("a").node, NodeId());
}

TEST_F(Knowing, AListingAnswersForAllNames) {
  for (const char* name : {"a", "b", "c"}) server.put(name, "x");
  const Handle directory = filesystem->open_directory({}, kRootNode)->handle;
  EXPECT_EQ(list(directory, false), (std::vector<std::string>{".", "..", "a", "b", "c"}));
  EXPECT_NE(lookup("b").node, NodeId());
  EXPECT_EQ(lookup("d").node, NodeId());
  EXPECT_EQ(server.seen(schema::Request::kLookup), 0u);
  filesystem->close_directory(directory);
}

TEST_F(Knowing, ANameThatIsTooLongIsThatAndNotAbsent) {
  server.put("a", "x");
  const Handle directory = filesystem->open_directory({}, kRootNode)->handle;
  (void)list(directory, false);
  auto answer = new_answer<EntryReply>();
  filesystem->lookup({}, kRootNode, std::string(256, 'n'), into(answer));
  EXPECT_EQ(finished(answer).error().code, from_errno(ENAMETOOLONG));
  EXPECT_EQ(lookup(std::string(255, 'n')).node, NodeId());
  filesystem->close_directory(directory);
}

TEST_F(Knowing, AListingIsSharedWhileItIsFresh) {
  server.put("a", "x");
  const Handle directory = filesystem->open_directory({}, kRootNode)->handle;
  (void)list(directory, false);
  (void)list(directory, false);
  EXPECT_EQ(server.seen(schema::Request::kReaddir), 1u);
  scheduler.advance(std::chrono::seconds(1));
  server.put("b", "x");
  EXPECT_EQ(list(directory, false), (std::vector<std::string>{".", "..", "a", "b"}));
  filesystem->close_directory(directory);
}

TEST_F(Knowing, OurOwnChangeMakesAListingOld) {
  server.put("a", "x");
  const Handle directory = filesystem->open_directory({}, kRootNode)->handle;
  (void)list(directory, false);
  filesystem->release(create("b"), false);
  EXPECT_EQ(list(directory, false), (std::vector<std::string>{".", "..", "a", "b"}));
  filesystem->close_directory(directory);
}

TEST_F(Knowing, AListingThatCrossesARemovalDoesNotBringTheNameBack) {
  server.put("a", "x");
  const Handle directory = filesystem->open_directory({}, kRootNode)->handle;
  auto listed = new_answer<void>();
  filesystem->read_directory(
      {}, directory, 0, false, [](const DirectoryEntryOut&) { return true; }, into(listed));
  server.execute(0);  // the server still sees it
  auto removed = new_answer<void>();
  filesystem->remove({}, kRootNode, "a", false, into(removed));
  server.answer();
  server.deliver();
  EXPECT_TRUE(finished(listed));
  EXPECT_TRUE(finished(removed));
  EXPECT_EQ(lookup("a").node, NodeId());
  filesystem->close_directory(directory);
}

// Answers arrive on another thread than the one that takes listings in.
TEST_F(Knowing, AListingThatEndsWhileANameIsMadeLeavesItKnown) {
  const Handle directory = filesystem->open_directory({}, kRootNode)->handle;
  for (int round = 0; round < 5'000; ++round) {
    const std::string name = "n" + std::to_string(round);
    auto listed = new_answer<void>();
    filesystem->read_directory(
        {}, directory, 0, false, [](const DirectoryEntryOut&) { return true; }, into(listed));
    ASSERT_EQ(server.waiting().size(), 1u);
    server.execute(0);
    server.deliver();  // to be taken in by the scheduler
    auto made = new_answer<CreateReply>();
    filesystem->create({}, kRootNode, name, 0644, O_RDWR, into(made));
    server.execute(0);
    std::barrier start(2);
    std::thread network([&] {
      start.arrive_and_wait();
      server.deliver();
    });
    start.arrive_and_wait();
    scheduler.run();
    network.join();
    ASSERT_TRUE(finished(listed));
    const Result<CreateReply> created = finished(made);
    ASSERT_TRUE(created);
    ASSERT_EQ(lookup(name).node, created->entry.node) << name;
    close(created->open.handle);
    server.erase(name);
    scheduler.advance(std::chrono::seconds(2));
  }
  filesystem->close_directory(directory);
}

TEST_F(Knowing, SeveralLookupsInADirectoryBringAllOfIt) {
  for (char c = 'a'; c <= 'z'; ++c) server.put(std::string(1, c), "x");
  for (char c = 'a'; c <= 'z'; ++c) EXPECT_NE(lookup(std::string(1, c)).node, NodeId());
  EXPECT_EQ(server.seen(schema::Request::kReaddir), 1u);
  EXPECT_LE(server.seen(schema::Request::kLookup), DirectoryCache::kMissesToList);
}

TEST_F(Knowing, AChangeByOthersIsToldToTheKernel) {
  server.put("a", "one");
  const Handle file = open("a", O_RDONLY);
  EXPECT_EQ(read(file, 0, 10), "one");
  server.put("a", "three");
  scheduler.advance(std::chrono::seconds(2));
  EXPECT_EQ(attributes(lookup("a").node)->attr.size, 5u);
  EXPECT_FALSE(kernel.inodes.empty());
  EXPECT_EQ(read(file, 0, 10), "three");
}

TEST_F(Knowing, ANewSizeIsToldBehindTheDroppingOfOldPages) {
  server.put("a", "one");
  const NodeId node = lookup("a").node;
  const Handle file = open("a", O_RDONLY);
  EXPECT_EQ(read(file, 0, 10), "one");
  server.put("a", "three");
  scheduler.advance(std::chrono::seconds(2));
  auto found = new_answer<EntryReply>();
  filesystem->lookup({}, kRootNode, "a", into(found));
  ASSERT_TRUE(server.answer_all());
  // The answer is here; so is what another program asks now, from what is known since.
  auto asked = new_answer<AttributesReply>();
  filesystem->attributes({}, node, into(asked));
  EXPECT_FALSE(found->has_value());
  EXPECT_FALSE(asked->has_value());
  EXPECT_TRUE(kernel.inodes.empty());
  scheduler.run();
  EXPECT_FALSE(kernel.inodes.empty());
  EXPECT_EQ((*found)->value().attr.size, 5u);
  EXPECT_EQ((*asked)->value().attr.size, 5u);
}

TEST_F(Knowing, AnAnswerThatIsOlderThanWhatWeKnowIsIgnored) {
  server.put("a", "1");
  const NodeId node = lookup("a").node;
  scheduler.advance(std::chrono::seconds(2));
  auto slow = new_answer<AttributesReply>();
  filesystem->attributes({}, node, into(slow));
  server.execute(0);
  server.put("a", "12345");
  scheduler.advance(std::chrono::milliseconds(1));
  auto quick = new_answer<AttributesReply>();
  filesystem->attributes({}, node, into(quick));
  server.answer();
  scheduler.run();
  ASSERT_TRUE(quick->has_value());
  server.deliver();
  EXPECT_EQ(finished(slow)->attr.size, 5u);
}

TEST_F(Knowing, APushMakesForgotten) {
  server.put("a", "x");
  const EntryReply entry = lookup("a");
  schema::Request push;
  push.mutable_invalidate()->add_items()->set_handle("handle1");
  filesystem->handle_pushed(push, [] {});
  server.put("a", "longer");
  EXPECT_EQ(attributes(entry.node)->attr.size, 6u);
}

TEST_F(Knowing, APushOfAnEntryReachesTheKernel) {
  server.put("a", "x");
  (void)lookup("a");
  schema::Request push;
  auto& item = *push.mutable_invalidate()->add_items();
  item.set_handle("root");
  item.set_name("a");
  filesystem->handle_pushed(push, [] {});
  settle();
  EXPECT_EQ(kernel.entries, std::vector<std::string>{"a"});
  server.erase("a");
  EXPECT_EQ(lookup("a").node, NodeId());
}

TEST_F(Knowing, ForgottenInodesAreStale) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  filesystem->forget(node, 1);
  EXPECT_EQ(attributes(node).error().code, from_errno(ESTALE));
}

TEST_F(Knowing, AMalformedAnswerIsAnErrorNotACrash) {
  server.put("a", "x");
  server.fault = [](const schema::Request&) { return std::optional<Error>({ErrorCode::kMalformed, ""}); };
  auto answer = new_answer<EntryReply>();
  filesystem->lookup({}, kRootNode, "a", into(answer));
  EXPECT_EQ(finished(answer).error().code, ErrorCode::kMalformed);
}

TEST_F(Knowing, TheKernelsQuestionBeforeEveryWriteIsAskedOnce) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  for (int i = 0; i < 3; ++i) {
    auto answer = new_answer<std::string>();
    filesystem->xattr({}, node, "security.capability", into(answer));
    EXPECT_EQ(finished(answer).error().code, from_errno(ENODATA));
  }
  EXPECT_EQ(server.seen(schema::Request::kGetxattr), 1u);
}

// Without leases: a change of our own must not have what somebody else has done before it taken for known.
class ChangedByOthers : public Knowing {
 protected:
  template <class T, class Change>
  void expect_seen_after(Change change) {
    server.put("a", "short");
    const NodeId node = lookup("a").node;
    const Handle file = open("a", O_RDONLY);
    EXPECT_EQ(read(file, 0, 100), "short");
    server.put("a", "longer than before");
    kernel.inodes.clear();
    auto changed = new_answer<T>();
    change(node, into(changed));
    EXPECT_TRUE(finished(changed));
    (void)attributes(node);
    EXPECT_THAT(kernel.inodes, testing::Contains(node));
    EXPECT_EQ(read(file, 0, 100), "longer than before");
  }
};

TEST_F(ChangedByOthers, AFileShowsItWhenWeMoveIt) {
  expect_seen_after<void>([&](NodeId, Done<void> done) {
    filesystem->rename({}, kRootNode, "a", kRootNode, "b", 0, std::move(done));
  });
}

TEST_F(ChangedByOthers, AFileShowsItWhenWeChangeItsMode) {
  expect_seen_after<AttributesReply>([&](NodeId node, Done<AttributesReply> done) {
    filesystem->set_attributes({}, node, std::nullopt, {.mode = 0600}, std::move(done));
  });
}

TEST_F(Knowing, MovingAnotherFileThanTheOneKnownTellsNothingOfThatOne) {
  server.put("a", "known");
  const Handle file = open("a", O_RDONLY);
  const NodeId known = lookup("a").node;
  server.erase("a");
  server.put("a", "x");
  auto renamed = new_answer<void>();
  filesystem->rename({}, kRootNode, "a", kRootNode, "b", 0, into(renamed));
  EXPECT_TRUE(finished(renamed));
  EXPECT_NE(lookup("b").node, known);
  EXPECT_EQ(read(file, 0, 100), "known");
}

}  // namespace
}  // namespace tusk::client

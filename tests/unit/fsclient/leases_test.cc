// What a lease lets the client do without asking, and what ends it.
#include "fsclient/taken_back.h"
#include "leased.h"

namespace tusk::client {
namespace {

using namespace std::chrono_literals;

TEST_F(Leased, FactsAreTrustedAsLongAsTheServerIsHeard) {
  server.put("a", "x");
  const EntryReply first = lookup("a");
  EXPECT_EQ(first.entry_lifetime, Loans::kLoan);
  EXPECT_EQ(first.attr_lifetime, Loans::kLoan);
  scheduler.advance(1h);
  EXPECT_EQ(lookup("a").node, first.node);
  EXPECT_TRUE(attributes(first.node));
  EXPECT_EQ(lookups(), 1u);
  EXPECT_EQ(getattrs(), 0u);
}

class LeasedFromTheStart : public Leased {
 protected:
  LeasedFromTheStart() {
    server.put("file", "content");
    schema::AttachReply attached = server.attached();
    attached.set_root_lease(server.lease);
    attached.mutable_root()->mutable_attr()->set_cover(schema::COVER_LEASE);
    attached.mutable_root_listing()->set_names(schema::COVER_LEASE);
    schema::DirEntry& entry = *attached.mutable_root_listing()->add_entries();
    entry.set_name("file");
    *entry.mutable_node() = server.node_of("file");
    entry.mutable_node()->mutable_attr()->set_cover(schema::COVER_LEASE);
    mount_with({.confirmed = [this] { return scheduler.now(); }}, attached);
    filesystem->look_at_root();
  }
};

TEST_F(LeasedFromTheStart, WhatIsInTheRootNeedNotBeAskedFor) {
  scheduler.advance(std::chrono::seconds(60));
  EXPECT_NE(lookup("file").node, NodeId(0));
  EXPECT_EQ(lookup("absent").node, NodeId(0));
  EXPECT_EQ(lookups() + getattrs() + server.seen(schema::Request::kReaddir), 0u);
}

TEST_F(LeasedFromTheStart, WhatIsTakenBackIsAskedFor) {
  EXPECT_TRUE(take_back(push_name("absent")));
  server.put("absent", "here now");
  EXPECT_NE(lookup("absent").node, NodeId(0));
  EXPECT_EQ(lookups(), 1u);
}

TEST_F(Leased, WithoutContactTheyEndWithTheLeaseOfWhatWasLastHeard) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  scheduler.advance(1h);
  lose_contact();
  scheduler.advance(9s);
  EXPECT_EQ(attributes(node)->lifetime, 1s) << "nor is the kernel told more";
  EXPECT_EQ(getattrs(), 0u);
  scheduler.advance(1s);
  (void)attributes(node);
  EXPECT_EQ(getattrs(), 1u);
}

// The server waits for a mount that is coming back no longer than until its ATTACH has come.
TEST_F(Leased, BetweenAnAttachAndItsAnswerNothingIsTrusted) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  kernel.attributes.clear();
  schema::AttachRequest request;
  filesystem->handle_attaching(request);
  scheduler.run();
  EXPECT_THAT(kernel.attributes, testing::Contains(node));
  auto asked = new_answer<AttributesReply>();
  filesystem->attributes({}, node, into(asked));
  EXPECT_EQ(server.waiting_kinds(), std::vector{schema::Request::kGetattr});
  schema::AttachReply reply = server.attached();
  reply.set_resumed(true);
  filesystem->handle_attached(reply);
  EXPECT_TRUE(finished(asked));
  EXPECT_TRUE(attributes(node));
  EXPECT_EQ(getattrs(), 1u) << "and then it is, if the leases still stand";
}

TEST_F(Leased, AbsenceIsTrustedLikeAnythingElse) {
  EXPECT_EQ(lookup("a").node, NodeId());
  scheduler.advance(1h);
  EXPECT_EQ(lookup("a").entry_lifetime, Loans::kLoan);
  EXPECT_EQ(lookups(), 1u);
  EXPECT_TRUE(take_back(push_name("a")));
  server.put("a", "x");
  EXPECT_NE(lookup("a").node, NodeId());
}

TEST_F(Leased, WhenAllNamesAreTakenBackTheKernelDropsAbsentOnesToo) {
  server.put("a", "x");
  auto listed = new_answer<void>();
  const Handle directory = filesystem->open_directory({}, kRootNode)->handle;
  filesystem->read_directory(
      {}, directory, 0, false, [](const DirectoryEntryOut&) { return true; }, into(listed));
  EXPECT_TRUE(finished(listed));
  EXPECT_EQ(lookup("missing").node, NodeId());
  EXPECT_EQ(lookups(), 0u) << "the listing says so";
  schema::Request request = push("root");
  request.mutable_invalidate()->mutable_items(0)->set_entries(true);
  EXPECT_TRUE(take_back(request));
  EXPECT_THAT(kernel.entries, testing::UnorderedElementsAre("a", "missing"));
}

TEST_F(Leased, WhenAllNamesAreTakenBackTheirFilesAreAskedForAgain) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  server.put("a", "longer");
  schema::Request request = push("root");
  request.mutable_invalidate()->mutable_items(0)->set_entries(true);
  EXPECT_TRUE(take_back(request));
  EXPECT_EQ(attributes(node)->attr.size, 6u);
}

TEST_F(Leased, AbsentNamesWithoutNumberAreNotAllRemembered) {
  (void)list(kRootNode);
  for (std::size_t i = 0; i < DirectoryCache::kAbsentMax; ++i)
    EXPECT_EQ(lookup(std::to_string(i)).entry_lifetime, Loans::kLoan);
  EXPECT_EQ(lookup("one more").entry_lifetime, 0s);
  EXPECT_EQ(lookups(), 0u) << "the listing says so";
  schema::Request request = push("root");
  request.mutable_invalidate()->mutable_items(0)->set_entries(true);
  EXPECT_TRUE(take_back(request));
  EXPECT_EQ(kernel.entries.size(), DirectoryCache::kAbsentMax);
}

TEST_F(Leased, AFileThatOthersRemovedLivesOnWhereItIsOpen) {
  for (const char* name : {"a", "b", "c", "d"}) server.put(name, "content");
  (void)list(kRootNode);
  for (const char* name : {"a", "b"}) {
    const Handle file = open(name, O_RDONLY);
    EXPECT_EQ(read(file, 0, 100), "content");
    close(file);
  }
  const std::uint64_t opens = server.seen(schema::Request::kOpen);
  const Handle file = open("c", O_RDONLY);
  ASSERT_EQ(server.seen(schema::Request::kOpen), opens) << "all of it is here";
  const NodeId node = nodes.at("c");
  server.fault = [](const schema::Request& request) -> std::optional<Error> {
    if (request.has_getattr()) return Error{from_errno(ESTALE), "removed"};
    return std::nullopt;
  };
  EXPECT_TRUE(take_back(push(server.node_of("c").handle())));
  const auto known = attributes(node);
  ASSERT_TRUE(known) << known.error().message();
  EXPECT_EQ(known->attr.nlink, 0u);
  EXPECT_EQ(read(file, 0, 100), "content");
  server.fault = nullptr;
  close(file);
}

TEST_F(Leased, APushEndsItAndIsAnsweredWhenTheKernelHasDroppedIt) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  bool answered = false;
  filesystem->handle_pushed(push("handle1", true), [&] {
    answered = true;
    EXPECT_EQ(kernel.attributes, std::vector{node});
  });
  EXPECT_FALSE(answered);
  settle();
  EXPECT_TRUE(answered);
  server.put("a", "longer");
  EXPECT_EQ(attributes(node)->attr.size, 6u);
}

TEST_F(Leased, WhatIsBeingChangedIsGoodOnce) {
  server.put("a", "x");
  server.being_changed = true;
  const EntryReply entry = lookup("a");
  EXPECT_EQ(entry.entry_lifetime, 0s);
  EXPECT_EQ(entry.attr_lifetime, 0s);
  (void)lookup("a");
  EXPECT_EQ(lookups(), 2u);
}

// By which the server knows that it is there, whatever holds up other pushes.
TEST_F(Leased, APushThatWantsNothingIsAnsweredAtOnce) {
  bool answered = false;
  filesystem->handle_pushed({}, [&answered] { answered = true; });
  EXPECT_TRUE(answered);
}

TEST_F(Leased, AnAnswerThatAPushOvertookIsNotKept) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  EXPECT_TRUE(take_back(push("handle1")));
  scheduler.advance(1ms);
  auto slow = new_answer<AttributesReply>();
  filesystem->attributes({}, node, into(slow));
  server.execute(0);
  server.put("a", "longer");
  scheduler.advance(1ms);
  EXPECT_TRUE(take_back(push("handle1")));
  server.deliver();
  EXPECT_EQ(finished(slow)->attr.size, 1u);
  EXPECT_EQ(attributes(node)->attr.size, 6u);
}

TEST_F(Leased, AlsoNotOfAFileThatWasNotKnownBefore) {
  server.put("a", "x");
  auto slow = new_answer<EntryReply>();
  filesystem->lookup({}, kRootNode, "a", into(slow));
  server.execute(0);
  server.put("a", "longer");
  scheduler.advance(1ms);
  EXPECT_TRUE(take_back(push("handle1")));
  server.deliver();
  const EntryReply entry = *finished(slow);
  EXPECT_EQ(entry.attr_lifetime, 0s);
  EXPECT_EQ(attributes(entry.node)->attr.size, 6u);
}

TEST_F(Leased, NorWhenALaterQuestionWasAnsweredBefore) {
  server.put("a", "x");
  const Handle directory = filesystem->open_directory({}, kRootNode)->handle;
  auto listed = new_answer<void>();
  filesystem->read_directory(
      {}, directory, 0, true, [](const DirectoryEntryOut&) { return true; }, into(listed));
  server.execute(0);
  scheduler.advance(1ms);
  EXPECT_TRUE(take_back(push("handle1")));
  scheduler.advance(1ms);
  server.being_changed = true;
  auto looked = new_answer<EntryReply>();
  filesystem->lookup({}, kRootNode, "a", into(looked));
  const EntryReply entry = *finished(looked);
  server.put("a", "longer");
  server.being_changed = false;
  server.deliver();
  EXPECT_TRUE(finished(listed));
  EXPECT_EQ(attributes(entry.node)->attr.size, 6u);
  filesystem->close_directory(directory);
}

TEST_F(Leased, NorANameThatAPushOvertook) {
  auto slow = new_answer<EntryReply>();
  filesystem->lookup({}, kRootNode, "a", into(slow));
  server.execute(0);
  server.put("a", "x");
  scheduler.advance(1ms);
  EXPECT_TRUE(take_back(push_name("a")));
  server.deliver();
  EXPECT_EQ(finished(slow)->entry_lifetime, 0s);
  EXPECT_NE(lookup("a").node, NodeId());
}

TEST_F(Leased, TwoMountsThatChangeOneDirectoryDoNotWaitForEachOther) {
  server.put("a", "x");
  (void)lookup("a");
  auto created = new_answer<CreateReply>();
  filesystem->create({}, kRootNode, "b", 0644, O_RDWR, into(created));
  bool answered = false;
  filesystem->handle_pushed(push_name("a"), [&] { answered = true; });
  EXPECT_TRUE(answered) << "the kernel holds the directory's lock until our own change is answered";
  EXPECT_TRUE(finished(created));
}

TEST_F(Leased, AChangeThatBeginsWhileThePushWaitsEndsItsWaiting) {
  server.put("a", "x");
  (void)lookup("a");
  bool answered = false;
  filesystem->handle_pushed(push_name("a"), [&] { answered = true; });
  EXPECT_FALSE(answered);
  auto created = new_answer<CreateReply>();
  filesystem->create({}, kRootNode, "b", 0644, O_RDWR, into(created));
  EXPECT_TRUE(answered);
  EXPECT_TRUE(finished(created));
}

TEST_F(Leased, TwoMountsThatAppendToOneFileDoNotWaitForEachOther) {
  server.put("a", "x");
  const Handle handle = open("a");
  const auto written = write(handle, 0, "more", true);
  bool answered = false;
  filesystem->handle_pushed(push("handle1", true), [&] { answered = true; });
  EXPECT_TRUE(answered) << "the kernel holds the page until the server has the bytes";
  EXPECT_EQ(*finished(written), 4u);
  close(handle);
}

TEST_F(Leased, ARaisedFloorEndsWhatWasToldBelowIt) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  schema::Request request;
  request.mutable_invalidate()->set_lease_floor(8);
  EXPECT_TRUE(take_back(request));
  server.lease = 8;
  (void)attributes(node);
  EXPECT_EQ(getattrs(), 1u);
  scheduler.advance(1min);
  (void)attributes(node);
  EXPECT_EQ(getattrs(), 1u);
}

TEST_F(Leased, AReconnectKeepsLeasesThatTheServerKept) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  schema::AttachReply attached = server.attached();
  attached.set_resumed(true);
  filesystem->handle_attached(attached);
  scheduler.advance(1min);
  (void)attributes(node);
  EXPECT_EQ(getattrs(), 0u);
  attached.set_lease_floor(8);
  filesystem->handle_attached(attached);
  (void)attributes(node);
  EXPECT_EQ(getattrs(), 1u);
}

TEST_F(Leased, AnotherServerProcessKeepsNone) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  scheduler.advance(1min);
  filesystem->handle_attached(server.attached());
  (void)attributes(node);
  EXPECT_EQ(getattrs(), 1u);
}

TEST_F(Leased, OurOwnChangesKeepTheLease) {
  filesystem->release(create("a"), false);
  settle();
  scheduler.advance(1min);
  EXPECT_EQ(lookup("a").node, last_node);
  EXPECT_EQ(lookups(), 0u);
}

TEST_F(Leased, AFileThatWeMovedIsKnownAsBefore) {
  server.put("a", "bytes");
  const NodeId node = lookup("a").node;
  const Handle file = open("a", O_RDONLY);
  EXPECT_EQ(read(file, 0, 5), "bytes");
  auto renamed = new_answer<void>();
  filesystem->rename({}, kRootNode, "a", kRootNode, "b", 0, into(renamed));
  EXPECT_TRUE(finished(renamed));
  const auto before = server.seen(schema::Request::kRead);
  (void)attributes(node);
  EXPECT_EQ(getattrs(), 0u);
  EXPECT_EQ(read(file, 0, 5), "bytes");
  EXPECT_EQ(server.seen(schema::Request::kRead), before);
}

TEST_F(Leased, AFileThatOthersChangedIsHereAtOnceAlsoForWhoHasItOpen) {
  server.put("a", "old");
  (void)list(kRootNode);
  close(open("a", O_RDONLY));
  const Handle before = open("a", O_RDONLY);
  EXPECT_EQ(read(before, 0, 100), "old");
  server.put("a", "newer");
  filesystem->handle_pushed(push_of_change(), [] {});
  settle();
  const auto opens = server.seen(schema::Request::kOpen);
  const auto reads = server.seen(schema::Request::kRead);
  EXPECT_EQ(read(before, 0, 100), "newer");
  const Handle after = open("a", O_RDONLY);
  EXPECT_EQ(read(after, 0, 100), "newer");
  EXPECT_EQ(server.seen(schema::Request::kOpen), opens);
  EXPECT_EQ(server.seen(schema::Request::kRead), reads);
}

// Each look would be told under a lease, and so bring the next push.
TEST_F(Leased, WhatNoProgramHasComeToIsNotFollowed) {
  server.put("a", "old");
  const Handle directory = filesystem->open_directory({}, kRootNode)->handle;
  (void)list(directory, false);  // names alone, of which the kernel remembers no inode
  server.put("a", "newer");
  EXPECT_TRUE(take_back(push_of_change()));
  EXPECT_EQ(getattrs(), 0u);
  EXPECT_EQ(read(open("a", O_RDONLY), 0, 100), "newer");
  filesystem->close_directory(directory);
}

TEST_F(Leased, WhoReadsAFileThatOthersChangedBeforeItIsHereWaitsForIt) {
  server.put("a", "old");
  (void)list(kRootNode);
  close(open("a", O_RDONLY));
  const Handle file = open("a", O_RDONLY);
  EXPECT_EQ(read(file, 0, 100), "old");
  server.put("a", "new");
  filesystem->handle_pushed(push_of_change(), [] {});
  scheduler.run();  // the kernel has dropped the pages
  const auto reads = server.seen(schema::Request::kRead);
  auto one = begin_read(file, 0, 100);
  auto two = begin_read(file, 1, 100);
  EXPECT_EQ(text_of(finished(one)), "new");
  EXPECT_EQ(text_of(finished(two)), "ew");
  EXPECT_EQ(server.seen(schema::Request::kRead), reads);
}

// The kernel drops pages behind the reads of them that it has begun: none of these may wait for what comes
// after the drop.
TEST_F(Leased, WhoWaitsForAFileDoesNotHoldUpThatItsPagesAreDropped) {
  server.put("a", "old");
  (void)list(kRootNode);
  close(open("a", O_RDONLY));
  const Handle file = open("a", O_RDONLY);
  EXPECT_EQ(read(file, 0, 100), "old");
  server.put("a", "new");
  scheduler.hold_notifications();
  filesystem->handle_pushed(push_of_change(), [] {});
  auto before_the_answer = begin_read(file, 0, 100);
  EXPECT_EQ(text_of(finished(before_the_answer)), "new");
  filesystem->handle_pushed(push(server.node_of("a").handle(), true), [] {});
  auto after_it = begin_read(file, 0, 100);
  EXPECT_EQ(text_of(finished(after_it)), "new");
  scheduler.let_notifications_go();
  settle();
}

// The kernel fills a page with zeros behind what it is told.
TEST_F(Leased, AReadOfNothingIsDroppedWhenOthersWriteThere) {
  server.put("a", "");
  (void)list(kRootNode);
  const Handle file = open("a", O_RDONLY);
  EXPECT_EQ(read(file, 0, 100), "");
  server.put("a", "new");
  kernel.inodes.clear();
  filesystem->handle_pushed(push(server.node_of("a").handle(), true), [] {});
  settle();
  EXPECT_THAT(kernel.inodes, testing::Contains(lookup("a").node));
}

// The answer with the new bytes is overtaken by the news that they are old.
TEST_F(Leased, BytesThatAPushOvertookAreNotReadByWhoHasTheFileOpen) {
  server.put("a", "one");
  (void)list(kRootNode);
  close(open("a", O_RDONLY));
  const Handle file = open("a", O_RDONLY);
  EXPECT_EQ(read(file, 0, 100), "one");
  const std::string handle = server.node_of("a").handle();
  server.put("a", "two");
  filesystem->handle_pushed(push_of_change(), [] {});
  const auto asked = server.waiting_kinds();
  const auto bytes = std::ranges::find(asked, schema::Request::kReadFiles);
  ASSERT_NE(bytes, asked.end());
  server.execute(static_cast<std::size_t>(bytes - asked.begin()));
  server.put("a", "six");
  scheduler.advance(std::chrono::milliseconds(1));
  filesystem->handle_pushed(push(handle, true), [] {});
  server.deliver();
  settle();
  EXPECT_EQ(read(file, 0, 100), "six");
}

TEST_F(Leased, NorThoseThatCameWithAnOpen) {
  server.put("a", "one");
  const NodeId node = lookup("a").node;
  const std::string handle = server.node_of("a").handle();
  scheduler.advance(1ms);
  auto opened = new_answer<OpenReply>();
  filesystem->open({}, node, O_RDONLY, into(opened));
  ASSERT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kOpen}));
  server.execute(0);
  server.put("a", "two");
  scheduler.advance(1ms);
  EXPECT_TRUE(take_back(push(handle, true)));
  scheduler.advance(1ms);
  EXPECT_TRUE(attributes(node)) << "somebody looks at it meanwhile";
  server.deliver();
  const Result<OpenReply> file = finished(opened);
  ASSERT_TRUE(file);
  EXPECT_FALSE(file->keep_cache);
  EXPECT_EQ(read(file->handle, 0, 100), "two");
  close(file->handle);
}

TEST_F(Leased, TheNextOpenBehindThatKnowsTheBytesAlsoBesideAReader) {
  server.put("a", "one");
  const Handle reader = open("a", O_RDWR);
  const NodeId node = lookup("a").node;
  const std::string handle = server.node_of("a").handle();
  server.put("a", std::string(2 * kBlockSize, 'x'));
  EXPECT_TRUE(take_back(push(handle, true)));
  scheduler.advance(1ms);
  EXPECT_TRUE(attributes(node));
  scheduler.advance(1ms);
  auto opened = new_answer<OpenReply>();
  filesystem->open({}, node, O_RDWR, into(opened));
  ASSERT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kOpen}));
  server.execute(0);
  scheduler.advance(1ms);
  EXPECT_EQ(read(reader, 0, kBlockSize), std::string(kBlockSize, 'x')) << "of the same, as far as he knows";
  server.deliver();
  EXPECT_TRUE(finished(opened));
  EXPECT_EQ(read(reader, 0, 2 * kBlockSize), std::string(2 * kBlockSize, 'x'));
  const std::uint64_t opens = server.seen(schema::Request::kOpen);
  close(open("a", O_RDONLY));
  EXPECT_EQ(server.seen(schema::Request::kOpen), opens) << "all of it is here and the file's";
}

TEST_F(Leased, APushOfTheAttributesAloneTakesNoBytesBack) {
  server.put("a", "one");
  const NodeId node = lookup("a").node;
  scheduler.advance(1ms);
  auto opened = new_answer<OpenReply>();
  filesystem->open({}, node, O_RDONLY, into(opened));
  ASSERT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kOpen}));
  server.execute(0);
  scheduler.advance(1ms);
  EXPECT_TRUE(take_back(push(server.node_of("a").handle())));
  server.deliver();
  const Result<OpenReply> file = finished(opened);
  ASSERT_TRUE(file);
  EXPECT_EQ(read(file->handle, 0, 100), "one");
  EXPECT_EQ(server.seen(schema::Request::kRead), 0u) << "they came with the open";
  close(file->handle);
}

class TwoWritesOnTheirWay : public Leased {
 protected:
  explicit TwoWritesOnTheirWay(std::uint64_t lease = 7) {
    server.lease = lease;
    server.put("a", std::string(2 * kBlockSize, '.'));
    file = open("a");
    node = lookup("a").node;
    write(file, 0, ours);
    EXPECT_EQ(server.waiting_kinds(), (std::vector(2, schema::Request::kWrite)));
    server.execute(0);
    server.execute(0);
    kernel.inodes.clear();
  }
  // The answer to the OPEN comes before those to the WRITEs.
  Handle open_before_they_are_answered() {
    auto opened = new_answer<OpenReply>();
    filesystem->open({}, node, O_RDWR, into(opened));
    server.answer();
    EXPECT_TRUE(opened->has_value() && **opened);
    server.deliver();
    server.deliver();
    return finished(opened)->handle;
  }
  // Others have written over what is on its way; whoever opens the file from now on sees that.
  void expect_others_bytes() {
    const Handle meanwhile = open_before_they_are_answered();
    EXPECT_TRUE(read(meanwhile, 0, others.size()) == others);
    EXPECT_THAT(kernel.inodes, testing::Contains(node)) << "its pages may have ours";
    close(meanwhile);
    const Handle later = open("a", O_RDONLY);
    EXPECT_TRUE(read(later, 0, others.size()) == others);
    close(later);
    close(file);
  }
  const std::string ours = std::string(2 * kBlockSize, 'o');
  const std::string others = std::string(2 * kBlockSize, 'x');
  Handle file;
  NodeId node;
};

class TwoWritesWithoutLease : public TwoWritesOnTheirWay {
 protected:
  TwoWritesWithoutLease() : TwoWritesOnTheirWay(0) {}
};

TEST_F(TwoWritesOnTheirWay, WhoOpensTheFileMeanwhileTakesNothingFromIt) {
  const Handle meanwhile = open_before_they_are_answered();
  EXPECT_EQ(read(meanwhile, 0, ours.size()), ours);
  EXPECT_EQ(server.seen(schema::Request::kRead), 0u);
  EXPECT_TRUE(kernel.inodes.empty());
  close(meanwhile);
  close(file);
}

TEST_F(TwoWritesOnTheirWay, TheKernelDropsWhatSomebodyElseChangedMeanwhileOnceBothAreAnswered) {
  EXPECT_TRUE(take_back(push(server.node_of("a").handle(), true)));
  kernel.inodes.clear();
  server.deliver();
  scheduler.run();
  EXPECT_TRUE(kernel.inodes.empty());
  server.deliver();
  scheduler.run();
  EXPECT_EQ(kernel.inodes, std::vector{node});
  close(file);
}

TEST_F(TwoWritesOnTheirWay, WhatOthersWroteOverThemWhenChangesWereMissedIsSeenByWhoOpensTheFile) {
  server.put("a", others);
  server.lease = 8;
  schema::Request request;
  request.mutable_invalidate()->set_lease_floor(8);
  EXPECT_TRUE(take_back(request));
  scheduler.advance(1ms);
  expect_others_bytes();
}

TEST_F(TwoWritesWithoutLease, WhatOthersWroteOverThemIsSeenByWhoOpensTheFile) {
  server.put("a", others);
  expect_others_bytes();
}

TEST_F(Leased, NorOursThatOthersHaveWrittenOverBeforeWeWereTold) {
  server.put("a", "......");
  const Handle file = open("a");
  EXPECT_EQ(read(file, 0, 100), "......");
  const std::string handle = server.node_of("a").handle();
  write(file, 0, "ours!!");
  scheduler.advance(WriteBehind::kDirtyAge);
  ASSERT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kWrite}));
  server.execute(0);
  server.put("a", "theirs");
  scheduler.advance(1ms);
  EXPECT_TRUE(take_back(push(handle, true)));
  EXPECT_EQ(read(file, 0, 100), "ours!!") << "as far as anybody here knows";
  kernel.inodes.clear();
  server.deliver();
  EXPECT_EQ(read(file, 0, 100), "theirs");
  EXPECT_THAT(kernel.inodes, testing::Contains(lookup("a").node)) << "which was shown ours meanwhile";
  close(file);
}

TEST_F(Leased, NorThoseOfAnAppend) {
  server.put("a", "one.");
  const Handle file = open("a", O_RDWR | O_APPEND);
  const std::string handle = server.node_of("a").handle();
  scheduler.advance(1ms);
  const auto appended = write(file, 4, "two.", true);
  server.execute(0);
  server.put("a", "one.TWO.");
  scheduler.advance(1ms);
  EXPECT_TRUE(take_back(push(handle, true)));
  server.deliver();
  EXPECT_EQ(*finished(appended), 4u);
  EXPECT_EQ(read(file, 0, 100), "one.TWO.");
  close(file);
}

TEST_F(Leased, WhoAsksForItKnowsWhetherAFileIsCovered) {
  EXPECT_EQ(filesystem->coherence(), "leases (fanotify)");
  server.put("a", "x");
  const std::size_t before = filesystem->leases_held();
  (void)lookup("a");
  EXPECT_EQ(filesystem->leases_held(), before + 1);
}

TEST(TakenBack, RemembersWhatItCannotListAsEverything) {
  TakenBack taken;
  const TimePoint start{1h};
  taken.note("a", start);
  EXPECT_TRUE(taken.since("a", start));
  EXPECT_FALSE(taken.since("a", start + 1ms));
  EXPECT_FALSE(taken.since("b", start));
  for (std::size_t i = 0; i < TakenBack::kRememberedMax; ++i) taken.note(std::to_string(i), start + 1s);
  EXPECT_TRUE(taken.since("b", start)) << "who knows";
  EXPECT_FALSE(taken.since("b", start + 500ms));
}

}  // namespace
}  // namespace tusk::client

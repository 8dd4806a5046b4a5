// What the kernel may use without asking, and that all of it is called back in time.
#include "leased.h"

namespace tusk::client {
namespace {

using namespace std::chrono_literals;

class Lent : public Leased {
 protected:
  // The attributes in a listing; nothing for a name without.
  std::map<std::string, EntryReply> listed() {
    std::map<std::string, EntryReply> entries;
    const Handle directory = filesystem->open_directory({}, kRootNode)->handle;
    std::uint64_t next = 0;
    for (bool more = true; more;) {
      more = false;
      auto answer = new_answer<void>();
      filesystem->read_directory(
          {}, directory, next, true,
          [&](const DirectoryEntryOut& out) {
            if (out.attributes) entries.emplace(out.name, *out.attributes);
            next = out.next;
            return more = true;
          },
          into(answer));
      EXPECT_TRUE(finished(answer));
    }
    filesystem->close_directory(directory);
    return entries;
  }
  static schema::Request push_all_names() {
    schema::Request request = push("root");
    request.mutable_invalidate()->mutable_items(0)->set_entries(true);
    return request;
  }
  [[nodiscard]] bool called_back(NodeId node) const {
    return std::ranges::find(kernel.attributes, node) != kernel.attributes.end();
  }
  void go_by(Duration time) {
    scheduler.advance(time);
    settle();
  }
};

TEST_F(Lent, ItStaysLentAsLongAsTheServerIsHeard) {
  server.put("a", "x");
  (void)lookup("a");
  for (int i = 0; i < 100; ++i) go_by(3s);
  EXPECT_THAT(kernel.attributes, testing::IsEmpty());
  EXPECT_THAT(kernel.entries, testing::IsEmpty());
}

TEST_F(Lent, ItIsCalledBackBeforeTheLeaseEnds) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  go_by(2s);  // the attach tells of it without a lease
  EXPECT_EQ(attributes(kRootNode)->lifetime, Loans::kLoan);
  lose_contact();
  go_by(7s);
  EXPECT_FALSE(called_back(node)) << "a lost packet or two are nothing";
  go_by(1s);
  EXPECT_THAT(kernel.attributes, testing::ElementsAre(kRootNode, node)) << "first the way to it";
  EXPECT_LE(attributes(node)->lifetime, 2s) << "and is not lent again";
}

TEST_F(Lent, OnceTheServerIsHeardAgainItIsLentAgainAndWatched) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  lose_contact();
  go_by(8s);
  heard = true;
  EXPECT_EQ(attributes(node)->lifetime, Loans::kLoan);
  lose_contact();
  kernel.attributes.clear();
  go_by(8s);
  EXPECT_TRUE(called_back(node));
}

TEST_F(Lent, WithoutLeasesNothingIs) {
  server.lease = 0;
  server.put("a", "x");
  const EntryReply entry = lookup("a");
  EXPECT_EQ(entry.entry_lifetime, 1s);
  EXPECT_EQ(entry.attr_lifetime, 1s);
}

// The kernel takes them in whatever it was told meanwhile.
TEST_F(Lent, AttributesInAnswersToChangesAreNot) {
  auto made = new_answer<CreateReply>();
  filesystem->create({}, kRootNode, "a", 0644, O_RDWR, into(made));
  const CreateReply created = *finished(made);
  EXPECT_EQ(created.entry.entry_lifetime, Loans::kLoan);
  EXPECT_LE(created.entry.attr_lifetime, Loans::kUnsettled);
  go_by(1min);
  auto changed = new_answer<AttributesReply>();
  filesystem->set_attributes({}, created.entry.node, std::nullopt, {.mode = 0600}, into(changed));
  EXPECT_LE(finished(changed)->lifetime, Loans::kUnsettled);
  filesystem->release(created.open.handle, false);
}

TEST_F(Lent, WhatIsBeingWrittenIsNot) {
  server.put("a", "x");
  const Handle file = open("a");
  const NodeId node = lookup("a").node;
  go_by(2s);
  EXPECT_EQ(attributes(node)->lifetime, Loans::kLoan);
  auto written = write(file, 0, "more");
  EXPECT_LE(attributes(node)->lifetime, Loans::kUnsettled);
  EXPECT_TRUE(finished(written));
  close(file);
  EXPECT_TRUE(called_back(node)) << "its times are the server's now";
  go_by(2s);
  EXPECT_EQ(attributes(node)->lifetime, Loans::kLoan);
}

TEST_F(Lent, WhatWeChangeIsCalledBack) {
  server.put("a", "x");
  go_by(2s);
  EXPECT_EQ(attributes(kRootNode)->lifetime, Loans::kLoan);
  filesystem->release(create("b"), false);
  settle();
  EXPECT_TRUE(called_back(kRootNode));
  kernel.attributes.clear();
  filesystem->release(create("c"), false);
  settle();
  EXPECT_FALSE(called_back(kRootNode)) << "it has not been lent again";
}

// ---------------------------------------------------------------- answers that are on their way

TEST_F(Lent, APushIsAnsweredOnceTheKernelHasTakenInAndDroppedWhatItWasTold) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  kernel.unknown.insert(node);
  bool answered = false;
  filesystem->handle_pushed(push("handle1"), [&answered] { answered = true; });
  settle();
  go_by(5ms);
  EXPECT_FALSE(answered) << "the kernel may be about to take in what was true before";
  kernel.unknown.clear();
  kernel.attributes.clear();
  go_by(10ms);
  EXPECT_TRUE(answered);
  EXPECT_THAT(kernel.attributes, testing::ElementsAre(node));
  go_by(10s);
  EXPECT_THAT(kernel.attributes, testing::ElementsAre(node));
}

TEST_F(Lent, WhatTheKernelHasForgottenIsNotWaitedFor) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  kernel.unknown.insert(node);
  filesystem->forget(node, 1);
  EXPECT_TRUE(take_back(push("handle1")));
}

TEST_F(Lent, NorAnythingForLong) {
  server.put("a", "x");
  kernel.unknown.insert(lookup("a").node);
  bool answered = false;
  filesystem->handle_pushed(push("handle1"), [&answered] { answered = true; });
  for (int i = 0; i < 20; ++i) go_by(150ms);
  EXPECT_TRUE(answered);
}

TEST_F(Lent, AllOfItWhenTheFloorRises) {
  server.put("a", "x");
  const NodeId node = lookup("a").node;
  kernel.unknown.insert(node);
  schema::Request request;
  request.mutable_invalidate()->set_lease_floor(8);
  bool answered = false;
  filesystem->handle_pushed(request, [&answered] { answered = true; });
  settle();
  EXPECT_FALSE(answered);
  kernel.unknown.clear();
  go_by(10ms);
  EXPECT_TRUE(answered);
  EXPECT_THAT(kernel.entries, testing::ElementsAre("a"));
}

// ---------------------------------------------------------------- listings

TEST_F(Lent, AListingTellsOnlyWhatTheKernelDoesNotHave) {
  server.put("a", "x");
  server.put("b", "x");
  EXPECT_EQ(listed().at("a").attr_lifetime, Loans::kLoan);
  (void)attributes(kRootNode);
  EXPECT_THAT(listed(), testing::IsEmpty());
  filesystem->forget(lookup("b").node, 2);
  EXPECT_THAT(listed(), testing::ElementsAre(testing::Key("b")));
  EXPECT_TRUE(take_back(push(server.node_of("a").handle())));
  (void)attributes(lookup("a").node);
  go_by(2s);
  EXPECT_EQ(attributes(lookup("a").node)->lifetime, Loans::kLoan);
  EXPECT_THAT(listed(), testing::IsEmpty());
  go_by(Loans::kLoan - Loans::kRest + 1s);
  EXPECT_EQ(listed().size(), 2u) << "it would not have it for long";
}

// A kernel short of memory asks for the listing again: told the files' attributes, it would forget their
// ACLs.
TEST_F(Lent, AListingWhosePagesTheKernelDroppedLeavesItTheFilesForTheRestOfTheLoan) {
  server.put("a", "x");
  EXPECT_EQ(listed().size(), 1u);
  go_by(Loans::kLoan - Loans::kRest - 1s);
  EXPECT_THAT(listed(), testing::IsEmpty());
}

// The kernel asks nobody when somebody begins again to read a directory that he has open.
class LentListings : public Lent {
 protected:
  Handle read_root() {
    const Handle directory = filesystem->open_directory({}, kRootNode)->handle;
    (void)Client::list(directory, true);
    return directory;
  }
  [[nodiscard]] bool dropped() const {
    return std::ranges::find(kernel.inodes, kRootNode) != kernel.inodes.end();
  }
};

TEST_F(LentListings, AreCalledBackWithTheNamesAlsoWhenThereAreNone) {
  const Handle directory = read_root();
  EXPECT_TRUE(take_back(push("root")));
  EXPECT_FALSE(dropped()) << "no name has changed";
  EXPECT_TRUE(take_back(push_all_names()));
  EXPECT_TRUE(dropped());
  filesystem->close_directory(directory);
}

TEST_F(LentListings, AreCalledBackWhenAllLeasesAreAlsoWhenThereAreNoNames) {
  const Handle directory = read_root();
  schema::Request request;
  request.mutable_invalidate()->set_lease_floor(8);
  EXPECT_TRUE(take_back(request));
  EXPECT_TRUE(dropped());
  filesystem->close_directory(directory);
}

TEST_F(LentListings, AreCalledBackBeforeTheLeaseEnds) {
  server.put("a", "x");
  const Handle directory = read_root();
  lose_contact();
  go_by(7s);
  EXPECT_FALSE(dropped());
  go_by(1s);
  EXPECT_TRUE(dropped());
  kernel.inodes.clear();
  (void)Client::list(directory, true);
  EXPECT_TRUE(dropped()) << "nobody would call it back again";
  filesystem->close_directory(directory);
}

TEST_F(LentListings, AreWatchedAlsoWhereNothingElseIsLent) {
  const Handle directory = read_root();
  lose_contact();
  go_by(8s);
  heard = true;
  (void)Client::list(directory, false);
  kernel.inodes.clear();
  lose_contact();
  go_by(8s);
  EXPECT_TRUE(dropped());
  filesystem->close_directory(directory);
}

TEST_F(LentListings, OfWhatIsBeingChangedAreNotLeftThere) {
  server.put("a", "x");
  server.being_changed = true;
  const Handle directory = read_root();
  EXPECT_TRUE(dropped());
  kernel.inodes.clear();
  server.being_changed = false;
  (void)Client::list(directory, true);
  EXPECT_FALSE(dropped());
  filesystem->close_directory(directory);
}

// ---------------------------------------------------------------- names that are forgotten here

TEST_F(Lent, NamesThatAListingDoesNotTellAnyMoreAreCalledBack) {
  server.put("a", "x");
  server.put("b", "x");
  (void)list(kRootNode);
  server.erase("a");
  filesystem->release(create("c"), false);  // so that it is listed anew
  settle();
  (void)list(kRootNode);
  EXPECT_THAT(kernel.entries, testing::ElementsAre("a"));
}

TEST_F(Lent, ANameIsCalledBackWithAllAlsoAfterAChangeOfItThatFailed) {
  server.put("a", "x");
  (void)lookup("a");
  server.fault = [](const schema::Request& request) -> std::optional<Error> {
    if (request.has_remove()) return Error{from_errno(EACCES), "no"};
    return std::nullopt;
  };
  auto removed = new_answer<void>();
  filesystem->remove({}, kRootNode, "a", false, into(removed));
  EXPECT_FALSE(finished(removed));
  server.fault = nullptr;
  EXPECT_TRUE(take_back(push_all_names()));
  EXPECT_THAT(kernel.entries, testing::ElementsAre("a"));
}

TEST_F(Lent, ANewNameThatAPushOvertookIsNot) {
  auto made = new_answer<CreateReply>();
  filesystem->create({}, kRootNode, "a", 0644, O_RDWR, into(made));
  server.execute(0);
  scheduler.advance(1ms);
  filesystem->handle_pushed(push_name("a"), [] {});
  server.deliver();
  const CreateReply created = *finished(made);
  EXPECT_EQ(created.entry.entry_lifetime, 0s);
  filesystem->release(created.open.handle, false);
}

}  // namespace
}  // namespace tusk::client

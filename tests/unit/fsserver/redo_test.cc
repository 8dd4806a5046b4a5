// Changes that come again after a power cut, each of which may have reached the disk: docs/PROTOCOL.md,
// "Stable or kept".
#include <sys/xattr.h>

#include <thread>

#include "log_of.h"

namespace tusk::server {
namespace {

using testing::ElementsAre;

constexpr std::uint64_t kMadeAt = 1'700'000'000'123'456'789;

class Redoes : public testing::Test {
 protected:
  TempDir dir;
  Server server{dir.path()};
  Mount mount{server};
  const std::string root = mount.root();

  // A redo of one LOG; each is another one than before.
  struct Again {
    LogOf log{1};
    Again& make(std::uint64_t alias, const std::string& parent, std::string_view name, const std::string& was,
                unsigned mode = S_IFREG | 0644) {
      log.make_node(alias, parent, name, mode);
      schema::Request& entry = *log.log().mutable_entries(log.log().entries_size() - 1);
      entry.set_node(was);
      entry.set_made_at_ns(kMadeAt);
      return *this;
    }
    Again& remove(const std::string& parent, std::string_view name, const std::string& node) {
      log.remove(parent, name);
      log.log().mutable_entries(log.log().entries_size() - 1)->set_node(node);
      return *this;
    }
    Again& link(const std::string& node, const std::string& parent, std::string_view name) {
      schema::LinkRequest& link = *log.log().add_entries()->mutable_link();
      link.set_handle(node);
      link.set_new_parent(parent);
      link.set_new_name(std::string(name));
      return *this;
    }
  };
  std::vector<ErrorCode> send(Again& again) {
    again.log.log().set_redo(++redo_);
    answer_ = again.log.send(mount);
    EXPECT_EQ(answer_.reply.write_verifier(), mount.attached().write_verifier());
    return errors_of(answer_);
  }
  [[nodiscard]] std::string handle_of(int entry) const {
    return answer_.reply.log().replies(entry).node().node().handle();
  }
  // A handle of a node that the disk has lost.
  std::string lost() {
    EXPECT_OK(mount.create(root, "lost"));
    std::string handle = mount.handle("lost");
    std::filesystem::remove(dir / "lost");
    server.housekeep_after(1h);
    return handle;
  }
  // The server begins to serve after everything that was done until now.
  void restart() {
    mount.disconnect();
    std::this_thread::sleep_for(15ms);  // ctimes are coarse
    next_ = std::make_unique<Server>(dir.path());
    mount_ = std::make_unique<Mount>(*next_);
  }

  std::uint64_t redo_ = 0;
  Answer answer_;
  std::unique_ptr<Server> next_;
  std::unique_ptr<Mount> mount_;
};

TEST_F(Redoes, WhatIsThereIsNotMadeTwice) {
  EXPECT_OK(mount.create(root, "a"));
  const std::string a = mount.handle("a");
  EXPECT_OK(mount.rename(root, "a", root, "b"));
  Again again;
  again.make(1, root, "a", a);
  EXPECT_THAT(send(again), ElementsAre(kDone));
  EXPECT_EQ(handle_of(0), a);
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
}

TEST_F(Redoes, WhatWasLostIsMadeAndWritten) {
  Again again;
  again.make(1, root, "d", lost(), S_IFDIR | 0755).make(2, handle_of_alias(1), "f", lost());
  again.log.write(handle_of_alias(2), 0, "bytes", kMadeAt);
  EXPECT_THAT(send(again), ElementsAre(kDone, kDone, kDone));
  EXPECT_EQ(read_file(dir / "d" / "f"), "bytes");
  Again once_more;  // the redo was begun anew
  once_more.make(1, root, "d", lost(), S_IFDIR | 0755).make(2, handle_of_alias(1), "f", lost());
  once_more.log.write(handle_of_alias(2), 0, "bytes", kMadeAt);
  EXPECT_THAT(send(once_more), ElementsAre(kDone, kDone, kDone));
  EXPECT_EQ(read_file(dir / "d" / "f"), "bytes");
}

TEST_F(Redoes, AnotherFileOfTheNameStaysAsItIs) {
  write_file(dir / "a", "somebody else's");
  const std::string other = mount.handle("a");
  const std::string was = lost();
  Again again;
  again.make(1, root, "a", was).remove(root, "a", was);
  again.log.rename(root, "a", "b", was);
  again.link(was, root, "a");
  EXPECT_THAT(send(again), ElementsAre(err(ECANCELED), err(ECANCELED), kDone, err(ESTALE)));
  EXPECT_EQ(mount.handle("a"), other);
  EXPECT_EQ(read_file(dir / "a"), "somebody else's");
}

TEST_F(Redoes, NamesThatAreAsTheyShouldBeAreNoErrors) {
  EXPECT_OK(mount.create(root, "b"));
  const std::string b = mount.handle("b");
  EXPECT_OK(mount.link(b, root, "c"));
  const std::string gone = lost();
  Again again;
  again.link(b, root, "c").remove(root, "gone", gone);
  again.log.rename(root, "a", "b", b).rename(root, "x", "y", gone);
  EXPECT_THAT(send(again), ElementsAre(kDone, kDone, kDone, kDone));
}

TEST_F(Redoes, ARenameReplacesOnlyWhatItReplaced) {
  for (const char* name : {"a", "b", "c"}) EXPECT_OK(mount.create(root, name));
  const std::string a = mount.handle("a"), b = mount.handle("b");
  Again again;
  again.log.rename(root, "a", "c", a, b);
  EXPECT_THAT(send(again), ElementsAre(err(ECANCELED)));
  Again right;
  right.log.rename(root, "a", "b", a, b);
  EXPECT_THAT(send(right), ElementsAre(kDone));
  EXPECT_EQ(mount.handle("b"), a);
  EXPECT_THAT(send(right), ElementsAre(kDone));
}

TEST_F(Redoes, ALinkThatWasMovedBeforeIsNotThereTwice) {
  EXPECT_OK(mount.create(root, "a"));
  const std::string a = mount.handle("a");
  EXPECT_OK(mount.link(a, root, "moved"));
  Again again;
  again.link(a, root, "link");
  again.log.rename(root, "link", "moved", a);
  EXPECT_THAT(send(again), ElementsAre(kDone, kDone));
  EXPECT_FALSE(std::filesystem::exists(dir / "link"));
  EXPECT_EQ(mount.handle("moved"), a);
  EXPECT_EQ(mount.handle("a"), a);
}

TEST_F(Redoes, AFileThatWasReplacedLaterDoesNotStayBehind) {
  EXPECT_OK(mount.create(root, "good"));  // the latest, which has replaced it
  const std::string latest = mount.handle("good");
  Again again;
  again.make(1, root, "tmp", lost());
  again.log.rename(root, "tmp", "good", handle_of_alias(1), lost());
  again.log.log().mutable_entries(1)->set_node(handle_of_alias(1));
  EXPECT_THAT(send(again), ElementsAre(kDone, kDone));
  EXPECT_FALSE(std::filesystem::exists(dir / "tmp"));
  EXPECT_EQ(mount.handle("good"), latest);
}

// "tmp" was moved to "good" and on to "last", and all of that is on the disk; what it replaced had been lost.
TEST_F(Redoes, AFileThatWasReplacedThenDoesNotComeBack) {
  for (const bool removed_later : {false, true}) {
    EXPECT_OK(mount.create(root, "last"));
    const std::string moved = mount.handle("last");
    if (removed_later) std::filesystem::remove(dir / "last");
    Again again;
    again.make(1, root, "good", lost());
    again.log.rename(root, "tmp", "good", moved, handle_of_alias(1));
    if (removed_later) again.log.log().mutable_entries(1)->set_node(moved);
    EXPECT_THAT(send(again), ElementsAre(kDone, kDone));
    EXPECT_FALSE(std::filesystem::exists(dir / "good"));
    std::filesystem::remove(dir / "last");
  }
}

// The moved file is lost: the replaced one is all there is.
TEST_F(Redoes, AFileStaysWhereWhatReplacedItIsLost) {
  EXPECT_OK(mount.create(root, "good"));
  const std::string good = mount.handle("good");
  Again again;
  again.log.rename(root, "tmp", "good", lost(), good);
  EXPECT_THAT(send(again), ElementsAre(kDone));
  EXPECT_EQ(mount.handle("good"), good);
}

TEST_F(Redoes, AFileThatSomebodyElseHasChangedSinceIsNotChanged) {
  write_file(dir / "mine", "before");
  write_file(dir / "theirs", "before");
  restart();
  Mount& again = *mount_;
  std::this_thread::sleep_for(15ms);
  write_file(dir / "theirs", "after");
  LogOf log(1);
  log.log().set_redo(1);
  log.write(again.handle("mine"), 0, "redone").write(again.handle("theirs"), 0, "redone");
  log.write(again.handle("mine"), 0, "again!");
  EXPECT_THAT(errors_of(log.send(again)), ElementsAre(kDone, err(ECANCELED), kDone));
  EXPECT_EQ(read_file(dir / "mine"), "again!");
  EXPECT_EQ(read_file(dir / "theirs"), "after");
}

// What an entry for its names does to the file is not taken for what made it the redo's own.
TEST_F(Redoes, NorIsItBehindEntriesForItsNames) {
  write_file(dir / "theirs", "before");
  restart();
  std::this_thread::sleep_for(15ms);
  write_file(dir / "theirs", "after");
  const std::string theirs = mount_->handle("theirs");
  Again again;
  again.log.log().set_redo(1);
  again.link(theirs, root, "link");
  again.log.rename(root, "link", "moved", theirs);
  again.log.write(theirs, 0, "redone");
  EXPECT_THAT(errors_of(again.log.send(*mount_)), ElementsAre(kDone, kDone, err(ECANCELED)));
  EXPECT_EQ(read_file(dir / "theirs"), "after");
}

TEST(RedoVisits, AreBoundedAndTheFirstWordStays) {
  LogStream::Visited visited;
  for (std::size_t i = 0; i < LogStream::Visited::kMax + 1000; ++i)
    visited.note(std::to_string(i), i % 2 == 0);
  EXPECT_EQ(visited.size(), LogStream::Visited::kMax);
  visited.note("0", false);
  EXPECT_EQ(visited.changed_by_others("0"), true);
  EXPECT_EQ(visited.changed_by_others("1"), false);
  EXPECT_EQ(visited.changed_by_others(std::to_string(LogStream::Visited::kMax)), std::nullopt);
}

TEST_F(Redoes, OneThatWasBegunAnewEndsTheOneBefore) {
  LogOf second(2);
  second.log().set_redo(1);
  const auto early = second.create(0, root, "a").start(mount);
  EXPECT_FALSE(early->answered());
  Again again;
  redo_ = 1;
  again.make(1, root, "b", lost());
  EXPECT_THAT(send(again), ElementsAre(kDone));
  LogOf late(1);
  late.log().set_redo(1);
  EXPECT_ERROR(late.create(0, root, "c").send(mount), ErrorCode::kCancelled);
}

TEST_F(Redoes, TheOtherLogGoesOnBesideIt) {
  EXPECT_OK(LogOf(1).create(1, root, "a").send(mount));
  Again again;
  again.make(9, root, "b", lost());
  EXPECT_THAT(send(again), ElementsAre(kDone));
  EXPECT_THAT(errors_of(LogOf(2).write(handle_of_alias(1), 0, "x").send(mount)), ElementsAre(kDone));
}

TEST_F(Redoes, NewLogsHoldNoLinks) {
  Again again;
  again.link(mount.root(), root, "l");
  EXPECT_ERROR(again.log.send(mount), ErrorCode::kMalformed);
}

TEST_F(Redoes, ACommitOfAllIsForWhoMayChange) {
  schema::Request all;
  all.mutable_commit()->set_all(true);
  const Answer answer = EXPECT_OK(mount.call(all));
  EXPECT_EQ(answer.reply.write_verifier(), mount.attached().write_verifier());
  EXPECT_NE(answer.reply.write_verifier(), 0u);
  Mount reader(server, {.session = std::string(kSessionIdBytes, 'r'), .read_only = true});
  EXPECT_ERROR(reader.call(all), err(EROFS));
}

TEST_F(Redoes, ChangesTellTheVerifier) {
  EXPECT_EQ(EXPECT_OK(mount.create(root, "a")).reply.write_verifier(), mount.attached().write_verifier());
  EXPECT_EQ(EXPECT_OK(mount.lookup(root, "a")).reply.write_verifier(), 0u);
}

}  // namespace
}  // namespace tusk::server

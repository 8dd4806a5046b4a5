// The server's machine loses its power: what programs were told is done is done in the end, or they are told.
#include <linux/falloc.h>

#include "client.h"

namespace tusk::client {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

class PowerCut : public Client {
 protected:
  PowerCut() : PowerCut(Filesystem::Options{}) {}
  explicit PowerCut(Filesystem::Options options) : Client(std::move(options)) {
    server.reach_disk();
    server.show_commits = true;
  }

  void cut() {
    server.cut_power();
    (void)reattach(server.attached());
  }
  void rename(const std::string& from, const std::string& to) {
    (void)lookup(from);
    (void)lookup(to);
    auto answer = new_answer<void>();
    filesystem->rename({}, kRootNode, from, kRootNode, to, 0, into(answer));
    EXPECT_TRUE(finished(answer));
  }
  void remove(const std::string& name) {
    (void)lookup(name);
    auto answer = new_answer<void>();
    filesystem->remove({}, kRootNode, name, false, into(answer));
    EXPECT_TRUE(finished(answer));
  }
  void set(const std::string& name, NewAttributes changes) {
    auto answer = new_answer<AttributesReply>();
    filesystem->set_attributes({}, lookup(name).node, std::nullopt, changes, into(answer));
    EXPECT_TRUE(finished(answer));
  }
  void put(const std::string& name, ByteCount offset, const std::string& bytes) {
    const Handle file = create(name);
    write(file, offset, bytes);
    close(file);
  }
  Result<void> sync_root() {
    const Handle directory = filesystem->open_directory({}, kRootNode)->handle;
    const Result<void> synced = sync_directory(directory);
    filesystem->close_directory(directory);
    return synced;
  }
  Result<void> sync_directory(Handle directory) {
    auto answer = new_answer<void>();
    filesystem->sync_directory({}, directory, into(answer));
    return finished(answer);
  }
  void refuse(schema::Request::OperationCase kind) {
    server.fault = [kind](const schema::Request& request) -> std::optional<Error> {
      if (request.operation_case() == kind) return Error{from_errno(ENOSPC), "full"};
      return std::nullopt;
    };
  }
};

TEST_F(PowerCut, BytesOfAClosedFileAreSentAgain) {
  const std::string content = pattern(3 * kBlockSize + 1000);
  put("a", 0, content);
  cut();
  settle();
  EXPECT_EQ(server.content("a"), content);
  EXPECT_EQ(filesystem->untold_failures().count, 0u);
}

TEST_F(PowerCut, FsyncAfterItAnswersForBytesThatAreThere) {
  const Handle file = create("a");
  write(file, 0, "not lost");
  EXPECT_TRUE(flush(file));
  cut();
  EXPECT_TRUE(sync(file));
  EXPECT_EQ(server.content("a"), "not lost");
  server.cut_power();  // and they are on the disk
  EXPECT_EQ(server.content("a"), "not lost");
}

TEST_F(PowerCut, FsyncOfADirectoryAfterItAnswersForItsNames) {
  put("a", 0, "x");
  rename("a", "b");
  cut();
  EXPECT_TRUE(sync_root());
  server.cut_power();
  EXPECT_TRUE(server.has("b"));
  EXPECT_FALSE(server.has("a"));
}

TEST_F(PowerCut, AFileThatIsMadeAgainGoesOn) {
  const Handle file = create("a");
  write(file, 0, "before");
  EXPECT_TRUE(flush(file));
  const auto number = attributes(last_node)->attr.ino;
  cut();
  settle();
  write(file, 6, " after");
  EXPECT_TRUE(sync(file));
  EXPECT_EQ(server.content("a"), "before after");
  EXPECT_EQ(attributes(last_node)->attr.ino, number);
}

TEST_F(PowerCut, WhatWasOnItsWayGoesBehindWhatWasAnswered) {
  const Handle file = create("a");
  write(file, 0, "old old old");
  EXPECT_TRUE(flush(file));
  write(file, 0, "new");
  const auto flushed = begin_flush(file);
  ASSERT_EQ(server.waiting_kinds(), std::vector{schema::Request::kWrite});
  cut();
  EXPECT_EQ(server.held(), 1u);
  scheduler.run();
  EXPECT_EQ(server.waiting_kinds(), std::vector{schema::Request::kLog});
  settle();
  EXPECT_TRUE(flushed->value());
  EXPECT_EQ(server.content("a"), "new old old");
}

TEST_F(PowerCut, WhatIsCommittedIsNotSentAgain) {
  put("a", 0, "x");
  scheduler.advance(Committer::kAge);
  EXPECT_EQ(server.waiting_kinds(), std::vector{schema::Request::kCommit});
  settle();
  cut();
  settle();
  EXPECT_EQ(server.seen(schema::Request::kLog), 0u);
  EXPECT_EQ(server.content("a"), "x");
}

TEST_F(PowerCut, ARestartOfTheProcessAloneCostsNothing) {
  put("a", 0, "x");
  (void)reattach(server.attached());
  settle();
  EXPECT_EQ(server.seen(schema::Request::kLog), 0u);
  EXPECT_EQ(server.held(), 0u);
}

TEST_F(PowerCut, AnotherOneWhileChangesAreMadeAgain) {
  put("a", 0, "first");
  put("b", 0, "second");
  cut();
  scheduler.run();
  server.execute(0);  // and its answer is lost
  server.drop_calls();
  cut();
  settle();
  EXPECT_EQ(server.content("a"), "first");
  EXPECT_EQ(server.content("b"), "second");
}

TEST_F(PowerCut, ARestartOfTheProcessWhileChangesAreMadeAgain) {
  const std::string content = pattern(3 * kBlockSize);  // more than one LOG
  put("a", 0, content);
  cut();
  scheduler.run();
  ASSERT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kLog, schema::Request::kLog}));
  server.answer();
  server.drop_calls();
  (void)reattach(server.attached());
  settle();
  EXPECT_EQ(server.content("a"), content);
  EXPECT_EQ(filesystem->untold_failures().count, 0u) << filesystem->untold_failures().last;
}

TEST_F(PowerCut, AnotherOneBehindARestartOfTheProcess) {
  const std::string content = pattern(3 * kBlockSize);
  put("a", 0, content);
  for (const bool machine : {true, false, true, false}) {
    if (machine) server.cut_power();
    (void)reattach(server.attached());
    scheduler.run();
    server.answer();
    server.drop_calls();
  }
  (void)reattach(server.attached());
  settle();
  EXPECT_EQ(server.content("a"), content);
  EXPECT_EQ(filesystem->untold_failures().count, 0u) << filesystem->untold_failures().last;
  const Handle file = open("a");
  write(file, 0, "goes on");
  EXPECT_TRUE(sync(file));
}

TEST_F(PowerCut, AMountThatEndsMeanwhileIsNotHeldUp) {
  put("a", 0, "x");
  cut();
  server.closed = true;
  scheduler.run();
  EXPECT_EQ(server.waiting().size(), 0u);
}

TEST_F(PowerCut, AttributesOfADirectoryThatCannotBeSetAgainAreToldByItsFsync) {
  server.put_directory("d");
  server.reach_disk();
  const Handle directory = filesystem->open_directory({}, lookup("d").node)->handle;
  set("d", {.mtime = NewTime(timespec{77, 0})});
  refuse(schema::Request::kSetattr);
  cut();
  settle();
  EXPECT_FALSE(sync_directory(directory));
  EXPECT_TRUE(sync_directory(directory));  // once
}

TEST_F(PowerCut, ARenameThatCannotBeMadeAgainIsToldByBothDirectories) {
  server.put_directory("d");
  server.put("a", "x");
  server.reach_disk();
  const NodeId from = lookup("d").node;
  const Handle directory = filesystem->open_directory({}, from)->handle;
  const Handle root = filesystem->open_directory({}, kRootNode)->handle;
  auto found = new_answer<EntryReply>();
  filesystem->lookup({}, from, "a", into(found));
  ASSERT_TRUE(finished(found));
  auto renamed = new_answer<void>();
  filesystem->rename({}, from, "a", kRootNode, "b", 0, into(renamed));
  ASSERT_TRUE(finished(renamed));
  refuse(schema::Request::kRename);
  cut();
  settle();
  EXPECT_EQ(filesystem->untold_failures().count, 1u);
  EXPECT_FALSE(sync_directory(directory));
  EXPECT_FALSE(sync_directory(root));
}

TEST_F(PowerCut, BytesOfAFileThatKeepsANameAreMissed) {
  put("a", 0, "before");
  server.link("a", "b");
  server.reach_disk();
  put("a", 0, "after");
  remove("b");
  refuse(schema::Request::kWrite);
  cut();
  settle();
  EXPECT_GT(filesystem->untold_failures().count, 0u);
}

TEST_F(PowerCut, WithAServerThatCommitsFilesOnlyFsyncNoticesIt) {
  server.fault = [](const schema::Request& request) -> std::optional<Error> {
    if (request.commit().all()) return Error{from_errno(ESTALE), "an older server"};
    return std::nullopt;
  };
  server.put("a", "before");
  server.reach_disk();
  const Handle file = open("a");
  write(file, 0, "lost");
  EXPECT_TRUE(flush(file));
  scheduler.advance(
      Committer::kAge);  // the mount learns what the server cannot do, after this and before the next
  settle();
  EXPECT_EQ(filesystem->uncommitted_changes(), 0u);
  cut();
  EXPECT_FALSE(sync(file));
  for (const bool lost : {false, true}) {
    write(file, 0, "again");
    EXPECT_TRUE(flush(file));
    if (lost) cut();
    EXPECT_EQ(sync(file).has_value(), !lost);
  }
  EXPECT_TRUE(sync(file));
}

TEST_F(PowerCut, FsyncOfADirectoryIsDoneOnceOnly) {
  put("a", 0, "x");
  const Handle directory = filesystem->open_directory({}, kRootNode)->handle;
  auto answer = new_answer<void>();
  filesystem->sync_directory({}, directory, into(answer));
  ASSERT_EQ(server.waiting_kinds(), std::vector{schema::Request::kCommit});
  EXPECT_NE(server.waiting().front().request.message.sequence(), 0u);
  EXPECT_TRUE(finished(answer));
}

TEST(UncommittedMemory, CountsRequests) {
  UncommittedChanges changes;
  UncommittedChange change;
  change.request = std::make_unique<schema::Request>();
  change.request->mutable_setxattr()->set_value(std::string(64 * kKiB, 'x'));
  change.verifier = 1;
  changes.add(std::move(change), 1);
  EXPECT_GE(changes.bytes(), 64 * kKiB);
  changes.committed(1, changes.last());
  EXPECT_EQ(changes.bytes(), 0u);
}

TEST_F(PowerCut, WhatCannotBeMadeAgainIsToldToWhoHasTheFileOpen) {
  const Handle file = create("a");
  write(file, 0, "lost");
  EXPECT_TRUE(flush(file));
  server.fault = [](const schema::Request& request) -> std::optional<Error> {
    if (request.has_write()) return Error{from_errno(ENOSPC), "full"};
    return std::nullopt;
  };
  cut();
  EXPECT_EQ(sync(file).error().code, from_errno(ENOSPC));
  EXPECT_TRUE(sync(file));  // once
  EXPECT_THAT(filesystem->last_error().value().first, HasSubstr("'a'"));
}

TEST_F(PowerCut, WhatCannotBeMadeAgainStandsInTheStatus) {
  put("a", 0, "lost");
  server.fault = [](const schema::Request& request) -> std::optional<Error> {
    if (request.has_make_node()) return Error{from_errno(ECANCELED), "another one"};
    return std::nullopt;
  };
  cut();
  settle();
  EXPECT_GT(filesystem->untold_failures().count, 0u);
  EXPECT_THAT(filesystem->untold_failures().last, HasSubstr("'a'"));
  EXPECT_FALSE(sync_root());
}

TEST_F(PowerCut, AnUnmountWaitsForTheDisk) {
  put("a", 0, "x");
  auto answer = new_answer<void>();
  filesystem->flush_all(into(answer));
  EXPECT_TRUE(finished(answer));
  server.cut_power();
  EXPECT_EQ(server.content("a"), "x");
}

TEST_F(PowerCut, AnUnmountOutlastsAnOutage) {
  put("a", 0, "x");
  server.fault = [](const schema::Request& request) -> std::optional<Error> {
    if (request.has_commit()) return Error{ErrorCode::kTimedOut, "out of reach"};
    return std::nullopt;
  };
  auto answer = new_answer<void>();
  filesystem->flush_all(into(answer));
  settle();
  cut();
  settle();
  ASSERT_FALSE(answer->has_value());
  EXPECT_GT(filesystem->uncommitted_changes(), 0u);
  server.fault = nullptr;
  scheduler.advance(Committer::kAge);
  EXPECT_TRUE(finished(answer));
  EXPECT_EQ(filesystem->uncommitted_changes(), 0u);
  server.cut_power();
  EXPECT_EQ(server.content("a"), "x");
}

TEST_F(PowerCut, AnUnmountWhoseMountEndsSaysThatTheDiskIsNotReached) {
  put("a", 0, "x");
  server.fault = [](const schema::Request& request) -> std::optional<Error> {
    if (request.has_commit()) return Error{ErrorCode::kPeerClosed, "closed"};
    return std::nullopt;
  };
  auto answer = new_answer<void>();
  filesystem->flush_all(into(answer));
  EXPECT_FALSE(finished(answer));
}

TEST_F(PowerCut, ADiskThatFailsIsToldOf) {
  put("a", 0, "x");
  server.fault = [](const schema::Request& request) -> std::optional<Error> {
    if (request.has_commit()) return Error{from_errno(EIO), "the disk"};
    return std::nullopt;
  };
  scheduler.advance(Committer::kAge);
  settle();
  EXPECT_GT(filesystem->untold_failures().count, 0u);
}

class PowerCutInASmallMemory : public PowerCut {
 protected:
  PowerCutInASmallMemory() : PowerCut(Filesystem::Options{.cache_bytes = 4 * kMiB}) {}
};

TEST_F(PowerCutInASmallMemory, WritersWaitForTheDisk) {
  const Handle file = create("a");
  const std::string content = pattern(8 * kMiB);
  std::vector<Answer<std::uint32_t>> writes;
  bool waited = false;
  for (ByteCount at = 0; at < content.size(); at += kBlockSize) {
    writes.push_back(write(file, at, std::string_view(content).substr(at, kBlockSize)));
    // Everything is answered but COMMITs.
    for (std::size_t i = 0; i < server.waiting().size();)
      server.waiting()[i].request.message.has_commit() ? void(++i) : server.answer(i);
    scheduler.run();
    waited |= !writes.back()->has_value();
    EXPECT_LE(filesystem->cache_used(), 4 * kMiB);
    if (!writes.back()->has_value()) settle();
  }
  settle();
  EXPECT_TRUE(waited);
  for (const auto& one : writes) EXPECT_TRUE(one->has_value());
  EXPECT_GT(server.seen(schema::Request::kCommit), 2u);
  EXPECT_TRUE(flush(file));
  cut();
  settle();
  EXPECT_EQ(server.content("a"), content);
}

TEST_F(PowerCutInASmallMemory, SmallWritesHoldOnToNoWholeBlocks) {
  const Handle file = create("a");
  const std::string bytes = pattern(4 * kKiB);
  for (ByteCount block = 0; block < 64; ++block) {
    write(file, block * kBlockSize, bytes);
    scheduler.advance(2 * WriteBehind::kDirtyAge);
    // Everything is answered but COMMITs.
    for (std::size_t i = 0; i < server.waiting().size();)
      server.waiting()[i].request.message.has_commit() ? void(++i) : server.answer(i);
    scheduler.run();
  }
  EXPECT_GE(filesystem->uncommitted_changes(), 64u);
  EXPECT_LE(filesystem->cache_used(), 4 * kMiB);
  cut();
  settle();
  for (ByteCount block = 0; block < 64; ++block)
    EXPECT_EQ(server.content("a").substr(block * kBlockSize, bytes.size()), bytes);
}

// Histories of changes, cut after each of them, with the disk at each place before: what there is in the end
// is what there would be without a cut.
using Step = std::function<void(PowerCut&)>;

class Histories : public PowerCut, public testing::WithParamInterface<std::vector<int>> {
 protected:
  void step(int which) {
    switch (which) {
      case 0:
        return put("a", 0, "aaaa");
      case 1:
        return put("a", 2, "bb");
      case 2:
        return rename("a", "b");
      case 3:
        return remove("b");
      case 4:
        return set("a", {.size = 1});
      case 5:
        return set("a", {.mtime = NewTime(timespec{77, 0})});
      default:
        return put("b", 0, "other");
    }
  }
  std::map<std::string, std::pair<std::string, std::int64_t>> tree() {
    std::map<std::string, std::pair<std::string, std::int64_t>> found;
    for (const char* name : {"a", "b"}) {
      if (!server.has(name)) continue;
      const std::int64_t mtime = server.node_of(name).attr().mtime_s();
      found[name] = {server.content(name), mtime == 77 ? 77 : 0};
    }
    return found;
  }
};

TEST_P(Histories, EndAsWithoutACut) {
  const std::vector<int>& history = GetParam();
  for (std::size_t stored = 0; stored <= history.size(); ++stored) {
    SCOPED_TRACE(stored);
    server.erase("a");
    server.erase("b");
    mount_with({});
    server.reach_disk();
    for (std::size_t done = 0; done < history.size(); ++done) {
      if (done == stored) server.reach_disk();
      step(history[done]);
    }
    if (stored == history.size()) server.reach_disk();
    const auto expected = tree();
    cut();
    settle();
    EXPECT_EQ(tree(), expected);
    EXPECT_EQ(filesystem->untold_failures().count, 0u) << filesystem->untold_failures().last;
  }
}

INSTANTIATE_TEST_SUITE_P(Changes, Histories,
                         testing::Values(std::vector{0}, std::vector{0, 1}, std::vector{0, 2},
                                         std::vector{0, 2, 0}, std::vector{0, 2, 3}, std::vector{0, 2, 3, 0},
                                         std::vector{0, 4}, std::vector{0, 4, 1}, std::vector{0, 5},
                                         std::vector{0, 5, 1}, std::vector{0, 1, 5}, std::vector{6, 0, 2},
                                         std::vector{6, 0, 2, 0, 2}, std::vector{0, 2, 0, 1, 2, 3, 0}));

// Every order of some changes of one file's bytes, with power cuts and what the disk writes by itself at
// every place: what fsync or O_SYNC has answered for is there, and so is the rest.
class ChangesOfAFile : public PowerCut {
 public:
  void TestBody() override {}

  void allocate(Handle file, ByteCount offset, ByteCount length) {
    auto answer = new_answer<void>();
    filesystem->allocate({}, file, offset, length, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, into(answer));
    EXPECT_TRUE(finished(answer));
  }
  void written(const Answer<std::uint32_t>& answer) { EXPECT_TRUE(finished(answer)); }
  void with(int flags, const std::function<void(Handle)>& change) {
    const Handle file = open("a", O_RDWR | flags);
    change(file);
    close(file);
  }
  std::vector<std::pair<std::string, std::function<void()>>> steps{
      {"cut", [this] { cut_and_compare(); }},
      {"write", [this] { with(0, [this](Handle file) { written(write(file, 1, next_bytes())); }); }},
      {"write far", [this] { with(0, [this](Handle file) { written(write(file, 7, next_bytes())); }); }},
      {"O_TRUNC", [this] { with(O_TRUNC, [](Handle) {}); }},
      {"truncate", [this] { set("a", {.size = 2}); }},
      {"punch", [this] { with(0, [this](Handle file) { allocate(file, 0, 2); }); }},
      {"append",
       [this] { with(O_APPEND, [this](Handle file) { written(write(file, 0, next_bytes(), true)); }); }},
      {"O_SYNC", [this] { with(O_SYNC, [this](Handle file) { written(write(file, 1, next_bytes())); }); }},
      {"O_SYNC append",
       [this] {
         with(O_SYNC | O_APPEND, [this](Handle file) { written(write(file, 0, next_bytes(), true)); });
       }},
      {"mtime",
       [this] {
         set("a", {.mtime = NewTime(timespec{77, 0})});
       }},
      {"fsync", [this] { with(0, [this](Handle file) { EXPECT_TRUE(sync(file)); }); }},
      {"fdatasync",
       [this] {
         with(0, [this](Handle file) {
           auto answer = new_answer<void>();
           filesystem->sync({}, file, true, into(answer));
           EXPECT_TRUE(finished(answer));
         });
       }},
      {"disk", [this] { server.reach_disk(); }},
  };

  std::string next_bytes() { return std::string(3, next_byte_++); }
  void cut_and_compare() {
    const std::string expected = server.content("a");
    cut();
    settle();
    EXPECT_EQ(server.content("a"), expected);
    EXPECT_EQ(filesystem->untold_failures().count, 0u) << filesystem->untold_failures().last;
  }
  void run(const std::vector<std::size_t>& order, bool is_new) {
    if (!is_new) server.put("a", "0123456789");
    server.reach_disk();
    if (is_new) put("a", 0, "0123456789");
    for (const std::size_t which : order) steps[which].second();
    cut_and_compare();
  }

 private:
  char next_byte_ = 'A';
};

void try_orders(std::size_t length, std::vector<std::size_t>& order) {
  for (std::size_t which = 0; which < ChangesOfAFile().steps.size(); ++which) {
    order.push_back(which);
    if (order.size() < length) try_orders(length, order);
    for (const bool is_new : {false, true}) {
      if (order.size() < length || testing::Test::HasFailure()) continue;
      ChangesOfAFile changes;
      std::string text = is_new ? "a new file" : "an old file";
      for (const std::size_t step : order) text += ", " + changes.steps[step].first;
      SCOPED_TRACE(text);
      changes.run(order, is_new);
    }
    order.pop_back();
  }
}

TEST(OrdersOfChanges, EndAsWithoutACut) {
  for (const std::size_t length : {1, 2, 3}) {
    std::vector<std::size_t> order;
    try_orders(length, order);
  }
}

}  // namespace
}  // namespace tusk::client

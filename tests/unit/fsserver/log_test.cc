// LOGs as clients send them: their order, what later entries may say of earlier ones, what is done once.
#include <atomic>
#include <random>
#include <thread>

#include "log_of.h"

namespace tusk::server {
namespace {

using testing::ElementsAre;

constexpr std::uint64_t kOwnId = kClientOpenIdMin + 7;

class Logs : public testing::Test {
 protected:
  TempDir dir;
  Server server{dir.path()};
  Mount mount{server};
  // To its server its LOGs may have been carried out by the server before.
  static MountSetup says_it_again() {
    return {.session = std::string(kSessionIdBytes, 'a'), .log_sent = UINT64_MAX};
  }
  const std::string root = mount.root();
};

TEST_F(Logs, MakeATreeInOneMessage) {
  const Answer answer = EXPECT_OK(LogOf(1)
                                      .make_directory(1, root, "d")
                                      .create(2, handle_of_alias(1), "f", kOwnId)
                                      .write(handle_of_alias(2), kOwnId, "bytes")
                                      .write(handle_of_alias(2), kOwnId, " more", 0, 5)
                                      .close(kOwnId)
                                      .make_node(3, root, "link", S_IFLNK | 0777, "d/f")
                                      .send(mount));
  EXPECT_THAT(errors_of(answer), ElementsAre(kDone, kDone, kDone, kDone, kDone, kDone));
  EXPECT_EQ(read_file(dir / "link"), "bytes more");
  EXPECT_EQ(answer.reply.log().replies(1).open().open_id(), kOwnId);
  EXPECT_EQ(answer.reply.log().replies(1).open().node().handle(), mount.handle("d/f"));
  EXPECT_EQ(answer.reply.log().replies(3).write().attr().size(), 10u);
}

// What a client has been told of it goes on naming by handles, whatever becomes of the process.
TEST(LogsWithoutPrivilege, MakeWhatTheNextProcessFinds) {
  TempDir dir, state;
  const ServerSetup setup{.table = {.by_handle = false, .names_dir = state / "names"}};
  Server killed(dir.path(), setup);  // lives on, so that it does nothing at its end
  Mount mount(killed);
  const Answer answer = EXPECT_OK(
      LogOf(1).make_directory(1, mount.root(), "d").create(2, handle_of_alias(1), "f", kOwnId).send(mount));
  Server next(dir.path(), setup);
  Mount again(next);
  const auto& made = answer.reply.log();
  EXPECT_OK(again.create(made.replies(0).node().node().handle(), "more"));
  EXPECT_OK(again.getattr(made.replies(1).open().node().handle()));
}

TEST_F(Logs, AreCarriedOutInTheOrderOfTheirNumbers) {
  const auto third = LogOf(3).rename(root, "b", "c").start(mount);
  const auto second = LogOf(2).rename(root, "a", "b").start(mount);
  EXPECT_FALSE(third->answered());
  EXPECT_OK(LogOf(1).create(0, root, "a").send(mount));
  EXPECT_THAT(errors_of(second->wait()), ElementsAre(kDone));
  EXPECT_THAT(errors_of(third->wait()), ElementsAre(kDone));
  EXPECT_TRUE(std::filesystem::exists(dir / "c"));
}

TEST_F(Logs, ManyAtOnceEndInTheRightOrder) {
  std::vector<std::shared_ptr<PendingCall>> pending;
  for (std::uint64_t number = 100; number >= 2; --number)
    pending.push_back(
        LogOf(number).rename(root, std::to_string(number - 1), std::to_string(number)).start(mount));
  pending.push_back(LogOf(1).create(0, root, "1").start(mount));
  for (const auto& log : pending) EXPECT_THAT(errors_of(log->wait()), ElementsAre(kDone));
  EXPECT_TRUE(std::filesystem::exists(dir / "100"));
}

TEST_F(Logs, OneThatIsTakenBackBeforeItsTurnMayComeAgain) {
  const auto early = LogOf(2).create(0, root, "b").start(mount);
  early->cancel();
  EXPECT_ERROR(early->wait(), ErrorCode::kCancelled);
  EXPECT_FALSE(early->lives()) << "its bytes are let go at once";
  EXPECT_OK(LogOf(1).create(0, root, "a").send(mount));
  EXPECT_FALSE(std::filesystem::exists(dir / "b"));
  EXPECT_OK(LogOf(2).create(0, root, "b").send(mount));
  EXPECT_TRUE(std::filesystem::exists(dir / "b"));
}

TEST_F(Logs, EarlyOnesAreBounded) {
  std::vector<std::shared_ptr<PendingCall>> early;
  for (std::uint64_t number = 2; number < 2 + kEarlyLogsMax; ++number)
    early.push_back(LogOf(number).close(1).start(mount));
  EXPECT_ERROR(LogOf(2 + kEarlyLogsMax).close(1).send(mount), ErrorCode::kLimitExceeded);
  EXPECT_OK(LogOf(1).close(1).send(mount));
  for (const auto& log : early) EXPECT_OK(log->wait());
}

TEST_F(Logs, ARepeatGetsTheFirstAnswer) {
  const Answer first = EXPECT_OK(LogOf(1).create(1, root, "a").send(mount));
  std::filesystem::remove(dir / "a");
  const Answer again = EXPECT_OK(LogOf(1).create(1, root, "a").send(mount));
  EXPECT_EQ(again.reply.SerializeAsString(), first.reply.SerializeAsString());
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
}

// A program's fsync may take seconds: until it is answered no reply to a mutation may be forgotten.
TEST_F(Logs, AreNotRefusedForTheRepliesThatTheServerKeeps) {
  constexpr int kEntries = 1024;
  const auto fill = [&](std::uint64_t number) {
    LogOf log(number, number - 1);
    for (int entry = 0; entry < kEntries; ++entry) log.setattr(root);
    // As clients say it that count LOGs among their other mutations.
    log.request().set_sequence(number + 1);
    log.request().set_sequence_done(1);
    return log;
  };
  std::size_t bytes = 0;
  std::uint64_t number = 0;
  while (bytes <= 2 * kRememberedBytesMax) {
    const Answer answer = fill(++number).send(mount);
    ASSERT_EQ(answer.reply.log().replies_size(), kEntries) << number;
    bytes += answer.reply.ByteSizeLong();
  }
  EXPECT_OK(LogOf(number + 1, number).create(0, root, "a").send(mount));
}

TEST_F(Logs, ANumberHasOneTurn) {
  EXPECT_OK(LogOf(1).create(0, root, "a").send(mount));
  EXPECT_OK(LogOf(1).create(0, root, "b").send(mount));  // the first answer
  EXPECT_OK(LogOf(2, 1).send(mount));
  EXPECT_ERROR(LogOf(1).create(0, root, "b").send(mount), ErrorCode::kCancelled) << "it is forgotten";
  EXPECT_FALSE(std::filesystem::exists(dir / "b"));
}

TEST_F(Logs, BeginWhereTheServerBeforeEnded) {
  Mount later(server, {.session = std::string(kSessionIdBytes, 'l'), .log_answered = 41});
  EXPECT_OK(LogOf(42).create(0, root, "a").send(later));
  Mount silent(server, {.session = std::string(kSessionIdBytes, 'n')});
  const auto early = LogOf(13, 10).create(0, root, "d").start(silent);
  EXPECT_OK(LogOf(11, 10).create(0, root, "b").send(silent));
  EXPECT_OK(LogOf(12, 11).create(0, root, "c").send(silent));
  EXPECT_OK(early->wait());
}

// Replies overtake each other: what the server before has answered does not come again.
TEST_F(Logs, DoNotWaitForOnesThatTheServerBeforeHasAnswered) {
  // 11, 13 and 20.
  Mount later(server, {.session = std::string(kSessionIdBytes, 'l'),
                       .log_answered = 9,
                       .log_answered_beyond = std::string("\x0a\x04", 2)});
  const auto last = LogOf(14, 9).create(0, root, "d").start(later);
  const auto third = LogOf(12, 9).create(0, root, "c").start(later);
  EXPECT_FALSE(third->answered());
  EXPECT_OK(LogOf(10, 9).create(0, root, "a").send(later));
  EXPECT_OK(third->wait());
  EXPECT_OK(last->wait());
  EXPECT_ERROR(LogOf(13, 9).create(0, root, "e").send(later), ErrorCode::kCancelled);
}

LogTurns::Verdict arrive(LogTurns& turns, std::uint64_t number) {
  static const auto early = std::make_shared<Quota>(std::make_shared<QuotaPool>(1 << 20));
  LogTicket ticket{.number = number};
  return turns.arrive(ticket, early, 1);
}

// What a LOG that waits says of those before it counts, though another has its turn.
TEST_F(Logs, OnesThatAreAnsweredAreSkippedBehindTheOneThatHasItsTurn) {
  LogTurns turns;
  ASSERT_EQ(arrive(turns, 1), LogTurns::Verdict::kWaits);
  ASSERT_TRUE(turns.take());
  turns.skip_to(3);
  ASSERT_EQ(arrive(turns, 4), LogTurns::Verdict::kWaits);
  EXPECT_FALSE(turns.take()) << "it has not begun";
  EXPECT_TRUE(turns.begin(1));
  const auto next = turns.pass();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->number, 4u);
  EXPECT_TRUE(turns.begin(4));
}

// Over two connections, in whatever order: neither is dropped, one is carried out.
TEST_F(Logs, TheSameOneTwiceWaitsTwiceAndHasOneTurn) {
  LogTurns turns;
  ASSERT_EQ(arrive(turns, 2), LogTurns::Verdict::kWaits);
  ASSERT_EQ(arrive(turns, 2), LogTurns::Verdict::kWaits);
  ASSERT_EQ(arrive(turns, 1), LogTurns::Verdict::kWaits);
  ASSERT_EQ(arrive(turns, 3), LogTurns::Verdict::kWaits);
  ASSERT_EQ(turns.take()->number, 1u);
  EXPECT_TRUE(turns.begin(1));
  ASSERT_EQ(turns.pass()->number, 2u);
  EXPECT_TRUE(turns.begin(2));
  ASSERT_EQ(turns.pass()->number, 2u);
  EXPECT_FALSE(turns.begin(2)) << "it finds the answer of the other";
  ASSERT_EQ(turns.pass()->number, 3u);
  EXPECT_TRUE(turns.begin(3));
  for (std::size_t i = 0; i < kSameLogMax; ++i) EXPECT_EQ(arrive(turns, 9), LogTurns::Verdict::kWaits);
  EXPECT_EQ(arrive(turns, 9), LogTurns::Verdict::kFull);
}

TEST_F(Logs, WhateverAnAttachSaysOfThemTheyAreCarriedOut) {
  std::mt19937_64 random(2);
  for (char name = 'A'; name <= 'Z'; ++name) {
    std::string bits(random() % 300, '\0');
    for (char& byte : bits) byte = static_cast<char>(random());
    const std::uint64_t answered = random() % 3 == 0 ? UINT64_MAX - random() % 5000 : random() % 5;
    Mount odd(server, {.session = std::string(kSessionIdBytes, name),
                       .log_answered = answered,
                       .log_answered_beyond = bits});
    const std::uint64_t later = answered + 1 + 8 * bits.size();
    if (later > answered) EXPECT_OK(LogOf(later, later - 1).send(odd));
  }
}

TEST_F(Logs, AnEntryThatFailsHoldsUpNoOther) {
  write_file(dir / "taken", "");
  const Answer answer = EXPECT_OK(LogOf(1)
                                      .create(1, root, "taken", kOwnId)
                                      .write(handle_of_alias(1), kOwnId, "lost")
                                      .create(2, root, "free")
                                      .write(handle_of_alias(2), 0, "kept")
                                      .send(mount));
  EXPECT_THAT(errors_of(answer), ElementsAre(err(EEXIST), err(ESTALE), kDone, kDone));
  EXPECT_EQ(read_file(dir / "taken"), "");
  EXPECT_EQ(read_file(dir / "free"), "kept");
}

// The last piece of a file would otherwise be there behind a hole, and the file as long as the whole.
TEST_F(Logs, WhatFollowsAWriteThatCouldNotBeDoneIsNotWrittenUnlessTheClientKnew) {
  const LogOf make = LogOf(1).create(1, root, "a", kOwnId).create(2, root, "b", kOwnId + 1);
  EXPECT_OK(make.send(mount));
  const std::string a = mount.handle("a"), b = mount.handle("b");
  const std::uint64_t nowhere = INT64_MAX;
  const ErrorCode too_large = from_errno(EFBIG);
  const Answer first = EXPECT_OK(LogOf(2)
                                     .write(a, kOwnId, "begin")
                                     .write(handle_of_alias(1), kOwnId, "middle", 0, nowhere)
                                     .write(a, kOwnId, "end", 0, 11)
                                     .write(b, kOwnId + 1, "another")
                                     .send(mount));
  EXPECT_THAT(errors_of(first), ElementsAre(kDone, too_large, too_large, kDone));
  EXPECT_THAT(errors_of(EXPECT_OK(LogOf(3, 1).write(a, kOwnId, "end", 0, 11).send(mount))),
              ElementsAre(too_large));
  EXPECT_EQ(read_file(dir / "a"), "begin");
  EXPECT_EQ(read_file(dir / "b"), "another");
  EXPECT_THAT(errors_of(EXPECT_OK(LogOf(4, 2).write(a, kOwnId, "end", 0, 5).send(mount))),
              ElementsAre(kDone));
  EXPECT_EQ(read_file(dir / "a"), "beginend");
}

TEST_F(Logs, AliasesLastUntilTheirLogIsKnownToBeAnswered) {
  EXPECT_OK(LogOf(1).make_directory(1, root, "d").send(mount));
  EXPECT_THAT(errors_of(LogOf(2).create(0, handle_of_alias(1), "a").send(mount)), ElementsAre(kDone));
  EXPECT_THAT(errors_of(LogOf(3, 1).create(0, handle_of_alias(1), "b").send(mount)),
              ElementsAre(err(ESTALE)));
}

TEST_F(Logs, AliasesAreNoHandlesAnywhereElse) {
  EXPECT_OK(LogOf(1).make_directory(1, root, "d").send(mount));
  EXPECT_ERROR(mount.lookup(handle_of_alias(1), "a"), err(ESTALE));
}

TEST_F(Logs, OpenIdsAreChosenFromTheUpperHalf) {
  EXPECT_LT(mount.create(root, "plain").reply.open().open_id(), kClientOpenIdMin);
  const Answer answer =
      LogOf(1).create(0, root, "a", 5).create(0, root, "b", kOwnId).create(0, root, "c", kOwnId).send(mount);
  EXPECT_THAT(errors_of(answer), ElementsAre(err(EINVAL), kDone, err(EINVAL)));
  EXPECT_EQ(mount.write(mount.handle("b"), kOwnId, 0, "x").reply.error(), 0u);
  EXPECT_OK(mount.close(kOwnId));
}

TEST_F(Logs, FilesAreMadeWhenTheClientSays) {
  constexpr std::uint64_t kThen = 1'600'000'000'123'456'789;
  const Answer answer =
      LogOf(1).create(1, root, "a", 0, kThen).write(handle_of_alias(1), 0, "x", kThen + 1).send(mount);
  EXPECT_THAT(errors_of(answer), ElementsAre(kDone, kDone));
  const auto& made = answer.reply.log().replies(0).open().node().attr();
  EXPECT_EQ(made.mtime_s(), 1'600'000'000);
  EXPECT_EQ(made.mtime_ns(), 123'456'789u);
  EXPECT_EQ(made.atime_s(), 1'600'000'000);
  EXPECT_EQ(answer.reply.log().replies(1).write().attr().mtime_ns(), 123'456'790u);
}

TEST_F(Logs, NothingIsMadeInTheFuture) {
  const auto now = static_cast<std::int64_t>(mount.attached().unix_time_ns() / 1'000'000'000);
  EXPECT_NEAR(static_cast<double>(now), static_cast<double>(::time(nullptr)), 60);
  const Answer answer = LogOf(1).create(0, root, "a", 0, 9'000'000'000'000'000'000).send(mount);
  EXPECT_LT(answer.reply.log().replies(0).open().node().attr().mtime_s(), now + 600);
}

TEST_F(Logs, OnlyWhatWasMeantIsRemovedOrMoved) {
  for (const char* const name : {"a", "b", "c"}) write_file(dir / name, name);
  const std::string a = mount.handle("a");
  const std::string b = mount.handle("b");
  const Answer answer = LogOf(1)
                            .remove(root, "a", b)
                            .rename(root, "a", "new", b)
                            .rename(root, "a", "b", a)
                            .rename(root, "a", "c", a, b)
                            .rename(root, "none", "c", a)
                            .send(mount);
  const ErrorCode cancelled = err(ECANCELED);
  EXPECT_THAT(errors_of(answer), ElementsAre(cancelled, cancelled, cancelled, cancelled, err(ENOENT)));
  EXPECT_THAT(errors_of(LogOf(2).rename(root, "a", "b", a, b).remove(root, "b", a).send(mount)),
              ElementsAre(kDone, kDone));
  EXPECT_FALSE(std::filesystem::exists(dir / "b"));
  EXPECT_EQ(read_file(dir / "c"), "c");
}

// Whoever is first: what a program here makes under the name is never lost.
TEST_F(Logs, ANameThatWasFreeIsNotTakenFromAProgramThatIsFaster) {
  constexpr int kRaces = 400;
  for (int i = 1; i <= kRaces; ++i) {
    write_file(dir / "from", "moved");
    const std::string moving = mount.handle("from");
    const std::string to = dir / "to";
    std::atomic<bool> begun = false;
    bool made = false;
    std::thread program([&] {
      begun = true;
      for (int pause = 0; pause < 100 * (i % 100); ++pause) begun = true;
      made = Fd(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)).valid();
    });
    while (!begun) std::this_thread::yield();
    const Answer answer = LogOf(static_cast<std::uint64_t>(i)).rename(root, "from", "to", moving).send(mount);
    program.join();
    ASSERT_THAT(errors_of(answer), ElementsAre(made ? err(ECANCELED) : kDone)) << i;
    ASSERT_EQ(read_file(to), made ? "" : "moved") << i;
    std::filesystem::remove(to);
    std::filesystem::remove(dir / "from");
  }
}

TEST_F(Logs, WhatIsDoneAlreadyIsNoErrorWhenItIsSaidAgain) {
  const auto log = [&](std::uint64_t number) {
    return LogOf(number)
        .make_directory(1, root, "d")
        .create(2, handle_of_alias(1), "f", kOwnId + number)
        .write(handle_of_alias(2), kOwnId + number, "bytes")
        .close(kOwnId + number)
        .make_node(3, root, "link", S_IFLNK | 0777, "d/f")
        .remove(root, "old")
        .rename(root, "from", "to");
  };
  write_file(dir / "old", "");
  write_file(dir / "from", "moved");
  EXPECT_THAT(errors_of(log(1).send(mount)), testing::Each(kDone));
  Mount again(server, says_it_again());
  EXPECT_THAT(errors_of(log(1).send(again)), testing::Each(kDone));
  EXPECT_THAT(errors_of(log(2).send(mount)), ElementsAre(err(EEXIST), err(ESTALE), err(ESTALE), kDone,
                                                         err(EEXIST), err(ENOENT), err(ENOENT)));
  EXPECT_EQ(read_file(dir / "link"), "bytes");
  EXPECT_EQ(read_file(dir / "to"), "moved");
}

TEST_F(Logs, AgainMeansTheSameKindAndTheSameTarget) {
  write_file(dir / "d", "a file");
  std::filesystem::create_symlink("elsewhere", dir / "link");
  Mount again(server, says_it_again());
  const Answer answer =
      LogOf(1).make_directory(1, root, "d").make_node(2, root, "link", S_IFLNK | 0777, "here").send(again);
  EXPECT_THAT(errors_of(answer), ElementsAre(err(EEXIST), err(EEXIST)));
}

TEST_F(Logs, AFileThatReplacesAnotherDoesSoAgain) {
  constexpr std::uint64_t kThen = 1'600'000'000'000'000'000;
  const auto save = [&](std::uint64_t number) {
    return LogOf(number)
        .create(1, root, "file~", 0, kThen)
        .write(handle_of_alias(1), 0, "new", kThen)
        .rename(root, "file~", "file", handle_of_alias(1));
  };
  EXPECT_THAT(errors_of(save(1).send(mount)), testing::Each(kDone));
  Mount again(server, says_it_again());
  EXPECT_THAT(errors_of(save(1).send(again)), testing::Each(kDone));
  write_file(dir / "file", "somebody else's");
  EXPECT_THAT(errors_of(save(2).send(again)), ElementsAre(kDone, kDone, err(ECANCELED)));
  EXPECT_EQ(read_file(dir / "file"), "somebody else's");
}

TEST_F(Logs, ABadOneIsRefusedAsAWholeAndHoldsUpNoOther) {
  LogOf with_lookup = LogOf(1).create(0, root, "a");
  with_lookup.log().add_entries()->mutable_lookup()->set_parent(root);
  EXPECT_ERROR(with_lookup.send(mount), ErrorCode::kMalformed);

  LogOf nested = LogOf(2).create(0, root, "a");
  nested.log().add_entries()->mutable_log();
  EXPECT_ERROR(nested.send(mount), ErrorCode::kMalformed);

  LogOf with_sequence = LogOf(3).create(0, root, "a");
  with_sequence.log().mutable_entries(0)->set_sequence(1);
  EXPECT_ERROR(with_sequence.send(mount), ErrorCode::kMalformed);

  LogOf longer = LogOf(4).create(1, root, "a").write(handle_of_alias(1), 0, "bytes");
  longer.log().mutable_entries(1)->mutable_write()->set_length(6);
  EXPECT_ERROR(longer.send(mount), ErrorCode::kMalformed);

  LogOf many = LogOf(5).create(0, root, "a");
  for (int entry = 0; entry < 1024; ++entry) many.close(1);
  EXPECT_ERROR(many.send(mount), ErrorCode::kMalformed);

  LogOf empty = LogOf(6);
  empty.log().add_entries();
  EXPECT_ERROR(empty.send(mount), ErrorCode::kMalformed);

  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
  EXPECT_OK(LogOf(7).create(0, root, "a").send(mount));
}

TEST_F(Logs, ReadOnlyExportsTakeNone) {
  Mount reader(server, {.session = std::string(kSessionIdBytes, 'r'), .read_only = true});
  EXPECT_ERROR(LogOf(1).create(0, root, "a").send(reader), err(EROFS));
  EXPECT_ERROR(LogOf(100).create(0, root, "a").send(reader), err(EROFS)) << "before its turn, too";
}

TEST(EarlyLogs, TheirBytesAreTheirRights) {
  const std::string bytes(1000, 'x');
  TempDir dir;
  Server server(dir.path(), {.early_log_bytes_max = 4000});
  Mount mount(server);
  std::vector<std::shared_ptr<PendingCall>> early;
  for (std::uint64_t number = 2; number < 10; ++number)
    early.push_back(LogOf(number).write(mount.root(), 0, bytes).start(mount));
  // Not an error of its entries: the client sends them again over its next connection.
  EXPECT_ERROR(early.back()->wait(), ErrorCode::kConnectionLost);
  EXPECT_FALSE(early.front()->answered());
  Mount other(server, {.key = client_key(2)});
  const auto others = LogOf(2).write(other.root(), 0, bytes).start(other);
  EXPECT_FALSE(others->answered()) << "others have their part";
}

TEST_F(Logs, OneWithoutEntriesIsAnsweredToo) { EXPECT_OK(LogOf(1).send(mount)); }

// Entries that make no sense, in any order.
TEST_F(Logs, WhateverTheySayEachEntryIsAnswered) {
  std::mt19937_64 random(1);
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  const auto name = [&] { return std::string(1, static_cast<char>('a' + below(4))); };
  const auto node = [&]() -> std::string {
    switch (below(8)) {
      case 0:
        return {};
      case 1:
        return std::string(below(40), '\xff');
      case 2:
      case 3:
        return root;
      default:
        return handle_of_alias(below(6));
    }
  };
  Mount half_done(server, {.session = std::string(kSessionIdBytes, 'h'), .log_sent = 100});
  for (std::uint64_t number = 1; number <= 200; ++number) {
    LogOf log(number, below(number));
    for (int entry = 0; entry < 10; ++entry) {
      switch (below(7)) {
        case 0:
          log.create(below(6), node(), name(), below(2) * (kOwnId + below(3)), random());
          break;
        case 1:
          log.make_directory(below(6), node(), name());
          break;
        case 2:
          log.make_node(below(6), node(), name(), S_IFLNK | 0777, name());
          break;
        case 3:
          log.write(node(), below(2) * (kOwnId + below(3)), name(), random());
          break;
        case 4:
          log.remove(node(), name(), node(), below(2) == 0);
          break;
        case 5:
          log.rename(node(), name(), name(), node(), node());
          break;
        case 6:
          log.close(kOwnId + below(3));
          break;
      }
    }
    EXPECT_EQ(EXPECT_OK(log.send(half_done)).reply.log().replies_size(), 10) << number;
  }
}

TEST(AliasTable, ForgetsAndIsBounded) {
  AliasTable table;
  for (std::uint64_t alias = 1; alias <= kAliasesMax + 5; ++alias) table.define(alias, alias, "handle");
  EXPECT_EQ(table.size(), kAliasesMax);
  table.forget(kAliasesMax - 1);
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(alias_of(handle_of_alias(0x0102030405060708u)), 0x0102030405060708u);
  EXPECT_EQ(alias_of(std::string(9, '\x7f')), std::nullopt);
  EXPECT_EQ(alias_of(std::string(29, '\xff')), std::nullopt);
}

}  // namespace
}  // namespace tusk::server

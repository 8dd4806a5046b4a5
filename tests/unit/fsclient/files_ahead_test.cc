// Files that are opened one after the other come ahead, small ones together, and are opened without the
// server.
#include "client.h"

namespace tusk::client {
namespace {

using schema::Request;
using std::chrono::milliseconds;
using std::chrono::seconds;

class SmallFile : public Client {
 protected:
  SmallFile() {
    for (char c = 'a'; c <= 'j'; ++c) server.put(std::string(1, c), content(c));
  }

  static std::string content(char c) { return "the content of " + std::string(1, c); }

  std::string read_whole(const std::string& name) {
    const Handle file = open(name, O_RDONLY);
    std::string text = read(file, 0, 1000);
    close(file);
    return text;
  }
  // As far as a third open without the server.
  void begin_reading() {
    (void)list(kRootNode);
    EXPECT_EQ(read_whole("a"), content('a'));
    EXPECT_EQ(read_whole("b"), content('b'));
  }
  std::uint64_t opens() { return server.seen(Request::kOpen); }
};

TEST_F(SmallFile, IsReadWithoutTheServerBehindOthers) {
  begin_reading();
  EXPECT_EQ(opens(), 2u);
  for (char c = 'c'; c <= 'j'; ++c) EXPECT_EQ(read_whole(std::string(1, c)), content(c));
  EXPECT_EQ(opens(), 2u);
  EXPECT_EQ(server.seen(Request::kReadFiles), 1u);
  EXPECT_EQ(server.seen(Request::kRead), 0u);
  EXPECT_EQ(server.seen(Request::kClose), 2u);
  EXPECT_EQ(server.open_files(), 0u);
}

class Impatient : public SmallFile {
 protected:
  Impatient() {
    mount_with({.lifetime = milliseconds(100)});
  }
};

TEST_F(Impatient, MountsFetchNothingAhead) {
  begin_reading();
  EXPECT_EQ(read_whole("c"), content('c'));
  EXPECT_EQ(server.seen(Request::kReadFiles), 0u);
}

TEST_F(SmallFile, AloneIsOpenedAtTheServer) {
  (void)list(kRootNode);
  EXPECT_EQ(read_whole("a"), content('a'));
  scheduler.advance(FilesAhead::kPauseMax + milliseconds(1));
  EXPECT_EQ(read_whole("b"), content('b'));
  EXPECT_EQ(server.seen(Request::kReadFiles), 0u);
}

TEST_F(SmallFile, ServesOneOpen) {
  begin_reading();
  EXPECT_EQ(read_whole("c"), content('c'));
  server.put("c", "something else");
  EXPECT_EQ(read_whole("c"), "something else");
}

TEST_F(SmallFile, IsNotTrustedAfterAPause) {
  begin_reading();
  server.put("d", "something else");
  scheduler.advance(Foresight::kPauseMax + milliseconds(1));
  EXPECT_EQ(read_whole("d"), "something else");
}

TEST_F(SmallFile, IsNotTrustedForLong) {
  for (char c = 'k'; c <= 'z'; ++c) server.put(std::string(1, c), content(c));
  begin_reading();
  server.put("z", "something else");
  Duration passed{};
  for (char c = 'c'; passed < Foresight::kAgeMax; ++c, passed += milliseconds(900)) {
    EXPECT_EQ(read_whole(std::string(1, c)), content(c));
    scheduler.advance(milliseconds(900));
  }
  EXPECT_EQ(read_whole("z"), "something else");
}

TEST_F(SmallFile, OfAnotherSizeThanTheKernelKnowsIsOpenHereOnceTheKernelHasDroppedIt) {
  (void)list(kRootNode);
  const NodeId c = lookup("c").node;
  EXPECT_EQ(read_whole("a"), content('a'));
  server.put("c", "longer than what the listing said of it");
  EXPECT_EQ(read_whole("b"), content('b'));
  const auto before = opens();
  auto opened = new_answer<OpenReply>();
  filesystem->open({}, c, O_RDONLY, into(opened));
  EXPECT_FALSE(finished(opened)->keep_cache);
  EXPECT_EQ(opens(), before);
  EXPECT_EQ(kernel.attributes, std::vector{c});
}

// What the server is told is here may be gone when it answers.
TEST_F(SmallFile, WhoseBytesWereTakenBackWhileItWasAskedForIsFetchedWhenItIsRead) {
  (void)list(kRootNode);
  EXPECT_EQ(read_whole("c"), content('c'));
  scheduler.advance(FilesAhead::kPauseMax + milliseconds(1));
  EXPECT_EQ(read_whole("a"), content('a'));
  auto opened = new_answer<OpenReply>();
  filesystem->open({}, lookup("b").node, O_RDONLY, into(opened));
  const auto kinds = server.waiting_kinds();
  const auto asked = std::ranges::find(kinds, Request::kReadFiles);
  ASSERT_NE(asked, kinds.end());
  server.execute(static_cast<std::size_t>(asked - kinds.begin()));
  scheduler.advance(milliseconds(1));
  Request push;
  auto& item = *push.mutable_invalidate()->add_items();
  item.set_handle(server.node_of("c").handle());
  item.set_data(true);
  filesystem->handle_pushed(push, [] {});
  settle();
  server.deliver();
  EXPECT_TRUE(finished(opened));
  EXPECT_EQ(read_whole("c"), content('c'));
}

TEST_F(SmallFile, WhoseNewSizeOnlyWeHaveHeardOfHasTheKernelAskForIt) {
  const NodeId c = lookup("c").node;  // the kernel knows its size
  server.put("c", "longer than what the kernel was told");
  const Handle directory = filesystem->open_directory({}, kRootNode)->handle;
  auto listed = new_answer<void>();
  filesystem->read_directory(
      {}, directory, 0, false, [](const DirectoryEntryOut&) { return true; }, into(listed));
  EXPECT_TRUE(finished(listed));
  filesystem->close_directory(directory);
  auto opened = new_answer<OpenReply>();
  filesystem->open({}, c, O_RDONLY, into(opened));
  EXPECT_TRUE(finished(opened));
  EXPECT_EQ(kernel.attributes, std::vector{c});
}

TEST_F(SmallFile, ThatIsOnItsWayIsWaitedFor) {
  (void)list(kRootNode);
  EXPECT_EQ(read_whole("a"), content('a'));
  const NodeId c = lookup("c").node;
  auto b_opened = new_answer<OpenReply>();
  filesystem->open({}, lookup("b").node, O_RDONLY, into(b_opened));
  auto c_opened = new_answer<OpenReply>();
  filesystem->open({}, c, O_RDONLY, into(c_opened));
  EXPECT_EQ(opens(), 2u);
  ASSERT_TRUE(finished(c_opened));
  EXPECT_EQ(opens(), 2u);
  EXPECT_EQ(text_of(finished(begin_read((*c_opened)->value().handle, 0, 100))), content('c'));
}

TEST_F(SmallFile, ThatDoesNotComeIsOpenedAtTheServer) {
  server.fault = [](const Request& request) -> std::optional<Error> {
    if (request.has_read_files()) return Error{ErrorCode::kUnsupported, "an older server"};
    return std::nullopt;
  };
  begin_reading();
  for (char c = 'c'; c <= 'j'; ++c) EXPECT_EQ(read_whole(std::string(1, c)), content(c));
  EXPECT_EQ(opens(), 10u);
}

TEST_F(SmallFile, OfBeforeIsAskedForAgainWithoutItsBytes) {
  begin_reading();
  for (char c = 'c'; c <= 'j'; ++c) (void)read_whole(std::string(1, c));
  const auto fetched = filesystem->counters().fetched.load();
  scheduler.advance(seconds(30));
  server.put("e", "something else");
  begin_reading();
  for (char c = 'c'; c <= 'j'; ++c)
    EXPECT_EQ(read_whole(std::string(1, c)), c == 'e' ? "something else" : content(c));
  EXPECT_LT(filesystem->counters().fetched.load(), fetched + 100);
}

TEST_F(SmallFile, IsFetchedAgainForWhoReadsAllAgainAtOnce) {
  begin_reading();
  for (char c = 'c'; c <= 'j'; ++c) (void)read_whole(std::string(1, c));
  const auto before = opens();
  scheduler.advance(milliseconds(1));
  for (char c = 'a'; c <= 'j'; ++c) EXPECT_EQ(read_whole(std::string(1, c)), content(c));
  EXPECT_LE(opens(), before + 2);
}

TEST_F(SmallFile, OpenHereIsOpenedAtTheServerBeforeItIsRemoved) {
  begin_reading();
  const Handle file = open("c", O_RDONLY);
  EXPECT_EQ(opens(), 2u);
  auto removed = new_answer<void>();
  filesystem->remove({}, kRootNode, "c", false, into(removed));
  EXPECT_EQ(server.waiting_kinds(), std::vector{Request::kOpen});
  EXPECT_TRUE(finished(removed));
  EXPECT_FALSE(server.has("c"));
  EXPECT_EQ(read(file, 0, 100), content('c'));
  close(file);
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(SmallFile, OpenHereIsOpenedAtTheServerBeforeItIsReplaced) {
  begin_reading();
  const Handle file = open("c", O_RDONLY);
  auto renamed = new_answer<void>();
  filesystem->rename({}, kRootNode, "d", kRootNode, "c", 0, into(renamed));
  EXPECT_EQ(server.waiting_kinds(), std::vector{Request::kOpen});
  EXPECT_TRUE(finished(renamed));
  EXPECT_EQ(read(file, 0, 100), content('c'));
  close(file);
}

TEST_F(SmallFile, OpenHereIsOpenedAtTheServerToBeLocked) {
  begin_reading();
  const Handle file = open("c", O_RDONLY);
  auto locked = new_answer<void>();
  filesystem->set_lock({}, file, {.flock = true, .owner = 1, .type = F_RDLCK, .end = INT64_MAX},
                       into(locked));
  EXPECT_EQ(server.waiting_kinds(), std::vector{Request::kOpen});
  EXPECT_TRUE(finished(locked));
  close(file);
}

TEST_F(SmallFile, OpenHereKeepsItsBytesWhateverElseIsCached) {
  begin_reading();
  const Handle file = open("c", O_RDONLY);
  server.erase("c");  // by somebody else
  scheduler.advance(seconds(60));
  EXPECT_EQ(read(file, 0, 100), content('c'));
  close(file);
}

TEST_F(SmallFile, IsNotOpenedHereForWriting) {
  begin_reading();
  const Handle file = open("c", O_RDWR);
  EXPECT_EQ(opens(), 3u);
  auto written = write(file, 0, "THE");
  EXPECT_TRUE(finished(written));
  close(file);
  EXPECT_EQ(read_whole("c"), "THE" + content('c').substr(3));
}

// ---------------------------------------------------------------- files of middle size

// Photographs, parts of a data set: too large to come together.
class Photograph : public Client {
 protected:
  static constexpr std::size_t kSize = 300 * kKiB;

  Photograph() : Client({.cache_bytes = 8 * kMiB, .path = [] { return fast_path(); }}) {
    for (char c = 'a'; c <= 'z'; ++c) server.put(std::string(1, c), content(c));
    (void)list(kRootNode);
  }

  static rpc::PathStats fast_path() {
    rpc::PathStats path;
    path.connected = true;
    path.rtt_min = path.rtt_smoothed = milliseconds(100);
    path.receive_bandwidth = 1e8;
    return path;
  }
  static std::string content(char c) { return pattern(kSize, static_cast<std::size_t>(c)); }

  std::string read_whole(char c) {
    const Handle file = open(std::string(1, c), O_RDONLY);
    std::string text = read(file, 0, kSize);
    close(file);
    return text;
  }
  void read_heads(char from, char to) {
    for (char c = from; c <= to; ++c) {
      const Handle file = open(std::string(1, c), O_RDONLY);
      EXPECT_EQ(read(file, 0, 4096), content(c).substr(0, 4096));
      close(file);
    }
  }
  std::uint64_t opens() { return server.seen(Request::kOpen); }
  ByteCount fetched_ahead() { return filesystem->counters().fetched_ahead; }
};

TEST_F(Photograph, IsReadWithoutTheServerBehindTwoOthersThatWereReadWhole) {
  for (char c = 'a'; c <= 'z'; ++c) EXPECT_EQ(read_whole(c), content(c));
  EXPECT_EQ(opens(), 2u);
  EXPECT_EQ(server.seen(Request::kReadFiles), 0u);
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(Photograph, IsNotFetchedForWhoLooksAtHeads) {
  read_heads('a', 'j');
  EXPECT_EQ(opens(), 10u);
  // What comes with an open and around a read.
  EXPECT_LE(filesystem->counters().fetched, 10 * kSize);
}

TEST_F(Photograph, IsNoLongerFetchedOnceOnlyHeadsAreRead) {
  for (char c = 'a'; c <= 'e'; ++c) EXPECT_EQ(read_whole(c), content(c));
  read_heads('f', 'g');
  const ByteCount fetched = fetched_ahead();
  read_heads('h', 'z');
  EXPECT_EQ(fetched_ahead(), fetched);
}

TEST_F(Photograph, ThatIsOnItsWayIsWaitedForAndMoreAskedFor) {
  EXPECT_EQ(read_whole('a'), content('a'));
  auto b = new_answer<OpenReply>();
  filesystem->open({}, lookup("b").node, O_RDONLY, into(b));
  const auto asked = std::ranges::count(server.waiting_kinds(), Request::kRead);
  EXPECT_GT(asked, 0);
  auto c = new_answer<OpenReply>();
  filesystem->open({}, nodes["c"], O_RDONLY, into(c));
  EXPECT_FALSE(c->has_value());
  EXPECT_EQ(std::ranges::count(server.waiting_kinds(), Request::kOpen), 1);
  ASSERT_TRUE(finished(c));
  EXPECT_EQ(opens(), 2u);
}

// A program that is faster than the line waits in every open: what it waited for has to count as used, or the
// window stays full.
TEST_F(Photograph, IsAskedForInTimeAlthoughEveryOpenWaits) {
  EXPECT_EQ(read_whole('a'), content('a'));
  for (char c = 'b'; c <= 'z'; ++c) {
    auto opened = new_answer<OpenReply>();
    filesystem->open({}, nodes[std::string(1, c)], O_RDONLY, into(opened));
    while (!opened->has_value() && !server.waiting_kinds().empty()) {
      server.execute(0);
      server.deliver();
      scheduler.run();
    }
    filesystem->release((*opened)->value().handle, false);
  }
  settle();
  EXPECT_EQ(opens(), 2u);
}

TEST_F(Photograph, ThatChangedOnItsWayIsOpenedAtTheServer) {
  EXPECT_EQ(read_whole('a'), content('a'));
  auto b = new_answer<OpenReply>();
  filesystem->open({}, lookup("b").node, O_RDONLY, into(b));
  server.put("c", pattern(kSize, 77));  // READs of it come after that
  ASSERT_TRUE(finished(b));
  EXPECT_EQ(read_whole('c'), pattern(kSize, 77));
  EXPECT_EQ(opens(), 3u);
}

TEST_F(Photograph, ThatDoesNotComeIsOpenedAtTheServer) {
  server.fault = [](const Request& request) -> std::optional<Error> {
    if (request.has_read() && request.read().open_id() == 0) return Error{from_errno(EIO), "a bad disk"};
    return std::nullopt;
  };
  for (char c = 'a'; c <= 'f'; ++c) EXPECT_EQ(read_whole(c), content(c));
  EXPECT_EQ(opens(), 6u);
}

TEST_F(Photograph, IsNotFetchedOverASlowLineOnWhichItsOpenWouldWaitForLong) {
  auto slow = fast_path();
  slow.receive_bandwidth = 2e5;
  mount_with({.path = [slow] { return slow; }});
  (void)list(kRootNode);
  for (char c = 'a'; c <= 'f'; ++c) EXPECT_EQ(read_whole(c), content(c));
  EXPECT_EQ(opens(), 6u);
}

}  // namespace
}  // namespace tusk::client

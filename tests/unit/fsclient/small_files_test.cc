// Small files that are opened one after the other come together, and are opened without the server.
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
    filesystem = std::make_unique<Filesystem>(server, scheduler, kernel, server.attached(),
                                              Filesystem::Options{.lifetime = milliseconds(100)});
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
  scheduler.advance(SmallFiles::kPauseMax + milliseconds(1));
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
  scheduler.advance(SmallFiles::kPauseMax + milliseconds(1));
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

}  // namespace
}  // namespace tusk::client

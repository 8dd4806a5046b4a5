// A connection that another one of its session has taken the place of: what came over it and was not done is
// not done any more, what is being done is done before anything that comes over the new one.
#include <condition_variable>
#include <mutex>

#include "fsserver/file_change.h"
#include "mounts_with_leases.h"

namespace tusk::server {
namespace {

MountSetup writers() { return {.session = std::string(kSessionIdBytes, 'w'), .leases = true}; }

schema::Request write_request(const std::string& handle, std::string_view bytes) {
  schema::Request request;
  request.mutable_write()->set_handle(handle);
  request.mutable_write()->set_length(static_cast<std::uint32_t>(bytes.size()));
  return request;
}

schema::Request truncate_request(const std::string& handle, std::uint64_t sequence) {
  schema::Request request;
  request.set_sequence(sequence);
  request.mutable_setattr()->set_handle(handle);
  request.mutable_setattr()->set_size(0);
  return request;
}

// The first connection is `writer`; the server has not noticed that the client has given it up.
class SupersededWithLeases : public MountsWithLeases {
 protected:
  // Puts aside whatever changes the file, until answer_all().
  void SetUp() override { file = reader->handle("file"); }
  void connect_again() { again.emplace(server, writers()); }
  std::shared_ptr<PendingCall> begin(Mount& by, const schema::Request& request, std::string_view body = {}) {
    auto call = by.start(request, body);
    (void)pushes.wait_for(reader->connection());
    return call;
  }

  std::string file;
  std::optional<Mount> again;
};

// The newer bytes may have gone to the disk without waiting by then: what the first WRITE waited for does not
// hold up those after it for longer.
TEST_F(SupersededWithLeases, AWriteThatStillWaitsIsNotDone) {
  const auto old = begin(*writer, write_request(file, "old"), "old");
  connect_again();
  write_file(dir / "file", "new");
  pushes.answer_all();
  EXPECT_ERROR(old->wait(), ErrorCode::kConnectionLost);
  EXPECT_EQ(read_file(dir / "file"), "new");
}

TEST_F(SupersededWithLeases, ItsRepeatIs) {
  const auto old = begin(*writer, write_request(file, "two"), "two");
  connect_again();
  const auto repeat = again->start(write_request(file, "two"), "two");
  pushes.answer_all();
  EXPECT_OK(repeat->wait());
  EXPECT_ERROR(old->wait(), ErrorCode::kConnectionLost);
  EXPECT_EQ(read_file(dir / "file"), "two");
}

TEST_F(SupersededWithLeases, AChangeOfWhichNoRepeatComesIsNotDone) {
  const auto old = begin(*writer, truncate_request(file, 1));
  connect_again();
  pushes.answer_all();
  EXPECT_ERROR(old->wait(), ErrorCode::kConnectionLost);
  EXPECT_EQ(read_file(dir / "file"), "one");
  // One that comes later after all is a new one.
  EXPECT_OK(again->call(truncate_request(file, 1)));
  EXPECT_EQ(read_file(dir / "file"), "");
}

TEST_F(SupersededWithLeases, AChangeThatItsRepeatWaitsForIsDoneOnce) {
  const auto old = begin(*writer, truncate_request(file, 1));
  connect_again();
  const auto repeat = again->start(truncate_request(file, 1));
  EXPECT_OK(again->getattr(file));  // the repeat has been taken in: the lane is the same
  pushes.answer_all();
  EXPECT_OK(repeat->wait());
  EXPECT_EQ(read_file(dir / "file"), "");
  write_file(dir / "file", "new");
  EXPECT_OK(again->call(truncate_request(file, 1)));
  EXPECT_EQ(read_file(dir / "file"), "new");
}

TEST_F(SupersededWithLeases, ARepeatThatWasGivenUpDoesNotCount) {
  const auto old = begin(*writer, truncate_request(file, 1));
  connect_again();
  const auto repeat = again->start(truncate_request(file, 1));
  EXPECT_OK(again->getattr(file));
  repeat->cancel();
  pushes.answer_all();
  (void)old->wait();
  EXPECT_EQ(read_file(dir / "file"), "one");
}

// The server notices first that the connection is gone.
TEST_F(SupersededWithLeases, AChangeWhoseConnectionIsGoneIsNotDone) {
  const auto old = begin(*writer, write_request(file, "old"), "old");
  writer->disconnect();
  old->cancel();
  pushes.answer_all();
  EXPECT_ERROR(old->wait(), ErrorCode::kCancelled);
  EXPECT_EQ(read_file(dir / "file"), "one");
}

// What comes after it may be carried out before it.
TEST_F(SupersededWithLeases, AChangeThatWasGivenUpIsNotDone) {
  const auto old = begin(*writer, truncate_request(file, 1));
  old->cancel();
  pushes.answer_all();
  EXPECT_ERROR(old->wait(), ErrorCode::kCancelled);
  EXPECT_EQ(read_file(dir / "file"), "one");
}

TEST_F(SupersededWithLeases, NothingIsDoneForASessionThatIsOver) {
  const auto old = begin(*writer, write_request(file, "old"), "old");
  schema::Request detach;
  detach.mutable_detach();
  EXPECT_OK(writer->call(detach));
  pushes.answer_all();
  EXPECT_ERROR(old->wait(), ErrorCode::kConnectionLost);
  EXPECT_EQ(read_file(dir / "file"), "one");
}

// Then the session is another one, and the mount the same.
TEST_F(SupersededWithLeases, TheExportMayBeAnotherOneMeanwhile) {
  const auto old = begin(*writer, write_request(file, "old"), "old");
  ExportSettings settings{.name = "data", .path = dir.path(), .access = Access::kReadWrite};
  settings.clients = {client_key()};
  (void)server.service().replace_exports({Export::open(settings, test_secret()).value()});
  connect_again();
  EXPECT_FALSE(again->attached().resumed());
  pushes.answer_all();
  EXPECT_ERROR(old->wait(), ErrorCode::kConnectionLost);
  EXPECT_EQ(read_file(dir / "file"), "one");
}

TEST_F(SupersededWithLeases, WhatComesOverItLateIsRefused) {
  connect_again();
  EXPECT_ERROR(writer->write(file, 0, 0, "old"), ErrorCode::kConnectionLost);
  EXPECT_ERROR(writer->getattr(file), ErrorCode::kConnectionLost);
  EXPECT_EQ(read_file(dir / "file"), "one");
  EXPECT_THAT(pushes.cut, testing::ElementsAre(writer->connection())) << "nobody is at its other end";
  writer->disconnect();
  EXPECT_OK(again->getattr(file));
}

// Its packets were under way for longer than those of the one that came after it.
TEST_F(SupersededWithLeases, AnAttachThatIsOvertakenByANewerOneTakesNobodysPlace) {
  const auto of_number = [](std::uint64_t attempt) {
    MountSetup setup = writers();
    setup.attempt = attempt;
    return setup;
  };
  again.emplace(server, of_number(3));
  pushes.cut.clear();
  EXPECT_ERROR(Mount(server, of_number(2)).attach(), ErrorCode::kConnectionLost);
  EXPECT_TRUE(pushes.cut.empty());
  EXPECT_OK(again->getattr(file));
  Mount newest(server, of_number(4));
  EXPECT_OK(newest.getattr(file));
}

// Nothing copied is the end of the file to who asked.
TEST_F(SupersededWithLeases, ACopyThatItsRepeatWaitsForCopiesSomething) {
  write_file(dir / "source", "bytes");
  schema::Request request;
  request.set_sequence(1);
  request.mutable_copy_range()->set_source(writer->handle("source"));
  request.mutable_copy_range()->set_target(file);
  request.mutable_copy_range()->set_length(5);
  const auto old = begin(*writer, request);
  connect_again();
  const auto repeat = again->start(request);
  EXPECT_OK(again->getattr(file));
  old->cancel();
  pushes.answer_all();
  EXPECT_EQ(EXPECT_OK(repeat->wait()).reply.copy_range().copied(), 5u);
  EXPECT_EQ(read_file(dir / "file"), "bytes");
}

// A program's own changes, already answered: they are in order by their numbers, and no repeat is needed.
TEST_F(SupersededWithLeases, ALogIsCarriedOutAllTheSame) {
  schema::Request request;
  schema::LogRequest& log = *request.mutable_log();
  log.set_number(1);
  *log.add_entries() = write_request(file, "two");
  const auto old = begin(*writer, request, "two");
  connect_again();
  pushes.answer_all();
  EXPECT_OK(old->wait());
  EXPECT_EQ(read_file(dir / "file"), "two");
}

// Lets changes be made, and holds up what comes behind them until told otherwise.
class HeldUp {
 public:
  void operator()(Export&, const std::vector<std::string>&) {
    std::unique_lock lock(mutex_);
    if (!wanted_) return;
    wanted_ = false;
    held_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_; });
  }
  void hold_next() {
    const std::lock_guard lock(mutex_);
    wanted_ = true;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return held_; }));
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool wanted_ = false;
  bool held_ = false;
};

// Of three workers one is held up, and one serves what moves bytes after that.
class Superseded : public testing::Test {
 protected:
  explicit Superseded(unsigned workers = 3)
      : server(dir.path(),
               {.mutated = [this](Export& of, const std::vector<std::string>& nodes) { held_up(of, nodes); },
                .workers = workers}) {
    write_file(dir / "file", "one");
    write_file(dir / "other", "other");
    mount.emplace(server);
    file = mount->handle("file");
  }
  // Whatever was asked before of the kind that moves bytes has been taken in.
  void settle(Mount& by) { EXPECT_OK(by.read(by.handle("other"), 0, 0, 5)); }

  TempDir dir;
  HeldUp held_up;
  Server server;
  std::optional<Mount> mount;
  std::string file;
};

TEST_F(Superseded, TheRepeatOfAWriteThatIsBeingDoneWaitsForIt) {
  held_up.hold_next();
  const auto old = mount->start(write_request(file, "two"), "two");
  held_up.wait();
  Mount again(server);
  const auto repeat = again.start(write_request(file, "two"), "two");
  const auto behind = again.start(write_request(again.handle("other"), "three"), "three");
  settle(again);
  EXPECT_FALSE(repeat->answered());
  EXPECT_FALSE(behind->answered());
  held_up.let_go();
  EXPECT_OK(repeat->wait());
  EXPECT_OK(behind->wait());
  EXPECT_EQ(read_file(dir / "other"), "three");
}

// Two connections were lost, one after the other.
TEST_F(Superseded, WhoWaitsMayBeSupersededItself) {
  held_up.hold_next();
  const auto first = mount->start(write_request(file, "two"), "two");
  held_up.wait();
  Mount second(server);
  const auto waiting = second.start(write_request(file, "two"), "two");
  settle(second);
  Mount third(server);
  const auto newest = third.start(write_request(file, "two"), "two");
  settle(third);
  EXPECT_FALSE(newest->answered());
  held_up.let_go();
  EXPECT_OK(newest->wait());
  EXPECT_ERROR(waiting->wait(), ErrorCode::kConnectionLost);
}

TEST_F(Superseded, AWriteThatStillWaitsForAWorkerIsNotDone) {
  Mount other(server, {.session = std::string(kSessionIdBytes, 'o')});
  HeldUp& one = held_up;
  one.hold_next();
  const auto first = other.start(write_request(other.handle("other"), "busy!"), "busy!");
  one.wait();
  // The last worker for bytes is held up by whoever has the file's turn.
  const auto held = [&] {
    const auto fd = share(Fd(::open((dir / "other").c_str(), O_RDWR | O_CLOEXEC)));
    return FileChange::begin(*fd);
  }();
  const auto second = other.start(write_request(other.handle("other"), "busy?"), "busy?");
  const auto old = mount->start(write_request(file, "old"), "old");
  Mount again(server);
  one.let_go();
  EXPECT_OK(first->wait());
  EXPECT_ERROR(old->wait(), ErrorCode::kConnectionLost);
  EXPECT_EQ(read_file(dir / "file"), "one");
  EXPECT_FALSE(second->answered());
}

// One is held up, the other does everything else, one thing after the other.
class SupersededWithTwoWorkers : public Superseded {
 protected:
  SupersededWithTwoWorkers() : Superseded(2) {}
  schema::Request create_request() const {
    schema::Request request;
    request.set_sequence(1);
    request.mutable_create()->set_parent(mount->root());
    request.mutable_create()->set_name("made");
    request.mutable_create()->set_mode(0644);
    request.mutable_create()->set_flags(O_RDWR | O_EXCL);
    return request;
  }
  // Of an id that is not known any more the server asks the handle, and there is none in this.
  static void expect_open(Mount& by, const schema::OpenReply& made) {
    EXPECT_ERROR(by.write("", made.open_id(), 0, "x"), err(EBADF));
  }
};

TEST_F(SupersededWithTwoWorkers, AMutationThatIsBeingDoneIsAnsweredToItsRepeat) {
  held_up.hold_next();
  const auto old = mount->start(create_request());
  held_up.wait();
  Mount again(server);
  const auto repeat = again.start(create_request());
  EXPECT_OK(again.getattr(again.root()));
  old->cancel();
  held_up.let_go();
  expect_open(again, EXPECT_OK(repeat->wait()).reply.open());
}

TEST_F(SupersededWithTwoWorkers, ARepeatThatComesLaterFindsTheOpenFile) {
  held_up.hold_next();
  const auto old = mount->start(create_request());
  held_up.wait();
  mount->disconnect();
  old->cancel();
  held_up.let_go();
  (void)old->wait();
  Mount again(server);
  expect_open(again, EXPECT_OK(again.call(create_request())).reply.open());
}

}  // namespace
}  // namespace tusk::server

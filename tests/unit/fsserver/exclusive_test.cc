// Exclusiveness as clients of a file service see it: which requests bring it, who gives it up for whom.
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include <map>
#include <random>
#include <thread>

#include "log_of.h"
#include "mounts_with_leases.h"

namespace tusk::server {
namespace {

using testing::ElementsAre;

// `writer` wants directories for itself, `reader` looks at them.
class ExclusiveMounts : public MountsWithLeases {
 protected:
  using MountsWithLeases::MountsWithLeases;

  static schema::Request wanting(schema::Request request) {
    request.set_want_exclusive(true);
    return request;
  }
  static schema::Request create(const std::string& parent, std::string_view name) {
    schema::Request request;
    request.mutable_create()->set_parent(parent);
    request.mutable_create()->set_name(std::string(name));
    request.mutable_create()->set_flags(O_RDWR | O_EXCL);
    request.mutable_create()->set_mode(0644);
    return request;
  }
  static schema::Request lookup(const std::string& parent, std::string_view name) {
    schema::Request request;
    request.mutable_lookup()->set_parent(parent);
    request.mutable_lookup()->set_name(std::string(name));
    return request;
  }
  static schema::Request make_directory(const std::string& parent, std::string_view name) {
    schema::Request request;
    request.mutable_make_node()->set_parent(parent);
    request.mutable_make_node()->set_name(std::string(name));
    request.mutable_make_node()->set_mode(S_IFDIR | 0755);
    return request;
  }
  static schema::Request acquire(const std::vector<std::string>& directories) {
    schema::Request request;
    request.mutable_acquire()->mutable_handles()->Assign(directories.begin(), directories.end());
    return request;
  }
  static std::vector<schema::Cover> covers(const Answer& answer) {
    std::vector<schema::Cover> all;
    for (const int cover : answer.reply.acquire().names()) all.push_back(schema::Cover(cover));
    return all;
  }
  void expect_recalled_before(const schema::Request& request) {
    const auto waiting = reader->start(request);
    EXPECT_NE(pushes.wait_for_recall(writer->connection()).exclusive_over(), 0u);
    EXPECT_FALSE(waiting->answered());
    pushes.answer_all();
    EXPECT_OK(waiting->wait());
  }
};

TEST_F(ExclusiveMounts, ComesWithAChange) {
  const Answer made = EXPECT_OK(writer->call(wanting(create(writer->root(), "a"))));
  EXPECT_EQ(made.reply.names(), schema::COVER_EXCLUSIVE);
  EXPECT_NE(made.reply.exclusive(), 0u);
  const Answer not_wanted = EXPECT_OK(writer->call(create(writer->root(), "b")));
  EXPECT_EQ(not_wanted.reply.names(), schema::COVER_LEASE);
  EXPECT_EQ(not_wanted.reply.exclusive(), 0u);
}

// Clients compare: what was over before the server was restarted stays so.
TEST_F(ExclusiveMounts, HasNumbersAboveThoseOfTheServerBefore) {
  const auto an_hour_ago = static_cast<std::uint64_t>(::time(nullptr) - 3600);
  const std::uint64_t granted_then = (an_hour_ago << 24) + 1'000'000;
  EXPECT_GT(writer->call(wanting(create(writer->root(), "a"))).reply.exclusive(), granted_then);
}

TEST_F(ExclusiveMounts, ComesNotToWhoHasNoLeases) {
  writer.emplace(server, MountSetup{.session = std::string(kSessionIdBytes, 'o')});
  EXPECT_NE(EXPECT_OK(writer->call(wanting(create(writer->root(), "a")))).reply.names(),
            schema::COVER_EXCLUSIVE);
}

TEST_F(ExclusiveMounts, AQuestionThatWantsItBringsNoneAndHurtsNobody) {
  EXPECT_OK(writer->call(wanting(create(writer->root(), "a"))));
  schema::Request list;
  list.mutable_readdir()->set_handle(writer->root());
  list.mutable_readdir()->set_with_nodes(true);
  for (const schema::Request& question :
       {lookup(writer->root(), "file"), lookup(writer->root(), "sub"), list}) {
    const Answer answer = EXPECT_OK(writer->call(wanting(question)));
    EXPECT_NE(answer.reply.names(), schema::COVER_EXCLUSIVE);
    EXPECT_EQ(answer.reply.exclusive(), 0u);
  }
}

TEST_F(ExclusiveMounts, IsOfBothDirectoriesOfARenameOrOfNone) {
  schema::Request request;
  schema::RenameRequest& rename = *request.mutable_rename();
  rename.set_old_parent(writer->root());
  rename.set_old_name("file");
  rename.set_new_parent(writer->handle("sub"));
  rename.set_new_name("file");
  const Answer answer = EXPECT_OK(writer->call(wanting(request)));
  EXPECT_EQ(answer.reply.names(), schema::COVER_EXCLUSIVE);
  expect_recalled_before(lookup(rename.new_parent(), "file"));
}

TEST_F(ExclusiveMounts, ANewDirectoryIsItsMakers) {
  const Answer made = EXPECT_OK(writer->call(wanting(make_directory(writer->root(), "d"))));
  EXPECT_EQ(made.reply.names(), schema::COVER_EXCLUSIVE);
  EXPECT_EQ(made.reply.node().made_names(), schema::COVER_EXCLUSIVE);
  EXPECT_NE(made.reply.exclusive(), 0u);
}

TEST_F(ExclusiveMounts, IsNotOfWhatOthersKnow) {
  const std::string sub = reader->handle("sub");
  EXPECT_THAT(covers(EXPECT_OK(writer->call(acquire({sub, writer->root()})))),
              ElementsAre(schema::COVER_LEASE, schema::COVER_LEASE));
  EXPECT_EQ(pushes.waiting(), 0u) << "nobody is asked for it";
}

TEST_F(ExclusiveMounts, IsAcquiredDirectoryByDirectory) {
  const std::string sub = writer->handle("sub");
  const std::string file = writer->handle("file");
  const Answer answer = EXPECT_OK(writer->call(acquire({sub, "no handle", file})));
  EXPECT_THAT(covers(answer),
              ElementsAre(schema::COVER_EXCLUSIVE, schema::COVER_LIFETIME, schema::COVER_LEASE));
  EXPECT_NE(answer.reply.exclusive(), 0u);
  schema::Request many;
  for (int handle = 0; handle <= kNamesAtOnceMax; ++handle) many.mutable_acquire()->add_handles(sub);
  EXPECT_ERROR(writer->call(many), err(EINVAL));
}

// Nothing can be made there any more, and who makes things by itself would say that it had.
TEST_F(ExclusiveMounts, IsNotOfAnExportThatWasRemoved) {
  std::filesystem::remove_all(dir.path());
  EXPECT_THAT(covers(EXPECT_OK(writer->call(acquire({writer->root()})))),
              testing::Not(ElementsAre(schema::COVER_EXCLUSIVE)));
}

// A version, and the entries that every ACL has: user::rwx, group::r-x, other::r-x.
const std::string kAcl("\2\0\0\0\1\0\7\0\xff\xff\xff\xff\4\0\5\0\xff\xff\xff\xff\x20\0\5\0\xff\xff\xff\xff",
                       28);

TEST_F(ExclusiveMounts, IsNotOfADirectoryWithADefaultAcl) {
  if (::setxattr((dir / "sub").c_str(), "system.posix_acl_default", kAcl.data(), kAcl.size(), 0) != 0)
    GTEST_SKIP() << "no ACLs here";
  EXPECT_THAT(covers(writer->call(acquire({writer->handle("sub")}))), ElementsAre(schema::COVER_LEASE));
}

// What is made in it then gets its mode from the ACL, which only the server can tell.
TEST_F(ExclusiveMounts, IsNotGivenAgainToAHolderThatSetsADefaultAcl) {
  const std::string sub = writer->handle("sub");
  EXPECT_THAT(covers(writer->call(acquire({sub}))), ElementsAre(schema::COVER_EXCLUSIVE));
  schema::Request set;
  set.mutable_setxattr()->set_handle(sub);
  set.mutable_setxattr()->set_name("system.posix_acl_default");
  set.mutable_setxattr()->set_value(kAcl);
  if (writer->call(set).error() != ErrorCode::kOk) GTEST_SKIP() << "no ACLs here";
  EXPECT_THAT(covers(writer->call(acquire({sub}))), ElementsAre(schema::COVER_LEASE));
  EXPECT_EQ(EXPECT_OK(writer->call(wanting(create(sub, "a")))).reply.names(), schema::COVER_LEASE);
}

TEST_F(ExclusiveMounts, IsTakenBackBeforeAnybodyLooks) {
  const std::string sub = writer->handle("sub");
  write_file(dir / "sub" / "x", "");
  EXPECT_THAT(covers(writer->call(acquire({sub}))), ElementsAre(schema::COVER_EXCLUSIVE));
  expect_recalled_before(lookup(sub, "x"));
}

TEST_F(ExclusiveMounts, IsTakenBackBeforeAnybodyLists) {
  const std::string sub = writer->handle("sub");
  EXPECT_THAT(covers(writer->call(acquire({sub}))), ElementsAre(schema::COVER_EXCLUSIVE));
  schema::Request request;
  request.mutable_readdir()->set_handle(sub);
  expect_recalled_before(request);
}

TEST_F(ExclusiveMounts, IsTakenBackBeforeAnybodyAsksForAttributes) {
  const std::string sub = writer->handle("sub");
  EXPECT_THAT(covers(writer->call(acquire({sub}))), ElementsAre(schema::COVER_EXCLUSIVE));
  schema::Request request;
  request.mutable_getattr()->set_handle(sub);
  expect_recalled_before(request);
}

TEST_F(ExclusiveMounts, IsTakenBackBeforeAnybodyFindsIt) {
  const std::string sub = writer->handle("sub");
  EXPECT_THAT(covers(writer->call(acquire({sub}))), ElementsAre(schema::COVER_EXCLUSIVE));
  expect_recalled_before(lookup(reader->root(), "sub"));
}

TEST_F(ExclusiveMounts, IsTakenBackBeforeAnybodyChanges) {
  const std::string sub = writer->handle("sub");
  EXPECT_THAT(covers(writer->call(acquire({sub}))), ElementsAre(schema::COVER_EXCLUSIVE));
  expect_recalled_before(create(sub, "new"));
}

TEST_F(ExclusiveMounts, ListingsOfWhatLiesAboveDoNotDisturbIt) {
  const std::string sub = writer->handle("sub");
  EXPECT_THAT(covers(writer->call(acquire({sub}))), ElementsAre(schema::COVER_EXCLUSIVE));
  const Answer listed = EXPECT_OK(reader->readdir(reader->root(), 0, true));
  for (const auto& entry : listed.reply.readdir().entries())
    EXPECT_EQ(entry.has_node(), entry.name() == "file") << entry.name();
  schema::Request walk;
  walk.mutable_walk()->set_deep(true);
  walk.mutable_walk()->set_limit_bytes(65'536);
  walk.mutable_walk()->add_starts()->set_handle(reader->root());
  const Answer walked = EXPECT_OK(reader->call(walk));
  schema::WalkListings listings;
  ASSERT_TRUE(listings.ParseFromString(walked.text()));
  EXPECT_EQ(listings.listings_size(), 1);
  EXPECT_EQ(pushes.waiting(), 0u);
}

TEST_F(ExclusiveMounts, ItsHolderWaitsForNobody) {
  const std::string sub = writer->handle("sub");
  EXPECT_THAT(covers(writer->call(acquire({sub}))), ElementsAre(schema::COVER_EXCLUSIVE));
  const auto looking = reader->start(lookup(sub, "x"));
  (void)pushes.wait_for_recall(writer->connection());
  EXPECT_OK(writer->call(create(sub, "x")));
  EXPECT_OK(writer->lookup(sub, "x"));
  EXPECT_FALSE(looking->answered());
  pushes.answer_all();
  EXPECT_OK(looking->wait());
}

TEST_F(ExclusiveMounts, TheLogComesBeforeTheChangeThatWaitsForIt) {
  const std::string sub = writer->handle("sub");
  EXPECT_THAT(covers(writer->call(acquire({sub}))), ElementsAre(schema::COVER_EXCLUSIVE));
  const auto other = reader->start(create(sub, "x"));
  EXPECT_NE(pushes.wait_for_recall(writer->connection()).exclusive_over(), 0u);
  EXPECT_THAT(errors_of(LogOf(1).create(1, sub, "x").write(handle_of_alias(1), 0, "first").send(*writer)),
              ElementsAre(kDone, kDone));
  EXPECT_FALSE(other->answered());
  pushes.answer_all();
  EXPECT_ERROR(other->wait(), err(EEXIST));
  EXPECT_EQ(read_file(dir / "sub" / "x"), "first");
}

TEST_F(ExclusiveMounts, AnEntryOfALogTakesBackWhatOthersHold) {
  write_file(dir / "sub" / "x", "");
  const std::string sub = reader->handle("sub");
  (void)reader->lookup(sub, "x");
  const auto log = LogOf(1).remove(sub, "x").create(0, sub, "y").start(*writer);
  EXPECT_EQ(pushes.wait_for(reader->connection()).items(0).name(), "x");
  EXPECT_TRUE(std::filesystem::exists(dir / "sub" / "x"));
  pushes.answer_all();
  while (!log->answered()) pushes.answer_all();
  EXPECT_THAT(errors_of(log->wait()), ElementsAre(kDone, kDone));
}

TEST_F(ExclusiveMounts, ADirectoryMadeInALogIsExclusiveToo) {
  const std::string sub = writer->handle("sub");
  EXPECT_THAT(covers(writer->call(acquire({sub}))), ElementsAre(schema::COVER_EXCLUSIVE));
  const Answer answer =
      LogOf(1).make_directory(1, sub, "d").make_directory(2, handle_of_alias(1), "e").send(*writer);
  for (const auto& made : answer.reply.log().replies()) {
    EXPECT_EQ(made.node().made_names(), schema::COVER_EXCLUSIVE);
    EXPECT_NE(made.exclusive(), 0u);
  }
  schema::Request getattr;
  getattr.mutable_getattr()->set_handle(answer.reply.log().replies(1).node().node().handle());
  expect_recalled_before(getattr);
}

// Its maker knows that it is empty, and is told when it is not any more.
TEST_F(ExclusiveMounts, OneWhoseDirectoriesAreNotItsOwnGetsALeaseOnlyByALog) {
  const Answer answer = LogOf(1).make_directory(1, writer->root(), "d").send(*writer);
  EXPECT_EQ(answer.reply.log().replies(0).node().made_names(), schema::COVER_LEASE);
}

TEST_F(ExclusiveMounts, EndsWithTheSession) {
  const std::string sub = writer->handle("sub");
  EXPECT_THAT(covers(writer->call(acquire({sub}))), ElementsAre(schema::COVER_EXCLUSIVE));
  const auto looking = reader->start(lookup(sub, "none"));
  (void)pushes.wait_for_recall(writer->connection());
  schema::Request detach;
  detach.mutable_detach();
  EXPECT_OK(writer->call(detach));
  EXPECT_ERROR(looking->wait(), err(ENOENT));
}

TEST_F(ExclusiveMounts, ASilentHolderLosesIt) {
  const std::string sub = writer->handle("sub");
  EXPECT_THAT(covers(writer->call(acquire({sub}))), ElementsAre(schema::COVER_EXCLUSIVE));
  const auto looking = reader->start(lookup(sub, "none"));
  (void)pushes.wait_for_recall(writer->connection());
  server.housekeep_after(70s);
  EXPECT_EQ(pushes.cut, std::vector{writer->connection()});
  writer->disconnect();
  server.housekeep_after(5s);
  EXPECT_FALSE(looking->answered());
  server.housekeep_after(30s);
  EXPECT_ERROR(looking->wait(), err(ENOENT));
}

TEST_F(ExclusiveMounts, LocalProgramsEndIt) {
  const std::string sub = writer->handle("sub");
  EXPECT_THAT(covers(writer->call(acquire({sub}))), ElementsAre(schema::COVER_EXCLUSIVE));
  watch->events().changed({{.handle = sub, .name = "x"}});
  EXPECT_NE(pushes.wait_for_recall(writer->connection()).exclusive_over(), 0u);
}

class CrampedDisk : public ExclusiveMounts {
 protected:
  CrampedDisk() : ExclusiveMounts({.room_bytes = 1ull << 62, .room_files = 0}) {}
};

TEST_F(CrampedDisk, HasNoRoomForWhatIsAnsweredBeforeItIsMade) {
  EXPECT_THAT(covers(writer->call(acquire({writer->handle("sub")}))), ElementsAre(schema::COVER_LEASE));
}

TEST_F(ExclusiveMounts, EndsWhenOthersFillTheDisk) {
  const std::string small = dir / "small";
  std::filesystem::create_directory(small);
  if (::mount("tusk-test", small.c_str(), "tmpfs", 0, "size=4m") != 0)
    GTEST_SKIP() << "skipped, because a small tmpfs needs root";
  {
    Server on_small(small, {.watch = [](Export&, ChangeWatch::Events events) -> std::unique_ptr<ChangeWatch> {
                              return std::make_unique<TellTale>(std::move(events));
                            },
                            .leases = {.room_bytes = 2u << 20, .room_files = 0}});
    on_small.service().reach_clients_by(&pushes);
    Mount idle(on_small, MountSetup{.session = std::string(kSessionIdBytes, 'i'), .leases = true});
    EXPECT_THAT(covers(idle.call(acquire({idle.root()}))), ElementsAre(schema::COVER_EXCLUSIVE));
    on_small.housekeep_after(1s);
    write_file(small + "/others", std::string(3u << 20, 'x'));
    on_small.housekeep_after(2s);
    EXPECT_NE(pushes.wait_for_recall(idle.connection()).exclusive_over(), 0u);
    on_small.service().reach_clients_by(nullptr);
    pushes.answer_all();
  }
  EXPECT_EQ(::umount(small.c_str()), 0);
}

class FewInodes : public ExclusiveMounts {
 protected:
  FewInodes() : ExclusiveMounts({.room_bytes = 0, .room_files = 1ull << 62}) {}
};

TEST_F(FewInodes, HaveNoRoomEither) {
  struct statvfs room {};
  ASSERT_EQ(::statvfs(dir.path().c_str(), &room), 0);
  if (room.f_files == 0) GTEST_SKIP() << "a file system without a table of inodes";
  EXPECT_THAT(covers(writer->call(acquire({writer->handle("sub")}))), ElementsAre(schema::COVER_LEASE));
}

// Clients as they should be: they give back leases at once, and exclusiveness when no LOG of theirs is on its
// way.
class GoodClients final : public rpc::Outbound {
 public:
  GoodClients() : answering_([this](const std::stop_token& stop) { answer(stop); }) {}
  void call(rpc::ConnectionId connection, rpc::CallRequest request, rpc::Completion done) override {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({connection, request.message.invalidate().exclusive_over() != 0, std::move(done)});
    changed_.notify_all();
  }
  void disconnect(rpc::ConnectionId, std::string) override {}
  void count_log(rpc::ConnectionId connection, int more) {
    const std::lock_guard lock(mutex_);
    logs_[connection] += more;
    changed_.notify_all();
  }

 private:
  struct Push {
    rpc::ConnectionId connection;
    bool recall;
    rpc::Completion done;
  };
  void answer(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (true) {
      auto ready = waiting_.end();
      const auto find = [&] {
        ready = std::ranges::find_if(
            waiting_, [&](const Push& push) { return !push.recall || logs_[push.connection] == 0; });
        return ready != waiting_.end();
      };
      if (!changed_.wait(lock, stop, find)) return;
      rpc::Completion done = std::move(ready->done);
      waiting_.erase(ready);
      lock.unlock();
      rpc::CallReply reply;
      reply.message.mutable_empty();
      done(std::move(reply));
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Push> waiting_;
  std::map<rpc::ConnectionId, int> logs_;
  std::jthread answering_;
};

// One of several that work in the same directories, in no order.
class BusyMount {
 public:
  BusyMount(Server& server, GoodClients& clients, char name)
      : clients_(clients),
        mount_(server, {.session = std::string(kSessionIdBytes, name), .leases = true}),
        random_(static_cast<unsigned char>(name)),
        own_(static_cast<std::size_t>(name - 'x')) {
    for (const char* const directory : {"a", "b", "c"}) directories_.push_back(mount_.handle(directory));
  }
  void act() {
    schema::Request request;
    request.set_want_exclusive(true);
    switch (below(6)) {
      case 0:
        request.mutable_create()->set_parent(directory());
        request.mutable_create()->set_name(name());
        exclusive_ += mount_.call(request).reply.exclusive() != 0 ? 1 : 0;
        break;
      case 1:
        for (const std::string& each : directories_) request.mutable_acquire()->add_handles(each);
        exclusive_ += mount_.call(request).reply.exclusive() != 0 ? 1 : 0;
        break;
      case 2:
        (void)mount_.lookup(directory(), name());
        break;
      case 3:
        (void)mount_.readdir(directory(), 0, true);
        break;
      default:
        send_log();
    }
  }
  [[nodiscard]] int exclusive() const { return exclusive_; }

 private:
  void send_log() {
    ++number_;
    LogOf log(number_, number_ - 1);
    for (int entry = 0; entry < 8; ++entry) switch (below(4)) {
        case 0:
          log.create(1, directory(), name());
          break;
        case 1:
          log.make_directory(2, directory(), name());
          break;
        case 2:
          log.remove(directory(), name(), {}, below(2) == 0);
          break;
        default:
          log.rename(directory(), name(), name());
      }
    clients_.count_log(mount_.connection(), 1);
    EXPECT_EQ(EXPECT_OK(log.send(mount_)).reply.log().replies_size(), 8);
    clients_.count_log(mount_.connection(), -1);
  }
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  std::string name() { return std::string(1, static_cast<char>('p' + below(4))); }
  // Mostly its own.
  const std::string& directory() { return directories_[below(4) == 0 ? below(directories_.size()) : own_]; }

  GoodClients& clients_;
  Mount mount_;
  std::mt19937_64 random_;
  const std::size_t own_;
  std::vector<std::string> directories_;
  std::uint64_t number_ = 0;
  int exclusive_ = 0;
};

TEST(ManyExclusiveMounts, DoNotWaitForEachOtherForEver) {
  TempDir dir;
  for (const char* const directory : {"a", "b", "c"}) std::filesystem::create_directory(dir / directory);
  GoodClients clients;
  Server server(dir.path(), {.watch =
                                 [](Export&, ChangeWatch::Events events) {
                                   return std::make_unique<TellTale>(std::move(events));
                                 },
                             .leases = {.contested_for = 0s, .room_bytes = 0, .room_files = 0}});
  server.service().reach_clients_by(&clients);
  {
    std::vector<std::unique_ptr<BusyMount>> mounts;
    for (const char name : {'x', 'y', 'z'})
      mounts.push_back(std::make_unique<BusyMount>(server, clients, name));
    std::vector<std::jthread> threads;
    for (const auto& mount : mounts)
      threads.emplace_back([&mount] {
        for (int action = 0; action < 200; ++action) mount->act();
      });
    threads.clear();
    int exclusive = 0;
    for (const auto& mount : mounts) exclusive += mount->exclusive();
    EXPECT_GT(exclusive, 0) << "what is tried here";
  }
  server.service().reach_clients_by(nullptr);
}

}  // namespace
}  // namespace tusk::server

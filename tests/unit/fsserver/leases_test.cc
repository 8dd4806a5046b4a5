// Leases as clients of a file service see them: what replies promise, who is asked before a change.
#include <latch>

#include "mounts_with_leases.h"

namespace tusk::server {
namespace {

class LeasesOfMounts : public MountsWithLeases {
 protected:
  std::shared_ptr<PendingCall> begin_write(const std::string& handle, std::string_view bytes) {
    schema::Request request;
    request.mutable_write()->set_handle(handle);
    request.mutable_write()->set_length(static_cast<std::uint32_t>(bytes.size()));
    return writer->start(request, bytes);
  }
  std::shared_ptr<PendingCall> begin_remove(std::string_view name) {
    schema::Request request;
    request.mutable_remove()->set_parent(writer->root());
    request.mutable_remove()->set_name(std::string(name));
    return writer->start(request);
  }
};

TEST_F(LeasesOfMounts, AttachTellsTheTermsToWhoAsksForLeases) {
  EXPECT_EQ(reader->attached().lease_ms(), 10'000u);
  EXPECT_GT(reader->attached().lease_floor(), 0u);
  EXPECT_EQ(reader->attached().watching(), schema::WATCH_FANOTIFY);
  Mount old(server, {.session = std::string(kSessionIdBytes, 'o')});
  EXPECT_EQ(old.attached().lease_ms(), 0u);
  EXPECT_EQ(old.lookup(old.root(), "file").reply.node().node().attr().cover(), schema::COVER_LIFETIME);
}

TEST_F(LeasesOfMounts, AttachTellsWhatIsInTheRootToWhoAsks) {
  EXPECT_FALSE(reader->attached().has_root_listing());
  EXPECT_EQ(reader->attached().root_lease(), 0u);
  const std::string session(kSessionIdBytes, 'n');
  Mount fresh(server, {.session = session, .leases = true, .listing_bytes = 4096});
  const schema::AttachReply& told = fresh.attached();
  EXPECT_GE(told.root_lease(), told.lease_floor());
  EXPECT_EQ(told.root().attr().cover(), schema::COVER_LEASE);
  EXPECT_EQ(told.root_listing().names(), schema::COVER_LEASE);
  ASSERT_EQ(told.root_listing().entries_size(), 2);
  for (const auto& entry : told.root_listing().entries())
    EXPECT_EQ(entry.node().attr().cover(), schema::COVER_LEASE) << entry.name();

  const auto removing = begin_remove("file");
  EXPECT_EQ(pushes.wait_for(fresh.connection()).items(0).name(), "file");
  EXPECT_OK(writer->lookup(writer->root(), "file"));  // it is asked before the name goes
  pushes.answer_all();
  EXPECT_OK(removing->wait());
}

TEST_F(LeasesOfMounts, AttachTellsNothingOfARootThatIsLargeOrWithoutLeases) {
  Mount few(server, {.session = std::string(kSessionIdBytes, 'f'), .leases = true, .listing_bytes = 100});
  EXPECT_FALSE(few.attached().has_root_listing()) << "not in part";
  EXPECT_NE(few.attached().root_lease(), 0u) << "its attributes all the same";
  Mount old(server, {.session = std::string(kSessionIdBytes, 'o'), .listing_bytes = 4096});
  EXPECT_FALSE(old.attached().has_root_listing());
  EXPECT_EQ(old.attached().root_lease(), 0u);
}

TEST_F(LeasesOfMounts, FactsAreToldUnderALease) {
  const Answer found = EXPECT_OK(reader->lookup(reader->root(), "file"));
  EXPECT_GE(found.reply.lease(), reader->attached().lease_floor());
  EXPECT_EQ(found.reply.names(), schema::COVER_LEASE);
  EXPECT_EQ(found.reply.node().node().attr().cover(), schema::COVER_LEASE);
  const Answer listed = EXPECT_OK(reader->readdir(reader->root(), 0, true));
  EXPECT_EQ(listed.reply.names(), schema::COVER_LEASE);
  EXPECT_EQ(listed.reply.readdir().directory().cover(), schema::COVER_LEASE);
  for (const auto& entry : listed.reply.readdir().entries())
    EXPECT_EQ(entry.node().attr().cover(), schema::COVER_LEASE) << entry.name();
}

TEST_F(LeasesOfMounts, AbsenceIsToldUnderALeaseToWhoCanHearIt) {
  schema::Request request;
  request.mutable_lookup()->set_parent(reader->root());
  request.mutable_lookup()->set_name("nothing");
  EXPECT_ERROR(reader->call(request), err(ENOENT));
  request.mutable_lookup()->set_tell_absence(true);
  const Answer absent = EXPECT_OK(reader->call(request));
  EXPECT_FALSE(absent.reply.node().has_node());
  EXPECT_EQ(absent.reply.names(), schema::COVER_LEASE);
}

TEST_F(LeasesOfMounts, AChangeIsMadeWhenTheReaderHasAnswered) {
  const std::string file = reader->handle("file");
  const auto writing = begin_write(file, "two");
  const auto push = pushes.wait_for(reader->connection());
  EXPECT_EQ(push.items(0).handle(), file);
  EXPECT_TRUE(push.items(0).data());
  EXPECT_EQ(read_file(dir / "file"), "one");
  EXPECT_FALSE(writing->answered());
  pushes.answer_all();
  EXPECT_OK(writing->wait());
  EXPECT_EQ(read_file(dir / "file"), "two");
}

TEST_F(LeasesOfMounts, WhatIsReadWhileAChangeWaitsIsGoodOnce) {
  const std::string file = reader->handle("file");
  const auto writing = begin_write(file, "two");
  (void)pushes.wait_for(reader->connection());
  EXPECT_EQ(reader->getattr(file).reply.attr().attr().cover(), schema::COVER_ONCE);
  pushes.answer_all();
  EXPECT_EQ(writing->wait().reply.write().attr().cover(), schema::COVER_LEASE) << "the writer's own";
  EXPECT_EQ(reader->getattr(file).reply.attr().attr().cover(), schema::COVER_LEASE);
}

TEST_F(LeasesOfMounts, ARemovedNameAndItsFileAreBothTakenBack) {
  const std::string file = reader->handle("file");
  const auto removing = begin_remove("file");
  const auto push = pushes.wait_for(reader->connection());
  ASSERT_EQ(push.items_size(), 2);
  EXPECT_EQ(push.items(0).handle(), reader->root());
  EXPECT_EQ(push.items(0).name(), "file");
  EXPECT_EQ(push.items(1).handle(), file);
  pushes.answer_all();
  EXPECT_OK(removing->wait());
}

TEST_F(LeasesOfMounts, WhoIsAloneIsNotToldOfWhatItHasChanged) {
  (void)writer->handle("file");
  schema::Request detach;
  detach.mutable_detach();
  EXPECT_OK(reader->call(detach));
  EXPECT_OK(begin_remove("file")->wait());
  EXPECT_EQ(pushes.waiting(), 0u);
}

TEST_F(LeasesOfMounts, AClientWithoutLeasesTakesThemBackFromOthersToo) {
  const std::string file = reader->handle("file");
  writer.emplace(server, MountSetup{.session = std::string(kSessionIdBytes, 'o')});
  const auto writing = begin_write(file, "two");
  (void)pushes.wait_for(reader->connection());
  pushes.answer_all();
  EXPECT_OK(writing->wait());
}

TEST_F(LeasesOfMounts, AChangeByALocalProgramIsPushed) {
  const std::string file = reader->handle("file");
  watch->events().changed({{.handle = file, .data = true}});
  EXPECT_EQ(pushes.wait_for(reader->connection()).items(0).handle(), file);
}

TEST_F(LeasesOfMounts, AWatchOutlivesItsExportForThoseWhoStillHaveIt) {
  EXPECT_THAT(server.service().replace_exports({}), testing::SizeIs(2));
  watch->events().missed();
  reader->disconnect();
  writer->disconnect();
  server.housekeep_after(1s);
}

TEST_F(LeasesOfMounts, AMountThatSaidGoodbyeIsNotWaitedFor) {
  (void)reader->lookup(reader->root(), "file");
  reader->disconnect(true);
  schema::Request request;
  request.mutable_setattr()->set_handle(writer->lookup(writer->root(), "file").reply.node().node().handle());
  request.mutable_setattr()->set_mode(0600);
  EXPECT_OK(writer->call(request));  // no time passes here
}

TEST_F(LeasesOfMounts, ExportsOfTheSameFilesHaveNoLeases) {
  const auto exported = [](const std::string& name, const std::filesystem::path& path) {
    ExportSettings settings{.name = name, .path = path, .access = Access::kReadWrite};
    settings.clients = {client_key()};
    return Export::open(settings, test_secret()).value();
  };
  const auto again = [&] {
    reader->reconnect();
    EXPECT_OK(reader->attach());
    return reader->attached().lease_ms();
  };
  const auto data = exported("data", dir.path());
  (void)server.service().replace_exports({data});
  EXPECT_EQ(again(), 10'000u);
  const std::uint64_t lease = reader->lookup(reader->root(), "file").reply.lease();
  const auto inside = exported("inside", dir / "sub");
  EXPECT_THAT(server.service().replace_exports({data, inside}), testing::Contains(reader->connection()));
  EXPECT_EQ(again(), 0u);
  EXPECT_GT(reader->attached().lease_floor(), lease);
  EXPECT_THAT(server.service().replace_exports({data}), testing::Contains(reader->connection()));
  EXPECT_EQ(again(), 10'000u);
  std::filesystem::create_directory_symlink(dir.path(), dir / "sub" / "link");
  (void)server.service().replace_exports({data, exported("same", dir / "sub/link")});
  EXPECT_EQ(again(), 0u);
}

TEST_F(LeasesOfMounts, MissedChangesTakeEverythingBack) {
  const std::uint64_t lease = reader->lookup(reader->root(), "file").reply.lease();
  watch->events().missed();
  EXPECT_GT(pushes.wait_for(reader->connection()).lease_floor(), lease);
}

TEST_F(LeasesOfMounts, AReaderThatDoesNotAnswerLosesItsLeases) {
  const std::string file = reader->handle("file");
  const auto writing = begin_write(file, "two");
  (void)pushes.wait_for(reader->connection());
  server.housekeep_after(6s);
  EXPECT_EQ(pushes.cut, std::vector{reader->connection()});
  reader->disconnect();
  server.housekeep_after(5s);
  EXPECT_FALSE(writing->answered());
  server.housekeep_after(17s);
  EXPECT_OK(writing->wait());
}

TEST_F(LeasesOfMounts, AReaderThatUnmountsIsNotWaitedFor) {
  const std::string file = reader->handle("file");
  const auto writing = begin_write(file, "two");
  (void)pushes.wait_for(reader->connection());
  schema::Request request;
  request.mutable_detach();
  EXPECT_OK(reader->call(request));
  EXPECT_OK(writing->wait());
}

TEST_F(LeasesOfMounts, AReaderThatWasAwayIsToldWhenItIsBack) {
  const std::string file = reader->handle("file");
  const std::uint64_t floor = reader->attached().lease_floor();
  reader->reconnect();
  const auto writing = begin_write(file, "two");
  EXPECT_OK(reader->attach());
  EXPECT_EQ(reader->attached().lease_floor(), floor) << "nothing was lost";
  EXPECT_EQ(pushes.wait_for(reader->connection()).items(0).handle(), file);
  pushes.answer_all();
  EXPECT_OK(writing->wait());
}

// A write that is done, and not answered before the test says so.
class UnansweredWrite : public testing::Test {
 protected:
  UnansweredWrite()
      : server(dir.path(), {.mutated =
                                [this](Export&, const std::vector<std::string>&) {
                                  done.count_down();
                                  may_end.wait();
                                },
                            .watch = [](Export&, ChangeWatch::Events events) -> std::unique_ptr<ChangeWatch> {
                              return std::make_unique<TellTale>(std::move(events));
                            }}) {
    write_file(dir / "file", "one");
    server.service().reach_clients_by(&pushes);
    mount.emplace(server, MountSetup{.leases = true});
    file = mount->handle("file");
    schema::Request request;
    request.mutable_write()->set_handle(file);
    request.mutable_write()->set_length(6);
    writing = mount->start(request, "longer");
    done.wait();
  }
  ~UnansweredWrite() override {
    server.service().reach_clients_by(nullptr);
    pushes.answer_all();
  }

  TempDir dir;
  Pushes pushes;
  std::latch done{1}, may_end{1};
  Server server;
  std::optional<Mount> mount;
  std::string file;
  std::shared_ptr<PendingCall> writing;
};

TEST_F(UnansweredWrite, IsToldToWhoHasGivenItUp) {
  writing->cancel();
  may_end.count_down();
  const schema::InvalidateRequest push = pushes.wait_for(mount->connection());
  ASSERT_EQ(push.items_size(), 1);
  EXPECT_EQ(push.items(0).handle(), file);
  EXPECT_TRUE(push.items(0).data());
  EXPECT_TRUE(push.changed());
}

TEST_F(UnansweredWrite, IsToldToWhoIsBackByAnotherConnection) {
  mount->reconnect();
  (void)mount->attach();
  EXPECT_EQ(mount->getattr(file).reply.attr().attr().cover(), schema::COVER_LEASE);
  pushes.answer_all();
  may_end.count_down();
  const schema::InvalidateRequest push = pushes.wait_for(mount->connection());
  ASSERT_EQ(push.items_size(), 1);
  EXPECT_EQ(push.items(0).handle(), file);
}

TEST_F(UnansweredWrite, IsNotToldToWhoGetsTheAnswer) {
  may_end.count_down();
  EXPECT_OK(writing->wait());
  EXPECT_TRUE(server.service().drain(5s));
  EXPECT_EQ(pushes.waiting(), 0u);
}

// Whoever asks for a change gives it up when it has just begun.
class GivenUpAtItsBegin final : public ChangeWatch {
 public:
  explicit GivenUpAtItsBegin(std::shared_ptr<PendingCall>& call) : call_(call) {}
  [[nodiscard]] schema::ChangeWatching kind() const override { return schema::WATCH_FANOTIFY; }
  [[nodiscard]] bool watch_node(std::string_view, const Status&) override { return true; }
  [[nodiscard]] bool watch_names(std::string_view, const Fd&) override { return true; }
  void begin_own(const std::vector<NodeChange>&) override {
    sent_.wait();
    call_->cancel();
  }
  void note_sent() { sent_.count_down(); }

 private:
  std::shared_ptr<PendingCall>& call_;
  std::latch sent_{1};
};

TEST(HalfAChange, IsToldToWhoHasGivenItUp) {
  TempDir dir;
  write_file(dir / "file", "one");
  Pushes pushes;
  std::shared_ptr<PendingCall> truncating;
  GivenUpAtItsBegin* watch = nullptr;
  Server server(dir.path(), {.watch = [&](Export&, ChangeWatch::Events) {
                  auto made = std::make_unique<GivenUpAtItsBegin>(truncating);
                  watch = made.get();
                  return made;
                }});
  server.service().reach_clients_by(&pushes);
  Mount mount(server, {.leases = true});
  schema::Request request;
  request.mutable_setattr()->set_handle(mount.handle("file"));
  request.mutable_setattr()->set_size(1);
  request.mutable_setattr()->set_uid(4321);  // refused on this mount, and only then
  truncating = mount.start(request);
  watch->note_sent();
  EXPECT_ERROR(truncating->wait(), err(EPERM));
  EXPECT_EQ(read_file(dir / "file"), "o");
  const schema::InvalidateRequest push = pushes.wait_for(mount.connection());
  ASSERT_EQ(push.items_size(), 1);
  EXPECT_EQ(push.items(0).handle(), request.setattr().handle());
  EXPECT_TRUE(push.items(0).data());
  server.service().reach_clients_by(nullptr);
  pushes.answer_all();
}

}  // namespace
}  // namespace tusk::server

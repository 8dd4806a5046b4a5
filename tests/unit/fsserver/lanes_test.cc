// Further connections of a session: what they may, and that its main connection stays what it is.
#include "mounts_with_leases.h"
#include "proto/io/clock.h"

namespace tusk::server {
namespace {

std::unique_ptr<Mount> lane_of(Server& server, MountSetup setup = {}) {
  setup.lane = true;
  return std::make_unique<Mount>(server, std::move(setup));
}

TEST(SessionLanes, AServerSaysHowManyConnectionsASessionMayHave) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  EXPECT_EQ(mount.attached().connections_max(), kSessionConnectionsMax);
  std::vector<std::unique_ptr<Mount>> lanes;
  for (unsigned i = 1; i < kSessionConnectionsMax; ++i) {
    lanes.push_back(lane_of(server));
    EXPECT_TRUE(lanes.back()->attached().resumed()) << i;
  }
  EXPECT_ERROR(lane_of(server)->attach(), ErrorCode::kLimitExceeded);
  lanes.pop_back();
  EXPECT_TRUE(lane_of(server)->attached().resumed());
  EXPECT_EQ(server.service().clients().size(), 1u);
  EXPECT_EQ(server.service().sessions(), 1u);
}

TEST(SessionLanes, OneOfNoSessionIsRefused) {
  TempDir dir;
  TempDir state;
  const auto store = AccessStore::open(state / "state").value();
  Server server(dir.path(), {.access_store = store});
  for (const unsigned char client : {1, 2})
    ASSERT_TRUE(store->allow({client_key(client), "data", Access::kReadWrite}));
  EXPECT_ERROR(lane_of(server)->attach(), ErrorCode::kServerRestarted);
  EXPECT_EQ(server.service().sessions(), 0u);
  Mount mount(server);
  // The same id of another client is another session; and who has no right has none by that.
  EXPECT_ERROR(lane_of(server, {.key = client_key(2)})->attach(), ErrorCode::kServerRestarted);
  EXPECT_ERROR(lane_of(server, {.key = client_key(9)})->attach(), ErrorCode::kTokenRefused);
  EXPECT_ERROR(lane_of(server, {.session = std::string(kSessionIdBytes, 'o')})->attach(),
               ErrorCode::kServerRestarted);
  mount.disconnect();
  EXPECT_ERROR(lane_of(server)->attach(), ErrorCode::kServerRestarted);
}

TEST(SessionLanes, TheMainConnectionDoesNotBecomeOne) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  schema::Request request;
  request.mutable_attach()->set_export_name("data");
  request.mutable_attach()->set_session(std::string(kSessionIdBytes, 's'));
  request.mutable_attach()->set_version(kSchemaVersion);
  request.mutable_attach()->set_lane(true);
  EXPECT_ERROR(mount.call(request), ErrorCode::kMalformed);
  EXPECT_OK(mount.getattr(mount.root()));
  // Nor of another session once it has left its own.
  Mount other(server, {.session = std::string(kSessionIdBytes, 'o')});
  schema::Request detach;
  detach.mutable_detach();
  EXPECT_OK(mount.call(detach));
  request.mutable_attach()->set_session(std::string(kSessionIdBytes, 'o'));
  EXPECT_ERROR(mount.call(request), ErrorCode::kMalformed);
}

// Its locks may be somebody else's by then.
TEST(SessionLanes, DoNothingWhileTheMainConnectionIsGone) {
  TempDir dir;
  write_file(dir / "f", "bytes");
  Server server(dir.path());
  Mount mount(server);
  const std::string handle = mount.handle("f");
  const std::uint64_t open_id = mount.open(handle, O_RDWR).reply.open().open_id();
  const auto lane = lane_of(server);
  mount.reconnect();
  EXPECT_ERROR(lane->read(handle, open_id, 0, 10), ErrorCode::kConnectionLost);
  EXPECT_ERROR(lane->write(handle, open_id, 0, "other"), ErrorCode::kConnectionLost);
  EXPECT_EQ(read_file(dir / "f"), "bytes");
  EXPECT_OK(mount.attach());
  EXPECT_EQ(EXPECT_OK(lane->read(handle, open_id, 0, 10)).text(), "bytes");
}

TEST(SessionLanes, KeepNoSessionAlive) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  const std::string root = mount.root();
  const auto lane = lane_of(server);
  mount.disconnect();
  server.housekeep_after(kSessionKeepDefault + 1s);
  EXPECT_EQ(server.service().sessions(), 0u);
  EXPECT_ERROR(lane->getattr(root), ErrorCode::kConnectionLost);
}

// Its goodbye comes while it is being let in.
TEST(SessionLanes, ALaneThatTurnsRoundAtTheDoorTakesNothingAlong) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  for (int i = 0; i < 200; ++i) {
    const auto lane = lane_of(server);
    lane->reconnect();
    schema::Request request;
    request.mutable_attach()->set_export_name("data");
    request.mutable_attach()->set_session(std::string(kSessionIdBytes, 's'));
    request.mutable_attach()->set_version(kSchemaVersion);
    request.mutable_attach()->set_lane(true);
    const auto attaching = lane->start(request);
    lane->disconnect(true);
    (void)attaching->wait();
    EXPECT_OK(mount.getattr(mount.root()));
  }
  EXPECT_EQ(server.service().sessions(), 1u);
}

TEST(SessionLanes, HaveTheSessionsFilesAndRights) {
  TempDir dir;
  write_file(dir / "f", "bytes");
  Server server(dir.path());
  Mount mount(server, {.read_only = true});
  const std::string handle = mount.handle("f");
  const std::uint64_t open_id = mount.open(handle).reply.open().open_id();
  std::filesystem::remove(dir / "f");
  const auto lane = lane_of(server);
  EXPECT_EQ(EXPECT_OK(lane->read(handle, open_id, 0, 10)).text(), "bytes");
  EXPECT_ERROR(lane->make_directory(mount.root(), "d"), err(EROFS));
}

TEST(SessionLanes, ALaneThatLeavesTakesNothingAlong) {
  TempDir dir;
  write_file(dir / "f", "bytes");
  Server server(dir.path());
  Mount mount(server);
  const std::string handle = mount.handle("f");
  const std::uint64_t open_id = mount.open(handle).reply.open().open_id();
  std::filesystem::remove(dir / "f");
  for (const bool goodbye : {false, true}) {
    lane_of(server)->disconnect(goodbye);
    EXPECT_EQ(EXPECT_OK(mount.read(handle, open_id, 0, 10)).text(), "bytes") << goodbye;
  }
  EXPECT_EQ(server.service().sessions(), 1u);
}

// As on two connections of which one took the place of the other.
TEST(SessionLanes, AMutationIsDoneOnceWhicheverWayItComes) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  const auto lane = lane_of(server);
  schema::Request request;
  request.set_sequence(3);
  request.mutable_make_node()->set_parent(mount.root());
  request.mutable_make_node()->set_name("d");
  request.mutable_make_node()->set_mode(S_IFDIR | 0755);
  const Answer first = EXPECT_OK(lane->call(request));
  std::filesystem::remove(dir / "d");
  const Answer again = EXPECT_OK(mount.call(request));
  EXPECT_EQ(again.reply.SerializeAsString(), first.reply.SerializeAsString());
  EXPECT_FALSE(std::filesystem::exists(dir / "d"));
}

TEST(SessionLanes, EndWithTheSession) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  const std::string root = mount.root();
  const auto lane = lane_of(server);
  schema::Request detach;
  detach.mutable_detach();
  EXPECT_OK(mount.call(detach));
  EXPECT_ERROR(lane->getattr(root), err(EACCES));
  EXPECT_EQ(server.service().sessions(), 0u);
}

TEST(SessionLanes, ARightThatIsTakenAwayEndsThemToo) {
  TempDir dir;
  TempDir state;
  const auto store = AccessStore::open(state / "state").value();
  Server server(dir.path(), {.access_store = store});
  const std::int64_t now = io::unix_seconds();
  const auto short_lived = store->new_token("data", Access::kReadWrite, now + 1000, now).value();
  Mount mount(server, {.token = short_lived});
  const auto lane = lane_of(server, {.token = short_lived});
  EXPECT_TRUE(server.service().without_right(now).empty());
  EXPECT_THAT(server.service().without_right(now + 1000),
              testing::UnorderedElementsAre(mount.connection(), lane->connection()));
}

class LanesWithLeases : public MountsWithLeases {};

TEST_F(LanesWithLeases, WhatALaneWasToldTheMainConnectionIsToldBack) {
  const auto lane = lane_of(server, {.session = std::string(kSessionIdBytes, 'r'), .leases = true});
  const std::string file = reader->handle("file");
  const Answer told = EXPECT_OK(lane->getattr(file));
  EXPECT_EQ(told.reply.attr().attr().cover(), schema::COVER_LEASE);
  EXPECT_GE(told.reply.lease(), reader->attached().lease_floor());

  schema::Request write;
  write.mutable_write()->set_handle(file);
  write.mutable_write()->set_length(3);
  const auto writing = writer->start(write, "two");
  EXPECT_EQ(pushes.wait_for(reader->connection()).items(0).handle(), file);
  pushes.answer_all();
  EXPECT_OK(writing->wait());
  EXPECT_EQ(pushes.waiting(), 0u) << "the lane was told, too";
}

// Neither its end nor its coming is that of the session: what was told stays covered.
TEST_F(LanesWithLeases, ALaneComesAndGoesWithoutTheLeasesNoticing) {
  const std::string file = reader->handle("file");
  EXPECT_OK(reader->getattr(file));
  lane_of(server, {.session = std::string(kSessionIdBytes, 'r'), .leases = true})->disconnect(true);
  server.housekeep_after(30s);
  schema::Request write;
  write.mutable_write()->set_handle(file);
  write.mutable_write()->set_length(3);
  const auto writing = writer->start(write, "two");
  EXPECT_EQ(pushes.wait_for(reader->connection()).items(0).handle(), file);
  pushes.answer_all();
  EXPECT_OK(writing->wait());
}

}  // namespace
}  // namespace tusk::server

// A mount of several connections: real server, real UDP over loopback, real FUSE, all in this process.
#include "proto/rpc/lanes.h"

#include <fcntl.h>

#include <algorithm>

#include "proto/io/address.h"
#include "proto/io/clock.h"
#include "proto/rpc/server_endpoint.h"
#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

constexpr unsigned kConnections = 3;

class MountedOverLanes : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = no_fuse()) GTEST_SKIP() << "skipped, because " << *reason;
    server::ExportSettings settings;
    settings.name = "data";
    settings.path = exported_.path();
    settings.access = server::Access::kReadWrite;
    settings.clients = {client_identity_.fingerprint()};
    server::FileServiceOptions options;
    options.exports = {server::Export::open(settings, crypto::Secret::random()).value()};
    service_ = std::make_unique<server::FileService>(std::move(options));
    auto endpoint = rpc::ServerEndpoint::start(
        {.listen = {*io::parse("127.0.0.1:0")}, .shards = 2, .identity = &server_identity_}, *service_);
    ASSERT_TRUE(endpoint) << endpoint.error().message();
    endpoint_ = std::move(*endpoint);
    connect();
    const schema::AttachReply attached = channel_->attached();
    scheduler_ = std::make_unique<client::ThreadScheduler>();
    mount_ = std::make_unique<client::Mount>(
        client::MountOptions{.source = "tusk-test", .mountpoint = mountpoint_.path(), .auto_unmount = false});
    filesystem_ = std::make_unique<client::Filesystem>(
        *channel_, *scheduler_, *mount_, attached,
        client::Filesystem::Options{.identity = client::IdentityMap::real(),
                                    .cache_bytes = 64 * 1024 * 1024,
                                    .log = true,
                                    .path = [this] { return channel_->stats(); },
                                    .confirmed = [this] { return channel_->confirmed(); }});
    const auto started = mount_->start(*filesystem_);
    ASSERT_TRUE(started) << started.error().message();
  }

  void TearDown() override {
    if (!mount_) return;
    if (!mount_->unmount(false)) {
      (void)mount_->unmount(true);
      mount_->abort();
    }
    mount_->wait();
    channel_->close();
    scheduler_->stop();
    filesystem_.reset();
    endpoint_.reset();
  }

  void connect() {
    rpc::ChannelOptions options;
    options.host = "127.0.0.1";
    options.port = endpoint_->local_addresses().front().port();
    options.identity = &client_identity_;
    options.server_fingerprint = server_identity_.fingerprint();
    options.attach.set_export_name("data");
    options.attach.set_session(std::string(16, 's'));
    options.attach.set_version(1);
    options.attach.set_identity_real(true);
    options.attach.set_leases(true);
    auto channel = rpc::connect_with_lanes(std::move(options), {.connections = kConnections});
    ASSERT_TRUE(channel) << channel.error().message();
    channel_ = std::move(*channel);
    channel_->observe({});
    ASSERT_TRUE(eventually([&] { return channel_->stats().connections == kConnections; }));
  }

  // What the server has sent and got over the connection that had the least of both.
  [[nodiscard]] ByteCount least_carried() const {
    ByteCount least = ~ByteCount{0};
    for (const auto& connection : endpoint_->connections())
      least = std::min(least, connection.path.bytes_sent + connection.path.bytes_received);
    return least;
  }

  TempDir exported_;
  TempDir mountpoint_;
  const crypto::Identity server_identity_ = *crypto::Identity::generate();
  const crypto::Identity client_identity_ = *crypto::Identity::generate();
  std::unique_ptr<server::FileService> service_;
  std::unique_ptr<rpc::ServerEndpoint> endpoint_;
  std::unique_ptr<rpc::Channel> channel_;
  std::unique_ptr<client::ThreadScheduler> scheduler_;
  std::unique_ptr<client::Mount> mount_;
  std::unique_ptr<client::Filesystem> filesystem_;
};

TEST_F(MountedOverLanes, CopiesBothWays) {
  constexpr std::size_t kSize = 48 << 20;
  const std::string there = noise(kSize, 1);
  const std::string here = noise(kSize, 2);
  write_file(exported_ / "there", there);
  EXPECT_EQ(read_file(mountpoint_ / "there"), there);
  write_file(mountpoint_ / "here", here);
  EXPECT_EQ(read_file(exported_ / "here"), here);
  ASSERT_EQ(endpoint_->connections().size(), kConnections);
  EXPECT_GT(least_carried(), ByteCount{4} << 20) << "each of them has carried some of it";
}

// Bytes that are on their way over one when they are written again stay behind those that replace them.
TEST_F(MountedOverLanes, WhatIsWrittenLastIsWhatStays) {
  constexpr std::size_t kSize = 8 << 20;
  std::string bytes;
  const Fd fd(mountpoint_ / "f", O_RDWR | O_CREAT, 0644);
  for (std::uint64_t round = 0; round < 6; ++round) {
    bytes = noise(kSize, round);
    ASSERT_EQ(::pwrite(fd.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    if (round % 2 == 0) {
      ASSERT_EQ(::fsync(fd.get()), 0);
      EXPECT_EQ(read_file(exported_ / "f"), bytes);
    }
  }
  ASSERT_EQ(::fsync(fd.get()), 0);
  EXPECT_EQ(read_file(exported_ / "f"), bytes);
}

TEST_F(MountedOverLanes, LosesNothingWhenConnectionsBreak) {
  constexpr std::size_t kSize = 48 << 20;
  const std::string there = noise(kSize, 3);
  write_file(exported_ / "there", there);
  std::atomic<bool> over = false;
  std::jthread breaking([&] {
    while (!over) {
      for (const auto& connection : endpoint_->connections())
        if (connection.path.bytes_sent + connection.path.bytes_received > (ByteCount{6} << 20))
          endpoint_->disconnect(connection.peer.connection, "a test");
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(read_file(mountpoint_ / "there"), there);
  write_file(mountpoint_ / "here", there);
  over = true;
  breaking.join();
  EXPECT_EQ(read_file(exported_ / "here"), there);
}

}  // namespace
}  // namespace tusk::test

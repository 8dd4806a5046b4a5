// Long operations take turns with everything else, and come to the same.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "mount.h"
#include "proto/rpc/compression.h"

namespace tusk::server {
namespace {

using schema::Request;
constexpr int kFiles = 1000;

class Turns : public testing::Test {
 protected:
  Turns() {
    std::filesystem::create_directories(dir_ / "big/below");
    for (int i = 0; i < kFiles; ++i) write_file(dir_ / ("big/file" + std::to_string(i)), std::to_string(i));
  }

  [[nodiscard]] static Request walk(const Mount& mount, bool deep) {
    Request request;
    request.mutable_walk()->set_deep(deep);
    request.mutable_walk()->set_limit_bytes(1 << 20);
    request.mutable_walk()->add_starts()->set_handle(mount.root());
    return request;
  }
  // As those do who want much done and little told.
  [[nodiscard]] static Request hostile_walk(const std::string& directory) {
    Request request;
    request.mutable_walk()->set_limit_bytes(1);
    request.mutable_walk()->set_digests(true);
    request.mutable_walk()->add_known(1);
    request.mutable_walk()->add_starts()->set_handle(directory);
    return request;
  }
  [[nodiscard]] static Request read_files(const std::string& directory) {
    Request request;
    auto& message = *request.mutable_read_files();
    message.set_limit_bytes(1 << 20);
    message.set_file_bytes_max(65'536);
    message.add_folders()->set_handle(directory);
    for (int i = 0; i < kFiles; ++i) message.mutable_folders(0)->add_names("file" + std::to_string(i));
    return request;
  }
  // Names and handles: times may change when directories are read.
  [[nodiscard]] static std::vector<std::string> listed(const Answer& answer) {
    SharedBytes plain = answer.body;
    if (answer.reply.walk().compressed()) plain = *rpc::decompress(plain.bytes, answer.reply.walk().length());
    schema::WalkListings all;
    EXPECT_TRUE(all.ParseFromArray(plain.bytes.data(), static_cast<int>(plain.size())));
    std::vector<std::string> entries;
    for (const schema::WalkListing& listing : all.listings()) {
      entries.push_back(std::to_string(listing.parent()) + " " + std::to_string(listing.unlisted()));
      for (const schema::DirEntry& entry : listing.entries())
        entries.push_back(entry.name() + entry.node().handle());
    }
    return entries;
  }
  [[nodiscard]] static long answered(const std::vector<std::shared_ptr<PendingCall>>& calls) {
    return std::ranges::count_if(calls, [](const auto& call) { return call->answered(); });
  }

  TempDir dir_;
  Server server_{dir_.path(), {.workers = 2}};
  Mount mount_{server_};
};

TEST_F(Turns, ASmallWriteIsDoneBeforeTheWalksThatCameFirst) {
  Mount hostile(server_, {.key = client_key(2), .session = std::string(kSessionIdBytes, 'h')});
  const std::string file = mount_.handle("big/file1");
  const std::string big = hostile.handle("big");
  std::vector<std::shared_ptr<PendingCall>> walks;
  for (int i = 0; i < 40; ++i) walks.push_back(hostile.start(hostile_walk(big), {}, 65'536));
  for (int i = 0; i < 5; ++i) EXPECT_OK(mount_.write(file, 0, 0, "x"));
  EXPECT_LT(answered(walks), 20);
  for (const auto& each : walks) EXPECT_OK(each->wait());
}

TEST_F(Turns, WalksAndFilesComeToTheSameInManyTurns) {
  const std::string big = mount_.handle("big");
  const Answer alone = EXPECT_OK(mount_.call(walk(mount_, true), {}, 1 << 20));
  const Answer files_alone = EXPECT_OK(mount_.call(read_files(big), {}, 1 << 20));
  EXPECT_EQ(files_alone.reply.read_files().files_size(), kFiles);
  std::vector<std::shared_ptr<PendingCall>> walks;
  std::vector<std::shared_ptr<PendingCall>> files;
  for (int i = 0; i < 6; ++i) {
    walks.push_back(mount_.start(walk(mount_, true), {}, 1 << 20));
    files.push_back(mount_.start(read_files(big), {}, 1 << 20));
  }
  const auto told = listed(alone);
  EXPECT_GT(told.size(), static_cast<std::size_t>(kFiles));
  for (const auto& each : walks) EXPECT_TRUE(listed(EXPECT_OK(each->wait())) == told);
  for (const auto& each : files) EXPECT_TRUE(EXPECT_OK(each->wait()).text() == files_alone.text());
}

TEST_F(Turns, ThoseOfWhoGivesUpEnd) {
  std::vector<std::shared_ptr<PendingCall>> walks;
  const std::string big = mount_.handle("big");
  for (int i = 0; i < 40; ++i) walks.push_back(mount_.start(hostile_walk(big), {}, 65'536));
  for (const auto& each : walks) each->cancel();
  EXPECT_OK(mount_.getattr(big));
}

// No descriptor can be had as long as one of these lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(lowest);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(lowest);
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(NodeErrors, WithoutDescriptorsNothingIsGone) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "skipped, because the sanitizer looks at memory by descriptors of its own";
#endif
  for (const bool by_handle : {false, true}) {
    TempDir dir;
    std::filesystem::create_directories(dir / "d");
    write_file(dir / "d/file", "x");
    NodeTableSettings table;
    table.by_handle = by_handle;
    Server server(dir.path(), {.table = table});
    Mount mount(server);
    const std::string file = mount.handle("d/file");
    server.housekeep_after(kDescriptorIdleMax + 1s);
    {
      const NoDescriptors none;
      EXPECT_ERROR(mount.getattr(file), err(EMFILE)) << by_handle;
    }
    EXPECT_OK(mount.getattr(file));
    std::filesystem::remove(dir / "d/file");
    server.housekeep_after(kDescriptorIdleMax + 1s);
    EXPECT_ERROR(mount.getattr(file), err(ESTALE)) << by_handle;
  }
}

}  // namespace
}  // namespace tusk::server

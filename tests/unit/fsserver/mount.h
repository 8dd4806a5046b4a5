// The vocabulary of the file server's tests: a directory, a server that exports it, mounts of it.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fake_call.h"
#include "fsserver/file_service.h"
#include "tests/support/temp_dir.h"

namespace tusk::server {

[[nodiscard]] inline ErrorCode err(int number) { return from_errno(number); }

using support::read_file;
using support::TempDir;
using support::write_file;

[[nodiscard]] crypto::Fingerprint client_key(unsigned char which = 1);
[[nodiscard]] crypto::Secret test_secret();

struct ServerSetup {
  Access access = Access::kReadWrite;
  std::optional<std::string> act_as;
  bool setuid = false;
  std::shared_ptr<AccessStore> access_store;
  NodeTableSettings table;
  std::function<void(Export&, const std::vector<std::string>&)> mutated;
  std::function<std::unique_ptr<ChangeWatch>(Export&, ChangeWatch::Events)> watch;
  std::string name = "data";
  ByteCount reply_memory_max = 1ull << 30;
  unsigned workers = kWorkersDefault;
  std::size_t sessions_max = 4096;
  std::size_t descriptors_max = 65'536;
  ByteCount early_log_bytes_max = 512ull << 20;
  LeaseLimits leases = {.room_bytes = 0, .room_files = 0};
  std::filesystem::path lockers_dir;
  std::filesystem::path leasers_dir;
  std::filesystem::path commits_dir;
  DiskSync disk;
  bool own_housekeeping = false;
};

// One server process. Two of them, one after the other, on one directory: a restart.
class Server {
 public:
  explicit Server(const std::filesystem::path& directory, const ServerSetup& setup = {});

  [[nodiscard]] FileService& service() { return *service_; }
  [[nodiscard]] Export& exported() { return *export_; }
  void housekeep_after(Duration later);

 private:
  std::shared_ptr<Export> export_;
  std::unique_ptr<FileService> service_;
};

struct MountSetup {
  std::string export_name = "data";
  std::vector<std::byte> token;
  crypto::Fingerprint key = client_key();
  std::string session = std::string(kSessionIdBytes, 's');
  bool read_only = false;
  bool identity_real = false;
  bool leases = false;
  std::uint64_t log_answered = 0;
  std::uint64_t log_sent = 0;
  std::string log_answered_beyond = {};
  std::vector<schema::LockRequest> locks;  // held since before
  std::uint32_t listing_bytes = 0;
  bool lane = false;  // a further connection of the session
  std::uint64_t attempt = 0;
  std::vector<std::string> ended_sessions;
  bool knows_exclusive = false;
  std::shared_ptr<std::atomic<TimePoint>> heard = {};  // when its packets came; null: always
};

// One client's connection. Methods named after operations send one and wait for its answer.
class Mount {
 public:
  explicit Mount(Server& server, MountSetup setup = {});
  ~Mount() { disconnect(); }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;

  // Attaches; the answer is kept.
  Answer attach();
  [[nodiscard]] const schema::AttachReply& attached() const { return attached_; }
  // Lost and found again: a new connection of the same session, not yet attached.
  void reconnect();
  void disconnect(bool for_good = false);
  [[nodiscard]] rpc::ConnectionId connection() const { return peer_.connection; }

  std::shared_ptr<PendingCall> start(const schema::Request& request, std::string_view body = {},
                                     ByteCount capacity = kReadBytesMax);
  Answer call(const schema::Request& request, std::string_view body = {},
              ByteCount capacity = kReadBytesMax) {
    return start(request, body, capacity)->wait();
  }

  // Handles.
  [[nodiscard]] const std::string& root() const { return attached_.root().handle(); }
  // Of a path beneath the root, looked up name by name; "" when there is none.
  std::string handle(std::string_view path);

  Answer lookup(const std::string& parent, std::string_view name);
  Answer getattr(const std::string& handle, std::uint64_t open_id = 0);
  Answer make_directory(const std::string& parent, std::string_view name, unsigned mode = 0755);
  Answer make_symlink(const std::string& parent, std::string_view name, std::string_view target);
  Answer make_node(const std::string& parent, std::string_view name, unsigned mode);
  Answer open(const std::string& handle, int flags = O_RDONLY);
  Answer create(const std::string& parent, std::string_view name, int flags = O_RDWR | O_EXCL,
                unsigned mode = 0644);
  Answer close(std::uint64_t open_id);
  Answer read(const std::string& handle, std::uint64_t open_id, std::uint64_t offset, std::uint32_t length);
  Answer write(const std::string& handle, std::uint64_t open_id, std::uint64_t offset,
               std::string_view bytes);
  Answer append(const std::string& handle, std::uint64_t open_id, std::string_view bytes);
  Answer commit(const std::string& handle, std::uint64_t open_id = 0);
  Answer remove(const std::string& parent, std::string_view name, bool directory = false);
  Answer rename(const std::string& old_parent, std::string_view old_name, const std::string& new_parent,
                std::string_view new_name, unsigned flags = 0);
  Answer link(const std::string& handle, const std::string& parent, std::string_view name);
  Answer readdir(const std::string& handle, std::uint64_t cookie = 0, bool with_nodes = false,
                 std::uint32_t limit = 0);

 private:
  Server& server_;
  const MountSetup setup_;
  rpc::Peer peer_;
  bool connected_ = true;
  schema::AttachReply attached_;
};

// EXPECT_OK(mount.lookup(...)): with the server's own words when not.
#define EXPECT_OK(answer) tusk::server::expect_ok((answer), #answer, __FILE__, __LINE__)
Answer expect_ok(Answer answer, const char* what, const char* file, int line);
#define EXPECT_ERROR(answer, code) EXPECT_EQ((answer).error(), (code)) << #answer

}  // namespace tusk::server

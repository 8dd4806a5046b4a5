// The FUSE session: mounts, serves the kernel's requests on its own threads, unmounts.
//
// What it does not do: know about servers or options of the command line (cli.h), or flush (whoever
// unmounts has the Filesystem flushed before).
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fsclient/core.h"
#include "fsclient/fuse_adapter.h"
#include "proto/base/result.h"

struct fuse_session;

namespace tusk::client {

struct MountOptions {
  std::string source = "tusk";       // shown as the device in /proc/mounts; no secrets
  std::filesystem::path mountpoint;  // absolute
  bool read_only = false;
  bool allow_other = false;
  bool acls = false;                        // the kernel enforces ACLs
  bool auto_unmount = true;                 // a helper unmounts when this process dies
  std::vector<std::string> kernel_options;  // "nosuid", "noatime", ...
  unsigned threads = 4;                     // handlers never block, so few are enough
  unsigned read_ahead_kib = 4096;           // of the kernel's own; needs root to be raised
};

// libfuse's -o list. Whatever the source holds stays part of the source.
[[nodiscard]] std::string fuse_options(const MountOptions& options);

class Mount final : public KernelCache {
 public:
  explicit Mount(MountOptions options) : options_(std::move(options)) {}
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;
  // Unmounts lazily if that has not happened, and ends serving.
  ~Mount() override;

  // Whether `mountpoint` can be mounted on; if not, the error's context is a whole sentence that says
  // what to do. Removes the dead mount that an earlier daemon left there.
  [[nodiscard]] static Result<void> check(const std::filesystem::path& mountpoint);

  // Mounts and begins to serve `filesystem`, which must outlive the serving. Returns when the kernel
  // sends requests. Once per Mount.
  [[nodiscard]] Result<void> start(Filesystem& filesystem);
  // Waits until it is unmounted, by anybody.
  void wait();
  // EBUSY while it is in use, unless `lazy`: then it is out of the tree at once and gone with its last
  // user. Any thread.
  [[nodiscard]] Result<void> unmount(bool lazy);
  // Ends all requests with ENOTCONN, at once and for ever: when nothing else works.
  void abort();

  [[nodiscard]] const std::filesystem::path& mountpoint() const { return options_.mountpoint; }
  [[nodiscard]] bool serving() const { return serving_; }

  void invalidate_inode(NodeId node) override;
  void invalidate_from(NodeId node, ByteCount from) override;
  void invalidate_range(NodeId node, Interval range) override;
  bool invalidate_attributes(NodeId node) override;
  void invalidate_entry(NodeId parent, const std::string& name) override;

 private:
  [[nodiscard]] Result<void> open_session();
  void serve();
  void raise_read_ahead();
  [[nodiscard]] bool find_device();

  const MountOptions options_;
  std::unique_ptr<FuseAdapter> adapter_;
  fuse_session* session_ = nullptr;
  std::thread server_;
  std::atomic<bool> initialised_{false};
  std::atomic<bool> serving_{false};
  std::string device_;  // MAJOR:MINOR
};

// The command that unmounts for a user who is not root, or umount(2) for root. kOk when done; the
// error's context says what is in the way.
[[nodiscard]] Result<void> unmount_path(const std::filesystem::path& mountpoint, bool lazy);

}  // namespace tusk::client

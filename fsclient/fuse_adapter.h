// Between libfuse and Filesystem: each handler converts, calls, and replies. No decisions about files.
//
// Handlers never block: they answer at once or leave a callback behind. The kernel's INTERRUPT for a
// request in progress fires the Interrupt its operation was given.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "fsclient/filesystem.h"
#include "fsclient/interrupt.h"

struct fuse_lowlevel_ops;
struct fuse_conn_info;

namespace tusk::client {

// Requests in progress that can be interrupted. libfuse may call the interrupt function while the
// reply is being sent, so it is given a number instead of a pointer. Thread-safe.
class InterruptTable {
 public:
  [[nodiscard]] std::uint64_t add(std::shared_ptr<Interrupt> interrupt);
  void remove(std::uint64_t id);
  void fire(std::uint64_t id);

 private:
  static constexpr std::size_t kShards = 16;
  struct Shard {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, std::shared_ptr<Interrupt>> interrupts;
  };
  [[nodiscard]] Shard& shard(std::uint64_t id) { return shards_[id % kShards]; }

  std::atomic<std::uint64_t> next_{1};
  std::array<Shard, kShards> shards_;
};

struct FuseAdapter {
  // Largest READ and WRITE: libfuse 3.14 has room for 256 pages.
  static constexpr std::uint32_t kTransferMax = 1024 * 1024;
  // Requests in the background (read-ahead). The kernel's 12 and 9 would end read-ahead long before a
  // far path is full.
  static constexpr std::uint32_t kBackgroundMax = 1024;
  static constexpr std::uint32_t kCongestionThreshold = kBackgroundMax * 3 / 4;

  Filesystem& filesystem;
  bool acls = false;                        // the kernel enforces ACLs
  std::move_only_function<void()> on_init;  // the kernel is about to send requests
  InterruptTable interrupts;

  // Handlers for fuse_session_new; their userdata is a FuseAdapter.
  [[nodiscard]] static const fuse_lowlevel_ops& operations();
};

}  // namespace tusk::client

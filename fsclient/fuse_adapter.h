// Between libfuse and Filesystem: each handler converts, calls, and replies. No decisions about files.
//
// Handlers never block: they answer at once or leave a callback behind. A RequestTable decides what the
// kernel's INTERRUPT means for a request, and may answer it first: then what the operation brought is given
// back.
#pragma once

#include <cstdint>
#include <functional>

#include "fsclient/filesystem.h"
#include "fsclient/request_table.h"

struct fuse_lowlevel_ops;
struct fuse_conn_info;

namespace tusk::client {

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
  RequestTable requests{filesystem.scheduler(), [this] { return filesystem.server_silent(); }, end_early};

  // Answers a fuse_req_t with EINTR.
  static void end_early(void* request);

  // Handlers for fuse_session_new; their userdata is a FuseAdapter.
  [[nodiscard]] static const fuse_lowlevel_ops& operations();
};

}  // namespace tusk::client

// What the path to a server carried the last time that much was moved, so that the next mount starts as fast
// (remembered_path.h).
//
// A text file in the client's state directory, one line a server: "HOST:PORT RTT_US SENT RECEIVED", in
// bytes/s. It holds nothing that would be missed: what cannot be read is unknown, and it may be deleted.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "proto/base/result.h"
#include "proto/rpc/path_stats.h"
#include "proto/transport/remembered_path.h"

namespace tusk::client {

class KnownPaths {
 public:
  // Who has moved less one way has not seen what the line carries that way.
  static constexpr ByteCount kMovedMin = 64 * 1024 * 1024;

  explicit KnownPaths(std::filesystem::path file) : file_(std::move(file)) {}

  [[nodiscard]] std::optional<transport::RememberedPath> find(const std::string& server) const;
  // What a mount came to. Each way that it has hardly used keeps what was known, if the path is still the
  // same.
  [[nodiscard]] Result<void> remember(const std::string& server, const rpc::PathStats& path) const;

 private:
  const std::filesystem::path file_;
};

}  // namespace tusk::client

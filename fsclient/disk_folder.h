// The place of a disk cache: a folder of ours that nobody else reads, and in it one for each export, which
// one mount uses at a time. What it does not do: read or write what is cached (disk_cache.h).
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "proto/base/result.h"
#include "proto/base/strong_int.h"

namespace tusk::client {

class DiskFolder {
 public:
  using Path = std::filesystem::path;

  // Makes what is missing, mode 0700. `server_key`: the server's fingerprint, so that no server is believed
  // what another one said. Errors' contexts are whole sentences: kBadConfig when `directory` is not ours, can
  // be read by others, or holds other things; EBUSY when another mount uses this export's part of it.
  [[nodiscard]] static Result<std::unique_ptr<DiskFolder>> open(const Path& directory,
                                                                std::string_view server_key,
                                                                std::string_view export_name);
  DiskFolder(const DiskFolder&) = delete;
  DiskFolder& operator=(const DiskFolder&) = delete;
  ~DiskFolder();

  [[nodiscard]] const Path& path() const { return path_; }
  // 10 GiB, or a tenth of what is free (or cached here already) if that is less; at least kBytesMin.
  [[nodiscard]] ByteCount default_size() const;

  static constexpr ByteCount kBytesMin = 64ull * 1024 * 1024;

 private:
  DiskFolder(Path path, int lock) : path_(std::move(path)), lock_(lock) {}

  const Path path_;
  const int lock_;
};

}  // namespace tusk::client

// File handles as clients hold them: what the file system calls the inode, sealed by a MAC.
//
//   handle  = mac (16) payload           mac = HMAC-SHA256(export's key, payload), truncated
//   payload = kind (1) device (8) type (4) bytes (0..99)
//
// A client can neither forge a handle to a file that it has not been shown nor use one in another
// export. Little endian; opaque to everybody but the server that made it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fsserver/attributes.h"
#include "fsserver/fd.h"
#include "proto/base/result.h"
#include "proto/crypto/primitives.h"

namespace tusk::server {

constexpr std::size_t kHandleBytesMax = 128;
constexpr std::size_t kHandleMacBytes = 16;

// What stays the same for an inode's whole life and is never used again for another.
struct FileIdentity {
  enum class Kind : std::uint8_t {
    kOpenable = 1,  // `bytes` is a file handle for open_by_handle_at(2)
    kNamed = 2,     // no such handle fits: inode number and birth time; found again by name only
  };
  static constexpr std::size_t kBytesMax = kHandleBytesMax - kHandleMacBytes - 13;

  Kind kind = Kind::kNamed;
  std::uint64_t device = 0;  // 0: the export root's, whatever its number is after the next boot
  std::int32_t type = 0;     // handle_type of the file system
  std::string bytes;

  bool operator==(const FileIdentity&) const = default;
};

[[nodiscard]] Result<FileIdentity> identify(const Fd& fd, const Status& status, std::uint64_t root_device);

class HandleCodec {
 public:
  // `root` ties the handles to the directory that is exported, not only to the name it is exported by.
  HandleCodec(const crypto::Secret& secret, std::string_view export_name, const FileIdentity& root);

  [[nodiscard]] std::string encode(const FileIdentity& identity) const;
  // ESTALE for anything that encode() of this export did not make.
  [[nodiscard]] Result<FileIdentity> decode(std::string_view handle) const;

 private:
  crypto::Secret key_;
};

}  // namespace tusk::server

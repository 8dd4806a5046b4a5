// What stat(2) tells of a file, as the client keeps it: the schema's Attr without protobuf's weight.
#pragma once

#include <sys/stat.h>
#include <time.h>

#include <cstdint>

#include "proto/base/strong_int.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::client {

struct Attributes {
  std::uint64_t ino = 0;
  std::uint32_t mode = 0;  // type and permission bits
  std::uint32_t nlink = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint64_t rdev = 0;
  ByteCount size = 0;
  std::uint64_t blocks = 0;  // units of 512 bytes
  std::uint32_t block_size = 4096;
  timespec atime{};
  timespec mtime{};
  timespec ctime{};
  std::uint64_t change = 0;  // differs whenever content or attributes differ; 0: unknown
  bool no_xattrs = false;    // known to have none

  [[nodiscard]] static Attributes from_schema(const schema::Attr& attr);

  [[nodiscard]] bool is_directory() const { return S_ISDIR(mode); }
  [[nodiscard]] bool is_regular() const { return S_ISREG(mode); }
};

[[nodiscard]] constexpr bool earlier(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}
[[nodiscard]] constexpr bool same_time(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace tusk::client

// Directories entry by entry, for the operations that list them: READDIR and WALK.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "fsserver/call.h"
#include "fsserver/fd.h"
#include "proto/base/result.h"

namespace tusk::server {

struct RawEntry {
  std::uint64_t ino;
  std::uint64_t cookie;
  std::uint8_t type;
  std::string_view name;  // valid until the next entry is read

  [[nodiscard]] bool dots() const { return name == "." || name == ".."; }
};

// Reads entries one after the other from an open directory.
class DirectoryReader {
 public:
  explicit DirectoryReader(Fd fd) : fd_(std::move(fd)) {}

  // False: at the end.
  [[nodiscard]] Result<bool> next(RawEntry& entry);

  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] Fd take_fd() { return std::move(fd_); }

 private:
  static constexpr std::size_t kKernelBufferBytes = 32 * 1024;
  // In one call: entries that vanish meanwhile make a page shorter, not endless.
  static constexpr int kKernelReadsMax = 1024;

  Fd fd_;
  alignas(8) std::array<char, kKernelBufferBytes> buffer_;
  std::size_t place_ = 0;
  std::size_t filled_ = 0;
  int reads_ = 0;
  bool ended_ = false;
};

// Fills in the node of an entry whose name is set, and what goes with it. `handle` is the directory's.
enum class Examined : std::uint8_t { kYes, kNo, kVanished };
[[nodiscard]] Examined examine(Call& call, const SharedFd& directory, std::string_view handle,
                               schema::DirEntry& entry);

// Whether list_whole() is likely to find room in so many bytes. Examines nothing, takes no lease, and does
// not read far in a large directory.
[[nodiscard]] Result<bool> names_fit(const NodeTable::Found& directory, std::size_t limit);

// All entries of a directory, and that nothing else is in it, as far as `left` bytes go, which becomes less
// by what they take. False: there is no room for all of them.
[[nodiscard]] Result<bool> list_whole(Call& call, const NodeTable::Found& directory,
                                      schema::WalkListing& listing, std::size_t& left);

}  // namespace tusk::server

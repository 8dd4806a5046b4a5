// Directories entry by entry, for the operations that list them: READDIR and WALK.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "fsserver/call.h"
#include "fsserver/fd.h"
#include "fsserver/worker_pool.h"
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

constexpr Cost kEntryCost = 8;  // to look an entry up and stat it

// Fills in the node of an entry whose name is set, and what goes with it. `handle` is the directory's.
enum class Examined : std::uint8_t { kYes, kNo, kVanished };
[[nodiscard]] Examined examine(Call& call, const SharedFd& directory, std::string_view handle,
                               schema::DirEntry& entry);

// Whether list_whole() is likely to find room in so many bytes. Examines nothing, takes no lease, and does
// not read far in a large directory.
[[nodiscard]] Result<bool> names_fit(const NodeTable::Found& directory, std::size_t limit);

// All entries of a directory, and that nothing else is in it, as far as `left` bytes go: in as many turns of
// its worker as it takes.
class WholeLister {
 public:
  // `listing` must outlive it.
  [[nodiscard]] static Result<WholeLister> begin(Call& call, NodeTable::Found directory,
                                                 schema::WalkListing& listing, std::size_t left);

  enum class Progress : std::uint8_t {
    kTurnOver,  // go_on() in the next one
    kWhole,
    kNoRoom,  // for all of them
  };
  [[nodiscard]] Result<Progress> go_on(Call& call);

  [[nodiscard]] const NodeTable::Found& directory() const { return directory_; }
  [[nodiscard]] std::size_t left() const { return left_; }
  [[nodiscard]] std::size_t examined() const { return examined_; }

 private:
  WholeLister(NodeTable::Found directory, Fd fd, schema::WalkListing& listing, std::size_t left)
      : directory_(std::move(directory)),
        reader_(std::make_unique<DirectoryReader>(std::move(fd))),
        listing_(&listing),
        left_(left) {}
  void add(Call& call, const RawEntry& raw);

  NodeTable::Found directory_;
  std::unique_ptr<DirectoryReader> reader_;  // it is large
  schema::WalkListing* listing_;
  std::size_t left_;
  bool room_ = true;
  std::size_t examined_ = 0;
};

}  // namespace tusk::server

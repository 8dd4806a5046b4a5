// Inode numbers that this mount shows of files that it has made by itself (docs/SEMANTICS.md, N2).
//
// 32-bit programs get EOVERFLOW from stat(2) and readdir(3) for numbers of more than 32 bits. So the numbers
// are taken from 2^32 - 1 down, above all that the server has told, and of more than 32 bits only where the
// server's are too. Should the server tell a number after this mount has given it away, the file here that
// has it shows another one.
//
// Thread-safe; no lock is taken but after such a collision.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>

namespace tusk::client {

class OwnNumbers {
 public:
  // Above any number of a local file system's, and below those of other file systems in the export
  // (fsserver/attributes.h). `number` is unique within the mount.
  [[nodiscard]] static constexpr std::uint64_t wide(std::uint64_t number) { return kWide | number; }

  // The server has told of a file with this number.
  void saw(std::uint64_t ino) {
    if (ino <= highest_.load(std::memory_order_relaxed) && ino <= next_.load(std::memory_order_relaxed))
      return;
    note(ino);
  }
  // One that neither the server nor this mount has told so far. `number` as of wide().
  [[nodiscard]] std::uint64_t take(std::uint64_t number);
  // The server has told it of another file since.
  [[nodiscard]] bool collided(std::uint64_t own) const {
    return any_collided_.load(std::memory_order_acquire) && is_among_collided(own);
  }

 private:
  static constexpr std::uint64_t kWide = 1ull << 62;
  static constexpr std::uint64_t kForeign = 1ull << 63;
  static constexpr std::uint64_t kNarrowMax = (1ull << 32) - 1;
  static constexpr std::uint64_t kNarrowMin = 1ull << 31;

  void note(std::uint64_t ino);
  [[nodiscard]] bool is_among_collided(std::uint64_t own) const;

  std::atomic<std::uint64_t> highest_{0};        // of the server's
  std::atomic<std::uint64_t> next_{kNarrowMax};  // those above it have been given away
  std::atomic<bool> any_collided_{false};
  mutable std::mutex mutex_;
  std::set<std::uint64_t> collided_;
};

}  // namespace tusk::client

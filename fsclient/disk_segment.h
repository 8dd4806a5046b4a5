// A file of the disk cache: records (disk_record.h) one after the other, only ever appended. When it is full
// their heads follow once more as one table, so that a start reads that and not the whole file:
//
//   segment = record* [table trailer]
//   table   = head*
//   trailer = magic (4) count (4) length of the table (8) checksum of the table (8) checksum of these (8)
//
// Nothing is synced: what a crash leaves behind is seen by its checksums, and cut off.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "fsclient/disk_record.h"
#include "proto/base/result.h"
#include "proto/base/strong_int.h"

namespace tusk::client {

// read() may be called by several threads beside one that appends. All calls can wait for the disk.
class DiskSegment {
 public:
  using Path = std::filesystem::path;
  static constexpr ByteCount kTrailerBytes = 32;
  // Where a record begins; segments are smaller than 4 GiB.
  using Offset = std::uint32_t;

  // A new one; EEXIST when there is such a file.
  [[nodiscard]] static Result<std::unique_ptr<DiskSegment>> create(const Path& path);
  [[nodiscard]] static Result<std::unique_ptr<DiskSegment>> open(const Path& path);
  DiskSegment(const DiskSegment&) = delete;
  DiskSegment& operator=(const DiskSegment&) = delete;
  ~DiskSegment();

  // Tells all records, then cuts off what is damaged behind them. Once, after open() and before append().
  [[nodiscard]] Result<void> load(const std::function<void(const DiskHead&, Offset)>& found);

  // Returns where it begins. After a failure the file is as it was before, as far as the disk allows.
  [[nodiscard]] Result<Offset> append(const DiskHead& head, std::span<const std::byte> bytes);
  // No more records: writes the table.
  [[nodiscard]] Result<void> seal();
  [[nodiscard]] bool sealed() const { return sealed_; }

  // The bytes of `key`'s record, checked; `target` is as long as they are. kMalformed when they are not what
  // was written.
  [[nodiscard]] Result<void> read(const DiskKey& key, Offset offset, std::span<std::byte> target) const;

  // Of the file, once it is sealed.
  [[nodiscard]] ByteCount bytes() const { return sealed_ ? end_ : end_ + table_.size() + kTrailerBytes; }
  // For the next start: it was of use just now.
  void note_use() const;
  // By any thread. Takes the file away; read() goes on working.
  void remove();
  // By any thread. The same file under another name.
  [[nodiscard]] Result<void> rename(const Path& path);

 private:
  DiskSegment(Path path, int fd) : path_(std::move(path)), fd_(fd) {}
  [[nodiscard]] bool load_table(ByteCount size, const std::function<void(const DiskHead&, Offset)>& found);
  void load_records(ByteCount size, const std::function<void(const DiskHead&, Offset)>& found);

  [[nodiscard]] std::string name() const;

  mutable std::mutex path_mutex_;
  Path path_;
  const int fd_;
  ByteCount end_ = 0;
  bool sealed_ = false;
  std::string table_;  // heads so far
  std::uint32_t count_ = 0;
};

}  // namespace tusk::client

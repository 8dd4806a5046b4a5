// Listings of directories on the disk of this machine, as WALKs told them: the one place that joins the disk
// cache to them.
//
// A kept listing is never used by itself. A WALK says which ones are here, by the digests that the server
// gave them (docs/PROTOCOL.md, "Trees"), and the answer says which of them are still what the server would
// tell: as if it had told them in that answer, under its leases and with its covers. So nothing from the disk
// is older than an answer of the server's.
//
// Without a disk cache all of it does nothing. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fsclient/disk_cache.h"
#include "fsclient/inode.h"
#include "fsclient/scheduler.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::client {

class KeptListings {
 public:
  // Where they lie among the blocks of a file: one that no file reaches. Another format gets another number.
  static constexpr std::uint64_t kBlock = ~std::uint64_t{0};
  // Of one listing, packed: as a block of a file. Larger ones are not kept.
  static constexpr ByteCount kPackedMax = kBlockSize;
  static constexpr ByteCount kPlainMax = 1024 * 1024;  // what one answer may bring

  // For one request: the server takes no more.
  static constexpr std::size_t kGatheredMax = 4096;
  static constexpr ByteCount kGatheredBytesMax = 4 * 1024 * 1024;
  // A disk that takes longer than this (it was asleep, it hangs) is no nearer than the server.
  static constexpr Duration kGatherTimeMax = std::chrono::milliseconds(200);

  struct Kept {
    std::uint64_t digest = 0;
    schema::WalkListing listing;  // entries only, without covers
  };
  struct Gathered {
    std::unordered_map<std::string, Kept> listings;  // by their directories' handles
    ByteCount bytes = 0;                             // of them, unpacked
    bool cut_short = false;                          // there is more than was to be brought
  };

  // `disk`: null, or outlives it.
  KeptListings(Scheduler& scheduler, DiskCache* disk) : scheduler_(scheduler), disk_(disk) {}

  [[nodiscard]] bool enabled() const { return disk_ != nullptr; }
  // There is a listing of the directory, of whatever age. Looks at memory only.
  [[nodiscard]] bool has(const Inode& directory) const;

  // Stores a listing that was told with its digest, unless it is there.
  void keep(Inode& directory, const schema::WalkListing& told);

  // What is there of these directories and of those found in them, depth first in the order of the listings,
  // as the server goes; as much as comes in time, unpacked at most `bytes_max`. `done` runs once, on any
  // thread.
  using Done = std::move_only_function<void(Gathered)>;
  void gather(std::vector<std::string> handles, ByteCount bytes_max, Done done);

 private:
  struct Gathering;
  void go_on(const std::shared_ptr<Gathering>& gathering);
  void take_in(Gathering& gathering, const DiskKey& key, const SharedBytes& packed);
  static void end(Gathering& gathering);

  Scheduler& scheduler_;
  DiskCache* const disk_;
};

}  // namespace tusk::client

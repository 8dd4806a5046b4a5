// The bytes of one file that this mount holds: which are valid, which are not on the server yet, which
// are on their way in or out. The rules that keep them right are all here:
//
//  - Bytes from the server fill gaps only: they never overwrite what a program wrote meanwhile.
//  - Memory is never written while somebody else uses it: a READ on its way into a block, a WRITE on
//    its way out of it, a reply to the kernel. A writer that meets one of them gets a new buffer.
//  - Bytes that were sent stay in memory until they are on the server's disk, in the block or beside it; less
//    than half of a block in a copy, so that they do not hold on to all of it.
//  - At most one WRITE per block is on its way, so overlapping writes cannot change their order.
//
// Pure state: no lock (the Inode's mutex protects it), no calls, no clock.
//
// Blocks are 256 KiB: one block is one call. Two bandwidth-delay products of 10 Gbit/s at 200 ms are
// 2,000 calls, which the transport is made for; a line of 10 Mbit/s delivers one in 0.2 s, so a program
// does not wait long for its page; small files and the tails of files take only what they need.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "fsclient/block_cache.h"
#include "proto/base/interval_set.h"
#include "proto/base/shared_bytes.h"
#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::client {

struct OpenFile;
struct ReadOperation;

// All READs that together bring a whole file ahead. Under the inode's mutex.
struct WholeFetch {
  std::uint32_t parts = 0;               // that have not ended
  std::move_only_function<void()> done;  // none is left
};

// One READ on its way. Created and ended by FileData; the call itself is Reader's.
struct Fetch {
  Interval range;             // of the file, inside one block
  MutableSharedBytes target;  // range.size() bytes
  bool into_block = true;     // target is the block's own memory
  bool stale = false;         // the file changed meanwhile: what comes is not to be used
  bool read_ahead = false;    // nobody asked for it yet
  // Once the call has ended: how many bytes have come, and up to where (an offset in the file) there are
  // zeros behind them.
  ByteCount filled = 0;
  ByteCount zero_end = 0;
  bool follows_page = false;  // which somebody asked for: at a file's head it is as urgent as that
  TimePoint started{};
  std::atomic<std::uint64_t> call{0};                   // once known, to cancel it
  std::atomic<bool> given_up{false};                    // nobody waits for it any more
  std::vector<std::shared_ptr<ReadOperation>> waiters;  // continue when it ends, however it ends
  std::shared_ptr<WholeFetch> whole;                    // of which it is a part; null: of none
};

// One WRITE to be sent. `bytes` stay untouched until it has ended; then a program may write over them
// (BlockBuffer::keep).
struct OutgoingWrite {
  std::uint64_t block = 0;
  Interval range;
  SharedBytes bytes;
  std::shared_ptr<OpenFile> writer;
};

class FileData {
 public:
  FileData(BlockCache& cache, std::weak_ptr<Inode> inode);
  FileData(const FileData&) = delete;
  FileData& operator=(const FileData&) = delete;
  ~FileData();

  // ---- reading

  [[nodiscard]] bool has(Interval range) const { return valid_.covers(range.begin, range.end); }
  // The parts of it that are there, in order.
  [[nodiscard]] std::vector<Interval> parts(Interval range) const {
    return valid_.overlap(range.begin, range.end);
  }
  // Some of it is there that no program here has written since the server was last asked to take it.
  [[nodiscard]] bool has_settled(Interval range) const;
  // No byte is here, or on its way from or to here.
  [[nodiscard]] bool blank() const {
    return valid_.empty() && unsettled_.empty() && fetches_of({0, ~ByteCount{0}}).empty();
  }
  // Memory of a range that is there, in order; to be let go soon.
  [[nodiscard]] std::vector<SharedBytes> lend(Interval range);
  // Begins a fetch for every byte of `range` that is neither there nor on its way, in pieces of at most
  // `call_max` bytes. Pieces grow to multiples of `grain` where nothing is in the way, not past `limit`.
  [[nodiscard]] std::vector<std::shared_ptr<Fetch>> begin_fetches(Interval range, ByteCount grain,
                                                                  ByteCount limit, ByteCount call_max);
  // How many bytes of it are neither there nor on their way.
  [[nodiscard]] ByteCount missing(Interval range) const;
  // Those on their way that bring bytes of `range`.
  [[nodiscard]] std::vector<std::shared_ptr<Fetch>> fetches_of(Interval range) const;
  // The call ended: `filled` bytes arrived at the target. Past them, up to `zero_end` (an offset in the
  // file), the file has no bytes on the server but is known to reach further: zeros.
  // `change`: the file's change counter before the server read them; 0: not known, or they are not its alone.
  void end_fetch(const std::shared_ptr<Fetch>& fetch, ByteCount filled, ByteCount zero_end,
                 std::uint64_t change);
  // Bytes of the server that came another way.
  void fill(ByteCount offset, std::span<const std::byte> bytes, std::uint64_t change);
  // All valid bytes of the block came from the server, with this change counter; 0: they did not.
  [[nodiscard]] std::uint64_t change_of(std::uint64_t block) const;

  // Blocks of `range` stay until release(): somebody is about to read them.
  void hold(Interval range);
  void release(Interval range);

  // A reader in order has passed them; the kernel has them now.
  void note_spent(Interval range);
  void touch(Interval range);

  // ---- writing

  // Returns how many bytes are dirty now that were not.
  ByteCount write(ByteCount offset, std::span<const std::byte> bytes,
                  const std::shared_ptr<OpenFile>& writer);
  // The next extent of a block to be sent; nullopt when it is clean or one is on its way.
  [[nodiscard]] std::optional<OutgoingWrite> begin_write(std::uint64_t block, ByteCount call_max);
  // On failure, and if they were disowned, the bytes are gone, except where they were written anew. Returns
  // the writer to let go.
  std::shared_ptr<OpenFile> end_write(std::uint64_t block, bool success);
  [[nodiscard]] bool disowned(std::uint64_t block) const { return blocks_.at(block).disowned; }
  [[nodiscard]] bool any_disowned() const { return disowned_ > 0; }
  // The mount ends; nothing more will be sent.
  void let_writers_go();

  // Blocks that have dirty bytes or a WRITE on its way.
  [[nodiscard]] const std::set<std::uint64_t>& unsettled() const { return unsettled_; }
  [[nodiscard]] bool all_settled() const { return unsettled_.empty(); }
  // A block whose last byte was written is not likely to be written again.
  [[nodiscard]] bool written_to_the_end(std::uint64_t block) const;
  [[nodiscard]] bool dirty(std::uint64_t block) const;
  // Dirty, with no WRITE on its way behind which it would go: it has to be sent by somebody.
  [[nodiscard]] bool lies_dirty(std::uint64_t block) const;
  // Some of it is dirty since this generation or an older one.
  [[nodiscard]] bool dirty_since(std::uint64_t block, std::uint64_t generation) const;
  // Ends a generation: settled(returned) is true once all that is dirty now has been answered.
  [[nodiscard]] std::uint64_t next_generation() { return generation_++; }
  [[nodiscard]] bool settled(std::uint64_t generation) const;
  // Dirty bytes and those in WRITEs on their way.
  [[nodiscard]] ByteCount pending_bytes() const { return dirty_bytes_ + sending_bytes_; }
  [[nodiscard]] ByteCount dirty_bytes() const { return dirty_bytes_; }

  // ---- changes made elsewhere

  // Forgets what the server may know better: all but dirty bytes and those being sent.
  void forget(Interval range);
  // Somebody else changed the bytes, before or after the WRITEs of them that are on their way: nobody here
  // knows. What those have sent is forgotten once they are answered.
  void disown(Interval range);
  // Those who wrote behind `size` may have done so before or after. Returns how many dirty bytes are gone
  // with it.
  ByteCount truncate(ByteCount size);
  // True when the block is gone.
  bool evict(std::uint64_t block);

 private:
  struct Block {
    std::shared_ptr<BlockBuffer> buffer;  // null until it is needed
    std::optional<Interval> sending;
    bool disowned = false;               // those in `sending`, or some of them
    std::uint64_t dirty_generation = 0;  // no dirty byte is older
    // WRITEs go through a block's dirty extents in turn, so that one written again and again does not
    // keep the others waiting. Where the next one begins, and when the present turn began.
    ByteCount cursor = 0;
    std::uint64_t turn_generation = 0;
    std::uint64_t sending_generation = 0;
    std::vector<std::shared_ptr<Fetch>> fetches;
    std::uint32_t holds = 0;
    std::uint64_t change = 0;  // see change_of()
    std::shared_ptr<OpenFile> writer;
    BlockCache::Position position;
  };

  [[nodiscard]] static std::uint64_t index_of(ByteCount offset) { return offset / kBlockSize; }
  [[nodiscard]] static Interval extent_of(std::uint64_t index) {
    return {index * kBlockSize, (index + 1) * kBlockSize};
  }
  Block& block_at(std::uint64_t index);
  [[nodiscard]] std::span<std::byte> memory(std::uint64_t index, Block& block, Interval range);
  void reserve(std::uint64_t index, Block& block, ByteCount end, bool whole);
  void replace_buffer(std::uint64_t index, Block& block, std::size_t capacity);
  [[nodiscard]] static bool fetched_into(const Block& block, Interval range);
  [[nodiscard]] static bool in_use_elsewhere(const Block& block, Interval range);
  void fill_gaps(std::uint64_t index, Block& block, Interval range, std::span<const std::byte> bytes);
  void note_change(std::uint64_t index, Block& block, std::uint64_t change);
  void make_stale(Block& block, Interval range);
  void leave_kept(std::uint64_t index, Block& block);
  void drop_if_empty(std::uint64_t index);

  BlockCache& cache_;
  const std::weak_ptr<Inode> inode_;
  std::map<std::uint64_t, Block> blocks_;
  IntervalSet valid_;
  IntervalSet dirty_;  // inside valid_
  std::set<std::uint64_t> unsettled_;
  ByteCount dirty_bytes_ = 0;
  ByteCount sending_bytes_ = 0;
  std::size_t disowned_ = 0;  // blocks
  std::uint64_t generation_ = 1;
};

}  // namespace tusk::client

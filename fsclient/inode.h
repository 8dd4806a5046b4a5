// What this mount knows of one file of the server, whatever its names are.
//
// Everything but the constants is protected by `mutex`. Nobody holds two inodes' mutexes at once, and
// no reply, call or notification is made while one is held (deferred.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fsclient/attr_cache.h"
#include "fsclient/data_version.h"
#include "fsclient/directory.h"
#include "fsclient/file_data.h"
#include "fsclient/opens_meanwhile.h"
#include "fsclient/push_answer.h"
#include "fsclient/read_ahead.h"
#include "fsclient/untold_failures.h"
#include "proto/base/interval_set.h"
#include "proto/base/result.h"
#include "proto/base/strong_int.h"

namespace tusk::client {

class InodeTable;

// The kernel's name for an inode: never used for another one as long as the mount lives.
using NodeId = StrongInt<struct NodeIdTag>;
constexpr NodeId kRootNode{1};

// Waits until all that is dirty at a moment has been answered.
struct FlushWaiter {
  std::uint64_t generation = 0;
  std::uint64_t ticket = 0;  // to give up
  std::move_only_function<void(Result<void>)> done;
};

// A file's bytes, fetched ahead (files_ahead.h).
enum class AskedAhead : std::uint8_t {
  kNo,
  kOnItsWay,    // with others
  kByReads,     // by READs of its own, which a read of it finds
  kBehindDrop,  // here, but the kernel has to drop older ones first
};

// The part of an inode that only regular files need.
struct FileState {
  FileState(BlockCache& cache, std::weak_ptr<Inode> inode) : data(cache, std::move(inode)) {}

  FileData data;
  DataVersion version;           // of the data, ours and the kernel's
  bool data_handed_out = false;  // the kernel may cache some of it, beside what it is being told to drop
  // The weakest of what the bytes here, and those that the kernel has, were told under; none: nothing was
  // told since all were forgotten. Facts::note_bytes_locked() says how it comes about.
  std::optional<Learnt> bytes_learnt;
  void forget_bytes() {
    data.forget({0, ~ByteCount{0}});
    bytes_learnt.reset();
  }
  // The server has taken back the lease, of the attributes at least: bytes that were asked for before are
  // told under none.
  TimePoint pushed_at = TimePoint::min();
  // Reads that wait until the server has said whether what is here is still the file's.
  std::vector<std::shared_ptr<ReadOperation>> waiting_for_check;
  // Reads of the kernel's that are not answered yet, or whose pages are about to be dropped: see
  // Facts::drop_pages_beside_reads().
  struct KernelReads {
    std::vector<Interval> ranges;
    std::uint64_t drops = 0;   // that passed over some
    bool passed_over = false;  // by a drop, at least one of them

    void end(Interval range) {
      const auto found = std::ranges::find(ranges, range);
      if (found != ranges.end()) ranges.erase(found);
      passed_over = passed_over && !ranges.empty();
    }
  } kernel_reads;
  // What KernelPages knows of it.
  bool pages_watched = false;
  int pages_looks = 0;  // since the server was asked, which has not answered; 0: it need not
  bool pages_drop_due = false;
  // Somebody else changed the bytes, or what became of a change of ours is not known: what was asked for
  // before may tell of older ones. What happens to the attributes alone does not count.
  TimePoint taken_back_at = TimePoint::min();
  [[nodiscard]] bool overtaken(TimePoint asked) const { return asked < taken_back_at; }
  // Who has moved the change counter since the attributes were told: this mount, which renamed, linked or
  // unlinked the file, so that the bytes are what they were; or (also) somebody else.
  enum class Touched : std::uint8_t { kNot, kByUs, kByOthers };
  Touched touched = Touched::kNot;
  void touch() { touched = std::max(touched, Touched::kByUs); }

  // Our own writes, as far as the attributes do not tell of them yet: the file reaches at least to their end,
  // and they take up room. More than a few pieces are taken for one.
  static constexpr std::size_t kWrittenPiecesMax = 1024;
  IntervalSet written;
  void note_written(Interval range) {
    written.add(range.begin, range.end);
    if (written.intervals().size() > kWrittenPiecesMax)
      written.add(written.front().begin, written.back().end);
  }
  [[nodiscard]] ByteCount written_end() const { return written.empty() ? 0 : written.back().end; }
  timespec written_time{};             // when a program last wrote
  TimePoint last_write{};              // when the last WRITE or other change of ours was answered
  bool timer_armed = false;            // write-behind's
  std::uint64_t timer_generation = 0;  // what is dirty since then goes when the timer ends
  // A WRITE has been a call of its own since everything was settled last: what is still on its way in the log
  // has no order with it.
  bool beside_log = false;

  // A failed write is told to everyone who has the file open: each OpenFile remembers what it told.
  std::uint64_t errors = 0;
  Error last_error;
  UntoldFailures::Id failure = 0;  // the last
  TimePoint error_logged_at = TimePoint::min();

  std::vector<FlushWaiter> flush_waiters;
  std::uint64_t next_ticket = 1;
  bool capability_absent = false;  // no security.capability, which the kernel asks for at every write

  OpensMeanwhile opens_meanwhile;

  // What files_ahead.h knows of it.
  Ahead ahead;  // all bytes were fetched ahead; while it holds, one open needs no server
  AskedAhead asked_ahead = AskedAhead::kNo;
  TimePoint opened_at = TimePoint::min();
  std::uint64_t streamed = 0;  // its place among the files nobody has opened yet; 0: none
  // Run when they are there or will not come, and once before if they have to wait for a drop of pages.
  std::vector<std::move_only_function<void()>> ahead_waiters;

  // Kept_blocks.h asks the server of which change the file is: who waits to hear it.
  std::vector<std::move_only_function<void(std::uint64_t)>> waiting_for_change;
};

// What the operation log has to do with an inode (filesystem_log.cc).
struct InodeInLog {
  std::uint32_t entries = 0;     // unanswered, that concern it: what others say of it is older
  std::uint64_t made_under = 0;  // this mount made it by itself, and as long as this exclusiveness stands
                                 // nobody else knows it; 0: not so
  std::uint64_t number = 0;      // its own, by which entries' aliases tell it from others
  std::string alias;             // what entries call it until the server's handle is known
  // What programs were shown before the server had made it stays so: its number, and the times of its last
  // change as long as nobody changes it again; of directories that of their names, too. Who goes through a
  // tree that it has just made (tar) would take other times for a change.
  std::uint64_t shown_ino = 0;
  std::optional<timespec> shown_ctime;
  std::optional<timespec> shown_mtime;   // never without shown_ctime
  std::uint64_t shown_until_change = 0;  // 0: until the last entry is answered
  // The newest that answers to this mount's changes have told meanwhile: entries' and those of calls beside
  // it.
  struct OwnChange {
    Attributes attr;
    Told told;
    bool by_log = false;
  };
  std::optional<OwnChange> told;
  bool order_guessed = false;   // which of them is: it is asked for once there are no entries any more
  std::optional<Error> failed;  // the server did not make it
  UntoldFailures::Id failure = 0;
  bool open_unconfirmed = false;  // a program has it open, and the server may have no descriptor for that
  // A directory's attributes are what they must be after this mount's changes; the server has not told them.
  std::uint64_t assumed_under = 0;

  void show_no_other_times() {
    shown_ctime.reset();
    shown_mtime.reset();
  }
  // Something else happened to the directory.
  void assume_no_more() {
    assumed_under = 0;
    show_no_other_times();
  }
};

class Inode : public std::enable_shared_from_this<Inode> {
 public:
  // An empty handle: this mount makes it by itself.
  Inode(InodeTable& table, NodeId node, std::string server_handle) : id(node), table_(table) {
    if (!server_handle.empty()) take_handle(std::move(server_handle));
  }
  Inode(const Inode&) = delete;
  Inode& operator=(const Inode&) = delete;
  ~Inode();

  const NodeId id;

  // The server's handle; empty until it is known. Another one only once the server has lost the node and it
  // was made again (redo.h). Thread-safe; what it returns lives as long as the inode.
  [[nodiscard]] const std::string& handle() const;
  [[nodiscard]] bool on_server() const { return handle_.load(std::memory_order_acquire) != nullptr; }
  // What an entry of the operation log calls it.
  [[nodiscard]] const std::string& name_in_log() const { return on_server() ? handle() : log.alias; }
  // The server has made it. Once.
  void arrive(std::string handle);

  std::mutex mutex;
  CachedAttributes attributes;
  std::unique_ptr<FileState> file;       // regular files
  std::unique_ptr<Directory> directory;  // directories
  // The size the kernel knows, at which it cuts reads: what it was told last, or has written since.
  std::optional<ByteCount> told_size;
  std::optional<std::string> link_target;
  // Where it was seen last: what is next to it is likely to be wanted next.
  std::weak_ptr<Inode> parent;
  std::string name;
  TimePoint lent_until = TimePoint::min();  // the kernel may use the attributes without asking: loans.h
  std::vector<OpenFile*> open_files;
  std::set<std::uint64_t> lock_owners;  // POSIX locks were granted to them
  int pages_being_dropped = 0;          // notifications to the kernel that are still to come
  ChangesOnTheirWay changes;            // by programs that hold a lock of the kernel's meanwhile
  InodeInLog log;

  // What this mount shows of a file is reckoned here and nowhere else: what the server has told, or what this
  // mount has made of it, with its own writes that the server's answers do not tell of yet. Size, blocks and
  // times agree with one another, and with what a local file system would show.

  // The size programs see: the server's, or further if they wrote more than it knows of.
  [[nodiscard]] ByteCount size() const;
  // The attributes programs see.
  [[nodiscard]] Attributes shown() const;
  [[nodiscard]] timespec shown_ctime() const;
  // This mount has taken its last name away: nobody can see it but who has it open, or is in it. With the
  // mutex held.
  [[nodiscard]] bool removed() const { return attributes.known() && attributes.value().nlink == 0; }
  // Writes of this mount that the answer to a request sent at `started` may or may not include.
  [[nodiscard]] bool written_since(TimePoint started) const;
  // An open file that a request about this inode can name; 0: none. Needed once it has no name.
  [[nodiscard]] std::uint64_t any_open_id() const;

 private:
  [[nodiscard]] std::uint64_t blocks() const;
  void show_times(Attributes& shown) const;
  friend InodeTable;
  void take_handle(std::string handle);

  InodeTable& table_;
  std::list<std::string> handles_;                   // all that it had; the InodeTable changes it
  std::atomic<const std::string*> handle_{nullptr};  // the last of them
};

// As the server told them, or as this mount has made them. Takes the mutex.
[[nodiscard]] Attributes attributes_of(Inode& inode);

// One open(2). Shared by the kernel's handle, WRITEs still to be sent, and READs on their way; the
// server is told of the close when the last of them is gone.
struct OpenFile : std::enable_shared_from_this<OpenFile> {
  OpenFile(std::shared_ptr<Inode> of, std::uint64_t id, std::uint32_t open_flags,
           std::move_only_function<void(std::uint64_t)> on_close);
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  // Tells the server of the close of one of its opens.
  void close(std::uint64_t id) { on_close_(id); }
  [[nodiscard]] bool readable() const;
  [[nodiscard]] bool writable() const;
  [[nodiscard]] bool synchronous() const;
  [[nodiscard]] bool direct() const;
  // Its writes go past the kernel's pages, which others read.
  [[nodiscard]] bool writes_past_pages() const;

  const std::shared_ptr<Inode> inode;
  // 0: the server does not know of it (yet); it reads by handle, or what it needs is `held`.
  std::atomic<std::uint64_t> open_id;
  const std::uint32_t flags;

  // Protected by the inode's mutex.
  std::uint64_t errors_told = 0;
  ReadAhead read_ahead;
  Interval held{};           // bytes that stay as long as it is open without the server
  ByteCount read_bytes = 0;  // by programs, from this daemon
  // A lock was taken through it and not given back; and the server has forgotten it.
  bool flocked = false;
  bool record_locked = false;
  std::set<std::uint64_t>
      lock_owners;  // that took record locks through it and have not closed the file since
  bool lock_lost = false;

 private:
  std::move_only_function<void(std::uint64_t)> on_close_;
};

}  // namespace tusk::client

// A mounted file system without FUSE: every operation as a method that returns at once and answers
// through a callback. fuse_adapter.h translates the kernel's requests to it; tests call it directly.
//
// Answers come on the calling thread when everything needed is known, else on a network, worker or
// notification thread; each exactly once unless the Filesystem is destroyed before. No callback runs
// with a lock held. Errors are Results whose code to_errno() turns into what programs see.
//
// Whether a cached fact may be used is decided by Trust; mutations leave through Remote::mutate; what
// the server says enters through Facts. docs/SEMANTICS.md tells programs what they can rely on.
//
// All methods are thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "fsclient/after_log.h"
#include "fsclient/core.h"
#include "fsclient/directory_cache.h"
#include "fsclient/exclusive_use.h"
#include "fsclient/export_statistics.h"
#include "fsclient/facts.h"
#include "fsclient/files_ahead.h"
#include "fsclient/handle_table.h"
#include "fsclient/held_locks.h"
#include "fsclient/identity_map.h"
#include "fsclient/kept_blocks.h"
#include "fsclient/reader.h"
#include "fsclient/redo.h"
#include "fsclient/tree_stream.h"
#include "fsclient/unlocks_behind_data.h"
#include "fsclient/write_behind.h"
#include "proto/rpc/caller.h"

namespace tusk::client {

template <class T>
using Done = std::move_only_function<void(Result<T>)>;

// What a lookup brings. The kernel may use it for the two lifetimes without asking.
struct EntryReply {
  NodeId node;  // 0: known not to exist
  Attributes attr;
  Duration entry_lifetime{};
  Duration attr_lifetime{};
};

struct AttributesReply {
  Attributes attr;
  Duration lifetime{};
};

struct OpenReply {
  Handle handle;
  bool keep_cache = false;  // what the kernel has of the file is still right
};

struct CreateReply {
  EntryReply entry;
  OpenReply open;
};

// The mode of what is to be made: type and permission bits as the program's umask leaves them, and the bits
// that it takes out. Where the directory has a default ACL, the ACL counts instead of the umask (acl(5)).
struct CreationMode {
  CreationMode(std::uint32_t masked, std::uint32_t taken_out = 0) : mode(masked), umask(taken_out) {}
  std::uint32_t mode;
  std::uint32_t umask;
};

struct TimeNow {};
using NewTime = std::variant<TimeNow, timespec>;

struct OpenDirectoryReply {
  Handle handle;
  KernelListing::Use listing = KernelListing::Use::kAside;
};

struct NewAttributes {
  std::optional<std::uint32_t> mode;
  std::optional<std::uint32_t> uid;
  std::optional<std::uint32_t> gid;
  std::optional<ByteCount> size;
  std::optional<NewTime> atime;
  std::optional<NewTime> mtime;

  // Who could open it before might not be allowed to any more.
  [[nodiscard]] bool may_lock_out() const { return mode || uid || gid; }
  // All but the size, at the time `now`.
  void apply_to(Attributes& attr, const timespec& now) const;
};

// Where readdir puts entries. `next` is the offset to go on at after this entry. Returns false when
// there is no room for it; then it was not added.
struct DirectoryEntryOut {
  std::string_view name;
  std::uint64_t ino = 0;
  std::uint32_t type = 0;                // DT_*
  std::optional<EntryReply> attributes;  // with attributes, and they are known
  std::uint64_t next = 0;
};
using DirectorySink = std::move_only_function<bool(const DirectoryEntryOut&)>;

class Filesystem {
 public:
  struct Options {
    IdentityMap identity = IdentityMap::real();
    ByteCount cache_bytes = 512 * 1024 * 1024;  // for file data, at most
    ByteCount cache_bytes_first = cache_bytes;  // until the path is known to need more
    std::optional<Duration> lifetime;           // instead of the server's
    bool read_only = false;
    bool log = false;  // changes in directories of our own are answered here, and sent as a log
    std::function<rpc::PathStats()> path = [] { return rpc::PathStats{.connected = true}; };
    // From then on a server that owes an answer counts as silent: nothing new is answered here.
    Duration silence_max = kSilenceMax;
    // When the newest of what the server is known to have received was sent; none: leases are not trusted.
    std::function<TimePoint()> confirmed;
    ExclusiveUse::SpeakOften speak_often = {};  // none: as often as leases need
    DiskCache* disk = nullptr;  // where blocks are kept between mounts; outlives the file system
  };

  // `caller`, `scheduler` and `kernel` must outlive it. Before it is destroyed no call may be in flight
  // (the caller closed) and the scheduler must be stopped.
  Filesystem(rpc::Caller& caller, Scheduler& scheduler, KernelCache& kernel,
             const schema::AttachReply& attached, Options options);
  Filesystem(const Filesystem&) = delete;
  Filesystem& operator=(const Filesystem&) = delete;
  ~Filesystem();

  // ---- names
  void lookup(Asker asker, NodeId parent, std::string name, Done<EntryReply> done);
  void forget(NodeId node, std::uint64_t lookups);
  void make_node(Asker asker, NodeId parent, std::string name, CreationMode mode, std::uint64_t rdev,
                 std::string target, Done<EntryReply> done);
  void remove(Asker asker, NodeId parent, std::string name, bool directory, Done<void> done);
  void rename(Asker asker, NodeId old_parent, std::string old_name, NodeId new_parent, std::string new_name,
              std::uint32_t flags, Done<void> done);
  void link(Asker asker, NodeId node, NodeId new_parent, std::string new_name, Done<EntryReply> done);
  void read_link(Asker asker, NodeId node, Done<std::string> done);

  // ---- directories
  [[nodiscard]] Result<OpenDirectoryReply> open_directory(const Asker& asker, NodeId node);
  // From `offset` on (0: the start, where a fresh listing begins); at least one entry unless at the end.
  // `sink` must live until `done` ran.
  void read_directory(Asker asker, Handle handle, std::uint64_t offset, bool with_attributes,
                      DirectorySink sink, Done<void> done);
  void close_directory(Handle handle);
  void sync_directory(Asker asker, Handle handle, Done<void> done);

  // ---- attributes
  void attributes(Asker asker, NodeId node, Done<AttributesReply> done);
  void set_attributes(Asker asker, NodeId node, std::optional<Handle> handle, NewAttributes changes,
                      Done<AttributesReply> done);
  void statistics(Asker asker, NodeId node, Done<schema::StatFsReply> done);
  void xattr(Asker asker, NodeId node, std::string name, Done<std::string> done);
  void list_xattrs(Asker asker, NodeId node, Done<std::string> done);
  void set_xattr(Asker asker, NodeId node, std::string name, std::string value, std::uint32_t flags,
                 Done<void> done);
  void remove_xattr(Asker asker, NodeId node, std::string name, Done<void> done);

  // ---- files
  void open(Asker asker, NodeId node, std::uint32_t flags, Done<OpenReply> done);
  void create(Asker asker, NodeId parent, std::string name, CreationMode mode, std::uint32_t flags,
              Done<CreateReply> done);
  void read(Asker asker, Handle handle, ByteCount offset, ByteCount length, ReadDone done);
  // `appends`: at the end of the file, wherever that is; O_APPEND can be set and cleared after the open,
  // and a mapped page goes to its own place in any case.
  void write(Asker asker, Handle handle, ByteCount offset, std::span<const std::byte> bytes, bool appends,
             Done<std::uint32_t> done);
  // close(2): the server holds all that was written, or an error of it. `lock_owner`'s POSIX locks go.
  void flush(Asker asker, Handle handle, std::uint64_t lock_owner, Done<void> done);
  // On the server's disk.
  void sync(Asker asker, Handle handle, bool data_only, Done<void> done);
  // The last reference is gone. `flocked`: its flock goes with it.
  void release(Handle handle, bool flocked);
  void allocate(Asker asker, Handle handle, ByteCount offset, ByteCount length, std::uint32_t mode,
                Done<void> done);
  void seek(Asker asker, Handle handle, ByteCount offset, std::uint32_t whence, Done<ByteCount> done);
  void copy_range(Asker asker, Handle source, ByteCount source_offset, Handle target, ByteCount target_offset,
                  ByteCount length, Done<ByteCount> done);

  // ---- locks
  void test_lock(Asker asker, Handle handle, NewLock lock, Done<schema::LockReply> done);
  void set_lock(Asker asker, Handle handle, NewLock lock, Done<void> done);

  // ---- the mount
  [[nodiscard]] Scheduler& scheduler() { return core_.scheduler; }
  [[nodiscard]] bool server_silent() const { return core_.path.silent(); }
  // All that programs wrote until now is on the server's disk, or has failed. kPeerClosed: the mount ended.
  void flush_all(Done<void> done);
  // Answered by the server, and not known to be on its disk yet.
  [[nodiscard]] std::size_t uncommitted_changes() const { return core_.uncommitted.count(); }
  // Of data and of changes that were answered here already.
  [[nodiscard]] ByteCount pending_bytes() const { return std::max(write_behind_.pending(), log_.bytes()); }
  [[nodiscard]] const Counters& counters() const { return core_.counters; }
  [[nodiscard]] const LastError& last_error() const { return core_.last_error; }
  [[nodiscard]] UntoldFailures::Value untold_failures() const { return core_.untold.value(); }
  [[nodiscard]] ByteCount cache_used() const { return core_.cache.budget()->used(); }
  [[nodiscard]] ByteCount cache_cap() const { return core_.cache.budget()->cap(); }
  [[nodiscard]] std::size_t inodes_known() { return core_.inodes.remembered(); }

  // What is at `path` (relative to the mount) or below is kept on this machine's disk, or not any more.
  [[nodiscard]] Result<void> pin(const std::string& path);
  [[nodiscard]] Result<void> unpin(const std::string& path);
  // Null: there is none.
  [[nodiscard]] const DiskCache* disk() const { return kept_.disk(); }

  // What the mount rests on now: "leases (fanotify)", "leases (inotify)" or "lifetimes".
  [[nodiscard]] std::string coherence() const;
  // How long changes may still wait for mounts that were there before the server crashed; zero: they do not.
  [[nodiscard]] Duration grace_remaining() const;
  // Files and directories known to the kernel whose attributes are under a lease now.
  [[nodiscard]] std::size_t leases_held();

  // The channel's events, on its network thread.
  void handle_attaching(schema::AttachRequest& request) {
    trust_->suspend();
    core_.scheduler.post([this] { core_.loans.handle_suspension(); });
    request.clear_listing_bytes();  // what is known here by then is more
    request.clear_ended_sessions();
    held_locks_.offer(request);
    log_.tell(request);
  }
  void handle_attached(const schema::AttachReply& attached);
  void handle_outage(const Error& error) {
    if (error.code == from_errno(EACCES)) handle_right_ended();
    log_.give_up(error);
    write_behind_.handle_outage(error);
    for (auto& waiter : unlocks_.take_waiters()) waiter.gave_up(error);
  }
  // Asks for the root's attributes unless the attach told them under a lease: without one they are soon too
  // old, and the first program that comes would wait for a round trip more.
  void look_at_root() {
    if (!root_told_) ask_attributes({}, core_.inodes.root(), [](const Result<bool>&) {});
  }
  // Asks that changes in the root need not be asked about. `answered` runs when that is known; never, if
  // nothing is to be asked.
  void acquire_root(std::move_only_function<void()> answered);
  // `answer` runs once nothing here and in the kernel uses what the push names; on any thread.
  void handle_pushed(const schema::Request& request, std::move_only_function<void()> answer);

 private:
  // What an open brings of the file's start: several reads of a program that goes on reading, so that
  // it is seen to be one a round trip sooner.
  static constexpr ByteCount kOpenReadAhead = 512 * 1024;
  static constexpr ByteCount kOpenReadAheadSlow = 128 * 1024;
  // Who opens one file after the other waits for the server again.
  static constexpr int kOpensMeanwhileMax = 64;
  static constexpr int kOpensUnconfirmedMax = 128;
  static constexpr ByteCount kCopyRangeMax = 1ull << 30;
  // Of the cache, for files that are open without the server: their bytes cannot be evicted.
  static constexpr ByteCount kHeldShare = FilesAhead::kCacheShare;
  // Between two calls that ask for the exclusiveness of many directories.
  static constexpr Duration kAcquirePause = std::chrono::milliseconds(500);
  // A removal that the server was asked for, so long after another: a tree is being removed.
  static constexpr Duration kRemovingGoesOn = std::chrono::seconds(2);

  using InodePointer = std::shared_ptr<Inode>;

  [[nodiscard]] Result<InodePointer> inode_of(NodeId node);
  // Why the server did not make it, if so. Whoever asks tells it to a program.
  [[nodiscard]] Result<void> made_locked(const Inode& inode);
  [[nodiscard]] Duration attributes_lifetime(Inode& inode);
  [[nodiscard]] Duration attributes_lifetime_locked(Inode& inode);
  // Counts a reference of the kernel's.
  [[nodiscard]] EntryReply entry_for(const InodePointer& inode, Duration entry_lifetime);
  // For the kernel, which is told them now.
  [[nodiscard]] AttributesReply attributes_for(Inode& inode);
  // The same for what the server has told just now.
  [[nodiscard]] EntryReply fresh_entry(const InodePointer& inode, Learnt learnt);
  // The same in answers to changes: see Loans.
  [[nodiscard]] AttributesReply changed_attributes(Inode& inode);
  [[nodiscard]] EntryReply changed_entry(const InodePointer& inode, Learnt learnt);
  void touched(const InodePointer& inode);
  // While it lives nobody opens the file that it is of without waiting for the server: open_first().
  using NoOpens = std::shared_ptr<void>;
  void send_remove(const Asker& asker, const InodePointer& directory, const std::string& name,
                   bool is_directory, NoOpens no_opens, Done<void> done);
  void send_rename(const Asker& asker, const InodePointer& from, const std::string& old_name,
                   const InodePointer& to, const std::string& new_name, std::uint32_t flags, NoOpens no_opens,
                   Done<void> done);
  // `attr` as it is now; null: the server does not tell.
  void note_removed(const InodePointer& inode, const Told& told, const schema::Attr* attr);
  void note_replaced(const InodePointer& inode, const Told& told, const schema::RenameReply& reply);
  void note_moved(const InodePointer& inode, const Told& told, const schema::RenameReply& reply);

  // ---- what this mount answers by itself (filesystem_log.cc)

  // What a change in a directory rests on that the server need not be asked about.
  struct Standing {
    std::uint64_t exclusive = 0;
    Told told;             // the exclusiveness, as if the server had told it now
    Attributes directory;  // as known
    timespec at{};         // when the change is made, by the server's clock
    OperationLog::Naming naming;

    [[nodiscard]] Learnt learnt() const { return told.learnt(told.started); }
  };
  [[nodiscard]] std::optional<Standing> standing_in(Inode& directory);
  [[nodiscard]] bool wants_exclusive() const;
  void note_exclusive(const InodePointer& directory, const schema::Reply& reply, TimePoint asked);
  void note_exclusive(Inode& directory, const schema::Reply& reply, const schema::Attr* attr,
                      TimePoint asked);
  void note_new_directory(Inode& directory, std::uint64_t exclusive, std::uint64_t lease);
  void acquire_around(const Asker& asker, const InodePointer& directory);
  void acquire(const Asker& asker, std::vector<InodePointer> directories,
               std::move_only_function<void()> answered);
  void note_acquired(const std::vector<InodePointer>& asked, const schema::Reply& reply, TimePoint started);
  void give_up_names(Inode& directory);
  [[nodiscard]] InodePointer new_inode(const Asker& asker, const Standing& standing, std::uint32_t mode,
                                       std::uint64_t rdev);
  [[nodiscard]] bool append_making(const Asker& asker, const Standing& standing,
                                   const InodePointer& directory, const std::string& name,
                                   const InodePointer& inode, schema::Request entry);
  void lose_names(const InodePointer& directory);
  void not_made(const InodePointer& directory, const std::string& name, const InodePointer& inode,
                const Error& error);
  void not_done(const InodePointer& directory, const std::string& name, const Error& error,
                UntoldFailures::Id failure);
  // What never came to be on the server.
  [[nodiscard]] static bool never_made(Inode& inode);
  void ask_whether_gone(const InodePointer& directory, const std::string& name, const Error& error);
  void assume_changed(Inode& directory, const Standing& standing, int links);
  [[nodiscard]] std::optional<bool> known_empty(Inode& directory);
  void unlinked_here(Inode& inode, const timespec& at);
  [[nodiscard]] bool may_open_unconfirmed() const;
  void end_unconfirmed(Inode& inode);
  [[nodiscard]] bool create_here(const Asker& asker, const InodePointer& directory, const std::string& name,
                                 CreationMode mode, std::uint32_t flags, Done<CreateReply>& done);
  [[nodiscard]] bool make_node_here(const Asker& asker, const InodePointer& directory,
                                    const std::string& name, CreationMode mode, std::uint64_t rdev,
                                    const std::string& target, Done<EntryReply>& done);
  [[nodiscard]] bool remove_here(const Asker& asker, const InodePointer& directory, const std::string& name,
                                 bool is_directory, Done<void>& done);
  [[nodiscard]] bool rename_here(const Asker& asker, const InodePointer& from, const std::string& old_name,
                                 const InodePointer& to, const std::string& new_name, std::uint32_t flags,
                                 Done<void>& done);
  [[nodiscard]] bool set_attributes_here(const Asker& asker, const InodePointer& inode, NewAttributes changes,
                                         Done<AttributesReply>& done);
  static void no_more_ours_alone(const InodePointer& inode);
  void close_own(std::uint64_t open_id, std::uint64_t exclusive);
  // Entries of the log about one of them are unanswered. Null ones do not count.
  [[nodiscard]] static bool in_log(std::initializer_list<InodePointer> inodes);
  template <class Answer>
  void after_log(const Asker& asker, Answer done, std::move_only_function<void(Answer)> again) {
    client::after_log(core_, asker, std::move(done), std::move(again));
  }
  // `then` runs behind what the log holds of the inode now, for questions: what others add to it meanwhile
  // they do not wait for.
  template <class Answer>
  void behind_log(const Asker& asker, const InodePointer& inode, Answer done,
                  std::move_only_function<void(Answer)> then) {
    if (!in_log({inode})) return then(std::move(done));
    after_whole_log<Answer>(core_, asker, std::move(done),
                            [this, asker, inode, then = std::move(then)](Answer answer) mutable {
                              Result<void> made;
                              {
                                const std::lock_guard lock(inode->mutex);
                                made = made_locked(*inode);
                              }
                              if (!made) return answer(std::unexpected(made.error()));
                              if (inode->on_server()) return then(std::move(answer));
                              behind_log(asker, inode, std::move(answer), std::move(then));
                            });
  }

  // What the server says of a name: null, there is none; and for how long that may be used.
  using NameLearnt = std::pair<InodePointer, Learnt>;
  // `listing_bytes` of what is in it may come with it if it is a directory.
  void ask_name(const Asker& asker, const InodePointer& directory, const std::string& name,
                std::uint32_t listing_bytes, Done<NameLearnt> done);

  // Looks again at once at what was taken back and is in use: who waits for it to change waits less.
  void look_again(const schema::InvalidateRequest& request);
  void take_terms(const schema::AttachReply& attached);
  static void answer_when_open(Inode& inode, const std::shared_ptr<PushAnswer>& answer);
  void learn_root(const schema::AttachReply& attached);
  void take_back(const schema::InvalidateRequest::Item& item, Facts::Pages pages,
                 const std::shared_ptr<PushAnswer>& answer);
  // `answer`, unless it is null, is given once the kernel has dropped all.
  void give_when_dropped(const std::shared_ptr<PushAnswer>& answer);
  void take_back_all(const std::shared_ptr<PushAnswer>& answer);

  void ask_xattr(const Asker& asker, const InodePointer& inode, std::string name, bool capability,
                 Done<std::string> done);
  void ask_xattr_names(const Asker& asker, const InodePointer& inode, Done<std::string> done);
  void ask_statistics(const Asker& asker, const InodePointer& inode, bool keep,
                      Done<schema::StatFsReply> done);
  // True: somebody else changed the bytes, and the kernel is being told to drop its pages.
  void ask_attributes(const Asker& asker, const InodePointer& inode, Done<bool> done);
  // The same behind what programs here have written.
  void ask_behind_writes(const InodePointer& inode, Done<bool> done);
  // Runs `answer` now, or behind the dropping of the inode's old pages if that is under way: told of the
  // new size before, the kernel would show the old last page with zeros behind it.
  void after_pages_dropped(Inode& inode, std::move_only_function<void()> answer);
  // Answers behind that.
  void fetch_attributes(const Asker& asker, const InodePointer& inode, Done<AttributesReply> done);
  void change_attributes(const Asker& asker, const InodePointer& inode, std::optional<Handle> handle,
                         const NewAttributes& changes, Done<AttributesReply> done);
  void ask_for_attributes(const Asker& asker, const InodePointer& inode, std::optional<Handle> handle,
                          const NewAttributes& changes, Done<AttributesReply> done);
  void send_set_attributes(const Asker& asker, const InodePointer& inode, std::uint64_t open_id,
                           const NewAttributes& changes, NoOpens no_opens, Done<AttributesReply> done);
  // The type and permission bits that the server gives to what a program makes, or chmods, so.
  [[nodiscard]] std::uint32_t mode_at_server(std::uint32_t mode) const;
  static void write_set_attributes(schema::SetAttrRequest& set, const NewAttributes& changes);
  void change_removed(Inode& inode, const NewAttributes& changes);
  void note_truncated(const InodePointer& inode, ByteCount size);
  [[nodiscard]] bool known_without_xattrs(Inode& inode);
  void xattrs_changed(const InodePointer& inode);

  void handle_right_ended();

  struct WaitingOpen;
  void open_to_read(const std::shared_ptr<WaitingOpen>& open);
  // An open that needs no server: all bytes were fetched ahead for it.
  [[nodiscard]] std::optional<OpenReply> open_here(const InodePointer& inode, std::uint32_t flags);
  bool answer_here(const std::shared_ptr<WaitingOpen>& open);
  // An open that the server is asked for, and sure to do, while the program goes on.
  [[nodiscard]] std::optional<OpenReply> open_meanwhile(const Asker& asker, const InodePointer& inode,
                                                        std::uint32_t flags);
  [[nodiscard]] bool server_lets_read(const Asker& asker, const Attributes& attr) const;
  void heed_interrupt(const std::shared_ptr<WaitingOpen>& open);
  void after_attributes_dropped(const Inode& inode, std::move_only_function<void()> then);
  // Opens at the server what is open here only, before something is done that a file without a server's open
  // does not survive. An error only if the asker gives up: the server is asked all the same.
  void open_at_server(const Asker& asker, const InodePointer& inode, Done<void> then);
  void open_at_server(const Asker& asker, std::span<const std::shared_ptr<OpenFile>> files, Done<void> then);
  // The same before this mount takes the file away or locks somebody out. Null inode: `then` runs at once.
  void open_first(const Asker& asker, const InodePointer& inode, Done<NoOpens> then);
  void send_open(const Asker& asker, const InodePointer& inode, std::uint32_t flags, Done<OpenReply> done);
  [[nodiscard]] Result<OpenReply> opened(const InodePointer& inode, const schema::OpenReply& reply,
                                         std::uint32_t flags, const Told& told,
                                         std::span<const std::byte> body);
  void close_at_server(std::uint64_t open_id);
  [[nodiscard]] std::shared_ptr<OpenFile> make_file(const InodePointer& inode, std::uint64_t open_id,
                                                    std::uint32_t flags);
  [[nodiscard]] Handle enter_file_locked(const std::shared_ptr<OpenFile>& file);
  // Both. `held`: bytes that stay as long as it is open.
  [[nodiscard]] Handle new_file(const InodePointer& inode, std::uint64_t open_id, std::uint32_t flags,
                                Interval held = {});

  void append(const Asker& asker, const std::shared_ptr<OpenFile>& file, ByteCount offset, SharedBytes bytes,
              Done<std::uint32_t> done);
  void note_appended(const std::shared_ptr<OpenFile>& file, const SharedBytes& bytes,
                     const schema::WriteReply& reply, const Told& told);
  [[nodiscard]] Done<std::uint32_t> behind_pages(const InodePointer& inode, Interval range,
                                                 Done<std::uint32_t> done);
  void drop_tail(const InodePointer& inode, ByteCount from, std::move_only_function<void()> done);
  void commit(const Asker& asker, const std::shared_ptr<OpenFile>& file, bool data_only, Done<void> done);
  void make_durable(const Asker& asker, const std::shared_ptr<OpenFile>& file, bool data_only,
                    Done<void> done);
  [[nodiscard]] Result<void> note_committed(Inode& inode, std::uint64_t verifier,
                                            UncommittedChanges::Number upto);
  // Changes that programs were told are done are not, since the server's machine restarted
  // (filesystem_redo.cc).
  void keep_uncommitted();
  void not_redone(const UncommittedChange& change, const Error& error);
  UntoldFailures::Id tell_not_redone(const std::string& parent, const std::string& name, const Error& error);
  void tell_not_redone(const InodePointer& inode, const Error& error);
  void not_committed(const Error& error);
  void note_changed_on_server(Inode& inode, Interval range, const schema::Attr& attr, const Told& told);
  // A change of the file's bytes has failed, or was given up: unless the server just says no, all of it may
  // have been made, or some.
  void may_have_changed(Inode& inode, const Error& error);

  // EIO once a lock that was taken through the file is lost, until it is unlocked or closed. What the server
  // said where it did not make the file.
  [[nodiscard]] Result<void> still_usable(OpenFile& file);
  // After a re-attach: the server has said which locks it has kept or given again.
  void settle_locks(const schema::AttachReply& attached);
  void send_lock(const Asker& asker, const std::shared_ptr<OpenFile>& file, const NewLock& lock, bool test,
                 Done<schema::LockReply> done);
  void send_new_lock(const Asker& asker, const std::shared_ptr<OpenFile>& file, const NewLock& lock,
                     Done<void> done);
  void give_back(const std::shared_ptr<OpenFile>& file, NewLock lock, ErrorCode code);
  void after_lock(const Asker& asker, const std::shared_ptr<OpenFile>& file, const NewLock& lock,
                  Done<void> done);
  void unlock_behind_data(const std::shared_ptr<OpenFile>& file, const NewLock& lock);
  void send_unlock_behind_data(const std::shared_ptr<OpenFile>& file, const NewLock& lock);
  void unlock_description(const std::shared_ptr<OpenFile>& file);
  void resume(std::vector<UnlocksBehindData::Waiter> waiters);
  // Whether the owner has POSIX locks on the file, which are to be given back now.
  [[nodiscard]] static bool take_locks_of(OpenFile& file, std::uint64_t owner);
  void unlock_all_of(const Asker& asker, const std::shared_ptr<OpenFile>& file, std::uint64_t owner,
                     Done<void> done);

  struct OpenDirectory {
    InodePointer inode;
    const KernelListing::Use use;  // what the kernel does with what it is told
    // Under the inode's mutex.
    std::shared_ptr<Listing> listing = {};
    std::uint64_t errors_told = 0;

    [[nodiscard]] bool in_kernel() const { return use != KernelListing::Use::kAside; }
  };
  struct DirectoryRead;
  [[nodiscard]] Result<void> take_error(const Asker& asker, OpenFile& file);
  [[nodiscard]] Result<void> take_error(OpenDirectory& directory);
  void commit_directory(const Asker& asker, const std::shared_ptr<OpenDirectory>& directory, Done<void> done);
  void continue_directory(const std::shared_ptr<DirectoryRead>& read);
  void end_directory(const std::shared_ptr<DirectoryRead>& read);
  static void renew_with(Inode& directory, Inode& entry);

  const Options options_;
  const std::unique_ptr<LeaseTrust> trust_;
  std::atomic<schema::ChangeWatching> watching_{schema::WATCH_NONE};
  Remote remote_;
  OperationLog log_;
  Core core_;
  Facts facts_;
  KeptBlocks kept_;
  KeptListings kept_listings_;
  DirectoryCache names_;
  TreeStream tree_;
  KernelPages pages_;
  Reader reader_;
  FilesAhead files_ahead_;
  WriteBehind write_behind_;
  Redo redo_;
  HandleTable<OpenFile> files_;
  HandleTable<OpenDirectory> directories_;
  ExclusiveUse exclusive_use_;
  HeldLocks held_locks_;
  UnlocksBehindData unlocks_;
  ExportStatistics statistics_;
  const std::uint32_t owner_uid_;  // of what is made, unless owners are real
  const std::uint32_t owner_gid_;
  std::atomic<bool> special_bits_stripped_{false};
  bool root_told_ = false;  // by the attach, under a lease
  std::atomic<TimePoint> grace_ends_{TimePoint::min()};
  std::atomic<bool> right_ended_{false};  // and no attach has succeeded since
  std::atomic<TimePoint> acquired_at_{TimePoint::min()};
  std::atomic<TimePoint> removed_at_{TimePoint::min()};
  std::atomic<int> opens_unconfirmed_{0};  // of files made here (InodeInLog::open_unconfirmed)
  std::atomic<TimePoint> open_refused_at_{TimePoint::min()};  // of a file made here, for want of descriptors
  std::atomic<int> opens_meanwhile_{0};                       // that the server is being asked for
  std::atomic<ByteCount> held_here_{0};  // bytes of files that are open without the server
};

}  // namespace tusk::client

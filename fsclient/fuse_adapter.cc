#include "fsclient/fuse_adapter.h"

#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <sys/file.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace tusk::client {

namespace {

// ---------------------------------------------------------------- requests and replies

FuseAdapter& adapter_of(fuse_req_t request) { return *static_cast<FuseAdapter*>(fuse_req_userdata(request)); }
Filesystem& filesystem_of(fuse_req_t request) { return adapter_of(request).filesystem; }

void on_interrupt(fuse_req_t request, void* id) {
  adapter_of(request).requests.handle_interrupt(reinterpret_cast<std::uint64_t>(id));
}

// A request until its reply. Cheap to copy; exactly one copy replies, once take() has said so: libfuse
// forgets the request with the reply.
struct Pending {
  fuse_req_t request;
  FuseAdapter* adapter;
  std::uint64_t id;

  [[nodiscard]] bool take() const { return adapter->requests.take(id); }
  void fail(const Error& error) const {
    if (take()) fuse_reply_err(request, to_errno(error.code));
  }
};

// For as long as its handler runs the table does not answer the request.
class Begun {
 public:
  Begun(RequestTable& requests, std::uint64_t id) : requests_(requests), id_(id) {}
  Begun(const Begun&) = delete;
  Begun& operator=(const Begun&) = delete;
  ~Begun() { requests_.note_begun(id_); }

 private:
  RequestTable& requests_;
  const std::uint64_t id_;
};

// The operation may answer the request, and so end it, at any moment: handlers go by Pending.
struct Received {
  Asker asker;
  Pending pending;
  Begun begun;
};

Received receive(fuse_req_t request, RequestTable::Ends ends = RequestTable::Ends::kWhenAsked) {
  const fuse_ctx& context = *fuse_req_ctx(request);
  auto interrupt = std::make_shared<Interrupt>();
  FuseAdapter& adapter = adapter_of(request);
  const std::uint64_t id = adapter.requests.add(request, context.pid, ends, interrupt);
  fuse_req_interrupt_func(request, on_interrupt, reinterpret_cast<void*>(id));
  return {{context.uid, context.gid, static_cast<std::uint32_t>(context.pid), std::move(interrupt)},
          {request, &adapter, id},
          {adapter.requests, id}};
}

// What an operation brought for a request that was answered before it.
void give_back(Filesystem& filesystem, const EntryReply& entry) {
  if (entry.node.value() != 0) filesystem.forget(entry.node, 1);
}
void give_back(Filesystem& filesystem, const OpenReply& opened) { filesystem.release(opened.handle, false); }
void give_back(Filesystem& filesystem, const CreateReply& created) {
  give_back(filesystem, created.open);
  give_back(filesystem, created.entry);
}
template <class T>
void give_back(Filesystem&, const T&) {}

// Replies with `reply(request, value)`, or with the error.
template <class T, class Reply>
auto answer(Pending pending, Reply reply) {
  return [pending, reply = std::move(reply)](Result<T> result) mutable {
    if (!result) return pending.fail(result.error());
    if (!pending.take()) return give_back(pending.adapter->filesystem, *result);
    reply(pending.request, *result);
  };
}

Done<void> answer_done(Pending pending) {
  return [pending](const Result<void>& result) {
    if (!result) return pending.fail(result.error());
    if (pending.take()) fuse_reply_err(pending.request, 0);
  };
}

struct stat to_stat(const Attributes& attr) {
  struct stat st {};
  st.st_ino = attr.ino;
  st.st_mode = attr.mode;
  st.st_nlink = attr.nlink;
  st.st_uid = attr.uid;
  st.st_gid = attr.gid;
  st.st_rdev = attr.rdev;
  st.st_size = static_cast<off_t>(attr.size);
  st.st_blocks = static_cast<blkcnt_t>(attr.blocks);
  st.st_blksize = static_cast<blksize_t>(attr.block_size);
  st.st_atim = attr.atime;
  st.st_mtim = attr.mtime;
  st.st_ctim = attr.ctime;
  return st;
}

fuse_entry_param to_entry(const EntryReply& entry) {
  fuse_entry_param param{};
  param.ino = entry.node.value();  // 0: a name known not to exist
  param.attr = to_stat(entry.attr);
  param.attr_timeout = to_seconds(entry.attr_lifetime);
  param.entry_timeout = to_seconds(entry.entry_lifetime);
  return param;
}

void reply_entry(fuse_req_t request, const EntryReply& entry) {
  const fuse_entry_param param = to_entry(entry);
  fuse_reply_entry(request, &param);
}

void reply_attributes(fuse_req_t request, const AttributesReply& reply) {
  const struct stat st = to_stat(reply.attr);
  fuse_reply_attr(request, &st, to_seconds(reply.lifetime));
}

Handle handle_of(const fuse_file_info* file) { return Handle(file->fh); }

std::string text(const char* name) { return name; }

// ---------------------------------------------------------------- the connection

void want_if(fuse_conn_info* connection, unsigned capability, bool wanted) {
  if (wanted && (connection->capable & capability) != 0)
    connection->want |= capability;
  else
    connection->want &= ~capability;
}

void on_init(void* userdata, fuse_conn_info* connection) noexcept {
  FuseAdapter& adapter = *static_cast<FuseAdapter*>(userdata);
  connection->max_write = FuseAdapter::kTransferMax;
  connection->max_read = FuseAdapter::kTransferMax;
  connection->max_background = FuseAdapter::kBackgroundMax;
  connection->congestion_threshold = FuseAdapter::kCongestionThreshold;
  connection->time_gran = 1;
  // Many reads of one file at once: the only way to fill a far path.
  want_if(connection, FUSE_CAP_ASYNC_READ, true);
  want_if(connection, FUSE_CAP_ASYNC_DIO, true);
  // Locks hold across clients.
  want_if(connection, FUSE_CAP_POSIX_LOCKS, true);
  want_if(connection, FUSE_CAP_FLOCK_LOCKS, true);
  // One round trip less for every open that truncates.
  want_if(connection, FUSE_CAP_ATOMIC_O_TRUNC, true);
  // Lookups in one directory need not wait for each other.
  want_if(connection, FUSE_CAP_PARALLEL_DIROPS, true);
  want_if(connection, FUSE_CAP_READDIRPLUS, true);
  want_if(connection, FUSE_CAP_READDIRPLUS_AUTO, true);
  // A symlink's target never changes.
  want_if(connection, FUSE_CAP_CACHE_SYMLINKS, true);
  // We know when data changed (the change counter) and say so; AUTO would override it, and drop the
  // pages of every file whose mtime our own writes moved.
  want_if(connection, FUSE_CAP_AUTO_INVAL_DATA, false);
  want_if(connection, FUSE_CAP_EXPLICIT_INVAL_DATA, true);
  // Breaks O_APPEND with several writers, stalls on 1 % dirty, reads on write-only handles: our own
  // write-behind does better.
  want_if(connection, FUSE_CAP_WRITEBACK_CACHE, false);
  // Pages pass through our cache anyway; a splice is one system call more.
  want_if(connection, FUSE_CAP_SPLICE_READ, false);
  want_if(connection, FUSE_CAP_SPLICE_WRITE, false);
  want_if(connection, FUSE_CAP_SPLICE_MOVE, false);
  // A server acting as root would not clear set-uid bits on a write: the kernel here does.
  want_if(connection, FUSE_CAP_HANDLE_KILLPRIV, false);
  // Default ACLs count instead of the umask, and only the server knows them: creation_mode().
  want_if(connection, FUSE_CAP_DONT_MASK, true);
  // Who may do what is as on the server then, and the kernel remembers who has no ACL: ls -l asks for each
  // file's. Without it ACLs still pass through as extended attributes.
  want_if(connection, FUSE_CAP_POSIX_ACL, adapter.acls);
  if (adapter.on_init) adapter.on_init();
}

// ---------------------------------------------------------------- names

void on_lookup(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.lookup(asker, NodeId(parent), text(name),
                                     answer<EntryReply>(pending, reply_entry));
}

void on_forget(fuse_req_t request, fuse_ino_t node, std::uint64_t lookups) noexcept {
  filesystem_of(request).forget(NodeId(node), lookups);
  fuse_reply_none(request);
}

void on_forget_multi(fuse_req_t request, std::size_t count, fuse_forget_data* forgets) noexcept {
  for (std::size_t i = 0; i < count; ++i)
    filesystem_of(request).forget(NodeId(forgets[i].ino), forgets[i].nlookup);
  fuse_reply_none(request);
}

CreationMode creation_mode(fuse_req_t request, mode_t mode) {
  const mode_t umask = fuse_req_ctx(request)->umask & 0777;
  return {mode & ~umask, mode & umask};
}

void make_node(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t device,
               std::string target) {
  const CreationMode wanted = creation_mode(request, mode);
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.make_node(asker, NodeId(parent), text(name), wanted, device, std::move(target),
                                        answer<EntryReply>(pending, reply_entry));
}

void on_mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) noexcept {
  make_node(request, parent, name, mode, device, {});
}

void on_mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) noexcept {
  make_node(request, parent, name, S_IFDIR | (mode & ~S_IFMT), 0, {});
}

void on_symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name) noexcept {
  make_node(request, parent, name, S_IFLNK | 0777, 0, target);
}

void remove(fuse_req_t request, fuse_ino_t parent, const char* name, bool directory) {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.remove(asker, NodeId(parent), text(name), directory, answer_done(pending));
}

void on_unlink(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  remove(request, parent, name, false);
}

void on_rmdir(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  remove(request, parent, name, true);
}

void on_rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
               const char* new_name, unsigned flags) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.rename(asker, NodeId(parent), text(name), NodeId(new_parent), text(new_name),
                                     flags, answer_done(pending));
}

void on_link(fuse_req_t request, fuse_ino_t node, fuse_ino_t new_parent, const char* new_name) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.link(asker, NodeId(node), NodeId(new_parent), text(new_name),
                                   answer<EntryReply>(pending, reply_entry));
}

void on_readlink(fuse_req_t request, fuse_ino_t node) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.read_link(
      asker, NodeId(node), answer<std::string>(pending, [](fuse_req_t to, const std::string& target) {
        fuse_reply_readlink(to, target.c_str());
      }));
}

// ---------------------------------------------------------------- directories

void on_opendir(fuse_req_t request, fuse_ino_t node, fuse_file_info* file) noexcept {
  using Use = KernelListing::Use;
  auto [asker, pending, begun] = receive(request);
  const Result<OpenDirectoryReply> opened = pending.adapter->filesystem.open_directory(asker, NodeId(node));
  if (!opened) return pending.fail(opened.error());
  file->fh = opened->handle.value();
  file->cache_readdir = opened->listing != Use::kAside;
  file->keep_cache = opened->listing == Use::kKept;
  Filesystem& filesystem = pending.adapter->filesystem;
  if (!pending.take() || fuse_reply_open(request, file) == -ENOENT)
    filesystem.close_directory(opened->handle);
}

void read_directory(fuse_req_t request, std::size_t size, off_t offset, const fuse_file_info* file,
                    bool plus) {
  auto [asker, pending, begun] = receive(request);
  auto buffer = std::make_shared<std::vector<char>>();
  buffer->reserve(size);
  const auto sink = [request, buffer, size, plus](const DirectoryEntryOut& out) {
    const std::string name(out.name);
    fuse_entry_param entry = out.attributes ? to_entry(*out.attributes) : fuse_entry_param{};
    if (!out.attributes) {
      entry.attr.st_ino = out.ino;
      entry.attr.st_mode = static_cast<mode_t>(DTTOIF(out.type));
    }
    const std::size_t used = buffer->size();
    const auto next = static_cast<off_t>(out.next);
    buffer->resize(size);
    const std::size_t needed =
        plus
            ? fuse_add_direntry_plus(request, buffer->data() + used, size - used, name.c_str(), &entry, next)
            : fuse_add_direntry(request, buffer->data() + used, size - used, name.c_str(), &entry.attr, next);
    const bool fits = needed <= size - used;
    buffer->resize(fits ? used + needed : used);
    return fits;
  };
  pending.adapter->filesystem.read_directory(asker, handle_of(file), static_cast<std::uint64_t>(offset), plus,
                                             sink, [pending, buffer](const Result<void>& result) {
                                               if (!result) return pending.fail(result.error());
                                               if (pending.take())
                                                 fuse_reply_buf(pending.request, buffer->data(),
                                                                buffer->size());
                                             });
}

void on_readdir(fuse_req_t request, fuse_ino_t, std::size_t size, off_t offset,
                fuse_file_info* file) noexcept {
  read_directory(request, size, offset, file, false);
}

void on_readdirplus(fuse_req_t request, fuse_ino_t, std::size_t size, off_t offset,
                    fuse_file_info* file) noexcept {
  read_directory(request, size, offset, file, true);
}

void on_releasedir(fuse_req_t request, fuse_ino_t, fuse_file_info* file) noexcept {
  filesystem_of(request).close_directory(handle_of(file));
  fuse_reply_err(request, 0);
}

void on_fsyncdir(fuse_req_t request, fuse_ino_t, int, fuse_file_info* file) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.sync_directory(asker, Handle(file->fh), answer_done(pending));
}

// ---------------------------------------------------------------- attributes

void on_getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info*) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.attributes(asker, NodeId(node),
                                         answer<AttributesReply>(pending, reply_attributes));
}

void on_setattr(fuse_req_t request, fuse_ino_t node, struct stat* attr, int set,
                fuse_file_info* file) noexcept {
  auto [asker, pending, begun] = receive(request);
  NewAttributes changes;
  if ((set & FUSE_SET_ATTR_MODE) != 0) changes.mode = attr->st_mode & ~static_cast<mode_t>(S_IFMT);
  if ((set & FUSE_SET_ATTR_UID) != 0) changes.uid = attr->st_uid;
  if ((set & FUSE_SET_ATTR_GID) != 0) changes.gid = attr->st_gid;
  if ((set & FUSE_SET_ATTR_SIZE) != 0) changes.size = static_cast<ByteCount>(attr->st_size);
  if ((set & FUSE_SET_ATTR_ATIME_NOW) != 0)
    changes.atime = TimeNow{};
  else if ((set & FUSE_SET_ATTR_ATIME) != 0)
    changes.atime = attr->st_atim;
  if ((set & FUSE_SET_ATTR_MTIME_NOW) != 0)
    changes.mtime = TimeNow{};
  else if ((set & FUSE_SET_ATTR_MTIME) != 0)
    changes.mtime = attr->st_mtim;
  std::optional<Handle> handle;
  if (file != nullptr) handle = handle_of(file);
  pending.adapter->filesystem.set_attributes(asker, NodeId(node), handle, changes,
                                             answer<AttributesReply>(pending, reply_attributes));
}

void on_statfs(fuse_req_t request, fuse_ino_t node) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.statistics(
      asker, NodeId(node),
      answer<schema::StatFsReply>(pending, [](fuse_req_t to, const schema::StatFsReply& reply) {
        struct statvfs st {};
        st.f_bsize = reply.block_size();
        st.f_frsize = reply.block_size();
        st.f_blocks = reply.blocks();
        st.f_bfree = reply.blocks_free();
        st.f_bavail = reply.blocks_available();
        st.f_files = reply.files();
        st.f_ffree = reply.files_free();
        st.f_namemax = reply.name_max();
        fuse_reply_statfs(to, &st);
      }));
}

// A size of 0 asks how long the value is.
auto answer_xattr(Pending pending, std::size_t size) {
  return answer<std::string>(pending, [size](fuse_req_t to, const std::string& value) {
    if (size == 0)
      fuse_reply_xattr(to, value.size());
    else if (size < value.size())
      fuse_reply_err(to, ERANGE);
    else
      fuse_reply_buf(to, value.data(), value.size());
  });
}

void on_getxattr(fuse_req_t request, fuse_ino_t node, const char* name, std::size_t size) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.xattr(asker, NodeId(node), text(name), answer_xattr(pending, size));
}

void on_listxattr(fuse_req_t request, fuse_ino_t node, std::size_t size) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.list_xattrs(asker, NodeId(node), answer_xattr(pending, size));
}

void on_setxattr(fuse_req_t request, fuse_ino_t node, const char* name, const char* value, std::size_t size,
                 int flags) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.set_xattr(asker, NodeId(node), text(name), std::string(value, size),
                                        static_cast<std::uint32_t>(flags), answer_done(pending));
}

void on_removexattr(fuse_req_t request, fuse_ino_t node, const char* name) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.remove_xattr(asker, NodeId(node), text(name), answer_done(pending));
}

// ---------------------------------------------------------------- files

// Through its cache the kernel cuts a write where a page ends that it does not have: an append would reach
// the server in two parts, and another mount's between them.
void appends_whole(fuse_file_info& file) {
  file.direct_io = (file.flags & O_APPEND) != 0 && (file.flags & O_ACCMODE) != O_RDONLY;
}

// An open that the kernel has given up meanwhile is closed again: no RELEASE will come.
void reply_open(fuse_req_t request, fuse_file_info file, const OpenReply& opened) {
  Filesystem& filesystem = filesystem_of(request);
  file.fh = opened.handle.value();
  file.keep_cache = opened.keep_cache;
  appends_whole(file);
  if (fuse_reply_open(request, &file) == -ENOENT) give_back(filesystem, opened);
}

void on_open(fuse_req_t request, fuse_ino_t node, fuse_file_info* file) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.open(
      asker, NodeId(node), static_cast<std::uint32_t>(file->flags),
      answer<OpenReply>(
          pending, [info = *file](fuse_req_t to, const OpenReply& opened) { reply_open(to, info, opened); }));
}

void on_create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
               fuse_file_info* file) noexcept {
  const CreationMode wanted = creation_mode(request, mode & ~static_cast<mode_t>(S_IFMT));
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.create(
      asker, NodeId(parent), text(name), wanted, static_cast<std::uint32_t>(file->flags),
      answer<CreateReply>(pending, [info = *file](fuse_req_t to, const CreateReply& created) mutable {
        Filesystem& filesystem = filesystem_of(to);
        const fuse_entry_param entry = to_entry(created.entry);
        info.fh = created.open.handle.value();
        info.keep_cache = created.open.keep_cache;
        appends_whole(info);
        if (fuse_reply_create(to, &entry, &info) == -ENOENT) give_back(filesystem, created);
      }));
}

void on_read(fuse_req_t request, fuse_ino_t, std::size_t size, off_t offset, fuse_file_info* file) noexcept {
  using Ends = RequestTable::Ends;
  const bool pages = (file->flags & O_DIRECT) == 0;
  auto [asker, pending, begun] = receive(request, pages ? Ends::kWithThread : Ends::kWhenAsked);
  pending.adapter->filesystem.read(
      asker, handle_of(file), static_cast<ByteCount>(offset), size,
      answer<ReadPieces>(pending, [](fuse_req_t to, const ReadPieces& pieces) {
        std::vector<iovec> vector;
        for (const SharedBytes& piece : pieces)
          vector.push_back({const_cast<std::byte*>(piece.bytes.data()), piece.size()});
        fuse_reply_iov(to, vector.data(), static_cast<int>(vector.size()));
      }));
}

void on_write(fuse_req_t request, fuse_ino_t, const char* bytes, std::size_t size, off_t offset,
              fuse_file_info* file) noexcept {
  using Ends = RequestTable::Ends;
  auto [asker, pending, begun] = receive(request, file->writepage ? Ends::kWithProcess : Ends::kWhenAsked);
  const bool appends = (file->flags & O_APPEND) != 0 && !file->writepage;
  pending.adapter->filesystem.write(
      asker, handle_of(file), static_cast<ByteCount>(offset), as_byte_span({bytes, size}), appends,
      answer<std::uint32_t>(pending,
                            [](fuse_req_t to, std::uint32_t written) { fuse_reply_write(to, written); }));
}

void on_flush(fuse_req_t request, fuse_ino_t, fuse_file_info* file) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.flush(asker, handle_of(file), file->lock_owner, answer_done(pending));
}

void on_fsync(fuse_req_t request, fuse_ino_t, int data_only, fuse_file_info* file) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.sync(asker, handle_of(file), data_only != 0, answer_done(pending));
}

void on_release(fuse_req_t request, fuse_ino_t, fuse_file_info* file) noexcept {
  filesystem_of(request).release(handle_of(file), file->flock_release != 0);
  fuse_reply_err(request, 0);
}

void on_fallocate(fuse_req_t request, fuse_ino_t, int mode, off_t offset, off_t length,
                  fuse_file_info* file) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.allocate(asker, handle_of(file), static_cast<ByteCount>(offset),
                                       static_cast<ByteCount>(length), static_cast<std::uint32_t>(mode),
                                       answer_done(pending));
}

void on_lseek(fuse_req_t request, fuse_ino_t, off_t offset, int whence, fuse_file_info* file) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.seek(
      asker, handle_of(file), static_cast<ByteCount>(offset), static_cast<std::uint32_t>(whence),
      answer<ByteCount>(
          pending, [](fuse_req_t to, ByteCount found) { fuse_reply_lseek(to, static_cast<off_t>(found)); }));
}

void on_copy_file_range(fuse_req_t request, fuse_ino_t, off_t source_offset, fuse_file_info* source,
                        fuse_ino_t, off_t target_offset, fuse_file_info* target, std::size_t length,
                        int) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.copy_range(
      asker, handle_of(source), static_cast<ByteCount>(source_offset), handle_of(target),
      static_cast<ByteCount>(target_offset), length,
      answer<ByteCount>(pending, [](fuse_req_t to, ByteCount copied) { fuse_reply_write(to, copied); }));
}

// ---------------------------------------------------------------- locks

NewLock to_lock(const fuse_file_info* file, const struct flock& lock, bool wait) {
  const auto start = static_cast<std::uint64_t>(lock.l_start);
  return {.owner = file->lock_owner,
          .type = static_cast<std::uint32_t>(lock.l_type),
          .start = start,
          .end = lock.l_len == 0 ? static_cast<std::uint64_t>(INT64_MAX)
                                 : start + static_cast<std::uint64_t>(lock.l_len) - 1,
          .wait = wait,
          .pid = static_cast<std::uint32_t>(lock.l_pid)};
}

void on_getlk(fuse_req_t request, fuse_ino_t, fuse_file_info* file, struct flock* lock) noexcept {
  auto [asker, pending, begun] = receive(request);
  pending.adapter->filesystem.test_lock(
      asker, handle_of(file), to_lock(file, *lock, false),
      answer<schema::LockReply>(pending, [](fuse_req_t to, const schema::LockReply& found) {
        struct flock in_the_way {};
        in_the_way.l_type = static_cast<short>(found.type());
        in_the_way.l_whence = SEEK_SET;
        in_the_way.l_start = static_cast<off_t>(found.start());
        in_the_way.l_len = found.end() >= static_cast<std::uint64_t>(INT64_MAX)
                               ? 0
                               : static_cast<off_t>(found.end() - found.start() + 1);
        in_the_way.l_pid = static_cast<pid_t>(found.pid());
        fuse_reply_lock(to, &in_the_way);
      }));
}

void on_setlk(fuse_req_t request, fuse_ino_t, fuse_file_info* file, struct flock* lock, int sleep) noexcept {
  auto [asker, pending, begun] = receive(request, RequestTable::Ends::kByAnySignal);
  pending.adapter->filesystem.set_lock(asker, handle_of(file), to_lock(file, *lock, sleep != 0),
                                       answer_done(pending));
}

void on_flock(fuse_req_t request, fuse_ino_t, fuse_file_info* file, int operation) noexcept {
  auto [asker, pending, begun] = receive(request, RequestTable::Ends::kByAnySignal);
  const int kind = operation & ~LOCK_NB;
  const NewLock lock{.flock = true,
                     .owner = file->lock_owner,
                     .type = static_cast<std::uint32_t>(kind == LOCK_SH   ? F_RDLCK
                                                        : kind == LOCK_EX ? F_WRLCK
                                                                          : F_UNLCK),
                     .end = static_cast<std::uint64_t>(INT64_MAX),
                     .wait = (operation & LOCK_NB) == 0,
                     .pid = asker.pid};
  pending.adapter->filesystem.set_lock(asker, handle_of(file), lock, answer_done(pending));
}

// No access: default_permissions. No ioctl, poll, bmap: nothing a far file could do with them.
constexpr fuse_lowlevel_ops make_operations() {
  fuse_lowlevel_ops ops{};
  ops.init = on_init;
  ops.lookup = on_lookup;
  ops.forget = on_forget;
  ops.forget_multi = on_forget_multi;
  ops.getattr = on_getattr;
  ops.setattr = on_setattr;
  ops.readlink = on_readlink;
  ops.mknod = on_mknod;
  ops.mkdir = on_mkdir;
  ops.unlink = on_unlink;
  ops.rmdir = on_rmdir;
  ops.symlink = on_symlink;
  ops.rename = on_rename;
  ops.link = on_link;
  ops.open = on_open;
  ops.read = on_read;
  ops.write = on_write;
  ops.flush = on_flush;
  ops.release = on_release;
  ops.fsync = on_fsync;
  ops.opendir = on_opendir;
  ops.readdir = on_readdir;
  ops.readdirplus = on_readdirplus;
  ops.releasedir = on_releasedir;
  ops.fsyncdir = on_fsyncdir;
  ops.statfs = on_statfs;
  ops.setxattr = on_setxattr;
  ops.getxattr = on_getxattr;
  ops.listxattr = on_listxattr;
  ops.removexattr = on_removexattr;
  ops.create = on_create;
  ops.getlk = on_getlk;
  ops.setlk = on_setlk;
  ops.flock = on_flock;
  ops.fallocate = on_fallocate;
  ops.copy_file_range = on_copy_file_range;
  ops.lseek = on_lseek;
  return ops;
}

}  // namespace

void FuseAdapter::end_early(void* request) { fuse_reply_err(static_cast<fuse_req_t>(request), EINTR); }

const fuse_lowlevel_ops& FuseAdapter::operations() {
  static constexpr fuse_lowlevel_ops kOperations = make_operations();
  return kOperations;
}

}  // namespace tusk::client

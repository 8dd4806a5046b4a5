// FilesAhead: what becomes of the bytes that were asked for.
#include <algorithm>

#include "fsclient/files_ahead.h"
#include "proto/rpc/compression.h"

namespace tusk::client {

void FilesAhead::finish(const std::shared_ptr<Request>& request, Result<rpc::CallReply> reply) {
  if (reply)
    if (const Result<void> taken = take_in(request, *reply); !taken)
      core_.last_error.set("reading ahead: " + taken.error().message());
  {
    const std::lock_guard lock(mutex_);
    window_.end(request->cost);
    --requests_;
  }
  if (!reply && reply.error().code == ErrorCode::kUnsupported) unknown_ = true;
  for (const Folder& folder : request->folders)
    for (const auto& file : folder.files)
      if (!request->later.contains(file.get())) release(*file, AskedAhead::kNo);
  core_.cache.trim();
}

// If all of it is here and nobody has changed it since, it can be opened without the server.
void FilesAhead::finish(const Whole& whole) {
  {
    Inode& inode = *whole.file;
    Deferred after;
    const std::lock_guard lock(inode.mutex);
    FileState& file = *inode.file;
    const bool same = file.version.is(whole.change) && inode.attributes.value().change == whole.change &&
                      !inode.attributes.overtaken(whole.started) && !inode.written_since(whole.started);
    const bool all = same && file.data.has({0, whole.size});
    std::uint64_t number = 0;
    {
      const std::lock_guard window_lock(mutex_);
      window_.end(whole.size);
      if (all) number = window_.add(whole.size, whole.ticket, 0);
    }
    if (all) {
      inode.attributes.foresee(core_.foresight, Told(whole.started));
      note_arrival(file, Told(whole.started), number, after);
    }
  }
  release(*whole.file, AskedAhead::kNo);
  core_.cache.trim();
}

// With the inode's mutex held: all of the file is here. Who waited for it has come to it already.
void FilesAhead::note_arrival(FileState& file, const Told& answer, std::uint64_t number, Deferred& after) {
  const bool waited_for = file.opened_at >= answer.started;
  const TimePoint now = core_.scheduler.now();
  if (waited_for) core_.foresight.note_step(now);  // before: after a long wait it begins another walk
  file.ahead = core_.foresight.told(answer);
  if (!waited_for) {
    file.streamed = number;
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    window_.use(number);
    last_open_ = now;
  }
  after.add([this] { core_.scheduler.post([this] { fetch_more(); }); });
}

void FilesAhead::release(Inode& file, AskedAhead next) {
  std::vector<std::move_only_function<void()>> waiters;
  {
    const std::lock_guard lock(file.mutex);
    file.file->asked_ahead = next;
    waiters.swap(file.file->ahead_waiters);
  }
  for (auto& waiter : waiters) waiter();
}

Result<void> FilesAhead::take_in(const std::shared_ptr<Request>& request, rpc::CallReply& reply) {
  const schema::ReadFilesReply& told = reply.message.read_files();
  const auto malformed = [] {
    return fail(ErrorCode::kMalformed, "a READ_FILES reply whose parts disagree");
  };
  SharedBytes bytes = request->body.first(reply.body_size);
  if (told.length() > request->body.size()) return malformed();
  if (told.compressed()) {
    TUSK_ASSIGN(bytes, rpc::decompress(bytes.bytes, told.length()));
  }
  if (bytes.size() != told.length()) return malformed();
  core_.counters.fetched += bytes.size();
  core_.counters.fetched_ahead += bytes.size();
  std::size_t offset = 0;
  for (const schema::FileBytes& file : told.files()) {
    if (file.length() > bytes.size() - offset || file.folder() >= request->folders.size()) return malformed();
    const Folder& folder = request->folders[file.folder()];
    if (file.name() >= folder.files.size()) return malformed();
    take_in(request, folder, file.name(), file, bytes.subspan(offset, file.length()),
            client::Told(request->started, reply.message, {}));
    offset += file.length();
  }
  return {};
}

void FilesAhead::take_in(const std::shared_ptr<Request>& request, const Folder& folder, std::size_t index,
                         const schema::FileBytes& told, const SharedBytes& bytes, const Told& answer) {
  const std::shared_ptr<Inode>& file = folder.files[index];
  const schema::Attr& attr = told.node().attr();
  if (told.node().handle() != file->handle() || !S_ISREG(attr.mode())) return;
  facts_.learn(*file, attr, answer);
  names_.learn_name_ahead(*folder.directory, folder.names[index], file, answer.started);
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = window_.add(std::max<ByteCount>(attr.size(), kCostMin), request->ticket, folder.first + index);
  }
  if (!Facts::pages_being_dropped(*file)) {
    if (take_in_bytes(file, told, bytes, answer, number)) request->later.insert(file.get());
    return;
  }
  // Somebody was still reading what was there before: the kernel has to drop it first. For that it waits for
  // the reads it has begun: they must not wait for what comes after it.
  request->later.insert(file.get());
  release(*file, AskedAhead::kBehindDrop);
  core_.scheduler.post_notification([this, file, told, bytes, answer, number] {
    core_.scheduler.post([this, file, told, bytes, answer, number] {
      if (!take_in_bytes(file, told, bytes, answer, number)) release(*file, AskedAhead::kNo);
      core_.cache.trim();
    });
  });
}

// Only if all that is here of the file, in the kernel's memory too, is of the same change. True: they are on
// their way from this machine's disk, and who waits for them goes on then.
bool FilesAhead::take_in_bytes(const std::shared_ptr<Inode>& pointer, const schema::FileBytes& told,
                               const SharedBytes& bytes, const Told& answer, std::uint64_t number) {
  Inode& inode = *pointer;
  const schema::Attr& attr = told.node().attr();
  Deferred after;
  const std::lock_guard lock(inode.mutex);
  inode.attributes.foresee(core_.foresight, answer.about(attr));
  FileState& file = *inode.file;
  if (inode.attributes.overtaken(answer.started)) return false;
  if (attr.change() == 0 || inode.attributes.value().change != attr.change() ||
      inode.written_since(answer.started))
    return false;
  const bool elsewhere = told.unchanged() && !file.data.has({0, attr.size()});
  if (!told.unchanged() && bytes.size() != attr.size()) return false;
  if ((elsewhere || !told.unchanged()) && !file.version.is(attr.change())) {
    if (file.data_handed_out || inode.pages_being_dropped > 0) return false;
    if (!inode.open_files.empty() && !file.data.blank()) return false;
    file.forget_bytes();
    file.version.set(attr.change());
  }
  if (elsewhere) {
    after.add([this, pointer, change = attr.change(), size = attr.size(), about = answer.about(attr),
               number] { bring(pointer, change, size, about, number); });
    return true;
  }
  if (!told.unchanged()) {
    file.data.fill(0, bytes.bytes, attr.change());
    kept_.keep(inode, kWholeFile);
  }
  if (!file.version.is(attr.change()) || !file.data.has({0, attr.size()})) return false;
  note_arrival(file, answer.about(attr), number, after);
  return false;
}

void FilesAhead::bring(const std::shared_ptr<Inode>& file, std::uint64_t change, ByteCount size,
                       const Told& answer, std::uint64_t number) {
  const MutableSharedBytes target = allocate_bytes(size);
  kept_.read(file, {0, size}, target, change, [this, file, target, number, answer](std::uint64_t brought) {
    if (brought != 0) take_in_kept(*file, {target.owner, target.bytes}, brought, answer, number);
    release(*file, AskedAhead::kNo);
  });
}

void FilesAhead::take_in_kept(Inode& inode, const SharedBytes& bytes, std::uint64_t change,
                              const Told& answer, std::uint64_t number) {
  Deferred after;
  const std::lock_guard lock(inode.mutex);
  FileState& file = *inode.file;
  const bool same = file.version.is(change) && inode.attributes.value().change == change;
  if (!same || !file.data.all_settled()) return;
  file.data.fill(0, bytes.bytes, change);
  note_arrival(file, answer, number, after);
}

}  // namespace tusk::client

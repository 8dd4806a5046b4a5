#include "fsclient/small_files.h"

#include <dirent.h>

#include <algorithm>

#include "fsclient/tree_order.h"
#include "proto/rpc/compression.h"

namespace tusk::client {
namespace {

constexpr std::size_t kNodeBytes = 128;  // beside its name: a folder's handle, a change counter

}  // namespace

// ---------------------------------------------------------------- recognising who reads many

void SmallFiles::note_open(const std::shared_ptr<Inode>& file) {
  if (!core_.foresight.allowed() || unknown_) return;
  const TimePoint now = core_.scheduler.now();
  std::shared_ptr<Inode> parent;
  Opening open{};
  TimePoint opened_before{};
  {
    const std::lock_guard lock(file->mutex);
    if (!file->file || file->size() > kFileMax) return;
    parent = file->parent.lock();
    open.streamed = std::exchange(file->file->streamed, 0);
    open.expected = open.streamed != 0 || file->file->asked_ahead != AskedAhead::kNo;
    opened_before = std::exchange(file->file->opened_at, now);
  }
  if (!parent) return;
  open.parent = parent.get();
  std::shared_ptr<Inode> previous;
  {
    const std::lock_guard lock(mutex_);
    previous = last_file_.lock();
    last_file_ = file;
    open.repeated = previous != file && opened_before >= run_started_;
  }
  if (previous) note_step(parent_of(*previous), parent);
  if (!goes_on(open, now)) return;
  core_.foresight.note_step(now);
  fetch_next(parent, previous.get(), file.get());
}

// True: more should be on its way.
bool SmallFiles::goes_on(const Opening& open, TimePoint now) {
  const bool walking = core_.foresight.going_on(now);
  const std::lock_guard lock(mutex_);
  const bool paused = last_open_ + kPauseMax < now;
  last_open_ = now;
  misses_ = open.expected ? 0 : misses_ + 1;
  if (paused || open.repeated || misses_ > kMissesMax) begin_run(now);
  const bool elsewhere = std::exchange(last_parent_, open.parent) != open.parent;
  run_ = paused || elsewhere ? 1 : run_ + 1;
  if (open.streamed != 0) window_.use(open.streamed);
  return (run_ >= 2 || walking) && window_.worth_asking() && requests_ < kRequestsMax;
}

void SmallFiles::begin_run(TimePoint now) {
  window_.restart();
  run_started_ = now;
  misses_ = 0;
}

void SmallFiles::fetch_again(const std::shared_ptr<Inode>& file) {
  if (unknown_) return;
  std::shared_ptr<Inode> parent;
  std::vector<Sibling> alone;
  {
    const std::lock_guard lock(file->mutex);
    if (!file->file || file->file->opened_at + kWatched < core_.scheduler.now()) return;
    parent = file->parent.lock();
    alone.push_back({file->name, 0, file});
  }
  if (!parent) return;
  ByteCount room = kFileMax;
  std::vector<std::shared_ptr<Request>> requests;
  add(parent, std::move(alone), std::nullopt, room, requests);
  for (const auto& request : requests) send(request, rpc::Priority::kInteractive);
}

bool SmallFiles::wait_for(Inode& file, std::move_only_function<void()>& then) {
  const std::lock_guard lock(file.mutex);
  if (!file.file || file.file->asked_ahead == AskedAhead::kNo) return false;
  file.file->ahead_waiters.push_back(std::move(then));
  return true;
}

// ---------------------------------------------------------------- asking

void SmallFiles::fetch_next(const std::shared_ptr<Inode>& parent, const Inode* previous,
                            const Inode* opened) {
  std::vector<std::shared_ptr<Request>> requests;
  ByteCount room = 0;
  VisitOrder directory_order{};
  TimePoint run_started{};
  std::vector<Sibling> files = children_of(*parent, DT_REG);
  const VisitOrder order = guess_order(files, previous, opened);
  {
    const std::lock_guard lock(mutex_);
    room = window_.room();
    directory_order = directory_order_;
    run_started = run_started_;
  }
  put_in_order(files, order, opened);
  bool more = add(parent, std::move(files), run_started, room, requests);
  // First what it is listing; then what it has listed before it began to read (rsync).
  const auto add_all = [&](const std::vector<std::shared_ptr<Inode>>& directories) {
    for (const auto& directory : directories) {
      if (!more) return;
      files = children_of(*directory, DT_REG);
      put_in_order(files, order, nullptr);
      more = add(directory, std::move(files), run_started, room, requests);
    }
  };
  add_all(tree_.upcoming(kDirectoriesAhead));
  if (more) add_all(directories_after(parent, directory_order, kDirectoriesAhead));
  for (const auto& request : requests) send(request, rpc::Priority::kBulk);
}

// From one directory to another beside it.
void SmallFiles::note_step(const std::shared_ptr<Inode>& from, const std::shared_ptr<Inode>& to) {
  if (!from || from == to) return;
  const std::shared_ptr<Inode> above = parent_of(*to);
  if (!above || parent_of(*from) != above) return;
  const VisitOrder order = guess_order(children_of(*above, DT_DIR), from.get(), to.get());
  const std::lock_guard lock(mutex_);
  directory_order_ = order;
}

bool SmallFiles::add(const std::shared_ptr<Inode>& directory, std::vector<Sibling> files,
                     std::optional<TimePoint> unopened_since, ByteCount& room,
                     std::vector<std::shared_ptr<Request>>& requests) {
  if (!directory->on_server()) return true;
  for (Sibling& candidate : files) {
    if (room == 0) return false;
    ByteCount size = 0;
    std::uint64_t known_change = 0;
    if (!claim(*candidate.inode, unopened_since, size, known_change)) continue;
    const bool full = requests.empty() || requests.back()->bytes + size > kRequestMax ||
                      requests.back()->files == kFilesMax || requests.back()->name_bytes > kNameBytesMax;
    if (full) requests.push_back(std::make_shared<Request>());
    Request& request = *requests.back();
    if (request.folders.empty() || request.folders.back().directory != directory)
      request.folders.push_back({directory, {}, {}, {}});
    Folder& folder = request.folders.back();
    request.name_bytes += candidate.name.size() + kNodeBytes;
    folder.names.push_back(std::move(candidate.name));
    folder.files.push_back(std::move(candidate.inode));
    folder.known_changes.push_back(known_change);
    ++request.files;
    request.bytes += size;
    const ByteCount cost = std::max(size, kCostMin);
    request.cost += cost;
    room -= std::min(room, cost);
  }
  return true;
}

// Nobody has it open, has opened it since then, or has asked for it.
bool SmallFiles::claim(Inode& file, std::optional<TimePoint> unopened_since, ByteCount& size,
                       std::uint64_t& known_change) {
  const TimePoint now = core_.scheduler.now();
  const std::lock_guard lock(file.mutex);
  if (!file.file || file.size() > kFileMax) return false;
  FileState& state = *file.file;
  if (unopened_since && (!file.open_files.empty() || state.opened_at >= *unopened_since)) return false;
  if (core_.foresight.may_take(state.ahead, now) || state.asked_ahead != AskedAhead::kNo ||
      !state.data.all_settled())
    return false;
  state.asked_ahead = AskedAhead::kOnItsWay;
  size = file.size();
  if (!state.version.mixed() && state.data.has({0, size}))
    known_change = state.version.value();
  else
    known_change = kept_.change_of_start(file, size);
  return true;
}

void SmallFiles::send(const std::shared_ptr<Request>& request, rpc::Priority priority) {
  request->started = core_.scheduler.now();
  rpc::CallRequest call;
  schema::ReadFilesRequest& message = *call.message.mutable_read_files();
  for (const Folder& from : request->folders) {
    schema::ReadFilesRequest::Folder& folder = *message.add_folders();
    folder.set_handle(from.directory->handle());
    for (const std::string& name : from.names) folder.add_names(name);
    for (const std::uint64_t change : from.known_changes) folder.add_known_changes(change);
  }
  // A few may have grown a little.
  const ByteCount limit = std::min(kRequestMax, request->bytes + kFileMax);
  message.set_limit_bytes(static_cast<std::uint32_t>(limit));
  message.set_file_bytes_max(static_cast<std::uint32_t>(kFileMax));
  message.set_compress(core_.path.slow());
  request->body = allocate_bytes(limit);
  call.reply_body = request->body;
  call.priority = priority;
  {
    const std::lock_guard lock(mutex_);
    window_.begin(request->cost);
    ++requests_;
  }
  core_.remote.transfer(
      std::move(call), schema::Reply::kReadFiles, [this, request](Result<rpc::CallReply> reply) mutable {
        core_.scheduler.post(
            [this, request, reply = std::move(reply)]() mutable { finish(request, std::move(reply)); });
      });
}

// ---------------------------------------------------------------- taking in

void SmallFiles::finish(const std::shared_ptr<Request>& request, Result<rpc::CallReply> reply) {
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

void SmallFiles::release(Inode& file, AskedAhead next) {
  std::vector<std::move_only_function<void()>> waiters;
  {
    const std::lock_guard lock(file.mutex);
    file.file->asked_ahead = next;
    waiters.swap(file.file->ahead_waiters);
  }
  for (auto& waiter : waiters) waiter();
}

Result<void> SmallFiles::take_in(const std::shared_ptr<Request>& request, rpc::CallReply& reply) {
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

void SmallFiles::take_in(const std::shared_ptr<Request>& request, const Folder& folder, std::size_t index,
                         const schema::FileBytes& told, const SharedBytes& bytes, const Told& answer) {
  const std::shared_ptr<Inode>& file = folder.files[index];
  const schema::Attr& attr = told.node().attr();
  if (told.node().handle() != file->handle() || !S_ISREG(attr.mode())) return;
  facts_.learn(*file, attr, answer);
  names_.learn_name_ahead(*folder.directory, folder.names[index], file, answer.started);
  if (!Facts::pages_being_dropped(*file)) {
    if (take_in_bytes(file, told, bytes, answer)) request->later.insert(file.get());
    return;
  }
  // Somebody was still reading what was there before: the kernel has to drop it first. For that it waits for
  // the reads it has begun: they must not wait for what comes after it.
  request->later.insert(file.get());
  release(*file, AskedAhead::kBehindDrop);
  core_.scheduler.post_notification([this, file, told, bytes, answer] {
    core_.scheduler.post([this, file, told, bytes, answer] {
      if (!take_in_bytes(file, told, bytes, answer)) release(*file, AskedAhead::kNo);
      core_.cache.trim();
    });
  });
}

// Only if all that is here of the file, in the kernel's memory too, is of the same change. True: they are on
// their way from this machine's disk, and who waits for them goes on then.
bool SmallFiles::take_in_bytes(const std::shared_ptr<Inode>& pointer, const schema::FileBytes& told,
                               const SharedBytes& bytes, const Told& answer) {
  Inode& inode = *pointer;
  const schema::Attr& attr = told.node().attr();
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = window_.add(std::max<ByteCount>(attr.size(), kCostMin));
  }
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
    file.data.forget(kWholeFile);
    file.version.set(attr.change());
  }
  if (elsewhere) {
    after.add([this, pointer, change = attr.change(), size = attr.size(),
               ahead = core_.foresight.told(answer.about(attr)),
               number] { bring(pointer, change, size, ahead, number); });
    return true;
  }
  if (!told.unchanged()) {
    file.data.fill(0, bytes.bytes, attr.change());
    kept_.keep(inode, kWholeFile);
  }
  if (!file.version.is(attr.change()) || !file.data.has({0, attr.size()})) return false;
  file.ahead = core_.foresight.told(answer.about(attr));
  file.streamed = number;
  return false;
}

void SmallFiles::bring(const std::shared_ptr<Inode>& file, std::uint64_t change, ByteCount size, Ahead ahead,
                       std::uint64_t number) {
  const MutableSharedBytes target = allocate_bytes(size);
  kept_.read(file, {0, size}, target, change, [this, file, target, number, ahead](std::uint64_t brought) {
    if (brought != 0) take_in_kept(*file, {target.owner, target.bytes}, brought, ahead, number);
    release(*file, AskedAhead::kNo);
  });
}

void SmallFiles::take_in_kept(Inode& inode, const SharedBytes& bytes, std::uint64_t change, Ahead ahead,
                              std::uint64_t number) {
  const std::lock_guard lock(inode.mutex);
  FileState& file = *inode.file;
  const bool same = file.version.is(change) && inode.attributes.value().change == change;
  if (!same || !file.data.all_settled()) return;
  file.data.fill(0, bytes.bytes, change);
  file.ahead = ahead;
  file.streamed = number;
}

}  // namespace tusk::client

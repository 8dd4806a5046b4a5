// FilesAhead: who goes through a tree, and what to ask for.
#include "fsclient/files_ahead.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>

#include "fsclient/tree_order.h"

namespace tusk::client {
namespace {

constexpr std::size_t kNodeBytes = 128;  // beside its name: a folder's handle, a change counter

}  // namespace

// ---------------------------------------------------------------- recognising who reads many

void FilesAhead::note_open(const std::shared_ptr<Inode>& file) {
  if (!core_.foresight.allowed() || unknown_) return;
  const TimePoint now = core_.scheduler.now();
  std::shared_ptr<Inode> parent;
  Opening open{};
  TimePoint opened_before{};
  {
    const std::lock_guard lock(file->mutex);
    if (!file->file) return;
    parent = file->parent.lock();
    open.streamed = std::exchange(file->file->streamed, 0);
    open.expected = file->file->asked_ahead != AskedAhead::kNo || file->file->data.has({0, file->size()});
    open.too_large = file->size() > size_max();
    opened_before = std::exchange(file->file->opened_at, now);
  }
  if (!parent) return;
  open.parent = parent.get();
  std::shared_ptr<Inode> previous;
  VisitOrder believed{};
  {
    const std::lock_guard lock(mutex_);
    believed = file_order_;
    previous = last_file_.lock();
    last_file_ = file;
    open.repeated = previous != file && opened_before >= run_started_;
  }
  if (previous) note_step(parent_of(*previous), parent);
  if (!goes_on(open, now)) return;
  core_.foresight.note_step(now);
  std::vector<Sibling> files = children_of(*parent, DT_REG);
  const VisitOrder order = guess_order(files, previous.get(), file.get(), believed);
  {
    const std::lock_guard lock(mutex_);
    file_order_ = order;
  }
  fetch_next(parent, std::move(files), file.get());
}

// True: more should be on its way.
bool FilesAhead::goes_on(const Opening& open, TimePoint now) {
  const bool walking = core_.foresight.going_on(now);
  const std::lock_guard lock(mutex_);
  const bool paused = pause_since(last_open_, now);
  last_open_ = now;
  if (paused || open.repeated) begin_run(now);
  if (open.expected)
    window_.hit();
  else if (!open.too_large && window_.miss())
    listed_ahead_first_ = !listed_ahead_first_;
  const bool elsewhere = std::exchange(last_parent_, open.parent) != open.parent;
  run_ = paused || elsewhere ? 1 : run_ + 1;
  if (open.streamed != 0) window_.use(open.streamed);
  return (run_ >= 2 || walking) && window_.worth_asking() && requests_ < kRequestsMax;
}

// An open at the server takes a round trip, and a first read another: that is not the program's pause.
bool FilesAhead::pause_since(TimePoint then, TimePoint now) const {
  return then == TimePoint::min() || now - then > kPauseMax + 2 * core_.path.recent().rtt_smoothed;
}

void FilesAhead::begin_run(TimePoint now) {
  window_.restart();
  run_started_ = now;
  directory_order_.reset();
}

void FilesAhead::note_close(const OpenFile& file) {
  if ((file.flags & (O_ACCMODE | O_DIRECT)) != O_RDONLY) return;
  ByteCount size = 0;
  ByteCount read = 0;
  {
    const std::lock_guard lock(file.inode->mutex);
    if (!file.inode->file) return;
    size = file.inode->size();
    read = file.read_bytes;
  }
  const ByteCount known = size_max();
  whole_reads_.note_close(size, read);
  if (size <= known || size > size_max()) return;
  // Such a one would have been fetched ahead.
  const std::lock_guard lock(mutex_);
  window_.set_most(window_max());
  window_.grow(size);
}

// Nobody should wait long for a file that is on its way.
ByteCount FilesAhead::size_max() const {
  const rpc::PathStats path = core_.path.recent();
  const Duration wait = kWaitMax + 2 * path.rtt_smoothed;  // as long as it takes to ask and begin to read
  const auto soon = static_cast<ByteCount>(path.receive_bandwidth * to_seconds(wait));
  const ByteCount cached = core_.cache.budget()->cap() / kCacheShare;  // or it could not be opened here
  return std::clamp(std::min({whole_reads_.size_max(), soon, cached}), kSmallMax, kWholeMax);
}

ByteCount FilesAhead::window_max() const {
  const rpc::PathStats path = core_.path.recent();
  const ByteCount product = path_holds(path, path.receive_bandwidth);
  core_.cache.budget()->grow_for(product);
  const auto soon = static_cast<ByteCount>(path.receive_bandwidth * to_seconds(kWindowWait));
  const ByteCount line =
      path.receive_bandwidth > 0 ? std::max(std::min(kWindowMax, soon), kPathProducts * product) : kWindowMax;
  return std::min(line, core_.cache.budget()->cap() / kCacheShare);
}

void FilesAhead::fetch_again(const std::shared_ptr<Inode>& file) {
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
  Plan plan{.room = kSmallMax, .size_max = kSmallMax};
  add(parent, std::move(alone), plan);
  carry_out(plan, rpc::Priority::kInteractive);
}

bool FilesAhead::wait_for(Inode& file, std::move_only_function<void()>& then) {
  const std::lock_guard lock(file.mutex);
  if (!file.file || file.file->asked_ahead == AskedAhead::kNo) return false;
  file.file->ahead_waiters.push_back(std::move(then));
  return true;
}

// ---------------------------------------------------------------- asking

// The program has used what came, because it waited for it: as when it opens the next one.
void FilesAhead::fetch_more() {
  const TimePoint now = core_.scheduler.now();
  std::shared_ptr<Inode> opened;
  {
    const std::lock_guard lock(mutex_);
    if (!pause_since(last_open_, now) && window_.worth_asking() && requests_ < kRequestsMax)
      opened = last_file_.lock();
  }
  const std::shared_ptr<Inode> parent = opened ? parent_of(*opened) : nullptr;
  if (parent) fetch_next(parent, children_of(*parent, DT_REG), opened.get());
}

// What comes after `opened`, one of the `files` in `parent`.
void FilesAhead::fetch_next(const std::shared_ptr<Inode>& parent, std::vector<Sibling> files,
                            const Inode* opened) {
  Plan plan{.size_max = size_max()};
  VisitOrder order{};
  VisitOrder directory_order{};
  bool listed_ahead_first = false;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(planning_, true)) return;
    window_.set_most(window_max());
    plan.room = std::min(window_.room(), reader_.room_ahead());
    if (window_.doubtful()) plan.size_max = kSmallMax;
    listed_ahead_first = listed_ahead_first_;
    plan.unopened_since = run_started_;
    order = file_order_;
    directory_order = directory_order_.value_or(order);
  }
  put_in_order(files, order, opened);
  bool more = add(parent, std::move(files), plan);
  // What it is about to list (cp -r), or what it has listed before it began to read (rsync).
  const auto add_all = [&](const std::vector<std::shared_ptr<Inode>>& directories) {
    for (const auto& directory : directories) {
      if (!more) return;
      files = children_of(*directory, DT_REG);
      put_in_order(files, order, nullptr);
      more = add(directory, std::move(files), plan);
    }
  };
  if (listed_ahead_first) add_all(tree_.upcoming(kDirectoriesAhead));
  if (more) add_all(directories_after(parent, directory_order, kDirectoriesAhead));
  if (!listed_ahead_first) add_all(tree_.upcoming(kDirectoriesAhead));
  carry_out(plan, rpc::Priority::kBulk);
  const std::lock_guard lock(mutex_);
  planning_ = false;
}

// From one directory to another beside it.
void FilesAhead::note_step(const std::shared_ptr<Inode>& from, const std::shared_ptr<Inode>& to) {
  if (!from || from == to) return;
  const std::shared_ptr<Inode> above = parent_of(*to);
  if (!above || parent_of(*from) != above) return;
  VisitOrder believed{};
  {
    const std::lock_guard lock(mutex_);
    believed = directory_order_.value_or(file_order_);
  }
  const VisitOrder order = guess_order(children_of(*above, DT_DIR), from.get(), to.get(), believed);
  const std::lock_guard lock(mutex_);
  directory_order_ = order;
}

bool FilesAhead::add(const std::shared_ptr<Inode>& directory, std::vector<Sibling> files, Plan& plan) {
  if (!directory->on_server()) return true;
  for (Sibling& candidate : files) {
    if (plan.room == 0) return false;
    ByteCount size = 0;
    std::uint64_t change = 0;
    if (!claim(*candidate.inode, plan, size, change)) continue;
    plan.room -= std::min(plan.room, std::max(size, kCostMin));
    if (size <= kSmallMax)
      add_small(directory, std::move(candidate), size, change, plan);
    else
      plan.wholes.push_back(
          std::make_shared<Whole>(Whole{.file = std::move(candidate.inode), .size = size, .change = change}));
  }
  return true;
}

void FilesAhead::add_small(const std::shared_ptr<Inode>& directory, Sibling file, ByteCount size,
                           std::uint64_t known_change, Plan& plan) {
  std::vector<std::shared_ptr<Request>>& requests = plan.requests;
  const bool full = requests.empty() || requests.back()->bytes + size > kRequestMax ||
                    requests.back()->files == kFilesMax || requests.back()->name_bytes > kNameBytesMax;
  if (full) requests.push_back(std::make_shared<Request>());
  Request& request = *requests.back();
  if (request.folders.empty() || request.folders.back().directory != directory)
    request.folders.push_back({directory, {}, {}, {}, request.files});
  Folder& folder = request.folders.back();
  request.name_bytes += file.name.size() + kNodeBytes;
  folder.names.push_back(std::move(file.name));
  folder.files.push_back(std::move(file.inode));
  folder.known_changes.push_back(known_change);
  ++request.files;
  request.bytes += size;
  request.cost += std::max(size, kCostMin);
}

// Nobody has it open, has opened it since then, or has asked for it. `change`: of a small file what is here
// of it, for the server to compare; of a larger one what it is expected to be.
bool FilesAhead::claim(Inode& file, const Plan& plan, ByteCount& size, std::uint64_t& change) {
  const TimePoint now = core_.scheduler.now();
  const std::lock_guard lock(file.mutex);
  if (!file.file || file.size() > plan.size_max) return false;
  FileState& state = *file.file;
  if (plan.unopened_since && (!file.open_files.empty() || state.opened_at >= *plan.unopened_since))
    return false;
  size = file.size();
  const bool waits = core_.foresight.may_take(state.ahead, now) && state.data.has({0, size});
  if (waits || state.asked_ahead != AskedAhead::kNo || !state.data.all_settled()) return false;
  if (size > kSmallMax) {
    if (!begin_version_locked(file)) return false;
    change = state.version.value();
  } else if (!state.version.mixed() && state.data.has({0, size})) {
    change = state.version.value();
  } else {
    change = kept_.change_of_start(file, size);
  }
  state.asked_ahead = size > kSmallMax ? AskedAhead::kByReads : AskedAhead::kOnItsWay;
  return true;
}

// A larger file: what is asked for now belongs to the version that its attributes tell of. False: it is here,
// or older bytes are that cannot be let go.
bool FilesAhead::begin_version_locked(Inode& inode) {
  FileState& file = *inode.file;
  const std::uint64_t change = inode.attributes.value().change;
  if (change == 0 || !inode.attributes.learnt().ever() || inode.pages_being_dropped > 0) return false;
  if (file.version.is(change)) return !file.data.has({0, inode.size()});
  if (file.data_handed_out || (!inode.open_files.empty() && !file.data.blank())) return false;
  file.forget_bytes();
  file.version.set(change);
  return true;
}

void FilesAhead::carry_out(const Plan& plan, rpc::Priority priority) {
  for (const auto& request : plan.requests) send(request, priority);
  for (const auto& whole : plan.wholes) fetch(whole);
}

void FilesAhead::fetch(const std::shared_ptr<Whole>& whole) {
  whole->started = core_.scheduler.now();
  {
    const std::lock_guard lock(mutex_);
    whole->ticket = window_.begin(whole->size, 1);
  }
  reader_.fetch_whole(whole->file,
                      [this, whole] { core_.scheduler.post([this, whole] { finish(*whole); }); });
}

void FilesAhead::send(const std::shared_ptr<Request>& request, rpc::Priority priority) {
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
  const ByteCount limit = std::min(kRequestMax, request->bytes + kSmallMax);
  message.set_limit_bytes(static_cast<std::uint32_t>(limit));
  message.set_file_bytes_max(static_cast<std::uint32_t>(kSmallMax));
  message.set_compress(core_.path.receives_slowly());
  request->body = allocate_bytes(limit);
  call.reply_body = request->body;
  call.priority = priority;
  {
    const std::lock_guard lock(mutex_);
    request->ticket = window_.begin(request->cost, request->files);
    ++requests_;
  }
  core_.remote.transfer(
      std::move(call), schema::Reply::kReadFiles, [this, request](Result<rpc::CallReply> reply) mutable {
        core_.scheduler.post(
            [this, request, reply = std::move(reply)]() mutable { finish(request, std::move(reply)); });
      });
}

}  // namespace tusk::client

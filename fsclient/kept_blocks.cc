#include "fsclient/kept_blocks.h"

#include <algorithm>

#include "fsclient/deferred.h"

namespace tusk::client {
namespace {

constexpr int kDepthMax = 4096;  // of folders in each other, the kernel's own limit on paths

// As it is in a file of that size.
Interval block_extent(std::uint64_t block, ByteCount size) {
  return {block * kBlockSize, std::min(size, (block + 1) * kBlockSize)};
}

}  // namespace

std::optional<std::string> path_of(std::shared_ptr<Inode> inode) {
  std::string path;
  for (int depth = 0; inode && depth < kDepthMax; ++depth) {
    if (inode->id == kRootNode) return path;
    std::shared_ptr<Inode> parent;
    {
      const std::lock_guard lock(inode->mutex);
      if (!path.empty()) path.insert(0, "/");
      path.insert(0, inode->name);
      parent = inode->parent.lock();
    }
    inode = std::move(parent);
  }
  return std::nullopt;
}

DiskCache::PathOfFile path_later(Inode& inode) {
  return [weak = inode.weak_from_this()]() -> std::optional<std::string> {
    std::shared_ptr<Inode> alive = weak.lock();
    return alive ? path_of(std::move(alive)) : std::nullopt;
  };
}

bool KeptBlocks::has_some_of(const Inode& inode, Interval range) const {
  if (disk_ == nullptr || !inode.file || inode.file->version.mixed() || range.empty() ||
      !inode.file->data.all_settled())
    return false;
  for (std::uint64_t block = range.begin / kBlockSize; block <= (range.end - 1) / kBlockSize; ++block)
    if (const auto found = disk_->find(inode.handle(), block); found && inode.file->version.is(found->change))
      return true;
  return false;
}

std::uint64_t KeptBlocks::change_of_start(const Inode& inode, ByteCount length) const {
  if (disk_ == nullptr || length == 0) return 0;
  std::uint64_t change = 0;
  for (std::uint64_t block = 0; block * kBlockSize < length; ++block) {
    const auto found = disk_->find(inode.handle(), block);
    const Interval extent = block_extent(block, length);
    if (!found || found->length < extent.size() || (block > 0 && found->change != change)) return 0;
    change = found->change;
  }
  return change;
}

void KeptBlocks::keep(Inode& inode, Interval range) {
  if (disk_ == nullptr || !inode.file) return;
  FileData& data = inode.file->data;
  const Attributes& attr = inode.attributes.value();
  range.end = std::min(range.end, attr.size);
  if (range.empty() || !inode.file->version.is(attr.change)) return;
  for (std::uint64_t block = range.begin / kBlockSize; block <= (range.end - 1) / kBlockSize; ++block) {
    const Interval extent = block_extent(block, attr.size);
    if (data.change_of(block) != attr.change || !data.has(extent)) continue;
    disk_->store(
        {inode.handle(), attr.change, block}, [&] { return data.lend(extent).front(); }, path_later(inode));
  }
}

// ---------------------------------------------------------------- from the disk

void KeptBlocks::bring(const std::shared_ptr<Inode>& inode, Interval range, MutableSharedBytes target,
                       Brought done) {
  confirm(inode, [this, inode, range, target = std::move(target),
                  done = std::move(done)](std::uint64_t change) mutable {
    if (change == 0) return done(0);
    read(inode, range, std::move(target), change, std::move(done));
  });
}

// Tells the change counter of the data in memory if it is the file's; 0 if it is not, or if it is about to
// move.
void KeptBlocks::confirm(const std::shared_ptr<Inode>& inode, Brought done) {
  Deferred after;
  const std::lock_guard lock(inode->mutex);
  FileState& file = *inode->file;
  if (file.version.mixed() || !file.data.all_settled())
    return after.add([done = std::move(done)]() mutable { done(0); });
  const bool known =
      file.version.is(inode->attributes.value().change) &&
      core_.trust.may_use(Fact::kAttributes, inode->attributes.learnt(), core_.scheduler.now());
  if (known)
    return after.add([change = file.version.value(), done = std::move(done)]() mutable { done(change); });
  if (file.waiting_for_change.empty()) after.add([this, inode] { ask(inode); });
  file.waiting_for_change.push_back(std::move(done));
}

void KeptBlocks::ask(const std::shared_ptr<Inode>& inode) {
  schema::Request request;
  request.mutable_getattr()->set_handle(inode->handle());
  {
    const std::lock_guard lock(inode->mutex);
    request.mutable_getattr()->set_open_id(inode->any_open_id());
  }
  core_.remote.ask({}, std::move(request), schema::Reply::kAttr,
                   [this, inode, started = core_.scheduler.now()](Result<rpc::CallReply> reply) {
                     std::uint64_t told = 0;
                     if (reply) {
                       const schema::Attr& attr = reply->message.attr().attr();
                       facts_.learn(*inode, attr, Told(started, reply->message, {}));
                       told = attr.change();
                     }
                     decltype(FileState::waiting_for_change) waiting;
                     {
                       const std::lock_guard lock(inode->mutex);
                       waiting.swap(inode->file->waiting_for_change);
                       if (!inode->file->version.is(told) || !inode->file->data.all_settled()) told = 0;
                     }
                     for (Brought& done : waiting) done(told);
                   });
}

void KeptBlocks::read(const std::shared_ptr<Inode>& inode, Interval range, MutableSharedBytes target,
                      std::uint64_t change, Brought done) {
  if (disk_ == nullptr) return done(0);
  const std::uint64_t block = range.begin / kBlockSize;
  bool same = false;
  {
    const std::lock_guard lock(inode->mutex);
    const Attributes& attr = inode->attributes.value();
    const auto found = disk_->find(inode->handle(), block);
    const Interval extent = block_extent(block, attr.size);
    same = attr.change == change && found && found->change == change && found->length == extent.size() &&
           range.end <= extent.end;
  }
  if (!same) return done(0);
  disk_->read(
      {inode->handle(), change, block}, static_cast<std::uint32_t>(range.begin % kBlockSize),
      std::move(target), path_later(*inode),
      [change, done = std::move(done)](const Result<void>& outcome) mutable { done(outcome ? change : 0); });
}

}  // namespace tusk::client

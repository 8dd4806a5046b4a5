#include "fsclient/facts.h"

namespace tusk::client {

Result<std::shared_ptr<Inode>> Facts::learn(const schema::Node& node, TimePoint started) {
  if (node.handle().empty() || (node.attr().mode() & S_IFMT) == 0)
    return fail(ErrorCode::kMalformed, "the server told of a file without a handle or a type");
  std::shared_ptr<Inode> inode = core_.inodes.intern(node.handle());
  learn(*inode, node.attr(), started);
  return inode;
}

bool Facts::learn(Inode& inode, const schema::Attr& attr, TimePoint started) {
  bool changed = false;
  {
    const std::lock_guard lock(inode.mutex);
    changed = learn_locked(inode, Attributes::from_schema(attr), started);
  }
  if (changed) drop_kernel_pages(inode);
  return changed;
}

void Facts::learn_own(Inode& inode, const schema::Attr& attr, TimePoint started) {
  const std::lock_guard lock(inode.mutex);
  const Attributes fresh = Attributes::from_schema(attr);
  prepare(inode, fresh);
  if (inode.file) {
    inode.file->version.follow(attr.change_before(), fresh.change);
    inode.file->last_write = core_.scheduler.now();
  }
  inode.attributes.accept(fresh, started, core_.scheduler.now());
}

bool Facts::learn_locked(Inode& inode, const Attributes& attr, TimePoint started) {
  prepare(inode, attr);
  const Attributes old = inode.attributes.value();
  if (!inode.attributes.accept(attr, started, core_.scheduler.now())) return false;
  if (!inode.file || inode.written_since(started)) return false;
  FileState& file = *inode.file;
  file.written_end = 0;  // all of it is in the server's size now
  if (old.mode == 0 || !file.data_handed_out || file.version.is(attr.change)) return false;
  if (same_time(old.mtime, attr.mtime) && old.size == attr.size) {
    if (file.touched_by_us && !file.version.mixed()) file.version.set(attr.change);
    file.touched_by_us = false;
    return false;
  }
  file.data.forget(kWholeFile);
  file.version.mix();
  return true;
}

void Facts::prepare(Inode& inode, const Attributes& attr) {
  if (attr.is_regular() && !inode.file)
    inode.file = std::make_unique<FileState>(core_.cache, inode.weak_from_this());
  if (attr.is_directory() && !inode.directory) inode.directory = std::make_unique<Directory>();
}

bool Facts::pages_being_dropped(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.pages_being_dropped > 0;
}

void Facts::drop_kernel_pages(Inode& inode) {
  {
    const std::lock_guard lock(inode.mutex);
    ++inode.pages_being_dropped;
  }
  core_.scheduler.post_notification([&kernel = core_.kernel, dropped = inode.shared_from_this()] {
    kernel.invalidate_inode(dropped->id);
    const std::lock_guard lock(dropped->mutex);
    --dropped->pages_being_dropped;
  });
}

void Facts::forget(Inode& inode, bool data, bool entries) {
  bool drop_pages = false;
  {
    const std::lock_guard lock(inode.mutex);
    inode.attributes.expire(core_.scheduler.now());
    if (data && inode.file) {
      inode.file->data.forget(kWholeFile);
      inode.file->version.mix();
      inode.file->ahead.forget();
      drop_pages = inode.file->data_handed_out;
    }
    if (entries && inode.directory) {
      inode.directory->names.clear();
      inode.directory->names_complete.forget();
      inode.directory->names_complete_ahead.forget();
      if (inode.directory->listing) inode.directory->listing->outdated = true;
    }
  }
  if (drop_pages) drop_kernel_pages(inode);
}

}  // namespace tusk::client

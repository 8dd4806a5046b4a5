// Filesystem: who is told when what was answered before the server's machine restarted cannot be made again.
#include <cerrno>

#include "fsclient/filesystem.h"

namespace tusk::client {

void Filesystem::keep_uncommitted() {
  remote_.keep_in(core_.uncommitted,
                  {.is_there = [this] { return core_.committer.has_room(); },
                   .when_there = [this](Remote::Task then) { core_.committer.when_room(std::move(then)); }});
  core_.uncommitted.on_lost([this](const UncommittedChange& change) {
    not_redone(change, {from_errno(EIO), "its answer came too late to be made again"});
  });
  core_.committer.begin({.ended =
                             [this] {
                               write_behind_.handle_commit();
                               log_.look_for_room();
                             },
                         .failed = [this](const Error& error) { not_committed(error); }});
}

void Filesystem::not_redone(const UncommittedChange& change, const Error& error) {
  const Error told{
      error.code == from_errno(ECANCELED) || error.code == from_errno(ESTALE) ? from_errno(EIO) : error.code,
      "lost when the server's machine restarted, and not to be made again: " + error.message()};
  if (change.file) return tell_not_redone(change.file, told);
  const schema::Request& request = *change.request;
  if (request.has_make_node()) {
    if (const InodePointer made = core_.inodes.find(change.made)) tell_not_redone(made, told);
    return void(tell_not_redone(request.make_node().parent(), request.make_node().name(), told));
  }
  if (request.has_remove())
    return void(tell_not_redone(request.remove().parent(), request.remove().name(), told));
  if (request.has_link())
    return void(tell_not_redone(request.link().new_parent(), request.link().new_name(), told));
  if (request.has_rename()) {
    const schema::RenameRequest& rename = request.rename();
    const UntoldFailures::Id failure = tell_not_redone(rename.new_parent(), rename.new_name(), told);
    if (const InodePointer from = core_.inodes.find(rename.old_parent()))
      not_done(from, rename.old_name(), told, failure);
    return;
  }
  std::string handle = request.copy_range().target();
  rpc::for_each_handle(const_cast<schema::Request&>(request),
                       [&](const std::string& named) { handle = named; });
  if (const InodePointer inode = core_.inodes.find(handle)) return tell_not_redone(inode, told);
  core_.last_error.set("a file that is not known any more: " + told.message());
  (void)core_.untold.add(told.message());
}

UntoldFailures::Id Filesystem::tell_not_redone(const std::string& parent, const std::string& name,
                                               const Error& error) {
  const std::string text = "'" + name + "': " + error.message();
  const UntoldFailures::Id failure = core_.untold.add(text);
  if (const InodePointer directory = core_.inodes.find(parent))
    not_done(directory, name, error, failure);
  else
    core_.last_error.set(text);
  return failure;
}

void Filesystem::tell_not_redone(const InodePointer& inode, const Error& error) {
  Deferred after;
  const std::lock_guard lock(inode->mutex);
  inode->attributes.expire(core_.scheduler.now());
  core_.loans.withdraw_locked(*inode);
  if (inode->file) {
    after.add([this, inode] { facts_.drop_kernel_pages(*inode); });
    return write_behind_.note_error_locked(*inode, error, after);
  }
  const std::string text = "'" + inode->name + "': " + error.message();
  const UntoldFailures::Id failure = core_.untold.add(text);
  if (inode->directory) inode->directory->note_failure(error, failure, core_.untold);
  core_.last_error.set(text, after, true);
}

// The server's disk has lost some of what it took, and nobody knows what.
void Filesystem::not_committed(const Error& error) {
  for (const UncommittedChanges::Number number : core_.uncommitted.not_of(0))
    if (const auto change = core_.uncommitted.take(number)) not_redone(*change, error);
}

}  // namespace tusk::client

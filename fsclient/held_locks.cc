#include "fsclient/held_locks.h"

#include <fcntl.h>

#include <algorithm>
#include <set>

namespace tusk::client {
namespace {

constexpr auto kNotOffered = ~std::uint64_t{0};

}  // namespace

void describe_lock(schema::LockRequest& message, const OpenFile& file, const NewLock& lock) {
  message.set_handle(file.inode->handle());
  message.set_open_id(file.open_id);
  message.set_flock(lock.flock);
  message.set_owner(lock.owner);
  message.set_type(lock.type);
  message.set_start(lock.start);
  message.set_end(lock.end);
  message.set_wait(lock.wait);
  message.set_pid(lock.pid);
}

// What the same owner has in that range gives way, as with fcntl(2).
void HeldLocks::cut_out(std::vector<Held>& held, const NewLock& lock) {
  std::vector<Held> pieces;
  std::erase_if(held, [&](const Held& item) {
    const NewLock& old = item.lock;
    if (old.flock != lock.flock || old.owner != lock.owner || old.start > lock.end || lock.start > old.end)
      return false;
    if (old.start < lock.start) {
      pieces.push_back(item);
      pieces.back().lock.end = lock.start - 1;
    }
    if (old.end > lock.end) {
      pieces.push_back(item);
      pieces.back().lock.start = lock.end + 1;
    }
    return true;
  });
  held.insert(held.end(), pieces.begin(), pieces.end());
}

void HeldLocks::note(const std::shared_ptr<OpenFile>& file, const NewLock& lock) {
  const std::lock_guard guard(mutex_);
  const bool unlocks = lock.type == F_UNLCK;
  if (unlocks && !files_.contains(file->inode.get())) return;
  std::vector<Held>& held = files_[file->inode.get()];
  NewLock noted = lock;
  noted.wait = false;
  if (noted.flock) {  // of the whole file, whatever it says
    noted.start = 0;
    noted.end = INT64_MAX;
  }
  cut_out(held, noted);
  if (!unlocks) held.push_back({.file = file, .lock = noted});
  if (held.empty()) files_.erase(file->inode.get());
}

void HeldLocks::offer(schema::AttachRequest& request) {
  constexpr std::size_t kFraming = 4;
  const std::lock_guard guard(mutex_);
  std::size_t bytes = 0;
  for (auto& [inode, held] : files_) {
    for (Held& item : held) {
      item.offered_as = kNotOffered;
      const std::shared_ptr<OpenFile> file = item.file.lock();
      if (!file) continue;
      schema::LockRequest lock;
      describe_lock(lock, *file, item.lock);
      bytes += lock.ByteSizeLong() + kFraming;
      if (bytes > kOfferedBytesMax) continue;
      *request.add_locks() = std::move(lock);
      item.offered_as = static_cast<std::uint64_t>(request.locks_size());
    }
  }
}

std::vector<std::shared_ptr<OpenFile>> HeldLocks::settle(const schema::AttachReply& reply) {
  const std::set<std::uint64_t> kept(reply.locks_kept().begin(), reply.locks_kept().end());
  std::vector<std::shared_ptr<OpenFile>> without;
  const std::lock_guard guard(mutex_);
  for (auto files = files_.begin(); files != files_.end();) {
    std::vector<Held>& held = files->second;
    std::erase_if(held, [&](const Held& item) {
      const bool judged = item.offered_as != 0 && (item.offered_as != kNotOffered || !reply.resumed());
      if (!judged || kept.contains(item.offered_as - 1)) return false;
      if (auto file = item.file.lock()) without.push_back(std::move(file));
      return true;
    });
    for (Held& item : held) item.offered_as = 0;
    files = held.empty() ? files_.erase(files) : std::next(files);
  }
  return without;
}

std::size_t HeldLocks::count() const {
  const std::lock_guard guard(mutex_);
  std::size_t count = 0;
  for (const auto& [inode, held] : files_) count += held.size();
  return count;
}

}  // namespace tusk::client

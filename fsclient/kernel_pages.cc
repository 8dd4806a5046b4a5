#include "fsclient/kernel_pages.h"

#include <algorithm>
#include <utility>

namespace tusk::client {

void KernelPages::given_locked(Inode& inode, Interval range, bool once, Deferred& after) {
  if (once)
    return after.add([this, range, pointer = inode.shared_from_this()] { drop_read_soon(pointer, range); });
  inode.file->kernel_reads.end(range);
  if (!facts_.bytes_covered_locked(inode)) watch_locked(inode, after);
}

// Behind the answer that brings them.
void KernelPages::drop_read_soon(const std::shared_ptr<Inode>& inode, Interval range) {
  core_.scheduler.post_after(kOnceFor, [this, weak = std::weak_ptr(inode), range] {
    const std::shared_ptr<Inode> read = weak.lock();
    if (!read) return;
    Deferred after;
    const std::lock_guard lock(read->mutex);
    facts_.drop_pages_of_read_locked(*read, range, after);
  });
}

// A push that overtook the answer has ended what it tells.
void KernelPages::written_locked(Inode& inode, const Told& told, Deferred& after) {
  if (!inode.file->data_handed_out) return;
  const TimePoint now = core_.scheduler.now();
  if (told.cover == schema::COVER_ONCE || told.started < inode.file->pushed_at)
    drop_soon_locked(inode, after);
  else if (!core_.trust.covered(told.learnt(now), now))
    watch_locked(inode, after);
}

void KernelPages::drop_soon_locked(Inode& inode, Deferred& after) {
  if (std::exchange(inode.file->pages_drop_due, true)) return;
  after.add([this, weak = inode.weak_from_this()] {
    core_.scheduler.post_after(kOnceFor, [this, weak] {
      const std::shared_ptr<Inode> pointer = weak.lock();
      if (!pointer) return;
      {
        const std::lock_guard lock(pointer->mutex);
        pointer->file->pages_drop_due = false;
      }
      facts_.drop_pages_beside_reads(*pointer);
    });
  });
}

void KernelPages::watch_locked(Inode& inode, Deferred& after) {
  if (std::exchange(inode.file->pages_watched, true)) return;
  after.add([this, weak = inode.weak_from_this()] {
    {
      const std::lock_guard lock(mutex_);
      watched_.push_back(weak);
    }
    arm();
  });
}

void KernelPages::watch_all() {
  for (const auto& inode : core_.inodes.all_remembered()) {
    Deferred after;
    const std::lock_guard lock(inode->mutex);
    if (inode->file && inode->file->data_handed_out && !inode->open_files.empty())
      watch_locked(*inode, after);
  }
}

Duration KernelPages::pause() const {
  return std::clamp(core_.trust.lifetime_of(Fact::kBytes) / 2, kLookMin, kLookMax);
}

void KernelPages::arm() {
  {
    const std::lock_guard lock(mutex_);
    if (armed_ || watched_.empty()) return;
    armed_ = true;
  }
  core_.scheduler.post_after(pause(), [this] { look(); });
}

void KernelPages::look() {
  std::vector<std::weak_ptr<Inode>> looked_at;
  {
    const std::lock_guard lock(mutex_);
    armed_ = false;
    looked_at.swap(watched_);
  }
  std::size_t asks = 0;
  std::erase_if(looked_at, [&](const auto& weak) {
    const std::shared_ptr<Inode> inode = weak.lock();
    return !inode || !look_at(inode, asks);
  });
  {
    const std::lock_guard lock(mutex_);
    watched_.insert(watched_.end(), looked_at.begin(), looked_at.end());
  }
  arm();
}

// Else its end comes soon, and with it the end of what was told under it.
bool KernelPages::lease_is_safe() const {
  return core_.trust.trusted_until() > core_.scheduler.now() + core_.loans.reserve();
}

bool KernelPages::look_at(const std::shared_ptr<Inode>& inode, std::size_t& asks) {
  Deferred after;
  const std::lock_guard lock(inode->mutex);
  FileState& file = *inode->file;
  const bool shown = !inode->open_files.empty() && file.data_handed_out;
  const bool covered = facts_.bytes_covered_locked(*inode);
  if (!shown || (covered && lease_is_safe())) {
    file.pages_watched = false;
    file.pages_looks = 0;
    return false;
  }
  // What is on its way moves the change counter: nobody can tell yet whether others did.
  if (!file.data.all_settled()) return true;
  const bool fresh = facts_.bytes_fresh_locked(*inode);
  const Duration rest = file.bytes_learnt
                            ? core_.trust.remaining(Fact::kBytes, *file.bytes_learnt, core_.scheduler.now())
                            : Duration::zero();
  if (fresh && (covered || !file.bytes_learnt || rest > pause())) return true;
  const bool asked = file.pages_looks > 0;
  if (!fresh && (asked ? file.pages_looks >= kLooksMax : asks >= kAsksMax)) {
    drop_locked(*inode, after);
    return false;
  }
  if (asked || asks < kAsksMax) ++file.pages_looks;
  if (asked || asks >= kAsksMax) return true;
  ++asks;
  after.add([this, inode] { check(inode); });
  return true;
}

void KernelPages::check(const std::shared_ptr<Inode>& inode) {
  ask_(inode, [this, inode](const Result<bool>& asked) {
    Deferred after;
    const std::lock_guard lock(inode->mutex);
    FileState& file = *inode->file;
    if (!asked) return;  // the next look ends them
    file.pages_looks = 0;
    if (!file.data.all_settled()) return;
    if (file.version.is(inode->attributes.value().change)) {
      file.bytes_learnt = inode->attributes.learnt();
    } else if (!facts_.bytes_covered_locked(*inode)) {
      drop_locked(*inode, after);
    }
  });
}

void KernelPages::drop_locked(Inode& inode, Deferred& after) {
  inode.file->pages_watched = false;
  inode.file->pages_looks = 0;
  inode.file->data_handed_out = false;
  after.add([this, pointer = inode.shared_from_this()] { facts_.drop_pages_beside_reads(*pointer); });
}

}  // namespace tusk::client

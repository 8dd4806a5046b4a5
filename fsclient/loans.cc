#include "fsclient/loans.h"

#include <mutex>
#include <utility>

namespace tusk::client {

namespace {

// Until the kernel has taken in an answer that it has been sent, or we a FORGET that it has sent: as a rule
// less than a millisecond.
constexpr Duration kFirstPause = std::chrono::milliseconds(1);
constexpr Duration kPausesMax = std::chrono::seconds(1);

}  // namespace

// ---------------------------------------------------------------- lending

bool Loans::may_lend(Learnt learnt) const { return trust_.covered(learnt, scheduler_.now() + reserve()); }

Duration Loans::name(Fact fact, Learnt learnt) {
  if (!may_lend(learnt)) return trust_.remaining(fact, learnt, scheduler_.now());
  note_lent();
  return kLoan;
}

bool Loans::listing(Learnt learnt) {
  if (!may_lend(learnt)) return false;
  note_lent();
  return true;
}

Duration Loans::attributes_locked(Inode& inode) {
  const TimePoint now = scheduler_.now();
  const Learnt learnt = inode.attributes.learnt();
  const Duration remaining = trust_.remaining(Fact::kAttributes, learnt, now);
  if (!trust_.covered(learnt, now)) return remaining;
  const TimePoint lately = now - kUnsettled;
  const bool settled =
      inode.attributes.quiet_since(lately) && !inode.written_since(lately) && inode.changes.count == 0;
  if (!settled) return unsettled(remaining);
  if (!may_lend(learnt)) return remaining;
  inode.lent_until = now + kLoan;
  note_lent();
  return kLoan;
}

bool Loans::kernel_has(Inode& inode, Duration rest) {
  {
    const std::lock_guard lock(inode.mutex);
    if (inode.lent_until < scheduler_.now() + rest) return false;
  }
  return inodes_.find(inode.id) != nullptr;
}

// ---------------------------------------------------------------- calling back

void Loans::withdraw_locked(Inode& inode) {
  if (std::exchange(inode.lent_until, TimePoint::min()) == TimePoint::min()) return;
  drop_attributes({inode.shared_from_this()}, nullptr);
}

struct Loans::Drop {
  std::vector<std::shared_ptr<Inode>> inodes;
  std::shared_ptr<PushAnswer> answer;
  Duration pause = kFirstPause;
  bool held_back = false;
};

void Loans::drop_attributes(std::vector<std::shared_ptr<Inode>> inodes, std::shared_ptr<PushAnswer> answer) {
  drop_again(std::make_shared<Drop>(std::move(inodes), std::move(answer)));
}

void Loans::drop_again(const std::shared_ptr<Drop>& drop) {
  scheduler_.post_notification([this, drop] {
    std::erase_if(drop->inodes, [this](const auto& inode) { return drop_now(*inode); });
    const bool again = !drop->inodes.empty() && drop->pause <= kPausesMax;
    if (again && !drop->held_back && drop->answer) drop->answer->hold_back();
    if (!again && drop->held_back && drop->answer) drop->answer->let_go();
    drop->held_back = again;
    if (!again) return;
    scheduler_.post_after(drop->pause, [this, drop] { drop_again(drop); });
    drop->pause *= 2;
  });
}

// What is lent again from here on is noted again.
bool Loans::drop_now(Inode& inode) {
  {
    const std::lock_guard lock(inode.mutex);
    inode.lent_until = TimePoint::min();
  }
  return kernel_.invalidate_attributes(inode.id) || !inodes_.find(inode.id);
}

void Loans::note_lent() {
  if (watching_.exchange(true)) return;
  const TimePoint over = scheduler_.now() + reserve();
  const TimePoint until = trust_.trusted_until();
  scheduler_.post_after(until > over ? until - over : Duration::zero(), [this] { watch(); });
}

void Loans::watch() {
  watching_ = false;
  if (trust_.trusted_until() > scheduler_.now() + reserve()) return note_lent();
  call_all_back();
}

void Loans::handle_suspension() {
  if (watching_ && trust_.trusted_until() <= scheduler_.now()) call_all_back();
}

// Directories first: without them nobody gets to the rest, but for those who have one open: they may begin
// to read it again. Their pages are locked only as long as they are copied from or to.
void Loans::call_all_back() {
  std::vector<std::shared_ptr<Inode>> directories;
  std::vector<std::shared_ptr<Inode>> others;
  std::vector<std::shared_ptr<Inode>> being_read;
  for (const auto& inode : inodes_.all_remembered()) {
    const std::lock_guard lock(inode->mutex);
    if (inode->lent_until != TimePoint::min()) (inode->directory ? directories : others).push_back(inode);
    if (inode->directory && inode->directory->in_kernel.being_read()) being_read.push_back(inode);
  }
  drop_attributes(std::move(directories), nullptr);
  drop_attributes(std::move(others), nullptr);
  scheduler_.post_notification([this, being_read = std::move(being_read)] {
    for (const auto& directory : being_read) kernel_.invalidate_inode(directory->id);
  });
  ending_();
}

}  // namespace tusk::client

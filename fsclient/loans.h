// What is lent to the kernel, and called back in time: docs/decisions/0010-kernel-loans.md.
//
// A fact that is here under a lease of the server's is lent: the kernel uses it for kLoan without asking. It
// is called back when the server takes the lease back (Filesystem::take_back), when this mount's own changes
// make it stale (withdraw_locked), and when the server has not been heard for so long that the leases are
// about to end (watch). What is under no lease the kernel is told for its lifetime only, and nobody calls it
// back.
//
// Names are called back by KernelCache::invalidate_entry, which waits for the lock of their directory: no
// answer that the kernel was sent before can come into force after it. Attributes need more care:
// - The kernel does not take in old attributes of an inode that it had when they were called back. Of one
//   that is new to it, it does: so what it does not know is called back again until it does
//   (drop_attributes).
// - Attributes in answers to changes (SETATTR, CREATE, LINK ...) it takes in at any time: they are not lent.
// - What has just changed is not lent either: it is likely to change again.
//
// A listing does not tell again what is lent, for that would have the kernel forget the ACLs that it has
// cached.
//
// While the server is out of reach names stay with the kernel, for to use one it asks for the attributes of
// its directory, and these have been called back.
//
// Who has a directory open may begin to read it again (rewinddir), and the kernel asks nobody whether what it
// keeps of the listing is still right: so its pages are dropped with the names, and before the leases end;
// and at once, where a listing was told that nobody would call back (Filesystem::end_directory).
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "fsclient/inode_table.h"
#include "fsclient/kernel_cache.h"
#include "fsclient/push_answer.h"
#include "fsclient/scheduler.h"
#include "fsclient/trust.h"

namespace tusk::client {

class Loans {
 public:
  // Also how long the kernel goes on with what it has while this process is stopped.
  static constexpr Duration kLoan = std::chrono::seconds(90);
  // What ends within so much time is lent again by a listing ...
  static constexpr Duration kRest = std::chrono::seconds(15);
  // ... and by one that the kernel begins to keep. One that it kept and dropped the pages of, for want of
  // memory, is told as the first.
  static constexpr Duration kRestOfKept = kLoan / 2;
  // How long the kernel may use what is under a lease, but changing.
  static constexpr Duration kUnsettled = std::chrono::seconds(1);
  // All is called back when so much of a lease's time is left: a quarter.
  static constexpr int kLeasePerReserve = 4;

  Loans(const LeaseTrust& trust, Scheduler& scheduler, KernelCache& kernel, InodeTable& inodes)
      : trust_(trust), scheduler_(scheduler), kernel_(kernel), inodes_(inodes) {}
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  // For how long the kernel may use a name, or an absence, that may be used now.
  [[nodiscard]] Duration name(Fact fact, Learnt learnt);
  // Whether it may keep a listing.
  [[nodiscard]] bool listing(Learnt learnt);
  // With the inode's mutex held: its attributes. They must not be in an answer to a change.
  [[nodiscard]] Duration attributes_locked(Inode& inode);
  // The same in answers to changes.
  [[nodiscard]] static Duration unsettled(Duration lifetime) { return std::min(lifetime, kUnsettled); }

  // How much of a lease's time is left when all that was lent under it is called back.
  [[nodiscard]] Duration reserve() const { return trust_.lease() / kLeasePerReserve; }
  // Runs each time that this has come, behind it. To be said before anything is lent.
  void when_ending(std::function<void()> ending) { ending_ = std::move(ending); }

  // Trust in leases may have been suspended: then all that is lent is called back.
  void handle_suspension();

  // The kernel has the attributes, and will have them for so long.
  [[nodiscard]] bool kernel_has(Inode& inode, Duration rest);

  // With the inode's mutex held: the attributes are not what they were when they were lent.
  void withdraw_locked(Inode& inode);
  // Has the kernel drop the attributes of all, behind what it was asked before. `answer`, unless it is null,
  // is held back until it has.
  void drop_attributes(std::vector<std::shared_ptr<Inode>> inodes, std::shared_ptr<PushAnswer> answer);

 private:
  struct Drop;
  [[nodiscard]] bool may_lend(Learnt learnt) const;
  void note_lent();
  void watch();
  void call_all_back();
  void drop_again(const std::shared_ptr<Drop>& drop);
  // False: the kernel is about to take the inode in, or to let it go.
  [[nodiscard]] bool drop_now(Inode& inode);

  const LeaseTrust& trust_;
  Scheduler& scheduler_;
  KernelCache& kernel_;
  InodeTable& inodes_;
  std::function<void()> ending_ = [] {};
  std::atomic<bool> watching_{false};
};

}  // namespace tusk::client

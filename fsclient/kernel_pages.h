// What ends the bytes that the kernel has of open files, where no lease does.
//
// The kernel asks nobody before it uses a page: a program that has a file open, or mapped, reads on from it.
// So pages need an end of their own:
//  - Under a lease they are dropped when it is taken back, for the attributes alone, too (Facts::forget), and
//    from then on nothing covers them.
//  - Without one, or where the lease is about to end because the server is not heard, the file is watched:
//  the
//    server is asked again before the lifetime is over. The pages are dropped if the bytes are others, if it
//    does not answer in time, and if more files than kAsksMax would have to be asked for.
//  - Bytes that somebody was changing while they were read serve the reader that waits for them. They are not
//    kept here, and the kernel drops them at once.
//
// Closed files need none of it: the next open asks, and says whether the kernel keeps what it has.
//
// Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "fsclient/core.h"
#include "fsclient/facts.h"

namespace tusk::client {

class KernelPages {
 public:
  // Between two looks at the files that are watched: half of the lifetime, within these bounds. Pages are at
  // most a lifetime, a look and a round trip old.
  static constexpr Duration kLookMin = std::chrono::milliseconds(100);
  static constexpr Duration kLookMax = std::chrono::milliseconds(500);
  // Files that the server is asked about at each look.
  static constexpr std::size_t kAsksMax = 64;
  // After so many looks without an answer the pages are dropped.
  static constexpr int kLooksMax = 2;
  // A reader that is woken with its page finds it: one that does not asks once more, a round trip later.
  static constexpr Duration kOnceFor = std::chrono::milliseconds(5);

  // `ask` asks the server for an inode's attributes and takes them in; true: the bytes are others.
  using Ask = std::function<void(const std::shared_ptr<Inode>&, std::move_only_function<void(Result<bool>)>)>;
  KernelPages(Core& core, Facts& facts, Ask ask) : core_(core), facts_(facts), ask_(std::move(ask)) {}
  KernelPages(const KernelPages&) = delete;
  KernelPages& operator=(const KernelPages&) = delete;

  // With the inode's mutex held, of a regular file that is open. The kernel is about to get bytes of it for a
  // read of `range`; `once`: somebody was, or has been, changing some of them.
  void given_locked(Inode& inode, Interval range, bool once, Deferred& after);
  // The kernel has bytes that a program has written, and the server has taken them.
  void written_locked(Inode& inode, const Told& told, Deferred& after);
  // The leases are over, or are about to end: nothing covers what the kernel has of any file.
  void watch_all();

 private:
  void watch_locked(Inode& inode, Deferred& after);
  void drop_soon_locked(Inode& inode, Deferred& after);
  void drop_read_soon(const std::shared_ptr<Inode>& inode, Interval range);
  void arm();
  void look();
  // False: it needs no look any more. `asks` counts the questions of this look.
  [[nodiscard]] bool look_at(const std::shared_ptr<Inode>& inode, std::size_t& asks);
  void check(const std::shared_ptr<Inode>& inode);
  void drop_locked(Inode& inode, Deferred& after);
  [[nodiscard]] bool lease_is_safe() const;
  [[nodiscard]] Duration pause() const;

  Core& core_;
  Facts& facts_;
  const Ask ask_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Inode>> watched_;
  bool armed_ = false;
};

}  // namespace tusk::client

// The locks that programs of this mount hold, as granted by the server: what to ask it for again when it has
// been restarted and has forgotten them (docs/SEMANTICS.md, C5).
//
// Pure bookkeeping. What is given back is taken out when the server is asked to, not when it has answered: an
// unlock that is on its way when the server goes must not be undone by a lock that is asked for again.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "fsclient/inode.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::client {

struct NewLock {
  bool flock = false;
  std::uint64_t owner = 0;  // of a flock its Handle, else as the kernel names it
  std::uint32_t type = 0;   // F_RDLCK, F_WRLCK, F_UNLCK
  std::uint64_t start = 0;
  std::uint64_t end = 0;  // inclusive
  bool wait = false;
  std::uint32_t pid = 0;
};

// What an ATTACH has room for (PROTOCOL.md): a hundred locks and more. The rest is lost with the server.
constexpr std::size_t kOfferedBytesMax = 15 << 10;

// Thread-safe. No other lock is taken within.
class HeldLocks {
 public:
  // Granted, or (F_UNLCK) about to be given back; through this open file.
  void note(const std::shared_ptr<OpenFile>& file, const NewLock& lock);

  // Before an attach: all of them.
  void offer(schema::AttachRequest& request);
  // After it: what the server has not kept is forgotten, and the open files through which it was taken are
  // returned. What there was no room for is kept if the session is.
  [[nodiscard]] std::vector<std::shared_ptr<OpenFile>> settle(const schema::AttachReply& reply);

  [[nodiscard]] std::size_t count() const;

 private:
  struct Held {
    std::weak_ptr<OpenFile> file;
    NewLock lock;
    std::uint64_t offered_as = 0;  // from 1 on; 0: taken since
  };
  static void cut_out(std::vector<Held>& held, const NewLock& lock);

  mutable std::mutex mutex_;
  std::unordered_map<const Inode*, std::vector<Held>> files_;
};

// What a LOCK request says about a lock.
void describe_lock(schema::LockRequest& message, const OpenFile& file, const NewLock& lock);

}  // namespace tusk::client

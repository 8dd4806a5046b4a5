// Takes in what the server says of files: the one place where attributes enter the cache, and where a
// change made by others is noticed.
#pragma once

#include <memory>

#include "fsclient/core.h"
#include "fsclient/taken_back.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::client {

class Facts {
 public:
  explicit Facts(Core& core) : core_(core) {}

  // The inode of a node the server told of. kMalformed for a node without a handle or a type.
  [[nodiscard]] Result<std::shared_ptr<Inode>> learn(const schema::Node& node, const Told& told);

  // Thread-safe; takes the inode's mutex. True if somebody else changed the file's bytes: the kernel is
  // then told to drop its pages, and an answer that shows the new size should wait for that (behind a
  // notification), or a reader would see the old last page padded with zeros.
  bool learn(Inode& inode, const schema::Attr& attr, const Told& told);
  // The same for an answer to a change of this mount's own: it does not count as somebody else's. What
  // somebody else did before it does.
  void learn_own(Inode& inode, const schema::Attr& attr, const Told& told);
  // The answer to a RENAME by this mount. False: it is of another file, or somebody else has changed the file
  // since it was last asked about, and nothing was taken in.
  [[nodiscard]] bool learn_moved(Inode& inode, const schema::Node& moved, const Told& told);
  // Until what it returns is gone, an entry of the operation log that concerns the inode is unanswered: what
  // other answers say of it is not taken in. Null inode: nothing.
  using InLog = std::shared_ptr<void>;
  [[nodiscard]] InLog begin_entry(const std::shared_ptr<Inode>& inode);
  // The answer to such an entry: counts once the last one is answered.
  void learn_logged(Inode& inode, const schema::Attr& attr, const Told& told);
  // The same for another change of this mount's own, while there are such entries: their answers, which may
  // be of earlier changes, do not undo it. With the mutex held.
  void learn_beside_log_locked(Inode& inode, const schema::Attr& attr, const Told& told, bool by_log = false);
  // An entry was carried out whose answer does not tell what it made of the inode: earlier answers do not
  // either.
  void learn_logged_somehow(Inode& inode);

  // All that was written is on the server. With the mutex held.
  void written_locked(Inode& inode);

  // With the mutex held. Returns whether somebody else changed the file's bytes.
  bool learn_locked(Inode& inode, const Attributes& attr, const Told& told);

  // With the mutex held. The attributes, and all bytes that are cached, are the server's now: under a lease,
  // so they stay so until it is taken back, which forgets them. Nobody needs to ask the server before a use.
  [[nodiscard]] bool covered_locked(const Inode& inode) const;

  // ---- how old bytes may be; with the mutex held, of regular files

  // Bytes have come from the server, for the cache or for the kernel.
  void note_bytes_locked(Inode& inode, Learnt learnt);
  // The bytes here, and those that the kernel has, may be used without asking.
  [[nodiscard]] bool bytes_fresh_locked(Inode& inode);
  // The same for as long as nothing is taken back and the server is heard: nobody needs to look at them
  // again.
  [[nodiscard]] bool bytes_covered_locked(Inode& inode);
  // The server has just told the attributes, which `leased` says. Bytes of another change are forgotten.
  // True: they are the file's.
  bool check_bytes_locked(Inode& inode, bool leased);

  // The kernel has been asked to drop the inode's pages and has not done so yet.
  [[nodiscard]] static bool pages_being_dropped(Inode& inode);
  void drop_kernel_pages(Inode& inode);
  // The same where nobody waits for it. The kernel locks the pages that it reads: a drop waits for the read
  // and takes its page before the reader has seen it, which asks again, in a file that changes all the time
  // without end. So pages that are being read are passed over; each such read drops its own behind its answer
  // (KernelPages::given_locked).
  void drop_pages_beside_reads(Inode& inode);
  // With the mutex held, once it is let go: those of one read that has been answered.
  void drop_pages_of_read_locked(Inode& inode, Interval range, Deferred& after);
  // Those that were passed over go as well, behind their reads: somebody is about to tell the kernel the
  // size.
  void drop_passed_over(Inode& inode);

  // Of answers that are on their way nothing is kept for this node, whether it is known already or not.
  void note_taken_back(std::string_view handle) { taken_back_.note(handle, core_.scheduler.now()); }

  // Until what it returns is gone, a program changes the inode's names or bytes and holds a lock of the
  // kernel's: see push_answer.h. Null inode: nothing.
  using ChangeOnItsWay = std::shared_ptr<void>;
  [[nodiscard]] ChangeOnItsWay begin_change(const std::shared_ptr<Inode>& inode);
  // `answer` is given at once, or when such a change begins; or by whoever else has it.
  static void answer_when_busy(Inode& inode, const std::shared_ptr<PushAnswer>& answer);

  // An answer to a question asked at `started` may tell of the inode as it was before it was taken back.
  [[nodiscard]] bool taken_back_since(const Inode& inode, TimePoint started) const {
    return taken_back_.since(inode.handle(), started);
  }

  // Asks the kernel to, behind what was asked before; not while such a change is on its way. What it keeps of
  // a listing that somebody is reading goes as well, also when no name is known.
  void drop_kernel_names(const std::shared_ptr<Inode>& directory, std::vector<std::string> names);

  // Nothing known of the inode is to be used without asking; its names and bytes as chosen. Returns the
  // names.
  enum class Pages : std::uint8_t { kDropped, kDroppedBesideReads };
  decltype(Directory::names) forget(Inode& inode, bool data, bool entries, Pages pages = Pages::kDropped);

  // All bytes that are here, or on their way here, are those of this change for certain: also none of our own
  // are on their way out, which would hide that others have changed the file meanwhile.
  [[nodiscard]] static bool bytes_are_of(Inode& inode, std::uint64_t change);

 private:
  void prepare(Inode& inode, const Attributes& attr);
  void add_file(Inode& inode);
  void settle_locked(Inode& inode);
  // A directory's attributes are assumed, and nobody else can have changed them.
  [[nodiscard]] bool assumed_locked(const Inode& inode) const;
  // While they are: what is told now tells all that they assume.
  [[nodiscard]] bool tells_assumed_locked(const Inode& inode, const Attributes& attr,
                                          TimePoint started) const;
  // This mount makes the file, and nobody else knows it.
  [[nodiscard]] bool ours_alone_locked(const Inode& inode) const;
  static void follow_touch(FileState& file, const Attributes& old, const Attributes& fresh);
  static bool forget_if_other_bytes(Inode& inode, const Attributes& old, const Attributes& fresh);

  Core& core_;
  TakenBack taken_back_;
};

}  // namespace tusk::client

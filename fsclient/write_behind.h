// Answers writes at once and sends them soon: when a block is written to its end, when it has been dirty
// for kDirtyAge, or when somebody waits for it (flush, fsync, unmount). What is being filled right now is
// left alone, also while its program is kept waiting, where a block is filled within that time: a block has
// one WRITE on its way at a time, so that a half that goes early holds back the other for a round trip, in
// which the line is silent if it is the last.
//
// Until the server has answered for a byte it counts as pending. Above the limit a write is answered
// only when older ones have been, so a program cannot get further ahead of the line than that. A write
// that fails is kept as the inode's error and told once to everyone who has the file open.
//
// Lock order: handing_, an Inode's mutex, then mutex_.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "fsclient/core.h"
#include "fsclient/deferred.h"
#include "fsclient/facts.h"
#include "fsclient/kernel_pages.h"

namespace tusk::client {

class WriteBehind {
 public:
  using Done = std::move_only_function<void(Result<void>)>;
  using WriteDone = std::move_only_function<void(Result<std::uint32_t>)>;

  // Of a block's oldest byte, at least; twice as long at most. Behind a WRITE of the same block that is on
  // its way, as soon as that is answered.
  static constexpr Duration kDirtyAge = std::chrono::milliseconds(20);
  // What may be pending: about two seconds of the line, so that a close takes no longer than that, at
  // least kPendingMin, at most two thirds of the mount's memory.
  static constexpr ByteCount kPendingMin = 32 * 1024 * 1024;
  static constexpr double kPendingSeconds = 2;
  // Larger files go to the server in calls of their own, many at once (but for the first blocks of new ones,
  // while the server is still to make them), and their close waits. So do all that are not small on a slow
  // line, where bytes are packed, and for a while after one could not be written, so that who goes on is
  // told.
  static constexpr ByteCount kLoggedMax = 16 * 1024 * 1024;
  static constexpr ByteCount kSmallMax = 64 * 1024;
  static constexpr Duration kWarned = std::chrono::minutes(1);
  // What the log may hold of the line, for files that are not small, and as long as that is not known: others
  // who want the directory wait for it.
  static constexpr double kLoggedSeconds = 1;
  static constexpr ByteCount kLoggedMin = 4 * 1024 * 1024;
  // The log has a file's errors so often at most, as each block of a large one on a full disk.
  static constexpr Duration kErrorsLogged = std::chrono::seconds(1);
  // Of a file that is still to be made, while nothing is known of the line: it may be a slow one.
  static constexpr ByteCount kAheadMin = 1024 * 1024;

  WriteBehind(Core& core, Facts& facts, KernelPages& pages) : core_(core), facts_(facts), pages_(pages) {}
  // What was not sent is lost: flush_all() first.
  ~WriteBehind();

  // `file` is open for writing. Copies the bytes before it returns. Done: all bytes, or an error of an
  // earlier write of this file.
  void write(const Asker& asker, std::shared_ptr<OpenFile> file, ByteCount offset,
             std::span<const std::byte> bytes, WriteDone done);

  // Everything written to the inode until now is sent, and answered before `done`. Its errors are the
  // inode's: see take_error(). kCancelled if the asker gave up.
  void flush(const Asker& asker, const std::shared_ptr<Inode>& inode, Done done);
  // The same for all inodes.
  void flush_all(Done done);
  // Puts what is dirty into the operation log, if the file is one that this mount makes by itself and it is
  // not much: then nobody needs to wait for it. Waits for room in the log. Done: whether all of it is there;
  // if not it goes as any other. kCancelled if the asker gave up.
  void hand_to_log(const Asker& asker, const std::shared_ptr<Inode>& inode,
                   std::move_only_function<void(Result<bool>)> done);
  // The file has its handle now: what was waiting for it goes.
  void handle_arrival(const std::shared_ptr<Inode>& inode);
  // The server could not make it: what was written is lost, and whoever has it open is told.
  void give_up(const std::shared_ptr<Inode>& inode, const Error& error);

  // The server is out of reach for longer than calls wait: who waits for writes is told.
  void handle_outage(const Error& error);

  // The error that this open file has not been told of yet; from now on it has.
  [[nodiscard]] Result<void> take_error(OpenFile& file);
  [[nodiscard]] static bool has_error(OpenFile& file);
  // One that came after the file was closed by all who wrote: whoever does something with it next may be
  // told.
  [[nodiscard]] Result<void> take_untold_error(const std::shared_ptr<Inode>& inode);
  // The same, with the inode's mutex held, where nobody needs to be told: what was lost is not wanted any
  // more.
  void settle_untold_locked(Inode& inode);
  // It is not open any more; what it was not told by then it never will be. With the inode's mutex held.
  void note_close_locked(const OpenFile& file);
  // With the inode's mutex held.
  void note_error_locked(Inode& inode, const Error& error, Deferred& after);

  // The file ends there now: what was dirty behind it need not be sent any more, and who waited for that goes
  // on. With the inode's mutex held.
  void truncate_locked(const std::shared_ptr<Inode>& inode, ByteCount size, Deferred& after);

  // Written by programs and not answered by the server yet, bytes.
  [[nodiscard]] ByteCount pending() const { return pending_.load(); }
  [[nodiscard]] ByteCount pending_max() const;
  // A COMMIT has ended: there may be room for what writers wait with.
  void handle_commit();

 private:
  [[nodiscard]] bool has_room() const { return pending() <= pending_max() && core_.committer.has_room(); }

  struct Stalled {
    std::uint64_t ticket;
    std::uint32_t bytes;
    WriteDone done;
  };

  enum class Handed : std::uint8_t {
    kAll,    // nothing is left to wait for
    kLater,  // once there is room in the log
    kNo,     // it goes as any other
  };

  void stall(const Asker& asker, std::uint32_t count, WriteDone done);
  void give_up_stall(std::uint64_t ticket);
  void log_ahead(const std::shared_ptr<Inode>& inode, Interval written_now);
  void send_full(const std::shared_ptr<Inode>& inode, Interval written, Deferred& after);
  void send_dirty(const std::shared_ptr<Inode>& inode, std::uint64_t generation, Deferred& after);
  void wait_until_settled(const Asker& asker, const std::shared_ptr<Inode>& inode, std::uint64_t generation,
                          Done done);
  void send(const std::shared_ptr<Inode>& inode, std::uint64_t block, Deferred& after);
  void call(const std::shared_ptr<Inode>& inode, OutgoingWrite write, TimePoint started);
  void call_with(const std::shared_ptr<Inode>& inode, OutgoingWrite write, TimePoint started,
                 std::optional<SharedBytes> packed);
  [[nodiscard]] Handed try_log(const std::shared_ptr<Inode>& inode);
  // Bytes of the file may go with the log. With its mutex held.
  [[nodiscard]] bool may_log(const Inode& inode) const;
  // Bytes of the log at most, for files that are not small.
  [[nodiscard]] ByteCount logged_max() const;
  // `naming` is from before the write began: what is sent behind a write that fails must not say that the
  // client knew.
  [[nodiscard]] bool append_to_log(const OperationLog::Naming& naming, const std::shared_ptr<Inode>& inode,
                                   std::uint64_t exclusive, OutgoingWrite write, timespec written);
  // By which way a WRITE went, and the write verifier of its answer.
  struct Way {
    bool by_log = false;
    std::uint64_t verifier = 0;
  };
  void finish(const std::shared_ptr<Inode>& inode, const OutgoingWrite& write, const Told& told,
              const Result<schema::WriteReply>& reply, const Way& way);
  void drop_kernel_pages(const std::shared_ptr<Inode>& inode, Deferred& after);
  void settle(const std::shared_ptr<Inode>& inode, Deferred& after);
  void learn_written(Inode& inode, const OutgoingWrite& write, const schema::WriteReply& reply,
                     const Told& told, const Way& way);
  void keep(const std::shared_ptr<Inode>& inode, const OutgoingWrite& write, std::uint64_t verifier);
  void note_untold_locked(Inode& inode);
  void note_told_locked(OpenFile& file);
  void wake_flushers(Inode& inode, Deferred& after);
  void arm_timer(const std::shared_ptr<Inode>& inode, Deferred& after);
  void release_stalled(Deferred& after);
  void give_up_flush(const std::shared_ptr<Inode>& inode, std::uint64_t ticket);

  Core& core_;
  Facts& facts_;
  KernelPages& pages_;
  std::atomic<ByteCount> pending_{0};
  std::mutex handing_;                                  // over bytes to the log, for which there was room
  std::atomic<TimePoint> failed_at_{TimePoint::min()};  // a write that nobody waited for
  std::mutex mutex_;
  std::unordered_set<std::shared_ptr<Inode>> dirty_;  // inodes with anything pending
  std::deque<Stalled> stalled_;
  std::uint64_t next_ticket_ = 1;
};

}  // namespace tusk::client

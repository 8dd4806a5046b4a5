// Opens that come with a LOOKUP: who looks at the name of a large file mostly opens it next. By then the
// server has done so under an id that was chosen here, and the open costs no round trip of its own.
//
// What nobody has taken after a while is closed again. Several of those in a row are programs that only look
// (stat, du); then nothing is opened ahead until somebody opens a large file after all. What it does not do:
// decide whether an open may be answered by it (Filesystem does: what was told with it has to be true still).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "fsclient/scheduler.h"
#include "proto/base/strong_int.h"

namespace tusk::client {

// One that nobody has taken yet: its id, in this session of the server's.
struct OpenAhead {
  std::atomic<std::uint64_t> id;  // 0: taken or closed
  std::uint64_t session;
};
// At most one of an inode, whose mutex protects the pointer; may be null.
using OpenAheadPointer = std::shared_ptr<OpenAhead>;

// Thread-safe.
class OpensAhead {
 public:
  static constexpr ByteCount kAbove =
      512 * 1024;  // an OPEN brings that much along, a smaller file as a whole
  static constexpr Duration kKept = std::chrono::seconds(2);
  static constexpr int kVainMax = 4;
  static constexpr int kAtOnceMax =
      16;  // asked for and not taken: they count among what a client may have open

  // `close` tells the server, from any thread, and must outlive all timers of the scheduler.
  OpensAhead(Scheduler& scheduler, std::function<void(std::uint64_t open_id)> close)
      : scheduler_(scheduler), close_(std::move(close)) {}

  // Whether a LOOKUP should ask for one. If so, keep() or end() has to follow.
  [[nodiscard]] bool begin() {
    if (vain_ >= kVainMax) return false;
    if (++at_once_ <= kAtOnceMax) return true;
    --at_once_;
    return false;
  }
  // The LOOKUP brought none.
  void end() { --at_once_; }
  // The server has opened the file.
  void keep(OpenAheadPointer& place, std::uint64_t open_id) {
    close_if_left(place);
    place = std::make_shared<OpenAhead>(open_id, session_.load());
    scheduler_.post_after(kKept, [this, kept = place] {
      if (close_if_left(kept)) ++vain_;
    });
  }
  // It will not be of use.
  void discard(std::uint64_t open_id) {
    end();
    ++vain_;
    close_(open_id);
  }

  // Its id, which is the caller's to close from now on; 0: there is none.
  [[nodiscard]] std::uint64_t take(const OpenAheadPointer& place) {
    if (!place || place->session != session_) return 0;
    const std::uint64_t id = place->id.exchange(0);
    if (id == 0) return 0;
    end();
    vain_ = 0;
    return id;
  }
  // Nobody is going to open the file any more. False: there was none.
  bool close_if_left(const OpenAheadPointer& place) {
    const std::uint64_t id = place ? place->id.exchange(0) : 0;
    if (id == 0) return false;
    end();
    close_(id);
    return true;
  }
  // Somebody had to ask the server to open a large file of which all was known under a lease.
  void note_missed() { vain_ = 0; }
  // The server does not remember what it has opened.
  void handle_new_session() { ++session_; }

 private:
  Scheduler& scheduler_;
  const std::function<void(std::uint64_t)> close_;
  std::atomic<int> vain_{0};  // in a row
  std::atomic<int> at_once_{0};
  std::atomic<std::uint64_t> session_{1};
};

}  // namespace tusk::client

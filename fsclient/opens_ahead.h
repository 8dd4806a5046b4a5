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

// At most one of an inode, whose mutex protects the pointer; empty, or 0 in it: none.
using OpenAhead = std::shared_ptr<std::atomic<std::uint64_t>>;

// Thread-safe.
class OpensAhead {
 public:
  static constexpr ByteCount kAbove =
      512 * 1024;  // an OPEN brings that much along, a smaller file as a whole
  static constexpr Duration kKept = std::chrono::seconds(2);
  static constexpr int kVainMax = 4;

  // `close` tells the server, from any thread, and must outlive all timers of the scheduler.
  OpensAhead(Scheduler& scheduler, std::function<void(std::uint64_t open_id)> close)
      : scheduler_(scheduler), close_(std::move(close)) {}

  // Whether a LOOKUP should ask for it.
  [[nodiscard]] bool worth_asking() const { return vain_ < kVainMax; }

  // The server has opened a file under this id.
  void keep(OpenAhead& place, std::uint64_t open_id) {
    place = std::make_shared<std::atomic<std::uint64_t>>(open_id);
    scheduler_.post_after(kKept, [this, kept = place] {
      const std::uint64_t id = kept->exchange(0);
      if (id == 0) return;
      ++vain_;
      close_(id);
    });
  }
  // Its id, which is the caller's to close from now on; 0: there is none.
  [[nodiscard]] std::uint64_t take(const OpenAhead& place) {
    const std::uint64_t id = place ? place->exchange(0) : 0;
    if (id != 0) vain_ = 0;
    return id;
  }
  // Somebody had to ask the server to open a large file.
  void note_missed() { vain_ = 0; }

 private:
  Scheduler& scheduler_;
  const std::function<void(std::uint64_t)> close_;
  std::atomic<int> vain_{0};  // in a row
};

}  // namespace tusk::client

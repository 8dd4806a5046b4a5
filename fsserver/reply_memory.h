// Mutations done once, however often they are sent: a session's replies by sequence number. Another one keeps
// those of its LOGs, by their numbers: they are already answered to programs, so none may be refused, and a
// full memory forgets instead.
//
// Pure bookkeeping; whoever runs the operations asks before and tells after. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "proto/schema/tusk.pb.h"

namespace tusk::server {

constexpr std::size_t kRememberedRepliesMax = 16'384;  // per session; a client keeps fewer unanswered
constexpr std::size_t kRememberedBytesMax = 8 << 20;   // per session, within one reply
constexpr std::size_t kRepeatsWaitingMax = 16;         // of one mutation in progress
// Of LOGs: twice what a client may have on its way, and six times what 16,384 entries are answered with.
constexpr std::size_t kRememberedLogsMax = 1024;
constexpr std::size_t kRememberedLogBytesMax = 32 << 20;

class ReplyMemory {
 public:
  enum class WhenFull : std::uint8_t { kRefuse, kForgetOldest };
  struct Bounds {
    std::size_t replies = kRememberedRepliesMax;
    std::size_t bytes = kRememberedBytesMax;
    WhenFull when_full = WhenFull::kRefuse;
  };
  ReplyMemory() : ReplyMemory(Bounds()) {}
  explicit ReplyMemory(Bounds bounds) : bounds_(bounds) {}

  using Answer = std::move_only_function<void(const schema::Reply&)>;
  // Whether who came with a repeat still waits for its answer. Asked with the memory's mutex held.
  using Wanted = std::function<bool()>;

  enum class Verdict : std::uint8_t {
    kRun,        // new: run it, then call finish()
    kAnswered,   // `answer` was called with the remembered reply
    kJoined,     // in progress: `answer` will be called when the first one is done
    kForgotten,  // the client itself said that it has the answer
    kFull,       // too many replies that the client has not confirmed; never with kForgetOldest
  };
  // `done_below`: replies of smaller sequences may be forgotten.
  // `wanted`: null: always.
  [[nodiscard]] Verdict begin(std::uint64_t sequence, std::uint64_t done_below, Answer answer,
                              Wanted wanted = nullptr);

  // Who sent what begin() said to run waits for it no longer, and nothing of it is done yet. True: it is not
  // to be done, and as if it had never come. False: a repeat has come that is wanted, so it is to be done for
  // that.
  [[nodiscard]] bool withdraw(std::uint64_t sequence);

  // Remembers the reply of what begin() said to run, and answers repeats that came meanwhile.
  void finish(std::uint64_t sequence, const schema::Reply& reply);

  [[nodiscard]] std::size_t size() const;

 private:
  struct Repeat {
    Answer answer;
    Wanted wanted;
  };
  struct Entry {
    std::optional<std::string> reply;  // encoded; none yet: in progress
    std::deque<Repeat> waiting;
  };
  // With mutex_ held.
  void forget_below(std::uint64_t sequence);
  [[nodiscard]] bool full() const { return entries_.size() >= bounds_.replies || bytes_ >= bounds_.bytes; }
  void make_room();

  const Bounds bounds_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Entry> entries_;
  std::uint64_t done_below_ = 0;
  std::size_t bytes_ = 0;  // of replies
};

constexpr ReplyMemory::Bounds kOfLogs{.replies = kRememberedLogsMax,
                                      .bytes = kRememberedLogBytesMax,
                                      .when_full = ReplyMemory::WhenFull::kForgetOldest};

}  // namespace tusk::server

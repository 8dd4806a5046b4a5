// In which order the LOGs of a session are carried out: that of their numbers, one after the other, in
// whatever order they come. Those that come early wait here, as shells (waiting_call.h): a client that takes
// one back gets its bytes back, and sends the number again when it is back. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>

#include "fsserver/quota.h"
#include "fsserver/waiting_call.h"

namespace tusk::server {

struct Attachment;
struct LogStream;

constexpr std::size_t kEarlyLogsMax = 1024;
constexpr std::size_t kSameLogMax = 16;  // of one number

// A LOG that has come.
struct LogTicket {
  std::uint64_t number = 0;
  std::shared_ptr<WaitingCall> waiting;
  std::weak_ptr<Attachment> attachment;  // weak: it holds the session, which holds this
  std::weak_ptr<LogStream> stream;       // the same: it holds the turns that hold this
  Quota::Place early = {};               // for its bytes, while it waits for its turn
};

class LogTurns {
 public:
  // Every LOG up to this number has been answered: it began in another server process, perhaps. While a LOG
  // has its turn that counts once it is over.
  void skip_to(std::uint64_t answered);
  // The same of single ones beyond: bit i is that of LOG answered + 1 + i (AttachRequest).
  void skip_beyond(std::uint64_t answered, std::string_view bits);
  // In a new session: LOGs up to this number may have been carried out by another server process.
  void note_sent_before(std::uint64_t sent);
  [[nodiscard]] bool may_be_done(std::uint64_t number) const;

  enum class Verdict : std::uint8_t {
    kWaits,   // take() returns it in its turn
    kRepeat,  // its number has had its turn
    kFull,
    kNoMemory,  // for LOGs before their turn
  };
  // `early`: what its bytes count against if it is not the next one. kWaits takes the ticket.
  [[nodiscard]] Verdict arrive(LogTicket& ticket, const std::shared_ptr<Quota>& early, ByteCount bytes);

  [[nodiscard]] bool waiting() const;

  // Whose turn it is; nullopt: it is somebody's already, or the next one has not come. Who takes it calls
  // begin(), unless the client has taken it back meanwhile, and pass() in any case.
  [[nodiscard]] std::optional<LogTicket> take();
  // It is carried out now. False: its number has had its turn.
  [[nodiscard]] bool begin(std::uint64_t number);
  // The turn is over. Returns whose it is next.
  [[nodiscard]] std::optional<LogTicket> pass();

 private:
  // With mutex_ held.
  void skip();
  [[nodiscard]] std::optional<LogTicket> take_next();

  mutable std::mutex mutex_;
  std::uint64_t next_ = 1;
  std::uint64_t answered_ = 0;      // every LOG up to this one
  std::set<std::uint64_t> beyond_;  // those above that will not come
  std::uint64_t sent_before_ = 0;
  bool taken_ = false;  // somebody has the turn
  // Of the same number there are several when one came over another connection, too, after the one before was
  // lost. Which of them is the newer nothing tells: the first is carried out, the others find its answer.
  std::multimap<std::uint64_t, LogTicket> early_;
};

}  // namespace tusk::server

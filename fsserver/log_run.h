// One LOG being carried out: its entries, one after the other, each as a call of its own that the file
// service runs like any other (docs/PROTOCOL.md, "The log").
//
// An entry may be put aside until others have answered pushes: the next one begins with its answer, on
// whatever thread that comes from. No thread waits.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "fsserver/aliases.h"
#include "fsserver/failed_writes.h"
#include "proto/base/result.h"
#include "proto/rpc/service.h"

namespace tusk::server {

constexpr int kLogEntriesMax = 1024;

// Whether a LOG can be carried out at all, before anything of it is. kMalformed.
[[nodiscard]] Result<void> check_log(const schema::LogRequest& log, ByteCount body_bytes);

class LogRun : public std::enable_shared_from_this<LogRun> {
 public:
  // Answers the entry, now or later.
  using RunEntry = std::function<void(std::shared_ptr<rpc::IncomingCall> entry)>;
  // Runs the rest in a later turn of its worker.
  using GoOnLater = std::function<void(std::move_only_function<void()> rest)>;
  using Done = std::move_only_function<void(schema::Reply reply)>;

  // `aliases` and `failed_writes` must outlive it.
  LogRun(std::shared_ptr<rpc::IncomingCall> log, AliasTable& aliases, FailedWrites& failed_writes,
         RunEntry run_entry, GoOnLater go_on_later, Done done)
      : log_(std::move(log)),
        aliases_(aliases),
        failed_writes_(failed_writes),
        run_entry_(std::move(run_entry)),
        go_on_later_(std::move(go_on_later)),
        done_(std::move(done)) {}

  // Carries out what can be in this turn.
  void go_on();

 private:
  class EntryCall;

  [[nodiscard]] const schema::LogRequest& request() const { return log_->message().log(); }
  void begin_entry();
  void name_node(std::uint64_t alias, const schema::Node& node);
  void handle_answer(schema::Reply answer);

  const std::shared_ptr<rpc::IncomingCall> log_;
  AliasTable& aliases_;
  FailedWrites& failed_writes_;
  const RunEntry run_entry_;
  const GoOnLater go_on_later_;
  Done done_;

  // Of the entry in progress; handed from thread to thread with met_.
  int next_ = 0;
  std::size_t body_used_ = 0;
  std::string written_;  // the handle of what it writes to; empty: it is no WRITE
  schema::Reply reply_;
  // begin_entry() has returned, or the answer has come: whoever is second goes on.
  std::atomic<bool> met_{false};
};

}  // namespace tusk::server

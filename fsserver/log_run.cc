#include "fsserver/log_run.h"

#include <utility>

#include "fsserver/call.h"
#include "fsserver/worker_pool.h"

namespace tusk::server {
namespace {

constexpr Cost kEntryOfLogCost = 40;  // beside the bytes that it writes

bool may_be_logged(schema::Request::OperationCase operation, bool redo) {
  using Request = schema::Request;
  switch (operation) {
    case Request::kLink:
    case Request::kSetxattr:
    case Request::kRemovexattr:
    case Request::kAllocate:
      return redo;
    case Request::kCreate:
    case Request::kMakeNode:
    case Request::kRemove:
    case Request::kRename:
    case Request::kSetattr:
    case Request::kWrite:
    case Request::kClose:
      return true;
    default:
      return false;
  }
}

}  // namespace

Result<void> check_log(const schema::LogRequest& log, ByteCount body_bytes) {
  if (log.entries_size() > kLogEntriesMax) return fail(ErrorCode::kMalformed, "too many entries in a LOG");
  ByteCount bytes = 0;
  for (const schema::Request& entry : log.entries()) {
    if (!may_be_logged(entry.operation_case(), log.redo() != 0))
      return fail(ErrorCode::kMalformed, "an operation that cannot be in a LOG");
    if (entry.sequence() != 0) return fail(ErrorCode::kMalformed, "a sequence in an entry of a LOG");
    if (!entry.has_write()) continue;
    if (entry.write().compressed()) return fail(ErrorCode::kMalformed, "a compressed WRITE in a LOG");
    if (entry.write().length() > kWriteBytesMax)
      return fail(ErrorCode::kMalformed, "more than the largest write in a LOG");
    bytes += entry.write().length();
  }
  if (bytes != body_bytes) return fail(ErrorCode::kMalformed, "a LOG with a body of another length");
  return {};
}

// The client may be gone: what it has answered itself is done nevertheless.
class LogRun::EntryCall final : public rpc::IncomingCall {
 public:
  EntryCall(std::shared_ptr<LogRun> run, schema::Request message, SharedBytes body)
      : run_(std::move(run)), message_(std::move(message)), body_(std::move(body)) {}

  [[nodiscard]] const rpc::Peer& peer() const override { return run_->log_->peer(); }
  [[nodiscard]] const schema::Request& message() const override { return message_; }
  [[nodiscard]] SharedBytes body() const override { return body_; }
  [[nodiscard]] ByteCount reply_body_capacity() const override { return 0; }
  [[nodiscard]] bool cancelled() const override { return false; }
  void on_cancel(std::move_only_function<void()>) override {}
  void reply(schema::Reply message, SharedBytes) override { run_->handle_answer(std::move(message)); }

 private:
  const std::shared_ptr<LogRun> run_;
  const schema::Request message_;
  const SharedBytes body_;
};

void LogRun::go_on() {
  while (next_ < request().entries_size()) {
    met_ = false;
    this_turn().spend(kEntryOfLogCost);
    begin_entry();
    if (!met_.exchange(true)) return;
    if (this_turn().over() && next_ < request().entries_size())
      return go_on_later_([self = shared_from_this()] { self->go_on(); });
  }
  (void)reply_.mutable_log();
  done_(std::move(reply_));
}

void LogRun::begin_entry() {
  schema::Request entry = request().entries(next_);
  SharedBytes body;
  written_.clear();
  if (entry.has_write()) {
    body = log_->body().subspan(body_used_, entry.write().length());
    body_used_ += entry.write().length();
  }
  if (const auto named = aliases_.replace(entry); !named) {
    schema::Reply refused;
    refused.set_error(static_cast<std::uint32_t>(named.error().code));
    refused.set_message(named.error().context);
    return handle_answer(std::move(refused));
  }
  if (entry.has_write()) written_ = entry.write().handle();
  if (const schema::Reply* failed = failed_writes_.find(written_)) return handle_answer(*failed);
  run_entry_(std::make_shared<EntryCall>(shared_from_this(), std::move(entry), std::move(body)));
}

void LogRun::name_node(std::uint64_t alias, const schema::Node& node) {
  if (alias != 0) aliases_.define(alias, request().number(), node.handle());
}

void LogRun::handle_answer(schema::Reply answer) {
  const std::uint64_t alias = request().entries(next_).alias();
  if (answer.has_node())
    name_node(alias, answer.node().node());
  else if (answer.has_open())
    name_node(alias, answer.open().node());
  else
    aliases_.drop(alias);
  if (!written_.empty() && answer.error() != 0) failed_writes_.note(written_, request().number(), answer);
  *reply_.mutable_log()->add_replies() = std::move(answer);
  ++next_;
  if (met_.exchange(true)) go_on();
}

}  // namespace tusk::server

// FileService's LOGs: each in its turn, once, its entries like any other request (docs/PROTOCOL.md, "The
// log").
#include <spdlog/spdlog.h>

#include "fsserver/exclusive_names.h"
#include "fsserver/file_service.h"
#include "fsserver/log_run.h"
#include "proto/io/clock.h"

namespace tusk::server {
namespace {

// Since 1970 by what the clock says today: it may have been set since, as on a machine that keeps no time
// while it is off.
std::int64_t began_by_clock(TimePoint began) {
  const auto today = static_cast<std::int64_t>(io::unix_nanoseconds());
  return today - std::chrono::duration_cast<std::chrono::nanoseconds>(io::now() - began).count();
}

}  // namespace

void FileService::take_in_log(const Incoming& incoming, const Waiting& waiting,
                              const std::shared_ptr<Attachment>& attachment) {
  const schema::LogRequest& log = incoming->message().log();
  const SharedSession session = attachment->session;
  // None has anything to wait for.
  if (attachment->read_only) return refuse(*waiting, from_errno(EROFS), "the export is read-only");
  const SharedStream stream = session->log(log.redo());
  if (!stream) return refuse(*waiting, ErrorCode::kCancelled, "of a redo that was begun anew");
  leases_.note_log(session->number(), LeaseTable::Log::kCame);
  stream->turns.skip_to(log.answered());
  LogTicket ticket{.number = log.number(), .waiting = waiting, .attachment = attachment, .stream = stream};
  const ByteCount bytes = incoming->body().size() + log.ByteSizeLong();
  switch (stream->turns.arrive(ticket, session->share().right->early_log_bytes, bytes)) {
    case LogTurns::Verdict::kRepeat:
      return submit_log(session, std::move(ticket), LogTurn::kNot);
    case LogTurns::Verdict::kFull:
      return refuse(*waiting, ErrorCode::kLimitExceeded, "too many LOGs before their turn");
    case LogTurns::Verdict::kNoMemory:
      return refuse_early_log(*waiting, *attachment);
    case LogTurns::Verdict::kWaits:
      if (auto next = stream->turns.take()) {
        leases_.note_log(session->number(), LeaseTable::Log::kBegun);
        submit_log(session, std::move(*next), LogTurn::kIts);
      }
  }
}

// An error would be the entries' own. The client sends them again over its next connection, in their order.
void FileService::refuse_early_log(WaitingCall& waiting, const Attachment& attachment) {
  constexpr const char* kWhy = "its LOGs before their turn hold too much memory";
  refuse(waiting, ErrorCode::kConnectionLost, kWhy);
  if (const auto left_out = refusals_logged_.admit(io::now()))
    spdlog::warn("{} is disconnected: {}{}", attachment.peer.address, kWhy, and_before(*left_out));
  leases_.cut(attachment.peer.connection, kWhy);
}

// Never refused for want of room: it is answered to programs already. There is one of a session at a time
// that has its turn; a repeat is only looked up.
void FileService::submit_log(const SharedSession& session, LogTicket ticket, LogTurn turn) {
  const WorkerPool::Flow& flow = session->share().flow;
  const std::shared_ptr<WaitingCall> waiting = ticket.waiting;
  auto run = [this, session, ticket = std::move(ticket), turn] { run_log(session, ticket, turn); };
  if (turn == LogTurn::kIts)
    workers_.submit_beyond_bound(flow, Lane::kData, std::move(run));
  else if (!workers_.submit(flow, Lane::kData, std::move(run)))
    refuse(*waiting, ErrorCode::kConnectionLost, kTooManyCalls);
}

void FileService::pass_log_turn(const SharedSession& session, LogStream& stream) {
  auto next = stream.turns.pass();
  leases_.note_log(session->number(), next ? LeaseTable::Log::kCame : LeaseTable::Log::kDone);
  if (next) submit_log(session, std::move(*next), LogTurn::kIts);
}

void FileService::run_log(const SharedSession& session, const LogTicket& ticket, LogTurn turn) {
  const auto attachment = ticket.attachment.lock();
  const SharedStream stream = ticket.stream.lock();
  const Incoming incoming = ticket.waiting->take();
  if (!stream) {  // a redo that was begun anew
    if (turn == LogTurn::kIts) leases_.note_log(session->number(), LeaseTable::Log::kDone);
    return;
  }
  const auto pass = [&] {
    if (turn == LogTurn::kIts) pass_log_turn(session, *stream);
  };
  if (!incoming || !attachment) return pass();  // the client sends it again
  if (!begin_log_once(incoming, *stream)) return pass();
  if (turn == LogTurn::kIts && stream->turns.begin(ticket.number))
    return carry_out_log(incoming, attachment, stream);
  schema::Reply reply;
  reply.set_error(static_cast<std::uint32_t>(ErrorCode::kCancelled));
  reply.set_message("a LOG that has been answered");
  stream->replies.finish(ticket.number, reply);
  incoming->reply(std::move(reply));
  pass();
}

// Before its number has its turn: from then on a repeat must find it.
bool FileService::begin_log_once(const Incoming& incoming, LogStream& stream) {
  const schema::LogRequest& log = incoming->message().log();
  return begin_in(stream.replies, log.number(), log.answered() + 1, incoming);
}

void FileService::carry_out_log(const Incoming& incoming, const std::shared_ptr<Attachment>& attachment,
                                const SharedStream& stream) {
  const schema::LogRequest& log = incoming->message().log();
  const std::uint64_t verifier = attachment->session->answered_under().verifier;  // before anything is done
  stream->aliases.forget(log.answered());
  stream->failed_writes.forget(log.answered());
  Result<void> suits = check_log(log, incoming->body().size());
  if (!suits) {
    schema::Reply refused;
    refused.set_error(static_cast<std::uint32_t>(suits.error().code));
    refused.set_message(suits.error().context);
    return finish_log(incoming, *attachment, *stream, verifier, std::move(refused));
  }
  const LogTerms terms{.again = log.redo() != 0 || stream->turns.may_be_done(log.number()),
                       .redo = log.redo() != 0 ? stream : nullptr,
                       .began_ns = began_by_clock(serves_since_)};
  const auto run_entry = [this, attachment, terms](Incoming entry) {
    const Operation& operation = *find_operation(entry->message().operation_case());
    Admitted call{.operation = &operation,
                  .incoming = std::move(entry),
                  .attachment = attachment,
                  .reservation = {},
                  .log = terms};
    if (must_ask(*attachment) && mutates(operation, call.incoming->message()))
      begin_change(std::move(call));
    else
      carry_out(std::move(call), {});
  };
  const auto done = [this, incoming, attachment, stream, verifier](schema::Reply reply) {
    finish_log(incoming, *attachment, *stream, verifier, std::move(reply));
  };
  const auto go_on_later = [this, flow = attachment->session->share().flow](WorkerPool::Task rest) {
    workers_.go_on_later(flow, Lane::kData, std::move(rest));
  };
  std::make_shared<LogRun>(incoming, stream->aliases, stream->failed_writes, run_entry, go_on_later, done)
      ->go_on();
}

// What others have put on the disk meanwhile: who holds a directory may answer for what has no room any more.
// By a worker, since a disk may take long to say it.
void FileService::look_for_room() {
  std::vector<std::shared_ptr<Attachment>> holders;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [connection, attachment] : attachments_) holders.push_back(attachment);
  }
  std::erase_if(holders, [this](const auto& attachment) {
    return !leases_.has_exclusive(attachment->session->number());
  });
  if (holders.empty() || looking_for_room_.exchange(true)) return;
  const auto look = [this, holders = std::move(holders)] {
    for (const auto& attachment : holders) end_exclusive_without_room(*attachment);
    looking_for_room_ = false;
  };
  if (!workers_.submit(own_work_, Lane::kSlow, look)) looking_for_room_ = false;
}

void FileService::end_exclusive_without_room(const Attachment& attachment) {
  const SessionNumber session = attachment.session->number();
  if (leases_.has_exclusive(session) && !has_room(leases_, session, *attachment.exported))
    leases_.end_exclusive(session);
}

void FileService::finish_log(const Incoming& incoming, Attachment& attachment, LogStream& stream,
                             std::uint64_t verifier, schema::Reply reply) {
  const SharedSession session = attachment.session;
  reply.set_write_verifier(verifier);
  stream.replies.finish(incoming->message().log().number(), reply);
  end_exclusive_without_room(attachment);
  // The LOGs to come may name what this one made, and may meet another process.
  attachment.exported->nodes().keep_names();
  incoming->reply(std::move(reply));
  pass_log_turn(session, stream);
}

}  // namespace tusk::server

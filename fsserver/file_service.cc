#include "fsserver/file_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <iterator>
#include <new>
#include <unordered_set>

#include "fsserver/exclusive_names.h"
#include "fsserver/lease_effects.h"
#include "proto/base/check.h"
#include "proto/base/text.h"
#include "proto/crypto/primitives.h"
#include "proto/io/clock.h"

namespace tusk::server {
namespace {

constexpr std::size_t kInstanceIdBytes = 16;
constexpr Duration kHousekeepingEvery = 1s;
constexpr const char* kAstray = "of an absent session, or of one that is here by another connection";
constexpr Duration kLeasesWaitedForEvery = 100ms;  // changes wait for an end of leases
constexpr Duration kLockRetryEvery = 100ms;        // a program on the server tells nobody when it unlocks

std::string random_id() {
  std::string id(kInstanceIdBytes, '\0');
  crypto::random_bytes(std::as_writable_bytes(std::span(id)));
  return id;
}

std::string kernel_boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

schema::Reply to_reply(const Error& error) {
  schema::Reply reply;
  reply.set_error(static_cast<std::uint32_t>(error.code));
  reply.set_message(error.context);
  return reply;
}

SharedBytes held_by(BodyBudget::Reservation reservation, SharedBytes bytes) {
  struct Held {
    SharedBytes bytes;
    BodyBudget::Reservation reservation;
  };
  const std::span<const std::byte> view = bytes.bytes;
  return {std::make_shared<Held>(std::move(bytes), std::move(reservation)), view};
}

}  // namespace

FileService::FileService(FileServiceOptions options)
    : options_(std::move(options)),
      boot_id_(kernel_boot_id()),
      instance_id_(random_id()),
      bodies_(std::make_shared<BodyBudget>(options_.reply_memory_max, kSessionBodyBytesMax)),
      rights_({.sessions = options_.sessions_max,
               .connections = options_.connections_max,
               .descriptors = options_.descriptors_max,
               .early_log_bytes = options_.early_log_bytes_max}),
      leases_(options_.leases),
      workers_(options_.workers),
      own_work_(workers_.flow({}, "the server's")) {
  for (auto& exported : options_.exports) {
    exports_.emplace(exported->name(), exported);
    begin_commits(*exported);
  }
  options_.exports.clear();
  await_lockers();
  await_leasers();
  update_watches();
  if (!options_.own_housekeeping) return;
  lease_housekeeper_ = std::jthread([this](const std::stop_token& stop) {
    keep_house(stop,
               [this] { return leases_.housekeep(io::now()) ? kLeasesWaitedForEvery : kHousekeepingEvery; });
  });
  file_housekeeper_ = std::jthread([this](const std::stop_token& stop) {
    keep_house(stop, [this] {
      const bool locks_wait = retry_locks();
      keep_files(io::now());
      return locks_wait ? kLockRetryEvery : kHousekeepingEvery;
    });
  });
}

void FileService::keep_house(const std::stop_token& stop, const std::function<Duration()>& pass) {
  Duration pause = kHousekeepingEvery;
  while (true) {
    std::uint64_t seen = 0;
    {
      std::unique_lock lock(housekeeping_mutex_);
      housekeeping_.wait_for(lock, stop, pause, [] { return false; });
    }
    seen = began_;
    if (stop.stop_requested()) return;
    pause = pass();
    if (!nothing_to_keep()) continue;
    std::unique_lock lock(housekeeping_mutex_);
    ++resting_;  // before it looks
    housekeeping_.wait(lock, stop, [&] { return began_ != seen; });
    --resting_;
  }
}

// Who was told that it holds a lock which a program on the server has by now learns that when it attaches
// again.
bool FileService::retry_locks() {
  const bool wait = locks_.retry();
  const auto robbed = locks_.take_robbed();
  if (robbed.empty()) return wait;
  std::vector<rpc::ConnectionId> concerned;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [connection, attachment] : attachments_)
      if (!attachment->lane && robbed.contains(attachment->session->number()))
        concerned.push_back(connection);
  }
  for (const rpc::ConnectionId connection : concerned) {
    constexpr const char* kWhy = "a program on the server was quicker to lock a file";
    spdlog::warn("a client is disconnected: {}", kWhy);
    leases_.cut(connection, kWhy);
  }
  return wait;
}

// All that there is to keep comes from mounts, but for what a watch looks at when something has changed.
// Names that the disk has refused are tried again.
bool FileService::nothing_to_keep() {
  std::vector<std::shared_ptr<Export>> exports;
  {
    const std::lock_guard lock(mutex_);
    if (!sessions_.empty() || !awaited_.empty()) return false;
    if (grace_ && grace_->waits()) return false;
    for (const auto& [name, exported] : exports_) exports.push_back(exported);
  }
  {
    const std::lock_guard lock(watches_mutex_);
    if (!retired_watches_.empty()) return false;
  }
  return std::ranges::all_of(exports, [](const auto& exported) {
    return exported->nodes().descriptors() == 0 && !exported->nodes().names_wait();
  });
}

void FileService::something_to_keep() {
  ++began_;  // before it looks whether somebody rests
  if (resting_ == 0) return;
  { const std::lock_guard lock(housekeeping_mutex_); }  // who was about to rest does
  housekeeping_.notify_all();
}

// Whatever holds a watch goes before what its events use.
FileService::~FileService() {
  leases_.drop_put_aside();
  {
    const std::lock_guard lock(mutex_);
    attachments_.clear();
  }
  const std::lock_guard lock(watches_mutex_);
  retired_watches_.clear();
  watches_.clear();
}

void FileService::reach_clients_by(rpc::Outbound* clients) {
  leases_.reach_clients_by(clients);
  const std::lock_guard lock(mutex_);
  leases_possible_ = clients != nullptr;
}

void FileService::handle_call(std::unique_ptr<rpc::IncomingCall> unshared) {
  const Incoming incoming = std::move(unshared);
  const Waiting waiting = WaitingCall::make(incoming);
  const std::lock_guard admission(admission_);
  if (draining_) return hold_back(waiting);
  const auto operation_case = incoming->message().operation_case();
  std::shared_ptr<Attachment> attachment;
  {
    const std::lock_guard lock(mutex_);
    if (operation_case == schema::Request::kAttach) connections_.try_emplace(incoming->peer().connection);
    attachment = attachment_of(incoming->peer().connection);
  }
  if (operation_case == schema::Request::kAttach)
    return enqueue(flow_of(incoming->peer(), attachment.get()), Lane::kMetadata, waiting,
                   [this](const Incoming& call) { answer_attach(call); });
  if (!attachment) return refuse(*waiting, from_errno(EACCES), "not attached");
  if (is_astray(*attachment)) return refuse(*waiting, ErrorCode::kConnectionLost, kAstray);
  if (operation_case == schema::Request::kDetach)
    return enqueue(flow_of(incoming->peer(), attachment.get()), Lane::kMetadata, waiting,
                   [this](const Incoming& call) { answer_detach(call); });
  if (operation_case == schema::Request::kLog) return take_in_log(incoming, waiting, attachment);
  const Operation* const operation = find_operation(operation_case);
  if (operation == nullptr)
    return refuse(*waiting, ErrorCode::kUnsupported, "this server does not know that operation");
  submit(*operation, reserved_body_bytes(incoming->message()), waiting, std::move(attachment));
}

void FileService::refuse(WaitingCall& waiting, ErrorCode code, std::string why) {
  if (const Incoming incoming = waiting.take()) incoming->reply_error(code, std::move(why));
}

bool FileService::is_astray(const Attachment& attachment) {
  const Session& session = *attachment.session;
  if (attachment.lane) return session.away() || session.ended();
  return session.gate()->current() != attachment.peer.connection;
}

// An error would be the program's; without an answer the client asks the server that comes after this one.
void FileService::hold_back(const Waiting& waiting) {
  if (held_back_.size() >= kHeldBackMax) return refuse(*waiting, ErrorCode::kPeerClosed, "shutting down");
  held_back_.push_back(waiting);
}

// Who has not attached is one of those behind its address.
WorkerPool::Flow FileService::flow_of(const rpc::Peer& peer, const Attachment* attachment) {
  if (attachment != nullptr) return attachment->session->share().flow;
  return workers_.flow({}, peer.address.substr(0, peer.address.rfind(':')));
}

void FileService::enqueue(const WorkerPool::Flow& flow, Lane lane, const Waiting& waiting, Work work) {
  const bool queued = workers_.submit(flow, lane, [waiting, work = std::move(work)]() mutable {
    if (const Incoming incoming = waiting->take()) work(incoming);
  });
  if (!queued) refuse(*waiting, ErrorCode::kLimitExceeded, kTooManyCalls);
}

void FileService::submit(const Operation& operation, ByteCount body_bytes, const Waiting& waiting,
                         std::shared_ptr<Attachment> attachment) {
  const auto begin = [this, &operation, waiting, attachment](BodyBudget::Reservation reservation) {
    enqueue(attachment->session->share().flow, operation.lane, waiting,
            [this, &operation, attachment,
             reservation = std::move(reservation)](const Incoming& incoming) mutable {
              run({&operation, incoming, attachment, std::move(reservation)});
            });
  };
  if (body_bytes == 0) return begin({});
  if (!bodies_->reserve(attachment->session->share().bodies, body_bytes, begin))
    refuse(*waiting, ErrorCode::kLimitExceeded, "too many reads at once");
}

namespace {

bool runs_once_here(const Operation& operation, const schema::Request& request) {
  return request.sequence() != 0 && runs_once(operation);
}

}  // namespace

void FileService::run(Admitted call) {
  // Again: it may have waited for its turn for long.
  if (is_astray(*call.attachment)) return call.incoming->reply_error(ErrorCode::kConnectionLost, kAstray);
  const bool changes = mutates(*call.operation, call.incoming->message());
  if (changes && call.attachment->read_only)
    return call.incoming->reply_error(from_errno(EROFS), "the export is read-only");
  const bool once = runs_once_here(*call.operation, call.incoming->message());
  if (once && !begin_once(call)) return;
  if (changes && !must_ask(*call.attachment))
    return finish_change(std::make_shared<Admitted>(std::move(call)), nullptr);
  if (changes) return begin_change(std::move(call));
  if (!call.attachment->watch) return carry_out(std::move(call), {});
  const auto directories = looked_at(call.incoming->message());
  const bool waits = std::ranges::any_of(directories, [&](std::string_view directory) {
    return leases_.exclusive_of_another(call.attachment->session->number(), directory);
  });
  if (!waits) return carry_out(std::move(call), {});
  begin_look(std::move(call), directories);
}

// What was put aside goes on with a worker also when the queue is full: it was in the queue before, and who
// goes on with it (the network's thread, or the one that ends leases) must never wait for a file system.
void FileService::begin_look(Admitted call, std::span<const std::string_view> directories) {
  const SessionNumber by = call.attachment->session->number();
  const Lane lane = call.operation->lane;
  const auto shared = std::make_shared<Admitted>(std::move(call));
  const auto now = leases_.begin_look(by, directories, [this, lane, shared](LeaseKeeper::Change look) {
    leases_.end_change(look);
    workers_.submit_beyond_bound(shared->attachment->session->share().flow, lane,
                                 [this, shared] { carry_out(std::move(*shared), {}); });
  });
  if (!now) return;
  leases_.end_change(*now);
  carry_out(std::move(*shared), {});
}

bool FileService::has_met_exclusive(const Call& call) {
  if (!call.request().has_lookup() || !call.reply.has_node()) return false;
  const schema::Node& node = call.reply.node().node();
  return S_ISDIR(node.attr().mode()) && call.exclusive_of_another(node.handle());
}

void FileService::begin_change(Admitted call) {
  Attachment& attachment = *call.attachment;
  const SessionNumber by = attachment.session->number();
  const auto foreseen = std::make_shared<Foreseen>();
  {
    const ActingAs acting(attachment.exported->acts_as());
    foreseen->victims = leases_.others_than(by);
    foreseen->changes = changes_of(call.incoming->message(), attachment.exported->nodes(), foreseen->victims);
  }
  const Lane lane = call.operation->lane;
  const auto shared = std::make_shared<Admitted>(std::move(call));
  const auto from = shared->log ? LeaseTable::From::kLog : LeaseTable::From::kRequest;
  const auto now = leases_.begin_change(by, *attachment.exported, foreseen->changes, from,
                                        [this, lane, shared, foreseen](LeaseKeeper::Change id) {
                                          foreseen->change = id;
                                          workers_.submit_beyond_bound(
                                              shared->attachment->session->share().flow, lane,
                                              [this, shared, foreseen] { finish_change(shared, foreseen); });
                                        });
  if (!now) return;
  foreseen->change = *now;
  finish_change(shared, foreseen);
}

// The last look before anything is changed. Whoever sent it may have lost its connection while it waited,
// have sent it again over the next one, and have gone on; or it has given it up, and sends what it does
// instead.
ChangeGate::Verdict FileService::enter_gate(Admitted& call) {
  using enum ChangeGate::Verdict;
  if (call.log) return kIn;  // in its order, once, whatever becomes of the connection
  Session& session = *call.attachment->session;
  const std::shared_ptr<ChangeGate>& gate = session.gate();
  const schema::Request& request = call.incoming->message();
  const bool once = runs_once_here(*call.operation, request);
  while (!session.ended()) {
    // In this order: should there be a newer one when it is asked for a pass, there is none.
    const rpc::ConnectionId newest = gate->current();
    const bool wanted = !call.incoming->cancelled() && !is_astray(*call.attachment);
    if (!wanted && (!once || session.replies().withdraw(request.sequence()))) return kOutdated;
    ChangeGate::Entry entry = gate->enter(newest);
    call.pass = std::move(entry.pass);
    if (entry.verdict != kOutdated) return entry.verdict;
  }
  if (once) session.replies().finish(request.sequence(), to_reply({ErrorCode::kConnectionLost, kAstray}));
  return kOutdated;
}

void FileService::finish_change(const SharedAdmitted& call, const SharedForeseen& foreseen) {
  ChangeGate::Verdict verdict = enter_gate(*call);
  while (verdict == ChangeGate::Verdict::kWait) {
    const bool waits = call->attachment->session->gate()->wait([this, call, foreseen] {
      workers_.submit_beyond_bound(call->attachment->session->share().flow, call->operation->lane,
                                   [this, call, foreseen] { finish_change(call, foreseen); });
    });
    if (waits) return;
    verdict = enter_gate(*call);
  }
  if (verdict == ChangeGate::Verdict::kOutdated) {
    if (foreseen) leases_.end_change(foreseen->change);
    return call->incoming->reply_error(
        call->incoming->cancelled() ? ErrorCode::kCancelled : ErrorCode::kConnectionLost, kAstray);
  }
  if (!foreseen) return carry_out(std::move(*call), {});
  const std::shared_ptr<Attachment> attachment = call->attachment;
  const Incoming incoming = call->incoming;
  const bool by_log = call->log.has_value();
  // Whatever it ends with: it may have been made in part.
  std::vector<NodeChange> made = foreseen->changes;
  if (attachment->watch) attachment->watch->begin_own(foreseen->changes);
  // Before the answer: whoever asks because of it is told what is good for longer than once.
  carry_out(std::move(*call), [&](const std::vector<std::string>& changed) {
    if (attachment->watch) attachment->watch->end_own(foreseen->changes);
    leases_.end_change(foreseen->change);
    // Somebody else has moved the names since they were looked at; or they were not, since nobody else was
    // there, and the answer tells the one who was.
    std::vector<NodeChange> unforeseen;
    for (const std::string& handle : changed)
      if (std::ranges::find(foreseen->changes, handle, &NodeChange::handle) == foreseen->changes.end())
        unforeseen.push_back({.handle = handle, .data = true});
    made.insert(made.end(), unforeseen.begin(), unforeseen.end());
    if (unforeseen.empty()) return;
    leases_.changed(unforeseen,
                    foreseen->victims ? std::nullopt : std::optional(attachment->session->number()));
  });
  // Who gave it up, or has lost its connection, is not told by the answer. (A LOG is asked for again until it
  // is answered.)
  const bool untold = !by_log && (incoming->cancelled() || is_astray(*attachment));
  if (untold) leases_.changed(made);
}

// An operation that has begun.
struct FileService::Started {
  Admitted admitted;
  Call call;
};

void FileService::carry_out(Admitted admitted, const Made& made) {
  Call call(admitted.incoming, admitted.attachment, locks_, leases_, boot_id_, admitted.log);
  go_on(std::make_shared<Started>(std::move(admitted), std::move(call)), made);
}

void FileService::go_on(const SharedStarted& started, const Made& made) {
  execute(*started->admitted.operation, started->call);
  if (!started->call.rest) return finish(*started, made);
  TUSK_CHECK(!made);  // what changes something is done in one turn
  workers_.go_on_later(started->admitted.attachment->session->share().flow, started->admitted.operation->lane,
                       [this, started] { go_on(started, {}); });
}

void FileService::finish(Started& started, const Made& made) {
  Admitted& admitted = started.admitted;
  Call& call = started.call;
  const Incoming incoming = admitted.incoming;
  const auto attachment = admitted.attachment;
  const std::uint64_t sequence = incoming->message().sequence();
  const bool once = runs_once_here(*admitted.operation, incoming->message());
  // What it has left to keep may come after the last look (end() does the same, should it come later).
  if (attachment->session->ended()) something_to_keep();
  if (!admitted.looked_twice && has_met_exclusive(call)) {
    admitted.looked_twice = true;
    const std::string_view met = call.reply.node().node().handle();
    return begin_look(std::move(admitted), std::span(&met, 1));
  }
  if (made) made(call.mutated_nodes());
  // Nobody would ever close the file.
  if (nobody_waits_for(admitted) && call.reply.has_open()) ops::close_file(call, call.reply.open().open_id());
  if (once) {
    // A body is not remembered: what a repeat of an OPEN would bring along can be read.
    schema::Reply remembered = call.reply;
    if (remembered.has_open()) remembered.mutable_open()->set_body_bytes(0);
    attachment->session->replies().finish(sequence, remembered);
  }
  if (call.waits_for != LockWaitId{0})
    incoming->on_cancel(
        [this, flow = attachment->session->share().flow, wait = call.waits_for] { cancel_wait(flow, wait); });
  if (call.answers_later) return;
  // Whatever the body is made of counts until the client has it.
  if (!call.body.empty()) call.body = held_by(std::move(admitted.reservation), std::move(call.body));
  incoming->reply(std::move(call.reply), std::move(call.body));
}

// On a worker: the network's thread must not wait for those who hold the table's mutex and ask a disk. Only
// when there are too many is that better than a lock that nobody wants any more.
void FileService::cancel_wait(const WorkerPool::Flow& flow, LockWaitId wait) {
  if (!workers_.submit(flow, Lane::kMetadata, [this, wait] { locks_.cancel(wait); })) locks_.cancel(wait);
}

// Over a connection that is gone it is asked for again, and told what is remembered here.
bool FileService::nobody_waits_for(const Admitted& call) const {
  if (!call.incoming->cancelled()) return false;
  if (!runs_once_here(*call.operation, call.incoming->message())) return true;
  const std::lock_guard lock(mutex_);
  return attachment_of(call.attachment->peer.connection) != nullptr && !is_astray(*call.attachment);
}

bool FileService::begin_once(const Admitted& call) {
  const schema::Request& request = call.incoming->message();
  // Weak: the attachment holds the session, which holds the memory.
  return begin_in(call.attachment->session->replies(), request.sequence(), request.sequence_done(),
                  call.incoming, [incoming = call.incoming, weak = std::weak_ptr(call.attachment)] {
                    const auto attachment = weak.lock();
                    return attachment && !incoming->cancelled() && !is_astray(*attachment);
                  });
}

bool FileService::begin_in(ReplyMemory& memory, std::uint64_t sequence, std::uint64_t done_below,
                           const Incoming& incoming, ReplyMemory::Wanted wanted) {
  const auto answer = [incoming](const schema::Reply& reply) { incoming->reply(schema::Reply(reply)); };
  const auto verdict = memory.begin(sequence, done_below, answer, std::move(wanted));
  switch (verdict) {
    case ReplyMemory::Verdict::kRun:
      return true;
    case ReplyMemory::Verdict::kAnswered:
    case ReplyMemory::Verdict::kJoined:
      return false;
    case ReplyMemory::Verdict::kForgotten:
      incoming->reply_error(ErrorCode::kCancelled, "a repeat of what the client says it has the answer of");
      return false;
    case ReplyMemory::Verdict::kFull:
      incoming->reply_error(ErrorCode::kLimitExceeded, "too many mutations without sequence_done");
      return false;
  }
  __builtin_unreachable();
}

void FileService::execute(const Operation& operation, Call& call) {
  const ActingAs acting(call.exported().acts_as());
  // Bytes come from many users, in no one's name.
  const ObeyingLimits limits(call.attachment().identity_real);
  Result<void> result;
  try {
    result = call.rest                ? std::exchange(call.rest, nullptr)()
             : call.redo() != nullptr ? ops::redo(call, operation)
                                      : operation.run(call);
    if (call.rest) return;
    if (mutates(operation, call.request())) call.session().commits().note_change();
    if (result && (call.log() || call.request().want_exclusive())) tell_exclusive(call);
    // Of entries their LOG tells it.
    if (result && !call.log() && (mutates(operation, call.request()) || call.request().has_commit()))
      call.reply.set_write_verifier(call.answered_under().verifier);
  } catch (const std::bad_alloc&) {
    call.rest = nullptr;
    result = fail(from_errno(ENOMEM));
  } catch (const std::exception& error) {
    call.rest = nullptr;
    spdlog::error("{}: {}", operation.name, error.what());
    result = fail(ErrorCode::kInternal, error.what());
  }
  if (!call.mutated_nodes().empty() && options_.mutated)
    options_.mutated(call.exported(), call.mutated_nodes());
  if (result) return;
  const int number = to_errno(result.error().code);
  if (number == ESTALE || number == ENOENT) (void)call.exported().root_exists();  // for its line in the log
  if (number == EIO || number == ENOSPC || number == EDQUOT || result.error().code == ErrorCode::kInternal)
    if (const auto left_out = failures_logged_.admit(io::now()))
      spdlog::warn("export '{}': {} by {}: {}{}", call.exported().name(), operation.name,
                   call.attachment().peer.address, printable(result.error().message()),
                   and_before(*left_out));
  call.reply = to_reply(result.error());
  call.body = {};
}

std::vector<rpc::ConnectionId> FileService::replace_exports(std::vector<std::shared_ptr<Export>> exports) {
  std::map<std::string, std::shared_ptr<Export>> replacement;
  for (auto& exported : exports) replacement.emplace(exported->name(), std::move(exported));
  const auto successors = successors_in(replacement);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, exported] : replacement)
      if (!exported->commits()) begin_commits(*exported);
    exports_.swap(replacement);
    // Before anybody can change anything by the new settings.
    for (const auto& [before, after] : successors) leases_.replace(*before, after);
  }
  update_watches();
  std::vector<rpc::ConnectionId> outdated;
  std::vector<std::shared_ptr<Attachment>> others;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [connection, attachment] : attachments_)
      if (find_export(attachment->exported->name()) == attachment->exported)
        others.push_back(attachment);
      else
        outdated.push_back(connection);
  }
  for (const auto& attachment : others)
    if (watch_of(*attachment->exported) != attachment->watch) outdated.push_back(attachment->peer.connection);
  return outdated;
}

// What a mount trusts outlives the settings of its export, and a mount that is out of reach has not heard of
// them.
std::vector<std::pair<std::shared_ptr<Export>, const Export*>> FileService::successors_in(
    const std::map<std::string, std::shared_ptr<Export>>& replacement) const {
  std::vector<std::shared_ptr<Export>> ended;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, before] : exports_) {
      const auto same = replacement.find(name);
      if (same == replacement.end() || same->second != before) ended.push_back(before);
    }
  }
  std::vector<std::pair<std::shared_ptr<Export>, const Export*>> successors;
  for (const auto& before : ended) {
    std::vector<const Export*> same_files;
    for (const auto& [name, after] : replacement)
      if (name == before->name() || overlap(*after, *before)) same_files.push_back(after.get());
    if (!same_files.empty())
      successors.emplace_back(before, same_files.size() == 1 ? same_files.front() : nullptr);
  }
  return successors;
}

void FileService::update_watches() {
  if (!options_.watch) return;
  std::vector<std::shared_ptr<Export>> exports;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, exported] : exports_) exports.push_back(exported);
  }
  const std::lock_guard lock(watches_mutex_);
  std::map<const Export*, Watched> kept;
  for (const auto& exported : exports) {
    Watched& watched = kept[exported.get()];
    const bool overlaps = std::ranges::any_of(
        exports, [&](const auto& other) { return other != exported && overlap(*exported, *other); });
    const auto known = watches_.find(exported.get());
    if (known != watches_.end() && known->second.overlaps == overlaps) {
      watched = std::move(known->second);
      continue;
    }
    watched.exported = exported;
    watched.overlaps = overlaps;
    if (overlaps) {
      spdlog::info("export '{}': another export has the same files, so no leases", exported->name());
      continue;
    }
    watched.watch =
        options_.watch(*exported, {.changed =
                                       [this, of = exported.get()](const std::vector<NodeChange>& changes) {
                                         leases_.changed(changes);
                                         // Of a file that has been removed, maybe.
                                         if (of->nodes().descriptors() > 0) something_to_keep();
                                       },
                                   .missed = [this, of = exported.get()] { handle_missed_changes(*of); }});
  }
  for (auto& [exported, watched] : watches_)
    if (watched.watch) retired_watches_.push_back(std::move(watched));
  watches_ = std::move(kept);
  something_to_keep();
}

void FileService::end_retired_watches() {
  std::vector<Watched> ended;  // after the mutex
  const std::lock_guard lock(watches_mutex_);
  const auto unused = std::ranges::partition(
      retired_watches_, [](const Watched& watched) { return watched.watch.use_count() > 1; });
  std::ranges::move(unused, std::back_inserter(ended));
  retired_watches_.erase(unused.begin(), unused.end());
}

void FileService::handle_missed_changes(const Export& exported) {
  std::unordered_set<SessionNumber> concerned;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, entry] : sessions_)
      if (&entry.session->exported() == &exported) concerned.insert(entry.session->number());
  }
  spdlog::warn("export '{}': more changes at once than can be followed; clients look at everything again",
               exported.name());
  leases_.anything_changed([&](SessionNumber session) { return concerned.contains(session); });
}

std::shared_ptr<ChangeWatch> FileService::watch_of(const Export& exported) {
  const std::lock_guard lock(watches_mutex_);
  const auto found = watches_.find(&exported);
  return found == watches_.end() ? nullptr : found->second.watch;
}

void FileService::housekeep(TimePoint now) {
  (void)leases_.housekeep(now);
  (void)retry_locks();
  keep_files(now);
}

void FileService::keep_files(TimePoint now) {
  std::vector<Ended> ended;  // their files are closed without the mutex
  std::vector<std::shared_ptr<Export>> exports;
  bool new_absence = false;
  std::vector<std::string> too_late;
  std::vector<std::pair<std::string, std::uint64_t>> trust_nothing;
  if (grace_) grace_->housekeep(now);
  {
    const std::lock_guard lock(mutex_);
    if (now >= grace_ends_) too_late.assign(awaited_.begin(), awaited_.end());
    for (auto item = sessions_.begin(); item != sessions_.end();) {
      SessionEntry& entry = item->second;
      // Lanes keep no session: what comes over them is refused meanwhile.
      const bool away_for_long = entry.connections == 0 && now - entry.idle_since >= kEmptySessionKeep;
      const bool over = entry.connections == 0 && (now - entry.idle_since >= options_.session_keep ||
                                                   (away_for_long && holds_nothing(*entry.session)));
      // With the mutex held, so that it is not marked that is back.
      if (entry.connections == 0 && now - entry.idle_since >= options_.lock_keep)
        new_absence |= locks_.mark_away(entry.session->number(), true);
      const Duration leases_last = options_.leases.lease + options_.leases.slack;
      if (grace_ && entry.connections == 0 && now - entry.idle_since >= leases_last)
        trust_nothing.emplace_back(entry.session->name(), grace_->attaches(entry.session->name()));
      if (over) ended.push_back(ended_now(std::move(entry.session)));
      item = over ? sessions_.erase(item) : std::next(item);
    }
    for (const auto& [name, exported] : exports_) exports.push_back(exported);
  }
  for (const auto& session : ended) end(session);
  for (const auto& [session, as_of] : trust_nothing) grace_->over(session, as_of);
  if (new_absence) locks_.serve_instead_of_absent();
  for (const std::string& session : too_late) {
    lockers_->remove(session, 0);
    stop_awaiting(session);
  }
  look_for_room();
  end_retired_watches();
  for (const auto& exported : exports) exported->nodes().housekeep(now);
}

bool FileService::holds_nothing(const Session& session) const {
  return session.holds_nothing() && !locks_.holds_any(session.number()) &&
         !leases_.holds_any(session.number());
}

bool FileService::drain(Duration at_most) {
  {
    const std::lock_guard lock(admission_);
    draining_ = true;
  }
  return workers_.wait_idle(at_most);
}

}  // namespace tusk::server

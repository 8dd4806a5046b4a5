// FileService's door: attach, detach, disconnect, and the sessions behind it.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <future>
#include <thread>

#include "fsserver/file_service.h"
#include "proto/base/text.h"
#include "proto/crypto/base64url.h"
#include "proto/crypto/primitives.h"
#include "proto/io/clock.h"

namespace tusk::server {
namespace {

constexpr int kSessionsEndedMax = 16;  // named by one ATTACH
constexpr Cost kAttachCost = 100;

// Of tokens as the server keeps them.
std::string name_of_right(const crypto::Fingerprint& key, std::string_view token, bool listed) {
  return listed ? "key " + key.to_text()
                : "token " + crypto::base64url_encode(crypto::sha256(as_byte_span(token)));
}

std::uint32_t milliseconds(Duration duration) {
  return static_cast<std::uint32_t>(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

}  // namespace

void FileService::answer_attach(const Incoming& incoming) {
  this_turn().spend(kAttachCost);
  auto reply = attach(*incoming);
  if (reply) {
    std::shared_ptr<Attachment> attachment;
    {
      const std::lock_guard lock(mutex_);
      attachment = attachment_of(incoming->peer().connection);
    }
    const bool told_of_changes = attachment && attachment->leases && !attachment->lane;
    if (told_of_changes && incoming->message().attach().listing_bytes() > 0)
      tell_root(incoming, attachment, *reply->mutable_attach());
    if (attachment) incoming->note_right(attachment->right->right);
    incoming->reply(std::move(*reply));
    if (told_of_changes) leases_.send_again(attachment->session->number());
    if (options_.attached && attachment && !attachment->lane) options_.attached();
    return;
  }
  const schema::AttachRequest& request = incoming->message().attach();
  if (const auto left_out = refusals_logged_.admit(io::now()))
    spdlog::warn("{} ({}) may not mount '{}': {}{}", incoming->peer().address, incoming->peer().key.to_text(),
                 printable(request.export_name()), reply.error().message(), and_before(*left_out));
  incoming->reply_error(reply.error().code, reply.error().context);
}

void FileService::tell_root(const Incoming& incoming, const std::shared_ptr<Attachment>& attachment,
                            schema::AttachReply& attached) {
  // Another attach on the connection has overtaken this one.
  if (attachment->exported->nodes().root_handle() != attached.root().handle()) return;
  const ActingAs acting(attachment->exported->acts_as());
  Call call(incoming, attachment, locks_, leases_, boot_id_);
  try {
    ops::tell_root(call, attached);
  } catch (const std::exception& error) {  // no memory, for instance
    spdlog::warn("a mount is not told what is in its root: {}", error.what());
    attached.clear_root_listing();
    attached.clear_root_lease();
  }
}

void FileService::answer_detach(const Incoming& incoming) {
  detach(incoming->peer());
  schema::Reply reply;
  reply.mutable_empty();
  incoming->reply(std::move(reply));
}

Result<FileService::Right> FileService::right_to_enter(const crypto::Fingerprint& key,
                                                       const std::string& export_name, std::string_view token,
                                                       std::int64_t now_unix_s) const {
  std::shared_ptr<Export> exported;
  {
    const std::lock_guard lock(mutex_);
    exported = find_export(export_name);
  }
  if (exported && std::ranges::count(exported->settings().clients, key) > 0)
    return Right{exported, exported->settings().access, true};
  std::optional<Access> right;
  if (options_.access) right = options_.access->right_of(export_name, key, as_byte_span(token), now_unix_s);
  // Who has no right at all does not learn which exports there are.
  if (!right) return fail(ErrorCode::kTokenRefused, "no right to mount this export");
  if (!exported) return fail(ErrorCode::kNoSuchExport, "no such export");
  return Right{exported, std::min(*right, exported->settings().access),
               options_.access->lists(export_name, key)};
}

std::vector<rpc::ConnectionId> FileService::without_right(std::int64_t now_unix_s) {
  if (!options_.access) return {};
  const std::uint64_t generation = options_.access->generation(now_unix_s);
  std::vector<std::shared_ptr<Attachment>> doubtful;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [connection, attachment] : attachments_)
      if (attachment->rights_seen != generation) doubtful.push_back(attachment);
  }
  std::vector<rpc::ConnectionId> ended;
  for (const auto& attachment : doubtful) {
    const auto right =
        right_to_enter(attachment->peer.key, attachment->exported->name(), attachment->token, now_unix_s);
    const Access used = attachment->read_only ? Access::kReadOnly : Access::kReadWrite;
    if (right && right->access >= used)
      attachment->rights_seen = generation;
    else
      ended.push_back(attachment->peer.connection);
  }
  return ended;
}

Result<std::shared_ptr<Attachment>> FileService::enter(const rpc::IncomingCall& incoming) const {
  const schema::AttachRequest& request = incoming.message().attach();
  if (request.version() != kSchemaVersion)
    return fail(ErrorCode::kVersionMismatch, "this server speaks version " + std::to_string(kSchemaVersion));
  if (request.session().size() != kSessionIdBytes) return fail(ErrorCode::kMalformed, "session id");
  auto attachment = std::make_shared<Attachment>();
  attachment->peer = incoming.peer();
  attachment->client_name = printable(request.client_name(), kClientNameBytesMax);
  attachment->token = request.token();
  attachment->since_unix_s = io::unix_seconds();
  // Before the right is looked at: what changes meanwhile is noticed by without_right().
  if (options_.access) attachment->rights_seen = options_.access->generation(attachment->since_unix_s);
  TUSK_ASSIGN(Right right, right_to_enter(incoming.peer().key, request.export_name(), request.token(),
                                          attachment->since_unix_s));
  attachment->read_only = right.access == Access::kReadOnly || request.read_only();
  attachment->exported = std::move(right.exported);
  attachment->right = rights_.of(name_of_right(incoming.peer().key, request.token(), right.listed));
  auto place = attachment->right->connections->take();
  if (!place) return fail(ErrorCode::kLimitExceeded, "this right has as many connections as it may have");
  attachment->place = std::move(*place);
  Export* const exported = attachment->exported.get();
  if (!exported->root_exists()) return fail(from_errno(ENOENT), "the exported directory has been removed");
  attachment->identity_real = request.identity_real() && exported->can_be_real();
  return attachment;
}

// It finds everything as its session's main connection has it: what others change that one is told.
Result<schema::Reply> FileService::attach_lane(const std::shared_ptr<Attachment>& attachment,
                                               const schema::AttachRequest& request) {
  const rpc::ConnectionId connection = attachment->peer.connection;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = sessions_.find({request.export_name(), attachment->peer.key, request.session()});
    const auto main = entry == sessions_.end() ? nullptr : entry->second.main.lock();
    if (!main || entry->second.connections == 0 || main->exported != attachment->exported)
      return fail(ErrorCode::kServerRestarted, "there is no such session");
    const auto known = connections_.find(connection);
    if (known == connections_.end()) return fail(ErrorCode::kConnectionLost);  // it went meanwhile
    if (known->second) return fail(ErrorCode::kMalformed, "a lane of what was attached already");
    if (entry->second.lanes + 1 >= kSessionConnectionsMax)
      return fail(ErrorCode::kLimitExceeded, "the session has as many connections as it may have");
    // Its rights may be others now, and replace_exports() has not seen this attachment.
    if (find_export(request.export_name()) != main->exported)
      return fail(ErrorCode::kServerRestarted, "the export is another one");
    attachment->lane = true;
    attachment->session = entry->second.session;
    attachment->read_only |= main->read_only;
    attachment->identity_real = main->identity_real;
    attachment->watch = main->watch;
    attachment->leases = main->leases;
    attachments_[connection] = attachment;
    known->second = true;
    ++entry->second.lanes;
  }
  if (watch_of(*attachment->exported) != attachment->watch) {
    (void)leave_lane(connection);
    return fail(ErrorCode::kServerRestarted, "the export is watched in another way");
  }
  spdlog::debug("{} is a further connection of '{}'", attachment->peer.address, attachment->client_name);
  return welcome(*attachment, {}, true);
}

Result<schema::Reply> FileService::attach(const rpc::IncomingCall& incoming) {
  const schema::AttachRequest& request = incoming.message().attach();
  TUSK_ASSIGN(const std::shared_ptr<Attachment> attachment, enter(incoming));
  if (request.lane()) return attach_lane(attachment, request);
  presume_dead(*attachment, request);
  Export* const exported = attachment->exported.get();
  schema::Node root;
  TUSK_ASSIGN(const SharedFd root_fd, exported->nodes().resolve(exported->nodes().root_handle()));
  TUSK_ASSIGN(const Status status, status_of(*root_fd));
  root.set_handle(exported->nodes().root_handle());
  *root.mutable_attr() = to_attr(status, exported->nodes().root_device());

  TUSK_ASSIGN(const bool resumed, join_session(*attachment, request));
  LogTurns& turns = attachment->session->log(0)->turns;
  turns.skip_to(request.log_answered());
  turns.skip_beyond(request.log_answered(), request.log_answered_beyond());
  if (!resumed) turns.note_sent_before(request.log_sent());
  const auto watch = watch_of(*exported);
  LeaseTable::Terms terms;
  bool replaced = false;
  std::optional<rpc::ConnectionId> superseded;
  {
    const std::lock_guard lock(mutex_);
    attachment->watch = watch;
    attachment->leases = watch && leases_possible_ && request.leases();
    const rpc::ConnectionId connection = incoming.peer().connection;
    const auto known = connections_.find(connection);
    if (known == connections_.end()) {  // it went away meanwhile
      leave_session(*attachment);
      return fail(ErrorCode::kConnectionLost);
    }
    // Two attaches may overtake each other: the client is at the other end of the newer one.
    if (!attachment->session->gate()->let_in(connection, request.attempt())) {
      leave_session(*attachment);
      return fail(ErrorCode::kConnectionLost, "the mount is here by a newer connection");
    }
    // Its rights may be others now, and replace_exports() has not seen this attachment.
    replaced = find_export(exported->name()) != attachment->exported;
    if (replaced) {
      leave_session(*attachment);
    } else {
      if (const auto before = attachment_of(connection)) {
        leave_session(*before);
        leases_.disconnect(before->session->number(), before->peer);
      }
      attachments_[connection] = attachment;
      known->second = true;
      attachment->session->renew_verifier();
      locks_.mark_away(attachment->session->number(), false);
      superseded = note_main(attachment);
      // With the mutex held: a disconnect that comes now must come after it.
      if (attachment->leases) {
        terms = leases_.attach(attachment->session->number(), attachment->peer,
                               {exported, attachment->right->right, request.knows_exclusive_ms()});
      }
    }
  }
  if (superseded) leases_.cut(*superseded, "the mount is here by another connection");
  if (replaced || watch_of(*exported) != watch) return attach(incoming);
  if (!watch && request.leases()) terms.floor = leases_.refuse(attachment->session->number());
  if (grace_) grace_->attached(attachment->session->name(), *exported, attachment->leases);
  spdlog::info("{} '{}' mounts '{}' {}{}", attachment->peer.address, attachment->client_name,
               exported->name(), attachment->read_only ? "read-only" : "read-write",
               resumed ? " (again)" : "");
  schema::Reply reply = welcome(*attachment, std::move(root), resumed);
  for (const std::uint32_t index : locks_kept(*attachment, request))
    reply.mutable_attach()->add_locks_kept(index);
  // Also without leases: what was told under those of before is over.
  reply.mutable_attach()->set_lease_floor(terms.floor);
  if (grace_) reply.mutable_attach()->set_grace_ms(milliseconds(grace_->remaining(*exported, io::now())));
  if (attachment->leases) {
    reply.mutable_attach()->set_lease_ms(milliseconds(leases_.lease()));
    reply.mutable_attach()->set_watching(attachment->watch->kind());
    if (request.knows_exclusive_ms())
      reply.mutable_attach()->set_exclusive_ms(milliseconds(leases_.limits().exclusive));
    reply.mutable_attach()->set_exclusive_over(terms.exclusive_over);
  }
  return reply;
}

void FileService::await_leasers() {
  if (options_.leasers_dir.empty()) return;
  grace_ = std::make_unique<LeaseGrace>(options_.leasers_dir, leases_);
  grace_->begin(exports_, [this] { return ++last_session_; });
}

Duration FileService::grace_remaining(TimePoint now) const {
  if (!grace_) return {};
  const std::lock_guard lock(mutex_);
  Duration longest{};
  for (const auto& [name, exported] : exports_)
    longest = std::max(longest, grace_->remaining(*exported, now));
  return longest;
}

void FileService::end_leases(Duration at_most) {
  const std::vector<SessionNumber> trusting = leases_.take_everything_back(at_most);
  if (!grace_) return;
  std::vector<std::string> over;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, entry] : sessions_)
      if (std::ranges::find(trusting, entry.session->number()) == trusting.end())
        over.push_back(entry.session->name());
  }
  for (const std::string& session : over) grace_->over(session);
}

void FileService::await_lockers() {
  if (options_.lockers_dir.empty()) return;
  lockers_ = std::make_unique<LockingSessions>(options_.lockers_dir);
  for (const auto& [name, exported] : exports_) awaited_.merge(lockers_->of_export(name));
  if (awaited_.empty()) return;
  spdlog::info("no new locks until {} clients that had some are back, for {} s at most", awaited_.size(),
               to_seconds(options_.lock_grace));
  grace_ends_ = io::now() + options_.lock_grace;
  locks_.begin_grace();
}

std::vector<std::uint32_t> FileService::locks_kept(const Attachment& attachment,
                                                   const schema::AttachRequest& request) {
  const std::string& session = attachment.session->name();
  bool awaited = false;
  {
    const std::lock_guard lock(mutex_);
    awaited = awaited_.contains(session);
  }
  const ActingAs acting(attachment.exported->acts_as());
  std::vector<std::uint32_t> kept;
  for (int index = 0; index < std::min(request.locks_size(), kLocksReclaimedMax); ++index)
    if (keep_lock(attachment, locks_, request.locks(index), awaited).value_or(false))
      kept.push_back(static_cast<std::uint32_t>(index));
  if (awaited) stop_awaiting(session);
  return kept;
}

void FileService::stop_awaiting(const std::string& session) {
  {
    const std::lock_guard lock(mutex_);
    if (awaited_.erase(session) == 0 || !awaited_.empty()) return;
  }
  locks_.end_grace();
}

Result<bool> FileService::join_session(Attachment& attachment, const schema::AttachRequest& request) {
  Ended outdated;  // of an export that has been replaced
  bool resumed = true;
  {
    const std::lock_guard lock(mutex_);
    const SessionKey key{request.export_name(), attachment.peer.key, request.session()};
    auto entry = sessions_.find(key);
    if (entry != sessions_.end() && &entry->second.session->exported() != attachment.exported.get()) {
      outdated = ended_now(std::move(entry->second.session));
      sessions_.erase(entry);
      entry = sessions_.end();
    }
    if (entry == sessions_.end()) {
      const std::string name =
          attachment.peer.key.to_text() + "-" + crypto::base64url_encode(as_byte_span(request.session()));
      TUSK_ASSIGN(auto session,
                  new_session(attachment, name, outdated.session ? outdated.session->gate() : nullptr));
      entry = sessions_.emplace(key, SessionEntry{.session = std::move(session)}).first;
      resumed = false;
    }
    ++entry->second.connections;
    entry->second.session->set_away(false);
    locks_.mark_away(entry->second.session->number(), false);
    attachment.session = entry->second.session;
  }
  if (outdated.session) end(outdated);
  if (!resumed) something_to_keep();
  return resumed;
}

Result<std::shared_ptr<Session>> FileService::new_session(const Attachment& attachment,
                                                          const std::string& name,
                                                          std::shared_ptr<ChangeGate> gate) {
  auto place = attachment.right->sessions->take();
  if (!place) return fail(ErrorCode::kLimitExceeded, "this right has as many mounts as it may have");
  SessionShare share{.right = attachment.right,
                     .flow = workers_.flow(attachment.right->right, name),
                     .place = std::move(*place)};
  auto session =
      std::make_shared<Session>(++last_session_, name, attachment.exported, std::move(share), lockers_.get(),
                                gate ? std::move(gate) : std::make_shared<ChangeGate>());
  session->commit_by(attachment.exported->commits());
  return session;
}

void FileService::begin_commits(Export& exported) {
  std::erase_if(commits_, [](const auto& item) { return item.second.expired(); });
  const std::string& root = exported.nodes().root_handle();
  auto commits = commits_[root].lock();
  if (!commits) {
    std::filesystem::path note;
    if (!options_.commits_dir.empty()) {
      const auto digest = crypto::sha256(as_byte_span(root));
      note = options_.commits_dir / crypto::base64url_encode(std::span(digest).first(16));
    }
    commits = std::make_shared<Commits>(exported.nodes().root(), note, options_.disk);
    commits_[root] = commits;
  }
  exported.commit_by(std::move(commits));
}

bool FileService::commit_everything(Duration at_most) {
  std::vector<std::shared_ptr<Commits>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, exported] : exports_) all.push_back(exported->commits());
  }
  std::packaged_task<void()> end([all = std::move(all)] {
    for (const auto& commits : all) commits->end();
  });
  const auto ended = end.get_future();
  std::thread(std::move(end)).detach();  // a disk that hangs keeps it
  return ended.wait_for(at_most) == std::future_status::ready;
}

schema::Reply FileService::welcome(const Attachment& attachment, schema::Node root, bool resumed) const {
  schema::Reply reply;
  schema::AttachReply& facts = *reply.mutable_attach();
  *facts.mutable_root() = std::move(root);
  facts.set_read_only(attachment.read_only);
  facts.set_identity_real(attachment.identity_real);
  facts.set_boot_id(boot_id_);
  facts.set_write_verifier(attachment.session->answered_under().verifier);
  facts.set_instance_id(instance_id_);
  facts.set_resumed(resumed);
  facts.set_attr_lifetime_ms(options_.attr_lifetime_ms);
  facts.set_max_read(kReadBytesMax);
  facts.set_max_write(kWriteBytesMax);
  facts.set_server_name(options_.server_name);
  facts.set_owner_uid(attachment.exported->owner_uid());
  facts.set_owner_gid(attachment.exported->owner_gid());
  facts.set_unix_time_ns(io::unix_nanoseconds());
  facts.set_connections_max(kSessionConnectionsMax);
  facts.set_special_bits_stripped(!attachment.exported->settings().setuid);
  return reply;
}

void FileService::detach(const rpc::Peer& peer) {
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    const auto attachment = attachment_of(peer.connection);
    // What ends late does not end what goes on by another connection.
    if (!attachment || is_astray(*attachment)) return;
    const std::shared_ptr<Session> session = attachment->session;
    ended = ended_now(session);
    spdlog::info("{} '{}' has left '{}'", peer.address, attachment->client_name,
                 attachment->exported->name());
    std::erase_if(attachments_, [&](const auto& item) { return item.second->session == session; });
    std::erase_if(sessions_, [&](const auto& item) { return item.second.session == session; });
  }
  end(ended);
}

// Only a client's own: the key is part of what a session is found by. Should its mount be alive after all, it
// is cut off in the end, and comes back as one that has been away for long.
void FileService::presume_dead(const Attachment& attachment, const schema::AttachRequest& request) {
  std::vector<SessionNumber> dead;
  {
    const std::lock_guard lock(mutex_);
    for (int index = 0; index < std::min(request.ended_sessions_size(), kSessionsEndedMax); ++index) {
      const std::string& id = request.ended_sessions(index);
      if (id == request.session()) continue;
      const auto entry = sessions_.find({request.export_name(), attachment.peer.key, id});
      if (entry == sessions_.end()) continue;
      dead.push_back(entry->second.session->number());
      // With the mutex held, so that it is not marked that is back.
      (void)locks_.mark_away(dead.back(), true);
    }
  }
  if (dead.empty()) return;
  spdlog::info("{} '{}' mounts '{}' anew: {} of its mounts of before are dead", attachment.peer.address,
               attachment.client_name, request.export_name(), dead.size());
  for (const SessionNumber session : dead) leases_.presume_dead(session);
  locks_.serve_instead_of_absent();
}

FileService::Ended FileService::ended_now(std::shared_ptr<Session> session) const {
  const std::uint64_t attaches = grace_ ? grace_->attaches(session->name()) : 0;
  return {.session = std::move(session), .attaches = attaches};
}

void FileService::end(const Ended& ended) {
  Session& session = *ended.session;
  session.end();
  leases_.end(session.number());
  if (grace_) grace_->over(session.name(), ended.attaches);
  locks_.release_session(session.number());
  locks_.mark_away(session.number(), false);
  something_to_keep();
}

bool FileService::must_ask(const Attachment& attachment) const {
  return attachment.watch || leases_.others_than(attachment.session->number());
}

void FileService::handle_disconnect(const rpc::Peer& peer, bool for_good) {
  // First: an attach that is under way now either is seen below or fails. Else the goodbye of a lane that is
  // just coming in might be taken for its session's.
  {
    const std::lock_guard lock(mutex_);
    connections_.erase(peer.connection);
  }
  if (leave_lane(peer.connection)) return;
  // A mount that was unmounted is not waited for: nobody else's change has to ask it any more. Not here: open
  // files are closed.
  if (for_good)
    return workers_.submit_beyond_bound(own_work_, Lane::kMetadata, [this, peer] {
      detach(peer);
      handle_disconnect(peer, false);
    });
  const std::lock_guard lock(mutex_);
  const auto attachment = attachment_of(peer.connection);
  if (!attachment) return;
  attachments_.erase(peer.connection);
  leave_session(*attachment);
  leases_.disconnect(attachment->session->number(), peer);
  spdlog::info("{} '{}' has left '{}'", peer.address, attachment->client_name, attachment->exported->name());
}

// Whatever it says, the session stays.
bool FileService::leave_lane(rpc::ConnectionId connection) {
  const std::lock_guard lock(mutex_);
  const auto attachment = attachment_of(connection);
  if (!attachment || !attachment->lane) return false;
  attachments_.erase(connection);
  leave_session(*attachment);
  return true;
}

FileService::SessionEntry* FileService::entry_of(const Attachment& attachment) {
  const auto entry = std::ranges::find_if(
      sessions_, [&](const auto& item) { return item.second.session == attachment.session; });
  return entry == sessions_.end() ? nullptr : &entry->second;
}

// Returns the connection whose place it takes, unless that is gone.
std::optional<rpc::ConnectionId> FileService::note_main(const std::shared_ptr<Attachment>& attachment) {
  const rpc::ConnectionId connection = attachment->peer.connection;
  SessionEntry* const entry = entry_of(*attachment);
  if (entry == nullptr) return std::nullopt;
  const auto before = entry->main.lock();
  entry->main = attachment;
  if (!before || before->peer.connection == connection) return std::nullopt;
  return attachment_of(before->peer.connection) == before ? std::optional(before->peer.connection)
                                                          : std::nullopt;
}

void FileService::leave_session(const Attachment& attachment) {
  SessionEntry* const entry = entry_of(attachment);
  if (entry == nullptr) return;
  if (attachment.lane) {
    --entry->lanes;
    return;
  }
  if (--entry->connections > 0) return;
  entry->idle_since = attachment.peer.last_heard(io::now());
  entry->session->set_away(true);
}

std::shared_ptr<Attachment> FileService::attachment_of(rpc::ConnectionId connection) const {
  const auto found = attachments_.find(connection);
  return found == attachments_.end() ? nullptr : found->second;
}

std::shared_ptr<Export> FileService::find_export(const std::string& name) const {
  const auto found = exports_.find(name);
  return found == exports_.end() ? nullptr : found->second;
}

std::vector<ConnectedClient> FileService::clients() const {
  const std::lock_guard lock(mutex_);
  std::vector<ConnectedClient> clients;
  for (const auto& [connection, attachment] : attachments_) {
    if (attachment->lane) continue;
    clients.push_back({.peer = attachment->peer,
                       .client_name = attachment->client_name,
                       .export_name = attachment->exported->name(),
                       .access = attachment->read_only ? Access::kReadOnly : Access::kReadWrite,
                       .since_unix_s = attachment->since_unix_s,
                       .open_files = attachment->session->open_files(),
                       .leases = leases_.interests(attachment->session->number())});
  }
  return clients;
}

std::size_t FileService::sessions() const {
  const std::lock_guard lock(mutex_);
  return sessions_.size();
}

}  // namespace tusk::server

#include "proto/rpc/server_shard.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <system_error>

#include "proto/base/text.h"
#include "proto/crypto/primitives.h"
#include "proto/io/clock.h"
#include "proto/rpc/path_stats.h"
#include "proto/rpc/steering.h"

namespace tusk::rpc {
namespace {

// A wait for the socket may not have been had, for want of descriptors.
constexpr Duration kBlockedTick = 10ms;
// An address that may get nothing more until something comes from it: what is left is to see that the
// handshake takes too long. Whoever makes up addresses costs that many wake-ups each.
constexpr Duration kStarvedTick = 250ms;
// For the goodbyes to go out.
constexpr Duration kGoodbyePatience = 500ms;
// An ATTACH needs a hundredth of it.
constexpr ByteCount kStrangerMemoryMax = 64 << 10;
constexpr std::string_view kGoodbye = "the server shuts down";
// Datagrams that came to the wrong shard and wait for the right one: what it handles in some milliseconds.
constexpr std::size_t kTakenOverMax = 1024;
// Of the handshakes that a thread may begin at once; each takes about one.
constexpr Duration kHandshakesSaved = 10ms;
// Of a client whose handshake is not over: its flights, their repeats, and what it sends behind them.
constexpr std::uint32_t kYoungPacketsMax = 4096;
// What clients that were let in before may do more than others.
constexpr double kAdmittedFactor = 10;
constexpr double kBurstSeconds = 2;

std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  crypto::random_bytes(std::as_writable_bytes(std::span(&seed, 1)));
  return seed;
}

// Original ids spread what one source sends over all shards.
SourceRates rates_of(const ServerEndpointOptions& options, unsigned shards, double factor) {
  const double rate = factor * options.handshakes_per_source / shards;
  return {rate, kBurstSeconds * rate, random_seed()};
}

}  // namespace

ServerShard::ServerShard(ServerCommons& commons, unsigned index, unsigned shards,
                         std::unique_ptr<io::Reactor> reactor, std::vector<io::UdpSocket> sockets)
    : commons_(commons),
      index_(index),
      shards_(shards),
      sockets_(std::move(sockets)),
      reactor_(std::move(reactor)),
      route_(std::make_shared<ReplyRoute>(*reactor_)),
      timer_(std::make_unique<io::Timer>(*reactor_)),
      next_id_(shards + index),
      flights_(random_seed()),
      handshake_rates_(rates_of(commons.options, shards, 1)),
      admitted_rates_(rates_of(commons.options, shards, kAdmittedFactor)),
      handshake_time_(kHandshakesSaved) {
  for (io::UdpSocket& socket : sockets_)
    outlets_.push_back(std::make_unique<Outlet>(
        socket,
        [this, &socket](std::function<void()> fn) {
          return reactor_->wait_writable_once(socket.fd(), std::move(fn));
        },
        [this](const io::Address& to, std::size_t size) { note_too_big(to, size); },
        [this](ConnectionId connection) { resume(connection); }));
}

void ServerShard::refuse_the_rest() {
  timer_.reset();
  reactor_->on_idle([] {});
  for (const io::UdpSocket& socket : sockets_) reactor_->forget(socket.fd());
  reactor_->stop();
  reactor_->run();
  for (auto& [id, link] : links_) link->outgoing.fail_all({ErrorCode::kPeerClosed, "the server shuts down"});
}

Result<void> ServerShard::start() {
  for (std::size_t i = 0; i < sockets_.size(); ++i)
    TUSK_TRY(reactor_->watch_readable(sockets_[i].fd(), [this, i] { receive(i); }));
  reactor_->on_idle([this] { settle(); });
  ++commons_.unfinished;
  try {
    thread_ = std::thread([this] { reactor_->run(); });
  } catch (const std::system_error& error) {
    --commons_.unfinished;
    return fail(ErrorCode::kLimitExceeded, std::string("no thread for a shard: ") + error.what());
  }
  return {};
}

void ServerShard::leave() {
  route_->cut();
  reactor_->post([this] { enter(Phase::kAnswering, io::now() + commons_.options.answers_patience); });
}

void ServerShard::join() {
  if (thread_.joinable()) thread_.join();
}

// ---------------------------------------------------------------- datagrams in

void ServerShard::receive(std::size_t socket) {
  sockets_[socket].receive(batch_, [&](const io::Datagram& datagram) { handle_datagram(socket, datagram); });
}

void ServerShard::handle_datagram(std::size_t socket, const io::Datagram& datagram) {
  const auto is_long = wire::is_long_packet(datagram.bytes);
  wire::ConnectionIdBytes to;
  if (!is_long) return drop_garbage(datagram.from);
  if (*is_long) {
    const auto parsed = wire::parse_long_header(datagram.bytes);
    if (!parsed) return drop_garbage(datagram.from);
    to = parsed->header.to;
  } else {
    const auto parsed = wire::parse_short_header(datagram.bytes);
    if (!parsed) return drop_garbage(datagram.from);
    to = parsed->header.to;
  }
  const unsigned shard = shard_of(to, shards_);
  if (shard != index_) {
    if (!commons_.shards[shard]->take_over(socket, datagram)) drops_.note(datagram.from);
    return;
  }
  const auto found = by_id_.find(to);
  if (found == by_id_.end()) return handle_stranger(socket, datagram);
  ServerLink& link = *found->second;
  const std::uint64_t spoilt = link.secure->drops().spoilt();
  const bool young = !link.secure->established();
  if (young && ++link.young_packets > kYoungPacketsMax) return drop_garbage(datagram.from);
  const TimePoint now = io::now();
  const bool authentic = link.secure->handle_datagram(now, datagram.bytes, datagram.ecn);
  if (young) handshake_time_.pay(io::now() - now);
  if (authentic && link.incoming.attached()) data_at_ = now;
  if (authentic) follow_address(link, datagram);
  if (link.secure->drops().spoilt() > spoilt) drops_.note(datagram.from);
  mark(link);
}

void ServerShard::follow_address(ServerLink& link, const io::Datagram& datagram) {
  if (datagram.from == link.route.where().to) return link.route.handle_received(datagram.bytes.size());
  if (!link.secure->established() || !link.secure->last_was_newest()) return;
  if (link.route.move({datagram.from, datagram.local}, datagram.bytes.size())) {
    link.secure->connection().challenge_path(io::now());
  } else {
    link.secure->connection().forget_challenge();
  }
}

void ServerShard::mark(ServerLink& link) {
  if (link.dirty) return;
  link.dirty = true;
  dirty_.push_back(link.id);
}

void ServerShard::settle() {
  const TimePoint now = io::now();
  while (!timeouts_.empty() && timeouts_.begin()->first <= now) {
    ServerLink& link = *links_.at(timeouts_.begin()->second);
    timeouts_.erase(timeouts_.begin());
    link.timeout = kNever;
    link.secure->handle_timeout(now);
    mark(link);
  }
  if (phase_ == Phase::kAnswering && now >= phase_until_) enter(Phase::kParting, now + kGoodbyePatience);
  begin_next_handshake();
  process_marked();
  shed_memory();
  for (const auto& outlet : outlets_) outlet->flush();
  tell_too_big();
  drops_.report(now);
  filter_sockets(now);
  give_memory_back(now);
  if (phase_ != Phase::kServing && links_.empty()) finish();
  if (phase_ == Phase::kParting && now >= phase_until_) finish();
  arm_timer();
}

void ServerShard::process_marked() {
  // Processing one link can mark another (a service that answers at once), so take turns.
  while (!dirty_.empty()) {
    const std::vector<ConnectionId> turn = std::exchange(dirty_, {});
    for (const ConnectionId id : turn) {
      const auto found = links_.find(id);
      if (found == links_.end()) continue;
      found->second->dirty = false;
      // Asked for each: those before it have sealed bursts, and what it sends counts as sent from now on.
      process(*found->second, io::now());
    }
  }
}

void ServerShard::process(ServerLink& link, TimePoint now) {
  // Before it is acknowledged: a client trusts leases for a time after what it knows to have arrived.
  if (link.secure->established())
    link.heard->store(link.secure->connection().last_received(), std::memory_order_release);
  handle_events(link, now);
  note_memory(link);
  judge(link, now);
  send(link, now);
  handle_events(link, now);
  if (link.secure->established() && !link.secure->closed() && phase_ == Phase::kServing)
    while (const auto due = link.bulk.next(link.secure->connection())) accept_call(link, *due);
  if (link.trace) link.trace->note(now, link.secure->connection());
  if (link.secure->closed()) return remove(link);
  retime(link);
}

void ServerShard::send(ServerLink& link, TimePoint now) {
  Outlet& outlet = *outlets_[link.socket];
  if (!outlet.blocked()) {
    ByteCount* budget = link.route.unproven() ? &link.route.budget() : nullptr;
    if (budget && link.secure->established()) link.secure->connection().hold_back();
    outlet.send([&](DatagramQueue& queue, io::UdpSocket& socket, const Outlet::TooBig& too_big) {
      return transmit(*link.secure, now, link.route.where(), queue, socket, too_big, budget);
    });
  }
  if (outlet.blocked() && !std::exchange(link.held_up, true)) outlet.hold_up(link.id);
}

// Who has to go, and is told why.
void ServerShard::judge(ServerLink& link, TimePoint now) {
  if (!link.secure->established()) {
    if (phase_ != Phase::kServing) link.secure->close(now, ErrorCode::kPeerClosed, kGoodbye);
    return;
  }
  if (!link.incoming.attached() && link.memory->held() > kStrangerMemoryMax)
    link.secure->close(now, ErrorCode::kLimitExceeded, "too much before an export was attached");
  if (now >= link.attach_by) {
    link.attach_by = kNever;
    link.secure->close(now, ErrorCode::kTimedOut, "no export was attached in time");
  }
  // Who does not get an answer asks again, and finds a server that has forgotten that it was done.
  const bool answers_due = phase_ == Phase::kAnswering && link.secure->connection().answered_exchanges() > 0;
  if (phase_ != Phase::kServing && !answers_due) link.secure->close(now, ErrorCode::kPeerClosed, kGoodbye);
}

void ServerShard::note_memory(ServerLink& link) {
  const ByteCount held = link.secure->established() ? link.secure->connection().held_bytes() : 0;
  const ByteCount noted = std::exchange(link.memory_noted, held);
  // Only the difference: other shards look at the sum.
  if (held > noted) link.memory->add(held - noted);
  if (held < noted) link.memory->remove(noted - held);
}

void ServerShard::shed_memory() {
  for (const RequestMemory::Victim& victim : commons_.memory.take_victims())
    commons_.shard_with(victim.connection).shed(victim);
}

void ServerShard::shed(const RequestMemory::Victim& victim) {
  reactor_->post([this, victim] {
    const auto found = links_.find(victim.connection);
    if (found == links_.end()) return;
    ServerLink& link = *found->second;
    spdlog::warn("{} is disconnected: of {} MiB for requests it holds {}", link.route.where().to.to_string(),
                 commons_.memory.limit() >> 20, victim.held >> 20);
    link.secure->close(io::now(), ErrorCode::kLimitExceeded, "its requests hold too much memory");
    mark(link);
  });
}

void ServerShard::handle_events(ServerLink& link, TimePoint now) {
  while (auto event = link.secure->poll_event()) {
    if (std::holds_alternative<SecureConnection::Established>(*event)) {
      welcome(link, now);
    } else {
      handle_event(link, std::get<transport::Event>(*event));
    }
  }
}

void ServerShard::note_proven(ServerLink& link) {
  if (link.route.prove_first()) commons_.addresses.note_proven();
}

void ServerShard::welcome(ServerLink& link, TimePoint now) {
  note_proven(link);  // it has answered what only it was told; it may have moved since
  link.peer = {link.id, link.secure->peer_fingerprint(), link.route.trusted().to.to_string(), link.heard};
  link.heard->store(now);
  link.announced = true;
  link.trace = PathTrace::open_if_wanted("server", now);
  link.attach_by = now + commons_.options.attach_patience;
  by_id_.erase(link.secure->original_id());
  link.secure->connection().send_address_token(
      commons_.addresses.future_token(link.route.trusted().to, false));
  link.secure->connection().send_reset_token(
      commons_.addresses.reset_token(link.secure->own_id(), sockets_[link.socket].local_address()));
}

// Strangers leave no line in the log: there may be any number of them.
void ServerShard::let_in(ServerLink& link, const Answer::Entry& entry) {
  link.attach_by = kNever;
  commons_.unattached.leave(link.unattached);
  introduce(link, link.route.trusted().to);
  link.secure->connection().send_address_token(
      commons_.addresses.future_token(link.route.trusted().to, true));
  if (!entry.session.empty())
    commons_.memory.count_together(link.id, link.peer.key.to_text() + entry.session, entry.right);
  if (entry.lane) {
    link.secure->connection().keep_credit();
    return;
  }
  spdlog::info("{} connected, key {}", link.peer.address, link.peer.key.to_text());
}

// To others that are there.
void ServerShard::introduce(ServerLink& link, const io::Address& host) {
  transport::Connection& connection = link.secure->connection();
  connection.meet(commons_.receivers.of(host));
  connection.tell_peer_of(commons_.senders.of(host));
}

void ServerShard::handle_event(ServerLink& link, transport::Event& event) {
  if (auto* request = std::get_if<transport::RequestArrived>(&event)) {
    if (BulkTurns::concerns(*request)) return link.bulk.enter(std::move(*request));
    accept_call(link, *request);
  } else if (const auto* reply = std::get_if<transport::ReplyArrived>(&event)) {
    link.outgoing.handle_reply(*reply);
  } else if (const auto* cancelled = std::get_if<transport::RequestCancelled>(&event)) {
    link.bulk.handle_cancelled(cancelled->exchange);
    link.incoming.handle_cancelled(cancelled->exchange);
  } else if (const auto* closed = std::get_if<transport::Closed>(&event)) {
    link.left = closed->code == ErrorCode::kPeerClosed;
    spdlog::log(link.incoming.attached() ? spdlog::level::info : spdlog::level::debug, "{} is gone: {} ({})",
                link.route.where().to.to_string(), error_name(closed->code), printable(closed->reason));
  } else if (std::holds_alternative<transport::PathValidated>(event)) {
    const auto before = link.route.handle_validated(link.secure->connection().path_challenge_pending());
    if (!before || !link.incoming.attached()) return;
    const io::Address& now_at = link.route.where().to;
    spdlog::info("{} goes on from {}", before->to.to_string(), now_at.to_string());
    introduce(link, now_at);
  } else if (std::holds_alternative<transport::PathFailed>(event)) {
    link.route.handle_failed();
  }
}

void ServerShard::accept_call(ServerLink& link, const transport::RequestArrived& request) {
  // The client asks again after its next connect, and gets its answer from the server that is there then.
  if (phase_ != Phase::kServing) return;
  const auto send = [this, id = link.id](Answer answer) {
    const auto found = links_.find(id);
    if (found == links_.end() || !found->second->secure->established()) return;
    ServerLink& asking = *found->second;
    const bool stranger = !asking.incoming.attached();
    asking.incoming.handle_answered(answer);
    asking.bulk.handle_answered(answer.exchange);
    if (stranger && answer.entry) let_in(asking, *answer.entry);
    asking.secure->connection().reply(answer.exchange, std::move(answer.header), std::move(answer.body));
    mark(asking);
  };
  auto call = link.incoming.accept(link.peer, request, route_, send);
  if (!call) {
    link.secure->close(io::now(), call.error().code, call.error().context);
    return mark(link);
  }
  commons_.service.handle_call(std::move(*call));
}

// The queue is everybody's: the datagram that the kernel refused may be another link's. Of several sizes the
// smallest says it all.
void ServerShard::note_too_big(const io::Address& to, std::size_t size) {
  const auto noted = too_big_.try_emplace(to, size).first;
  noted->second = std::min(noted->second, size);
}

// At once for all that were refused: many that connect together try the same sizes together.
void ServerShard::tell_too_big() {
  if (too_big_.empty()) return;
  for (auto& [id, link] : links_) {
    const auto refused = too_big_.find(link->route.where().to);
    if (refused == too_big_.end() || !link->secure->established()) continue;
    link->secure->connection().handle_too_big(static_cast<std::uint32_t>(refused->second));
    mark(*link);
  }
  too_big_.clear();
}

void ServerShard::resume(ConnectionId connection) {
  const auto found = links_.find(connection);
  if (found == links_.end()) return;
  ServerLink& link = *found->second;
  link.held_up = false;
  if (link.secure->established()) link.secure->connection().hold_back();
  mark(link);
}

// Not before it may send again is there anything to do for who wants to: the socket's writability, or the
// next packet from an unproven address, comes first.
TimePoint ServerShard::no_sooner(const ServerLink& link) const {
  if (link.held_up) return io::now() + kBlockedTick;
  if (!link.route.unproven() || link.route.budget() >= wire::kDatagramSizeMin) return {};
  // What is too little for a handshake does for small packets, such as a challenge.
  const bool enough = link.secure->established() && link.route.budget() >= SecureConnection::kDatagramRoomMin;
  return io::now() + (enough ? kBlockedTick : kStarvedTick);
}

void ServerShard::retime(ServerLink& link) {
  const TimePoint wanted = std::min(link.secure->next_timeout(), link.attach_by);
  const TimePoint next = std::max(wanted, no_sooner(link));
  if (next == link.timeout) return;
  if (link.timeout != kNever) timeouts_.erase({link.timeout, link.id});
  link.timeout = next;
  if (next != kNever) timeouts_.insert({next, link.id});
}

void ServerShard::arm_timer() {
  TimePoint next = timeouts_.empty() ? kNever : timeouts_.begin()->first;
  next = std::min({next, phase_until_, guard_.next_look(), give_back_at_});
  if (!flights_.empty()) next = std::min(next, handshake_time_.affordable_at());
  if (!dirty_.empty()) next = TimePoint{};
  if (next == kNever) return timer_->cancel();
  // The work is done in settle(), which follows every batch.
  timer_->arm(next, [] {});
}

void ServerShard::remove(ServerLink& link) {
  if (link.announced) commons_.service.handle_disconnect(link.peer, link.left);
  link.incoming.cancel_all();
  link.outgoing.fail_all({ErrorCode::kConnectionLost, "the client is gone"});
  link.memory->remove(link.memory_noted);
  commons_.memory.end(link.id);
  commons_.unattached.leave(link.unattached);
  --commons_.connections;
  if (link.timeout != kNever) timeouts_.erase({link.timeout, link.id});
  by_id_.erase(link.secure->own_id());
  by_id_.erase(link.secure->original_id());
  links_.erase(link.id);
  ++removed_;
}

void ServerShard::enter(Phase phase, TimePoint until) {
  flights_.clear();
  phase_ = phase;
  phase_until_ = until;
  for (auto& [id, link] : links_) mark(*link);
}

// Until then this one's socket may get what is for others.
void ServerShard::finish() {
  phase_until_ = kNever;
  if (std::exchange(finished_, true) || --commons_.unfinished > 0) return;
  for (ServerShard* shard : commons_.shards) shard->reactor_->stop();
}

// ---------------------------------------------------------------- from other threads

bool ServerShard::take_over(std::size_t socket, const io::Datagram& datagram) {
  if (taken_over_ >= kTakenOverMax || datagram.bytes.size() > wire::kDatagramSizeMax) return false;
  ++taken_over_;
  reactor_->post([this, socket, from = datagram.from, local = datagram.local, ecn = datagram.ecn,
                  bytes = std::vector<std::byte>(datagram.bytes.begin(), datagram.bytes.end())]() mutable {
    --taken_over_;
    handle_datagram(socket, {from, local, bytes, ecn});
  });
  return true;
}

void ServerShard::call(ConnectionId connection, OutgoingCalls::Call call) {
  reactor_->post([this, connection, call = std::move(call)]() mutable {
    const auto found = links_.find(connection);
    if (found == links_.end() || !found->second->secure->established())
      return call.done(fail(ErrorCode::kConnectionLost, "the client is gone"));
    const CallId id(next_call_++);
    found->second->outgoing.add(id, std::move(call));
    found->second->outgoing.start(id, found->second->secure->connection());
    mark(*found->second);
  });
}

void ServerShard::disconnect(ConnectionId connection, std::string reason) {
  reactor_->post([this, connection, reason = std::move(reason)] {
    const auto found = links_.find(connection);
    if (found == links_.end()) return;
    found->second->secure->close(io::now(), ErrorCode::kPeerClosed, reason);
    mark(*found->second);
  });
}

void ServerShard::visit(std::function<void(const ServerEndpoint::ConnectionInfo&)> visit,
                        std::function<void()> done) {
  reactor_->post([this, visit = std::move(visit), done = std::move(done)] {
    for (const auto& [id, link] : links_)
      if (link->announced && link->secure->established())
        visit({link->peer, path_stats(*link->secure, link->route.where().to.to_string())});
    done();
  });
}

}  // namespace tusk::rpc

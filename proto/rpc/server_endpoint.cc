#include "proto/rpc/server_endpoint.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <set>
#include <thread>
#include <unordered_map>

#include "proto/crypto/address_token.h"
#include "proto/io/clock.h"
#include "proto/io/reactor.h"
#include "proto/io/udp_socket.h"
#include "proto/rpc/drop_log.h"
#include "proto/rpc/incoming_calls.h"
#include "proto/rpc/memory_account.h"
#include "proto/rpc/message_codec.h"
#include "proto/rpc/outgoing_calls.h"
#include "proto/rpc/path_trace.h"
#include "proto/rpc/printable.h"
#include "proto/rpc/transmit.h"

namespace tusk::rpc {
namespace {

// An address that has not proven itself gets at most so much more than came from it (RFC 9000 §8.1).
constexpr ByteCount kAmplificationMax = 3;
constexpr Duration kTrustPeriod = 10s;  // as long as a handshake may take
constexpr Duration kBlockedTick = 10ms;
// For the goodbyes to go out.
constexpr Duration kGoodbyePatience = 500ms;
// Ten times what 1 Gbit/s holds at 200 ms; but no client alone fills the server's memory.
constexpr ByteCount kRequestBytesLater = 256ull << 20;
constexpr ByteCount kShareOfOneClient = 4;
// An ATTACH needs a hundredth of it.
constexpr ByteCount kStrangerMemoryMax = 64 << 10;
constexpr std::string_view kGoodbye = "the server shuts down";

// One peer's connection and everything that hangs on it.
struct Link {
  ConnectionId id;
  std::unique_ptr<SecureConnection> secure;
  std::size_t socket = 0;
  Route route;
  Peer peer;
  IncomingCalls incoming;
  OutgoingCalls outgoing;
  std::shared_ptr<MemoryAccount> memory;  // that its requests hold
  ByteCount memory_noted = 0;             // of it: what the connection itself tells
  std::unique_ptr<PathTrace> trace;       // if one is wanted
  TimePoint attach_by = kNever;           // a stranger's time is limited
  TimePoint timeout = kNever;             // as entered in the table of timeouts
  bool dirty = false;
  bool announced = false;  // the service has seen it or may have
  bool left = false;       // its peer said goodbye
  bool shed = false;       // on its way out for want of memory

  // Nothing has shown yet that the peer receives at its address: what may be sent meanwhile. It is its first
  // one, or a new one: then it goes back to the one before if nothing does.
  bool first_unproven = false;
  std::optional<Route> proven_route;
  ByteCount unproven_budget = 0;
  [[nodiscard]] bool unproven() const { return first_unproven || proven_route.has_value(); }
};

class Endpoint final : public ServerEndpoint {
 public:
  Endpoint(ServerEndpointOptions options, Service& service, std::unique_ptr<io::Reactor> reactor,
           std::vector<io::UdpSocket> sockets)
      : options_(std::move(options)),
        service_(service),
        reactor_(std::move(reactor)),
        sockets_(std::move(sockets)),
        queues_(sockets_.size()),
        blocked_(sockets_.size(), false),
        tokens_(options_.identity->derive_secret("tusk address token")),
        reset_secret_(options_.identity->derive_secret("tusk reset token")),
        route_(std::make_shared<ReplyRoute>(*reactor_)),
        memory_(std::make_shared<MemoryAccount>()),
        timer_(std::make_unique<io::Timer>(*reactor_)) {}

  ~Endpoint() override {
    route_->cut();
    reactor_->post([this] { leave(); });
    thread_.join();
    timer_.reset();
    for (auto& [id, link] : links_)
      link->outgoing.fail_all({ErrorCode::kPeerClosed, "the server shuts down"});
  }

  Result<void> run() {
    for (std::size_t i = 0; i < sockets_.size(); ++i)
      TUSK_TRY(reactor_->watch_readable(sockets_[i].fd(), [this, i] { receive(i); }));
    reactor_->on_idle([this] { settle(); });
    thread_ = std::thread([this] { reactor_->run(); });
    return {};
  }

  [[nodiscard]] std::vector<io::Address> local_addresses() const override {
    std::vector<io::Address> addresses;
    for (const io::UdpSocket& socket : sockets_) addresses.push_back(socket.local_address());
    return addresses;
  }

  void call(ConnectionId connection, CallRequest request, Completion done) override;
  void disconnect(ConnectionId connection, std::string reason) override;
  [[nodiscard]] std::vector<ConnectionInfo> connections() const override;

 private:
  void receive(std::size_t socket);
  void handle_datagram(std::size_t socket, const io::Datagram& datagram);
  void handle_stranger(std::size_t socket, const io::Datagram& datagram);
  void greet(std::size_t socket, const io::Datagram& datagram, const wire::LongHeader& header);
  void send_retry(std::size_t socket, const io::Datagram& datagram, const wire::LongHeader& header);
  void send_reset(std::size_t socket, const io::Datagram& datagram);
  void send_long(std::size_t socket, const io::Datagram& datagram, const wire::LongHeader& header);
  [[nodiscard]] bool address_proven(const io::Datagram& datagram, const wire::LongHeader& header) const;
  [[nodiscard]] bool trust(TimePoint now);
  void note_proven(Link& link);
  void follow_address(Link& link, const io::Datagram& datagram);
  [[nodiscard]] bool make_place();

  // Waits for answers to arrive, then for goodbyes to go out.
  enum class Phase : std::uint8_t { kServing, kAnswering, kParting };

  void settle();
  void process_marked(TimePoint now);
  void process(Link& link, TimePoint now);
  void judge(Link& link, TimePoint now);
  void note_memory(Link& link);
  [[nodiscard]] bool shed_memory(TimePoint now);
  void handle_events(Link& link, TimePoint now);
  void handle_event(Link& link, transport::Event& event);
  void accept_call(Link& link, const transport::RequestArrived& request);
  void welcome(Link& link, TimePoint now);
  void let_in(Link& link);
  void flush(std::size_t socket);
  void handle_too_big(const io::Address& to, std::size_t size);
  void retime(Link& link);
  void arm_timer();
  void mark(Link& link);
  void remove(Link& link);
  void leave();
  void enter(Phase phase, TimePoint until);
  [[nodiscard]] std::vector<std::byte> reset_token(const wire::ConnectionIdBytes& id) const;
  [[nodiscard]] transport::ConnectionConfig connection_config(std::shared_ptr<MemoryAccount> memory) const;

  const ServerEndpointOptions options_;
  Service& service_;
  std::unique_ptr<io::Reactor> reactor_;
  std::vector<io::UdpSocket> sockets_;
  std::vector<DatagramQueue> queues_;
  std::vector<bool> blocked_;
  const crypto::AddressTokens tokens_;
  const crypto::Secret reset_secret_;
  const std::shared_ptr<ReplyRoute> route_;
  const std::shared_ptr<MemoryAccount> memory_;
  std::unique_ptr<io::Timer> timer_;
  io::ReceiveBatch batch_;

  std::unordered_map<ConnectionId, std::unique_ptr<Link>> links_;
  std::unordered_map<wire::ConnectionIdBytes, Link*> by_id_;  // own ids, and original ids while young
  // When handshakes began on trust that have not shown their address since; those of kTrustPeriod count.
  std::deque<TimePoint> trusted_;
  std::set<std::pair<TimePoint, ConnectionId>> timeouts_;
  std::vector<ConnectionId> dirty_;
  std::uint64_t next_id_ = 1;
  std::uint64_t next_call_ = 1;
  Phase phase_ = Phase::kServing;
  TimePoint phase_until_ = kNever;
  TimePoint next_full_warning_{};
  DropLog drops_;
  std::thread thread_;
};

transport::ConnectionConfig Endpoint::connection_config(std::shared_ptr<MemoryAccount> memory) const {
  transport::ConnectionConfig config;
  config.allocate_request = [memory = std::move(memory)](std::size_t size) {
    return allocate_counted(memory, size);
  };
  config.credit.request_bytes_later =
      std::min(kRequestBytesLater, options_.request_memory_max / kShareOfOneClient);
  crypto::random_bytes(std::as_writable_bytes(std::span(&config.seed, 1)));
  return config;
}

// ---------------------------------------------------------------- datagrams in

void Endpoint::receive(std::size_t socket) {
  sockets_[socket].receive(batch_, [&](const io::Datagram& datagram) { handle_datagram(socket, datagram); });
}

void Endpoint::handle_datagram(std::size_t socket, const io::Datagram& datagram) {
  const auto is_long = wire::is_long_packet(datagram.bytes);
  wire::ConnectionIdBytes to;
  if (!is_long) return drops_.note(datagram.from);
  if (*is_long) {
    const auto parsed = wire::parse_long_header(datagram.bytes);
    if (!parsed) return drops_.note(datagram.from);
    to = parsed->header.to;
  } else {
    const auto parsed = wire::parse_short_header(datagram.bytes);
    if (!parsed) return drops_.note(datagram.from);
    to = parsed->header.to;
  }
  const auto found = by_id_.find(to);
  if (found == by_id_.end()) return handle_stranger(socket, datagram);
  Link& link = *found->second;
  const std::uint64_t spoilt = link.secure->drops().spoilt();
  if (link.secure->handle_datagram(io::now(), datagram.bytes, datagram.ecn)) follow_address(link, datagram);
  if (link.secure->drops().spoilt() > spoilt) drops_.note(datagram.from);
  mark(link);
}

void Endpoint::handle_stranger(std::size_t socket, const io::Datagram& datagram) {
  if (phase_ != Phase::kServing) return;
  const auto long_packet = wire::parse_long_header(datagram.bytes);
  if (!long_packet) return send_reset(socket, datagram);
  // First flights are full-size: a small packet must not make us work or answer.
  if (long_packet->header.type != wire::LongType::kHandshake ||
      datagram.bytes.size() < wire::kDatagramSizeMin)
    return drops_.note(datagram.from);
  if (long_packet->header.version != wire::kVersion) {
    wire::LongHeader answer;
    answer.type = wire::LongType::kVersionNegotiation;
    answer.to = long_packet->header.from;
    answer.from = long_packet->header.to;
    return send_long(socket, datagram, answer);
  }
  greet(socket, datagram, long_packet->header);
}

bool Endpoint::address_proven(const io::Datagram& datagram, const wire::LongHeader& header) const {
  const auto kind = crypto::token_kind(header.token);
  if (!kind) return false;
  const io::Address::Serialized bytes = datagram.from.bytes();
  // A token for the future is for the address on any port.
  const std::size_t bound = *kind == crypto::AddressTokenKind::kFuture ? bytes.size() - 2 : bytes.size();
  return tokens_
      .check(header.token, std::span(bytes).first(bound),
             crypto::UnixSeconds(static_cast<std::uint64_t>(io::unix_seconds())))
      .has_value();
}

// It spares a first mount a round trip to believe a few addresses that are not proven; whoever makes up many
// makes everybody prove theirs again.
void Endpoint::greet(std::size_t socket, const io::Datagram& datagram, const wire::LongHeader& header) {
  const bool proven = address_proven(datagram, header);
  if (!proven && !trust(io::now())) return send_retry(socket, datagram, header);
  if (links_.size() >= options_.connections_max && !make_place()) {
    if (io::now() < next_full_warning_) return;
    next_full_warning_ = io::now() + DropLog::kInterval;
    spdlog::warn("{} connections are open, the limit: {} has to wait", links_.size(),
                 datagram.from.to_string());
    return;
  }
  auto link = std::make_unique<Link>();
  link->id = ConnectionId(next_id_++);
  link->socket = socket;
  link->route = {datagram.from, datagram.local};
  link->first_unproven = !proven;
  link->unproven_budget = kAmplificationMax * datagram.bytes.size();
  link->memory = std::make_shared<MemoryAccount>(memory_);
  auto secure = SecureConnection::server(
      {*options_.identity, header.to, header.from, random_connection_id(), connection_config(link->memory)},
      io::now());
  if (!secure) return spdlog::error("no new connection: {}", secure.error().message());
  link->secure = std::move(*secure);
  if (!link->secure->handle_datagram(io::now(), datagram.bytes, datagram.ecn))
    return drops_.note(datagram.from);
  Link& kept = *link;
  by_id_.emplace(kept.secure->own_id(), &kept);
  by_id_.emplace(kept.secure->original_id(), &kept);
  links_.emplace(kept.id, std::move(link));
  mark(kept);
}

void Endpoint::send_retry(std::size_t socket, const io::Datagram& datagram, const wire::LongHeader& header) {
  const auto token = tokens_.mint(crypto::AddressTokenKind::kRetry, datagram.from.bytes(), header.to.bytes,
                                  crypto::UnixSeconds(static_cast<std::uint64_t>(io::unix_seconds())));
  wire::LongHeader retry;
  retry.type = wire::LongType::kRetry;
  retry.to = header.from;
  retry.from = header.to;
  retry.token = token;
  send_long(socket, datagram, retry);
}

// A handshake that fails at once has cost as much as any: it counts for its time.
bool Endpoint::trust(TimePoint now) {
  while (!trusted_.empty() && now - trusted_.front() >= kTrustPeriod) trusted_.pop_front();
  if (trusted_.size() >= options_.unproven_max || links_.size() >= options_.connections_max) return false;
  trusted_.push_back(now);
  return true;
}

void Endpoint::note_proven(Link& link) {
  if (std::exchange(link.first_unproven, false) && !trusted_.empty()) trusted_.pop_front();
}

// Whoever receives at an address can have a connection, so those that have shown no right do not keep others
// out. The oldest goes: who has one attaches within a few round trips. It hears of it by a reset.
bool Endpoint::make_place() {
  Link* oldest = nullptr;
  for (const auto& [id, link] : links_)
    if (!link->incoming.attached() && (!oldest || id < oldest->id)) oldest = link.get();
  if (!oldest) return false;
  spdlog::debug("{} gives way: it has not attached", oldest->route.to.to_string());
  remove(*oldest);
  return true;
}

std::vector<std::byte> Endpoint::reset_token(const wire::ConnectionIdBytes& id) const {
  const auto digest = crypto::hmac_sha256(reset_secret_.bytes, id.bytes);
  return {digest.begin(), digest.begin() + wire::kResetTokenSize};
}

void Endpoint::send_reset(std::size_t socket, const io::Datagram& datagram) {
  const auto parsed = wire::parse_short_header(datagram.bytes);
  const auto token = reset_token(parsed->header.to);
  // Also to the smallest packets: who waits for an answer sends nothing else. A reset, a long packet, is
  // never answered with one, so that no two servers can answer each other for ever.
  if (kAmplificationMax * datagram.bytes.size() < wire::long_header_size(token.size())) {
    drops_.note(datagram.from);
    return;
  }
  wire::LongHeader reset;
  reset.type = wire::LongType::kReset;
  reset.from = parsed->header.to;
  reset.token = token;
  send_long(socket, datagram, reset);
}

void Endpoint::send_long(std::size_t socket, const io::Datagram& datagram, const wire::LongHeader& header) {
  std::array<std::byte, 256> bytes;
  const std::size_t size = wire::write_long_header(header, bytes);
  const io::OutgoingBatch batch{datagram.from, datagram.local, std::span(bytes).first(size),
                                static_cast<std::uint16_t>(size), 0};
  (void)sockets_[socket].send(std::span(&batch, 1));  // lost when the socket is full, like on any wire
}

void Endpoint::follow_address(Link& link, const io::Datagram& datagram) {
  if (datagram.from == link.route.to) {
    link.unproven_budget += kAmplificationMax * datagram.bytes.size();
    return;
  }
  if (!link.secure->established() || !link.secure->last_was_newest()) return;
  if (!link.proven_route) link.proven_route = link.route;
  link.route = {datagram.from, datagram.local};
  link.unproven_budget = kAmplificationMax * datagram.bytes.size();
  link.secure->connection().challenge_path(io::now());
}

// ---------------------------------------------------------------- after each batch

void Endpoint::mark(Link& link) {
  if (link.dirty) return;
  link.dirty = true;
  dirty_.push_back(link.id);
}

void Endpoint::settle() {
  const TimePoint now = io::now();
  while (!timeouts_.empty() && timeouts_.begin()->first <= now) {
    Link& link = *links_.at(timeouts_.begin()->second);
    timeouts_.erase(timeouts_.begin());
    link.timeout = kNever;
    link.secure->handle_timeout(now);
    mark(link);
  }
  if (phase_ == Phase::kAnswering && now >= phase_until_) enter(Phase::kParting, now + kGoodbyePatience);
  process_marked(now);
  if (shed_memory(now)) process_marked(now);
  for (std::size_t i = 0; i < sockets_.size(); ++i) flush(i);
  drops_.report(now);
  if (phase_ != Phase::kServing && links_.empty()) return reactor_->stop();
  if (phase_ == Phase::kParting && now >= phase_until_) return reactor_->stop();
  arm_timer();
}

void Endpoint::process_marked(TimePoint now) {
  // Processing one link can mark another (a service that answers at once), so take turns.
  while (!dirty_.empty()) {
    const std::vector<ConnectionId> turn = std::exchange(dirty_, {});
    for (const ConnectionId id : turn) {
      const auto found = links_.find(id);
      if (found == links_.end()) continue;
      found->second->dirty = false;
      process(*found->second, now);
    }
  }
}

void Endpoint::process(Link& link, TimePoint now) {
  handle_events(link, now);
  note_memory(link);
  judge(link, now);
  if (!blocked_[link.socket]) {
    const auto too_big = [this](const io::Address& to, std::size_t size) { handle_too_big(to, size); };
    ByteCount* budget = link.unproven() ? &link.unproven_budget : nullptr;
    if (!transmit(*link.secure, now, link.route, queues_[link.socket], sockets_[link.socket], too_big,
                  budget))
      blocked_[link.socket] = true;
  }
  handle_events(link, now);
  if (link.trace) link.trace->note(now, link.secure->connection());
  if (link.secure->closed()) return remove(link);
  retime(link);
}

// Who has to go, and is told why.
void Endpoint::judge(Link& link, TimePoint now) {
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

void Endpoint::note_memory(Link& link) {
  const ByteCount served = link.secure->established() ? link.secure->connection().served_bytes() : 0;
  link.memory->add(served);
  link.memory->remove(std::exchange(link.memory_noted, served));
}

// True: somebody has to be disconnected.
bool Endpoint::shed_memory(TimePoint now) {
  const ByteCount limit = options_.request_memory_max;
  const ByteCount all = memory_->held();
  if (all <= limit) return false;
  std::vector<std::pair<ByteCount, Link*>> holders;
  ByteCount held = 0;
  for (const auto& [id, link] : links_) {
    if (link->shed) continue;
    holders.emplace_back(link->memory->held(), link.get());
    held += holders.back().first;
  }
  // What connections left behind that are gone the service lets go of by itself, in its own time. The
  // others do not pay for it, unless it is as much again.
  const ByteCount left_behind = all - std::min(all, held);
  const ByteCount allowed = std::min(limit, 2 * limit - std::min(2 * limit, left_behind));
  if (held <= allowed) return false;
  std::ranges::sort(holders, std::greater(), [](const auto& holder) { return holder.first; });
  for (const auto& [share, link] : holders) {
    if (held <= allowed) break;
    held -= share;
    link->shed = true;
    spdlog::warn("{} is disconnected: of {} MiB for requests it holds {}", link->route.to.to_string(),
                 limit >> 20, share >> 20);
    link->secure->close(now, ErrorCode::kLimitExceeded, "its requests hold too much memory");
    mark(*link);
  }
  return true;
}

void Endpoint::handle_events(Link& link, TimePoint now) {
  while (auto event = link.secure->poll_event()) {
    if (std::holds_alternative<SecureConnection::Established>(*event)) {
      welcome(link, now);
    } else {
      handle_event(link, std::get<transport::Event>(*event));
    }
  }
}

void Endpoint::welcome(Link& link, TimePoint now) {
  note_proven(link);  // it has answered what only it was told
  link.peer = {link.id, link.secure->peer_fingerprint(), link.route.to.to_string()};
  link.announced = true;
  link.trace = PathTrace::open_if_wanted("server", now);
  link.attach_by = now + options_.attach_patience;
  by_id_.erase(link.secure->original_id());
  const auto address = link.route.to.bytes();
  link.secure->connection().send_address_token(
      tokens_.mint(crypto::AddressTokenKind::kFuture, std::span(address).first(address.size() - 2), {},
                   crypto::UnixSeconds(static_cast<std::uint64_t>(io::unix_seconds()))));
  link.secure->connection().send_reset_token(reset_token(link.secure->own_id()));
}

// Strangers leave no line in the log: there may be any number of them.
void Endpoint::let_in(Link& link) {
  link.attach_by = kNever;
  spdlog::info("{} connected, key {}", link.peer.address, link.peer.key.to_text());
}

void Endpoint::handle_event(Link& link, transport::Event& event) {
  if (const auto* request = std::get_if<transport::RequestArrived>(&event)) {
    accept_call(link, *request);
  } else if (const auto* reply = std::get_if<transport::ReplyArrived>(&event)) {
    link.outgoing.handle_reply(*reply);
  } else if (const auto* cancelled = std::get_if<transport::RequestCancelled>(&event)) {
    link.incoming.handle_cancelled(cancelled->exchange);
  } else if (const auto* closed = std::get_if<transport::Closed>(&event)) {
    link.left = closed->code == ErrorCode::kPeerClosed;
    spdlog::log(link.incoming.attached() ? spdlog::level::info : spdlog::level::debug, "{} is gone: {} ({})",
                link.route.to.to_string(), error_name(closed->code), printable(closed->reason));
  } else if (std::holds_alternative<transport::PathValidated>(event)) {
    if (link.proven_route && link.incoming.attached())
      spdlog::info("{} goes on from {}", link.proven_route->to.to_string(), link.route.to.to_string());
    link.proven_route.reset();
  } else if (std::holds_alternative<transport::PathFailed>(event) && link.proven_route) {
    link.route = *std::exchange(link.proven_route, std::nullopt);
  }
}

void Endpoint::accept_call(Link& link, const transport::RequestArrived& request) {
  // The client asks again after its next connect, and gets its answer from the server that is there then.
  if (phase_ != Phase::kServing) return;
  const auto send = [this, id = link.id](Answer answer) {
    const auto found = links_.find(id);
    if (found == links_.end() || !found->second->secure->established()) return;
    Link& asking = *found->second;
    const bool stranger = !asking.incoming.attached();
    asking.incoming.handle_answered(answer);
    if (stranger && asking.incoming.attached()) let_in(asking);
    asking.secure->connection().reply(answer.exchange, std::move(answer.header), std::move(answer.body));
    mark(asking);
  };
  auto call = link.incoming.accept(link.peer, request, route_, send);
  if (!call) {
    link.secure->close(io::now(), call.error().code, call.error().context);
    return mark(link);
  }
  service_.handle_call(std::move(*call));
}

// The queue is everybody's: the datagram that the kernel refused may be another link's.
void Endpoint::handle_too_big(const io::Address& to, std::size_t size) {
  for (auto& [id, link] : links_)
    if (link->route.to == to && link->secure->established())
      link->secure->connection().handle_too_big(static_cast<std::uint32_t>(size));
}

void Endpoint::flush(std::size_t socket) {
  const auto too_big = [this](const io::Address& to, std::size_t size) { handle_too_big(to, size); };
  const bool was_blocked = blocked_[socket];
  blocked_[socket] = !queues_[socket].flush(sockets_[socket], too_big);
  if (blocked_[socket]) {
    const auto resume = [this, socket] {
      flush(socket);
      if (blocked_[socket]) return;
      for (auto& [id, link] : links_)
        if (link->socket == socket) mark(*link);
    };
    if (auto waiting = reactor_->wait_writable_once(sockets_[socket].fd(), resume); !waiting)
      spdlog::error("cannot wait for the socket: {}", waiting.error().message());
  } else if (was_blocked) {
    for (auto& [id, link] : links_)
      if (link->socket == socket) mark(*link);
  }
}

void Endpoint::retime(Link& link) {
  // While the socket is full there is nothing to do at any time; its writability comes first. Likewise
  // while an unproven address may get no more: its next packet comes first.
  const bool starved = link.unproven() && link.unproven_budget < wire::kDatagramSizeMin;
  TimePoint next = blocked_[link.socket] ? io::now() + kBlockedTick
                                         : std::min(link.secure->next_timeout(), link.attach_by);
  if (starved) next = std::max(next, io::now() + kBlockedTick);
  if (next == link.timeout) return;
  if (link.timeout != kNever) timeouts_.erase({link.timeout, link.id});
  link.timeout = next;
  if (next != kNever) timeouts_.insert({next, link.id});
}

void Endpoint::arm_timer() {
  TimePoint next = timeouts_.empty() ? kNever : timeouts_.begin()->first;
  next = std::min(next, phase_until_);
  if (!dirty_.empty()) next = TimePoint{};
  if (next == kNever) return timer_->cancel();
  // The work is done in settle(), which follows every batch.
  timer_->arm(next, [] {});
}

void Endpoint::remove(Link& link) {
  if (link.announced) service_.handle_disconnect(link.peer, link.left);
  link.incoming.cancel_all();
  link.outgoing.fail_all({ErrorCode::kConnectionLost, "the client is gone"});
  link.memory->remove(link.memory_noted);
  if (link.timeout != kNever) timeouts_.erase({link.timeout, link.id});
  by_id_.erase(link.secure->own_id());
  by_id_.erase(link.secure->original_id());
  links_.erase(link.id);
}

void Endpoint::leave() { enter(Phase::kAnswering, io::now() + options_.answers_patience); }

void Endpoint::enter(Phase phase, TimePoint until) {
  phase_ = phase;
  phase_until_ = until;
  for (auto& [id, link] : links_) mark(*link);
}

// ---------------------------------------------------------------- from other threads

void Endpoint::call(ConnectionId connection, CallRequest request, Completion done) {
  Result<SharedBytes> header = encode_message(request.message);
  if (!header) return done(std::unexpected(header.error()));
  OutgoingCalls::Call call{std::move(*header), std::move(request.body), std::move(request.reply_body),
                           request.priority, std::move(done)};
  // While the endpoint lives its reactor runs what is posted.
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

void Endpoint::disconnect(ConnectionId connection, std::string reason) {
  reactor_->post([this, connection, reason = std::move(reason)] {
    const auto found = links_.find(connection);
    if (found == links_.end()) return;
    found->second->secure->close(io::now(), ErrorCode::kPeerClosed, reason);
    mark(*found->second);
  });
}

std::vector<ServerEndpoint::ConnectionInfo> Endpoint::connections() const {
  std::vector<ConnectionInfo> result;
  std::mutex mutex;
  std::condition_variable ready;
  bool done = false;
  reactor_->post([&] {
    for (const auto& [id, link] : links_)
      if (link->announced && link->secure->established())
        result.push_back({link->peer, path_stats(*link->secure, link->route.to.to_string())});
    const std::lock_guard lock(mutex);
    done = true;
    ready.notify_one();
  });
  std::unique_lock lock(mutex);
  ready.wait(lock, [&] { return done; });
  return result;
}

Result<std::vector<io::UdpSocket>> open_sockets(const std::vector<io::Address>& listen) {
  std::vector<io::UdpSocket> sockets;
  for (const io::Address& address : listen) {
    auto socket = io::UdpSocket::open({.bind = address});
    if (!socket) {
      const bool busy = socket.error().code == from_errno(EADDRINUSE);
      return fail(socket.error().code,
                  "cannot listen on UDP " + address.to_string() +
                      (busy ? " (another tuskd? choose another port with --listen)" : ""));
    }
    sockets.push_back(std::move(*socket));
  }
  return sockets;
}

}  // namespace

Result<void> ServerEndpoint::check(const std::vector<io::Address>& listen) {
  TUSK_TRY(open_sockets(listen));
  return {};
}

Result<std::unique_ptr<ServerEndpoint>> ServerEndpoint::start(ServerEndpointOptions options,
                                                              Service& service) {
  TUSK_CHECK(options.identity && !options.listen.empty());
  TUSK_ASSIGN(std::vector<io::UdpSocket> sockets, open_sockets(options.listen));
  TUSK_ASSIGN(auto reactor, io::Reactor::create());
  auto endpoint =
      std::make_unique<Endpoint>(std::move(options), service, std::move(reactor), std::move(sockets));
  TUSK_TRY(endpoint->run());
  return endpoint;
}

}  // namespace tusk::rpc

#include "proto/rpc/channel.h"

#include <linux/falloc.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <system_error>
#include <thread>

#include "proto/base/text.h"
#include "proto/io/address.h"
#include "proto/io/clock.h"
#include "proto/io/reactor.h"
#include "proto/io/udp_socket.h"
#include "proto/rpc/admission.h"
#include "proto/rpc/channel_status.h"
#include "proto/rpc/client_sender.h"
#include "proto/rpc/message_codec.h"
#include "proto/rpc/outgoing_calls.h"
#include "proto/rpc/path_trace.h"

namespace tusk::rpc {
namespace {

// One try to reach the server; a new one follows after a pause that grows.
constexpr Duration kHandshakePatience = 5s;
constexpr Duration kPauseMin = 100ms;
constexpr Duration kPauseMax = 2s;
// A server that refuses us is there and means it: it is asked again in case its administrator relents.
constexpr Duration kRefusedPauseMax = 30s;
// How often the outage policy is checked while something waits.
constexpr Duration kPolicyTick = 250ms;
constexpr Duration kGoodbyePatience = 500ms;
// What gets lost is sent again within a round trip or two; a thousand idle mounts are heard by the server
// each.
constexpr int kKeepAlivesPerLease = 2;

bool is_reset(std::span<const std::byte> datagram) {
  const auto parsed = wire::parse_long_header(datagram);
  return parsed && parsed->header.type == wire::LongType::kReset;
}

class ChannelOverUdp final : public Channel {
 public:
  ChannelOverUdp(ChannelOptions options, std::vector<io::Address> addresses,
                 std::unique_ptr<io::Reactor> reactor, io::UdpSocket socket)
      : options_(std::move(options)),
        addresses_(std::move(addresses)),
        socket_(std::move(socket)),
        reactor_(std::move(reactor)),
        timer_(std::make_unique<io::Timer>(*reactor_)),
        sender_(
            *reactor_, socket_,
            [this](std::size_t size) {
              if (auto* open = connection()) open->handle_too_big(static_cast<std::uint32_t>(size));
            },
            [this] {
              if (auto* open = connection()) open->hold_back();
            }),
        admission_(options_.server_fingerprint, options_.other_key_believed),
        outage_(options_.outage) {
    crypto::random_bytes(std::span(&id_begins_, 1));
  }

  ~ChannelOverUdp() override { close(); }

  Result<void> start();
  [[nodiscard]] Result<void> wait_until_attached() const { return status_.wait_until_attached(options_); }

  CallId call(CallRequest request, Completion done) override;
  void cancel(CallId id) override;
  void hold_calls() override { held_ = true; }
  void release_calls(Renewal renew) override;
  [[nodiscard]] schema::AttachReply attached() const override { return status_.attached(); }
  [[nodiscard]] crypto::Fingerprint server_fingerprint() const override {
    return status_.server_fingerprint();
  }
  [[nodiscard]] ChannelStats stats() const override { return status_.stats(); }
  [[nodiscard]] bool connected() const override { return status_.connected(); }
  [[nodiscard]] TimePoint confirmed() const override { return status_.confirmed(); }
  void speak_often(bool often) override;
  void change_outage_policy(OutagePolicy policy) override;
  void share_with(std::uint64_t flows) override;
  [[nodiscard]] Result<std::unique_ptr<Channel>> open_lane() override;
  void observe(Events events) override;
  void close() override;

 private:
  enum class State : std::uint8_t { kPausing, kHandshaking, kAttaching, kReady, kLeaving, kEnded };

  // All on the network thread.
  void receive();
  void settle();
  void transmit_now(TimePoint now) { sender_.send(*secure_, now, {addresses_[address_], {}}); }
  void connect(TimePoint now);
  void handle_events(TimePoint now);
  void handle_event(transport::Event& event, TimePoint now);
  void attach();
  void handle_attach_reply(const transport::ReplyArrived& reply, TimePoint now);
  void handle_pushed(const transport::RequestArrived& request);
  void handle_refused(const Error& refusal, TimePoint now);
  void handle_other_key(const std::string& reason, TimePoint now);
  void handle_lost(ErrorCode code, const std::string& reason, TimePoint now);
  void pause(ErrorCode lost_by, TimePoint now);
  void apply_outage_policy(TimePoint now);
  // All calls that do not outlive outages.
  void give_up(const Error& error);
  void tell_given_up(std::span<Completion> calls, const Error& error);
  [[nodiscard]] TimePoint unreachable_since(TimePoint now) const;
  void arm_timer(TimePoint now);
  void leave(const Error& error);
  void begin_close();
  [[nodiscard]] bool lane() const { return options_.attach.lane(); }
  [[nodiscard]] transport::Connection* connection() {
    return secure_ && secure_->established() && !secure_->closed() ? &secure_->connection() : nullptr;
  }
  void publish_stats(bool connected);
  void note_confirmed();
  void keep_heard();
  void answer_push(wire::ExchangeId exchange, std::uint64_t number, const schema::Reply& answer);
  [[nodiscard]] TimePoint owed_since(TimePoint now) const;

  const ChannelOptions options_;
  const std::vector<io::Address> addresses_;
  // Ids of the connections of a mount begin with numbers that follow each other: so they come to the server's
  // shards in turn (steering.h).
  std::byte id_begins_{};
  io::UdpSocket socket_;  // outlives who watches it: its number may be another's as soon as it is closed
  std::unique_ptr<io::Reactor> reactor_;
  std::unique_ptr<io::Timer> timer_;
  io::ReceiveBatch batch_;
  ClientSender sender_;
  std::thread thread_;

  // Network thread only.
  State state_ = State::kPausing;
  std::unique_ptr<SecureConnection> secure_;
  std::unique_ptr<PathTrace> trace_;  // of secure_, if one is wanted
  std::vector<std::byte> address_token_;
  OutgoingCalls calls_;
  std::optional<wire::ExchangeId> attach_exchange_;
  TimePoint state_since_{};
  TimePoint resume_at_{};
  Duration pause_ = kPauseMin;
  TimePoint lost_at_{};
  Admission admission_;
  Error last_error_{ErrorCode::kUnreachable, ""};
  OutagePolicy outage_;
  Events events_;
  PushListener pushes_;
  TimePoint stats_at_{};
  std::uint64_t reconnects_ = 0;
  std::uint64_t connections_ = 0;  // made: a push may come before the attach is answered
  std::uint64_t flows_ = 1;        // that share what one would have
  Duration lease_{};               // of the newest attach; zero: there are none
  Duration exclusive_{};
  bool speaks_often_ = false;

  std::atomic<std::size_t> address_ = 0;  // index of the server address in use
  std::atomic<unsigned> lanes_opened_ = 0;
  std::atomic<std::uint64_t> next_call_ = 1;
  bool held_ = false;
  Renewal renewal_;                          // the newest of release_calls()
  std::atomic<std::uint64_t> renewals_ = 0;  // as sessions_
  std::atomic<std::uint64_t> sessions_ = 0;  // begun; whoever makes a call may know what is of the one before
  std::atomic<bool> ended_ = false;          // the thread is gone
  std::shared_mutex ending_;                 // shared between a look at that and a call's post
  std::once_flag closed_;
  ChannelStatus status_;
};

// ---------------------------------------------------------------- starting and ending

Result<void> ChannelOverUdp::start() {
  TUSK_TRY(reactor_->watch_readable(socket_.fd(), [this] { receive(); }));
  reactor_->on_idle([this] { settle(); });
  reactor_->post([this] { connect(io::now()); });
  try {
    thread_ = std::thread([this] { reactor_->run(); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kLimitExceeded, std::string("no thread for a connection: ") + error.what());
  }
  return {};
}

void ChannelOverUdp::close() {
  std::call_once(closed_, [this] {
    if (!thread_.joinable()) return;
    reactor_->post([this] { begin_close(); });
    thread_.join();
    {
      const std::unique_lock lock(ending_);
      ended_ = true;
    }
    timer_.reset();
    // What was posted behind the end runs here, to be refused.
    reactor_->stop();
    reactor_->run();
  });
}

void ChannelOverUdp::begin_close() {
  calls_.fail_all({ErrorCode::kPeerClosed, "the mount is closing"});
  if (secure_) secure_->close(io::now(), ErrorCode::kPeerClosed, "goodbye");
  state_ = State::kLeaving;
  state_since_ = io::now();
}

void ChannelOverUdp::leave(const Error& error) {
  if (state_ != State::kLeaving) state_ = State::kEnded;
  status_.note_failure(error);
  calls_.fail_all(error);
}

// ---------------------------------------------------------------- the network thread

void ChannelOverUdp::receive() {
  const TimePoint now = io::now();
  socket_.receive(batch_, [&](const io::Datagram& datagram) {
    // Whoever it claims to come from: what authenticates is the server's. A reset shows no more than a token.
    // (Who dialled a wildcard address is answered from another one.)
    const io::Address& server = addresses_[address_];
    if (is_reset(datagram.bytes) && !server.is_wildcard() && datagram.from != server) return;
    if (secure_) secure_->handle_datagram(now, datagram.bytes, datagram.ecn);
  });
}

void ChannelOverUdp::connect(TimePoint now) {
  SecureConnection::ClientOptions options{*options_.identity, admission_.expected_key(), address_token_, {}};
  crypto::random_bytes(std::as_writable_bytes(std::span(&options.config.seed, 1)));
  options.config.draw_secret = crypto::random_number;
  options.original_id_begins = id_begins_;
  options.config.remembered = options_.remembered;
  if (options_.background) options.config.congestion = transport::CongestionKind::kBackground;
  auto secure = SecureConnection::client(options, now);
  if (!secure) return leave(secure.error());
  secure_ = std::move(*secure);
  ++connections_;
  attach_exchange_.reset();
  state_ = State::kHandshaking;
  state_since_ = now;
}

void ChannelOverUdp::settle() {
  if (ended_) return;
  const TimePoint now = io::now();
  if (state_ == State::kPausing && secure_ == nullptr && resume_at_ != TimePoint{} && now >= resume_at_)
    connect(now);
  if (secure_) {
    if (secure_->next_timeout() <= now) secure_->handle_timeout(now);
    // Before the events: who is told of an answer may ask at once, and the server has just spoken.
    status_.note_silence(owed_since(now));
    note_confirmed();
    handle_events(now);
    if (secure_) transmit_now(now);
    handle_events(now);
    if (trace_ && secure_ && secure_->established()) trace_->note(now, secure_->connection());
  }
  if (state_ == State::kHandshaking && now - state_since_ > kHandshakePatience)
    handle_lost(ErrorCode::kUnreachable, "no answer to the handshake", now);
  apply_outage_policy(now);
  status_.note_silence(owed_since(now));
  if (now - stats_at_ > 100ms) {
    stats_at_ = now;
    publish_stats(state_ == State::kReady);
  }
  if (state_ == State::kLeaving && (!secure_ || secure_->closed() || now - state_since_ > kGoodbyePatience)) {
    sender_.flush_at_the_end();
    return reactor_->stop();
  }
  arm_timer(now);
}

void ChannelOverUdp::arm_timer(TimePoint now) {
  TimePoint next = kNever;
  if (secure_) next = sender_.blocked() ? now + 10ms : secure_->next_timeout();
  if (state_ == State::kPausing) next = std::min(next, resume_at_);
  if (state_ == State::kHandshaking) next = std::min(next, state_since_ + kHandshakePatience + 1ms);
  if (state_ == State::kLeaving) next = std::min(next, state_since_ + kGoodbyePatience + 1ms);
  if (calls_.count() > 0 && outage_.fail_after) next = std::min(next, now + kPolicyTick);
  if (next == kNever) return timer_->cancel();
  timer_->arm(next, [] {});
}

// ---------------------------------------------------------------- events

void ChannelOverUdp::handle_events(TimePoint now) {
  while (secure_) {
    auto event = secure_->poll_event();
    if (!event) return;
    // An answer to the attach that comes now would make it another state, and the thread would never end.
    if (state_ == State::kLeaving) continue;
    if (std::holds_alternative<SecureConnection::Established>(*event)) {
      trace_ = PathTrace::open_if_wanted("client", now);
      attach();
    } else {
      handle_event(std::get<transport::Event>(*event), now);
    }
  }
}

void ChannelOverUdp::handle_event(transport::Event& event, TimePoint now) {
  if (const auto* reply = std::get_if<transport::ReplyArrived>(&event)) {
    if (attach_exchange_ && reply->exchange == *attach_exchange_) return handle_attach_reply(*reply, now);
    calls_.handle_reply(*reply);
  } else if (const auto* request = std::get_if<transport::RequestArrived>(&event)) {
    handle_pushed(*request);
  } else if (const auto* closed = std::get_if<transport::Closed>(&event)) {
    const bool other_key = closed->code == ErrorCode::kFingerprintMismatch && state_ == State::kHandshaking;
    if (other_key && admission_.ever_let_in()) return handle_other_key(closed->reason, now);
    handle_lost(closed->code, closed->reason, now);
  } else if (auto* token = std::get_if<transport::AddressTokenArrived>(&event)) {
    address_token_ = std::move(token->token);
  }
}

void ChannelOverUdp::attach() {
  schema::Request request;
  *request.mutable_attach() = options_.attach;
  if (!lane()) request.mutable_attach()->set_attempt(connections_);
  if (events_.reattaching) events_.reattaching(*request.mutable_attach());
  // A server unpacks nothing for those it does not know yet.
  const Result<SharedBytes> header = encode_message(request, Packing::kNever);
  TUSK_CHECK(header.has_value());
  admission_.handle_expected_key();
  if (flows_ > 1) secure_->connection().share_with(flows_);
  attach_exchange_ = secure_->connection().open_exchange(*header, {}, {}, wire::Priority::kInteractive);
  state_ = State::kAttaching;
  state_since_ = io::now();
  status_.note_key(secure_->peer_fingerprint());
}

void ChannelOverUdp::handle_attach_reply(const transport::ReplyArrived& arrived, TimePoint now) {
  attach_exchange_.reset();
  schema::Reply reply;
  if (const auto decoded = decode_message(arrived.header.bytes, reply); !decoded)
    return handle_lost(decoded.error().code, decoded.error().context, now);
  if (reply.error() != 0) {
    const auto code = static_cast<ErrorCode>(reply.error());
    secure_->close(now, ErrorCode::kPeerClosed, "attach refused");
    return handle_refused({code, printable(reply.message())}, now);
  }
  state_ = State::kReady;
  state_since_ = now;
  pause_ = kPauseMin;
  status_.note_attached(reply.attach());
  lease_ = std::chrono::milliseconds(reply.attach().lease_ms());
  exclusive_ = std::chrono::milliseconds(reply.attach().exclusive_ms());
  keep_heard();
  if (admission_.ever_let_in()) {
    ++reconnects_;
    if (events_.reattached) events_.reattached(reply.attach());
  }
  admission_.handle_welcome(secure_->peer_fingerprint());
  if (!reply.attach().resumed()) ++sessions_;
  calls_.start_all(secure_->connection(), reply.attach().resumed(),
                   held_ ? OutgoingCalls::Which::kAhead : OutgoingCalls::Which::kAll);
  publish_stats(true);
}

// While a lease lasts the server must hear from us in time, whether we want something or not.
void ChannelOverUdp::keep_heard() {
  const bool short_one = speaks_often_ && exclusive_ > Duration::zero();
  const Duration lasts = short_one ? std::min(lease_, exclusive_) : lease_;
  if (lasts > Duration::zero()) secure_->connection().keep_alive_at_least_every(lasts / kKeepAlivesPerLease);
}

void ChannelOverUdp::speak_often(bool often) {
  reactor_->post([this, often] {
    speaks_often_ = often;
    if (state_ == State::kReady && connection() != nullptr) keep_heard();
  });
}

void ChannelOverUdp::handle_pushed(const transport::RequestArrived& arrived) {
  schema::Request request;
  schema::Reply answer;
  if (!decode_message(arrived.header.bytes, request)) {
    answer.set_error(static_cast<std::uint32_t>(ErrorCode::kMalformed));
    return answer_push(arrived.exchange, connections_, answer);
  }
  answer.mutable_empty();
  auto later = [this, exchange = arrived.exchange, number = connections_, answer] {
    if (ended_) return;
    reactor_->post([this, exchange, number, answer] { answer_push(exchange, number, answer); });
  };
  pushes_.handle(std::move(request), std::move(later));
}

// Not on another connection than the push came on: there it is pushed again.
void ChannelOverUdp::answer_push(wire::ExchangeId exchange, std::uint64_t number,
                                 const schema::Reply& answer) {
  if (number != connections_ || connection() == nullptr) return;
  const Result<SharedBytes> header = encode_message(answer);
  TUSK_CHECK(header.has_value());
  connection()->reply(exchange, *header, {});
}

// Only of a connection whose attach has told which leases there are.
void ChannelOverUdp::note_confirmed() {
  if (state_ != State::kReady || connection() == nullptr) return;
  if (const auto sent = connection()->sent_packets().newest_confirmed()) status_.note_confirmed(*sent);
}

// Believed because the server is authenticated by now: what fails before could be anybody's forgery, and
// is only waited out (but for handle_other_key()).
void ChannelOverUdp::handle_refused(const Error& refusal, TimePoint now) {
  admission_.handle_refusal(refusal);
  status_.note_refused(refusal);
  handle_lost(Admission::is_final(refusal.code) ? refusal.code : ErrorCode::kUnreachable, refusal.context,
              now);
  if (admission_.refused()) give_up(admission_.refused_error());
}

void ChannelOverUdp::handle_other_key(const std::string& reason, TimePoint now) {
  const bool known = admission_.key_changed();
  if (!admission_.handle_other_key(printable(reason), now))
    return handle_lost(ErrorCode::kFingerprintMismatch, reason, now);
  status_.note_refused(*admission_.refusal());
  if (!known)
    spdlog::error(
        "{} has another key than it had: {}. Either it was set up anew: then unmount, and mount with a new "
        "URL "
        "(tuskd share or tuskd token prints it); or somebody is in between. Until the old key is back "
        "programs "
        "get EACCES",
        options_.host, admission_.refusal()->context);
  handle_lost(ErrorCode::kFingerprintMismatch, reason, now);
  give_up(admission_.refused_error());
}

void ChannelOverUdp::handle_lost(ErrorCode code, const std::string& reason, TimePoint now) {
  if (state_ == State::kLeaving || state_ == State::kEnded) return;
  if (state_ == State::kReady) lost_at_ = secure_->connection().last_received();
  last_error_ = {code, printable(reason)};
  calls_.detach();
  if (secure_) {
    // What is left of the old connection (an alert, a goodbye) still goes out.
    transmit_now(now);
    secure_.reset();
  }
  attach_exchange_.reset();
  pushes_.handle_lost();
  publish_stats(false);
  if (lane()) return leave({ErrorCode::kConnectionLost, last_error_.message()});
  // A server that never let us in says so once; later refusals may be taken back.
  if (Admission::is_final(code) && !admission_.ever_let_in()) return leave(last_error_);
  if (admission_.ever_let_in())
    spdlog::warn("{} ({}), trying again",
                 admission_.refused() ? admission_.refused_text() : "the server is out of reach",
                 last_error_.message());
  pause(code, now);
}

void ChannelOverUdp::pause(ErrorCode lost_by, TimePoint now) {
  address_ = (address_ + 1) % addresses_.size();
  state_ = State::kPausing;
  state_since_ = now;
  resume_at_ = now + (lost_by == ErrorCode::kServerRestarted ? Duration(1ms) : pause_);
  pause_ = std::min(pause_ * 2, admission_.refused() ? kRefusedPauseMax : kPauseMax);
}

TimePoint ChannelOverUdp::unreachable_since(TimePoint now) const {
  // Not since the last packet: nobody sends any while there is nothing to say.
  if (state_ == State::kReady) return owed_since(now);
  return admission_.ever_let_in() ? lost_at_ : kNever;
}

void ChannelOverUdp::apply_outage_policy(TimePoint now) {
  if (!outage_.fail_after || calls_.count() == 0 || !admission_.ever_let_in()) return;
  const TimePoint since = unreachable_since(now);
  if (since == kNever || now - since < *outage_.fail_after) return;
  // Its own path may be all that is gone: its calls go on over the main connection, which has the last word.
  if (lane()) return handle_lost(ErrorCode::kUnreachable, "no answer", now);
  std::vector<Completion> given_up = calls_.take_in_outage();
  // What was given up may yet arrive, and must not be done beside what is asked for in its place: another
  // connection's attach takes care of that. Before anybody is told, for whom the bytes of a write are theirs
  // again: this connection would go on reading them.
  if (!given_up.empty() && state_ == State::kReady) handle_lost(ErrorCode::kUnreachable, "no answer", now);
  tell_given_up(given_up, {ErrorCode::kTimedOut, "the server has been out of reach for " +
                                                     std::to_string(outage_.fail_after->count()) + " s"});
}

void ChannelOverUdp::tell_given_up(std::span<Completion> calls, const Error& error) {
  for (Completion& done : calls) done(std::unexpected(error));
  if (events_.gave_up) events_.gave_up(error);
}

void ChannelOverUdp::give_up(const Error& error) {
  std::vector<Completion> given_up = calls_.take_in_outage();
  tell_given_up(given_up, error);
}

// ---------------------------------------------------------------- from other threads

namespace {

// Everything else has the same effect when it is done again, though its answer may be another: a MKDIR
// that was done says EEXIST.
bool adds_up(const schema::Request& request) {
  constexpr std::uint32_t kMoving = FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE;
  if (request.has_write()) return request.write().append();
  return request.has_allocate() && (request.allocate().mode() & kMoving) != 0;
}

}  // namespace

CallId ChannelOverUdp::call(CallRequest request, Completion done) {
  const CallId id(next_call_++);
  const std::uint64_t sessions =
      sessions_;  // before it is renewed: if there is another one by then, once more
  const std::uint64_t renewals = renewals_;
  if (request.renew) request.renew(request.message);
  Result<SharedBytes> header = encode_message(request.message);
  auto start = [this, id, sessions, renewals, ahead = request.ahead, header = std::move(header),
                body = std::move(request.body), place = std::move(request.reply_body),
                priority = request.priority, once = adds_up(request.message),
                lasting = request.outlives_outages, renew = std::move(request.renew),
                done = std::move(done)]() mutable {
    if (!header) return done(std::unexpected(header.error()));
    if (state_ == State::kEnded) return done(std::unexpected(*status_.failure()));
    if (state_ == State::kLeaving) return done(fail(ErrorCode::kPeerClosed, "the mount is closing"));
    if (admission_.refused() && !lasting) return done(std::unexpected(admission_.refused_error()));
    calls_.add(id, {std::move(*header), std::move(body), std::move(place), priority, std::move(done), once,
                    lasting, std::move(renew), ahead});
    if (sessions != sessions_) calls_.renew(id);
    if (renewals != renewals_) calls_.renew(id, renewal_);
    if (held_ && !ahead) return;
    if (state_ == State::kReady && connection()) calls_.start(id, secure_->connection());
  };
  {
    const std::shared_lock lock(ending_);
    if (!ended_) return reactor_->post(std::move(start)), id;
  }
  start();  // is refused by the state, which nobody changes any more
  return id;
}

void ChannelOverUdp::cancel(CallId id) {
  reactor_->post([this, id] { calls_.cancel(id, connection()); });
}

void ChannelOverUdp::release_calls(Renewal renew) {
  reactor_->post([this, renew = std::move(renew)] {
    held_ = false;
    if (renew) renewal_ = renew;
    if (renew) ++renewals_;
    calls_.start_rest(state_ == State::kReady ? connection() : nullptr, renew);
  });
}

void ChannelOverUdp::publish_stats(bool connected) {
  ChannelStats stats;
  const std::string address = addresses_[address_].to_string();
  if (secure_ && secure_->established()) static_cast<PathStats&>(stats) = path_stats(*secure_, address);
  stats.connected = connected;
  stats.peer_address = address;
  stats.reconnects = reconnects_;
  stats.calls_in_flight = calls_.count();
  stats.own_key = options_.identity->fingerprint();
  stats.network_cpu = io::cpu_time_of_this_thread();
  stats.over = state_ == State::kEnded;
  stats.refused = admission_.refused();
  stats.key_changed = admission_.key_changed();
  if (stats.refused)
    stats.down_because = admission_.refusal()->context;
  else if (!connected)
    stats.down_because = last_error_.message();
  status_.publish(std::move(stats));
}

// Calls in flight are no sign: one that waits for a lock may wait for ever, from a server in good health.
// What it owes at once are acknowledgements.
TimePoint ChannelOverUdp::owed_since(TimePoint now) const {
  if (admission_.refused() || !admission_.ever_let_in()) return kNever;
  if (state_ != State::kReady) return lost_at_;
  const transport::Connection& open = secure_->connection();
  const bool owes = open.sent_packets().in_flight() > 0 || open.sent_packets().probes_unanswered() > 0;
  if (!owes) return kNever;
  const TimePoint before = status_.silent_since();
  return before == kNever ? now : std::max(before, open.last_received());
}

void ChannelOverUdp::change_outage_policy(OutagePolicy policy) {
  reactor_->post([this, policy] { outage_ = policy; });
}

void ChannelOverUdp::share_with(std::uint64_t flows) {
  reactor_->post([this, flows] {
    flows_ = flows;
    if (connection() != nullptr) connection()->share_with(flows);
  });
}

void ChannelOverUdp::observe(Events events) {
  reactor_->post([this, events = std::move(events)]() mutable {
    events_ = std::move(events);
    if (reconnects_ > 0 && !pushes_.listening() && events_.reattached) events_.reattached(attached());
    pushes_.begin(std::move(events_.pushed));
  });
}

Result<std::unique_ptr<Channel>> ChannelOverUdp::open_lane() {
  ChannelOptions options = options_;
  options.attach.set_lane(true);
  options.attach.clear_listing_bytes();
  options.attach.clear_ended_sessions();
  options.server_fingerprint = server_fingerprint();
  TUSK_ASSIGN(auto socket, io::UdpSocket::open({}));
  TUSK_ASSIGN(auto reactor, io::Reactor::create());
  auto lane = std::make_unique<ChannelOverUdp>(std::move(options), std::vector{addresses_[address_]},
                                               std::move(reactor), std::move(socket));
  lane->id_begins_ = static_cast<std::byte>(static_cast<unsigned>(id_begins_) + ++lanes_opened_);
  TUSK_TRY(lane->start());
  return lane;
}

// A name without an address is no server that does not answer: nothing was sent.
Result<std::vector<io::Address>> addresses_of(const std::string& host, std::uint16_t port) {
  auto addresses = io::resolve(host, port);
  if (addresses) return addresses;
  const ErrorCode code = addresses.error().code;
  if (code == ErrorCode::kUnreachable) return fail(ErrorCode::kBadConfig, addresses.error().context);
  if (code == ErrorCode::kTimedOut) return fail(from_errno(EAGAIN), addresses.error().context);
  return addresses;
}

}  // namespace

Result<std::unique_ptr<Channel>> Channel::connect(ChannelOptions options) {
  TUSK_CHECK(options.identity != nullptr);
  TUSK_ASSIGN(auto addresses, addresses_of(options.host, options.port));
  TUSK_ASSIGN(auto socket, io::UdpSocket::open({}));
  TUSK_ASSIGN(auto reactor, io::Reactor::create());
  auto channel = std::make_unique<ChannelOverUdp>(std::move(options), std::move(addresses),
                                                  std::move(reactor), std::move(socket));
  TUSK_TRY(channel->start());
  TUSK_TRY(channel->wait_until_attached());
  return channel;
}

}  // namespace tusk::rpc

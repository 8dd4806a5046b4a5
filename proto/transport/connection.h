// One established connection as a pure state machine: packets in, packets out, exchanges above
// (docs/PROTOCOL.md, "Connections"). No socket, clock, thread or key: plaintext payloads go in and out,
// proto/rpc seals and sends them. The same seed and the same inputs give the same outputs.
//
// Call order of a driver: handle_packet() for what arrived, poll_event() until empty, then
// poll_packet() until it declines, then sleep until next_timeout(), then handle_timeout().
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "proto/base/random.h"
#include "proto/base/result.h"
#include "proto/base/time.h"
#include "proto/transport/ack_tracker.h"
#include "proto/transport/capacity_probe.h"
#include "proto/transport/congestion.h"
#include "proto/transport/exchanges.h"
#include "proto/transport/flow_news.h"
#include "proto/transport/pacer.h"
#include "proto/transport/path_mtu.h"
#include "proto/transport/proactive_copies.h"
#include "proto/transport/remembered_path.h"
#include "proto/transport/rtt_estimator.h"
#include "proto/transport/sent_packets.h"
#include "proto/transport/tail_parity.h"

namespace tusk::transport {

struct ConnectionConfig {
  CreditLimits credit;
  Duration idle_timeout = 30s;                               // silence after which the connection is dead
  Duration keep_alive = 10s;                                 // the client pings after so much silence
  std::uint32_t datagram_size_max = wire::kDatagramSizeMax;  // largest this side can send and receive
  CongestionKind congestion = CongestionKind::kModel;        // kBackground: the peer is asked for it, too
  std::uint64_t seed = 1;
  std::function<std::uint64_t()> draw_secret = {};  // what the peer must not foresee; else by the seed
  std::optional<RememberedPath> remembered = {};    // counts where the round trip fits
  Allocate allocate_request = {};                   // memory for what the peer asks
};

// The connection is over; nothing else follows.
struct Closed {
  ErrorCode code = ErrorCode::kPeerClosed;
  std::string reason;
};
// The server gave a token that spares the next connection a round trip.
struct AddressTokenArrived {
  std::vector<std::byte> token;
};
// The peer proved that it receives at the address challenged last.
struct PathValidated {};
// It did not.
struct PathFailed {};
// What a server that forgot this connection will show to end it.
struct ResetTokenArrived {
  std::vector<std::byte> token;
};

using Event = std::variant<RequestArrived, ReplyArrived, RequestCancelled, Closed, AddressTokenArrived,
                           PathValidated, PathFailed, ResetTokenArrived>;

struct ConnectionStats {
  Duration rtt_min{};
  Duration rtt_smoothed{};
  Duration queueing{};
  double send_bandwidth = 0;     // bytes/s
  double capacity = 0;           // of the bottleneck, with the parts of others, bytes/s
  double receive_bandwidth = 0;  // bytes/s
  double receive_best = 0;       // over some round trips, bytes/s
  double loss = 0;
  std::uint32_t datagram_size = 0;
  ByteCount bytes_sent = 0;
  ByteCount bytes_received = 0;
  ByteCount body_bytes_received = 0;  // each once: neither repeats nor parity
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t packets_lost = 0;
  std::uint64_t packets_spurious = 0;
  std::uint64_t packets_parity = 0;  // sent, with parity or for it
  ByteCount in_flight = 0;
  ByteCount window = 0;
  double pacing_rate = 0;
  Duration idle{};  // with nothing to send though it could have been sent, in all, before what was sent last
  std::string_view congestion_state;
  bool background = false;  // the priority
};

class Connection {
 public:
  // `rtt`: of the handshake; 0: unknown.
  Connection(Role role, const ConnectionConfig& config, TimePoint now, Duration rtt = Duration(0));

  // ------------------------------------------------ exchanges (see Exchanges)
  wire::ExchangeId open_exchange(SharedBytes header, SharedBytes body, MutableSharedBytes reply_place,
                                 wire::Priority priority) {
    return exchanges_.open(std::move(header), std::move(body), std::move(reply_place), priority);
  }
  void cancel_exchange(wire::ExchangeId exchange) { exchanges_.cancel(exchange); }
  void reply(wire::ExchangeId exchange, SharedBytes header, SharedBytes body) {
    exchanges_.reply(exchange, std::move(header), std::move(body));
  }
  void send_address_token(std::vector<std::byte> token) { address_token_ = std::move(token); }
  void send_reset_token(std::vector<std::byte> token) {
    reset_token_ = std::move(token);
    reset_token_due_ = true;
  }
  // It is one of `flows` connections that have together what one would have beside others, in both
  // directions: the peer is told. 1 to wire::kFlowsMax; else the nearest. May be said again.
  void share_with(std::uint64_t flows);
  // Flows to the same host, of the address that the peer has now.
  void meet(std::shared_ptr<Siblings> siblings);
  // Flows from that host: the peer is told of them when it sends much.
  void tell_peer_of(std::shared_ptr<Siblings> siblings) { peers_flow_.join(std::move(siblings)); }
  // The peer gets no more credit than it has from the start; before the first answer.
  void keep_credit() { exchanges_.keep_credit(); }
  // Says goodbye with the next packet; Closed is not reported for a close of one's own.
  void close(ErrorCode code, std::string_view reason);

  // ------------------------------------------------ packets
  // `size`: of the whole datagram. Errors of the peer end the connection (Closed event).
  void handle_packet(TimePoint now, wire::PacketNumber number, std::span<const std::byte> payload,
                     std::size_t size, bool congestion_mark);
  // What a truncated packet number is expanded against.
  [[nodiscard]] wire::PacketNumber expected_number() const { return acks_.next_expected(); }
  // When the peer was last heard.
  [[nodiscard]] TimePoint last_received() const { return last_received_; }

  struct Packet {
    wire::PacketNumber number;
    std::size_t payload_size = 0;          // bytes, `tail` included
    bool mtu_probe = false;                // must go out alone, and may be refused by the interface
    std::span<const std::byte> tail = {};  // the end of the payload; see below

    void copy_tail(std::span<std::byte> payload) const {
      std::ranges::copy(tail, payload.subspan(payload_size - tail.size()).begin());
    }
  };
  // Writes the next packet's payload, but for a body that fills it to the end: that stays where it is, valid
  // until the connection is used again, so that encryption can be its copy (else: copy_tail). `payload` holds
  // the largest packet (kDatagramSizeMax less header and tag), or less, at least kPayloadMin, where an
  // unproven address may get no more; then what does not fit waits. nullopt: nothing to send now.
  static constexpr std::size_t kPayloadMin = 35;
  [[nodiscard]] std::optional<Packet> poll_packet(TimePoint now, std::span<std::byte> payload);
  // The interface refused a datagram as too big.
  void handle_too_big(std::uint32_t size) { mtu_.handle_too_big(size); }

  // ------------------------------------------------ path
  // The peer's packets come from a new address: prove it. What was known of the path counts until it shows
  // otherwise: mostly only a port has changed.
  void challenge_path(TimePoint now);
  // They come from an address again that has proven itself: whether the other one answers does not matter.
  void forget_challenge() { challenge_.reset(); }
  [[nodiscard]] bool path_challenge_pending() const { return challenge_.has_value(); }

  // ------------------------------------------------ time
  // What is not sent now does not wait for the pacer: the socket is full, or the address not proven yet.
  void hold_back() { pacer_.rest(); }
  // A client that wants to be heard more often than the configuration says, also when it asks for nothing.
  void keep_alive_at_least_every(Duration interval) { keep_alive_max_ = std::max(interval, kKeepAliveMin); }
  [[nodiscard]] TimePoint next_timeout() const;
  void handle_timeout(TimePoint now);

  [[nodiscard]] std::optional<Event> poll_event();
  [[nodiscard]] bool closed() const { return state_ == State::kClosed; }
  [[nodiscard]] ConnectionStats stats() const;
  [[nodiscard]] ByteCount unsent_bytes() const { return exchanges_.unsent_bytes(); }
  [[nodiscard]] std::size_t open_exchanges() const { return exchanges_.open_count(); }
  [[nodiscard]] std::size_t served_exchanges() const { return exchanges_.served_count(); }
  [[nodiscard]] std::size_t answered_exchanges() const { return exchanges_.answered_count(); }
  // What a peer makes us hold, but for the bodies of requests and answers: those who allocate them count
  // them.
  [[nodiscard]] ByteCount held_bytes() const { return exchanges_.served_bytes() + sent_.bare_bytes(); }
  [[nodiscard]] const SentPackets& sent_packets() const { return sent_; }
  [[nodiscard]] const CongestionController& congestion() const { return *congestion_; }
  [[nodiscard]] const RttEstimator& rtt() const { return rtt_; }

 private:
  enum class State : std::uint8_t { kOpen, kClosing, kClosed };

  [[nodiscard]] Result<bool> handle_frame(TimePoint now, wire::PacketNumber number, const wire::Frame& frame);
  [[nodiscard]] Result<void> handle_ack(TimePoint now, const wire::AckFrame& ack);
  void handle_settings(wire::PacketNumber number, const wire::SettingsFrame& settings);
  [[nodiscard]] Result<void> apply(TimePoint now, const SentPackets::Outcome& outcome);
  void handle_frame_acked(const SentFrame& frame);
  [[nodiscard]] bool ends_within_a_round_trip() const;
  void handle_frame_lost(TimePoint now, const SentFrame& frame, bool ending);
  void repair(const SentFrame& frame);
  [[nodiscard]] RepeatedLosses::Verdict note_loss(TimePoint now, const SentFrame& frame);
  void fail(const Error& error);
  void die(ErrorCode code, std::string reason);

  // poll_packet's parts; each appends frames while they fit.
  struct Assembly;
  void add_ack(TimePoint now, Assembly& assembly);
  void add_control(TimePoint now, Assembly& assembly);
  void add_flow_news(TimePoint now, bool ack, Assembly& assembly);
  void write_settings(ByteWriter& writer) const;
  void mark_train(TimePoint now, Assembly& assembly);
  void add_messages(TimePoint now, Assembly& assembly);
  void add_parity(TimePoint now, Assembly& assembly);
  [[nodiscard]] std::optional<Packet> poll_mtu_probe(TimePoint now, std::span<std::byte> payload);
  [[nodiscard]] Packet poll_capacity_probe(TimePoint now, std::span<std::byte> payload);
  [[nodiscard]] std::optional<Packet> poll_close(TimePoint now, std::span<std::byte> payload);
  [[nodiscard]] Packet finish(TimePoint now, Assembly& assembly);
  void skip_now_and_then();
  [[nodiscard]] bool has_control() const;
  void judge_challenge(TimePoint now);
  [[nodiscard]] Duration challenge_patience() const;
  [[nodiscard]] Duration keep_alive() const;
  [[nodiscard]] TimePoint ping_at() const;
  [[nodiscard]] bool may_send_data(TimePoint now) const;
  [[nodiscard]] bool find_parity(TimePoint now, bool limited);
  void queue_due_repairs(TimePoint now);
  void note_app_limited(TimePoint now);
  void update_receive_rate(TimePoint now, std::size_t size);

  const Role role_;
  const ConnectionConfig config_;
  State state_ = State::kOpen;

  Exchanges exchanges_;
  AckTracker acks_;
  SentPackets sent_;
  RttEstimator rtt_;
  Pacer pacer_;
  PathMtu mtu_;
  CapacityProbe capacity_probe_;
  ProactiveCopies copies_;
  std::multimap<TimePoint, SentFrame> repairs_later_;  // when they are due: of what is hardly lost by chance
  TailParity tail_;
  std::unique_ptr<CongestionController> congestion_;
  // A number that the peer must not foresee: it could prove addresses that it has not, and acknowledge what
  // it has not received.
  [[nodiscard]] std::uint64_t draw_secret() {
    return config_.draw_secret ? config_.draw_secret() : random_.next();
  }

  Random random_;

  std::vector<Event> events_;
  std::size_t next_event_ = 0;

  bool settings_due_ = true;
  std::optional<std::uint64_t> flows_;                // as the peer is told, if it is
  std::optional<wire::PacketNumber> settings_heard_;  // the newest packet that had some
  bool credit_resend_ = false;
  int probes_due_ = 0;
  bool ping_due_ = false;
  std::vector<wire::CancelFrame> lost_cancels_;
  std::vector<std::byte> address_token_;
  std::vector<std::byte> reset_token_;  // kept: without it a peer would hear of our restart by silence only
  bool reset_token_due_ = false;
  std::vector<std::uint64_t> path_responses_;
  struct Challenge {
    std::uint64_t data;
    TimePoint resend_at;
    int attempts;
  };
  std::optional<Challenge> challenge_;
  ErrorCode close_code_ = ErrorCode::kOk;
  std::string close_reason_;
  TimePoint close_by_ = kNever;  // then without a goodbye

  TimePoint last_received_;
  TimePoint last_progress_{};  // an acknowledgement of something new, or the first sending after a rest
  TimePoint last_eliciting_sent_;
  std::optional<Duration>
      arrival_;  // by the peer's clock, of what is sent when ours is 0: a part of kPingTogether
  std::uint64_t packets_since_floor_ = 0;
  // A number is left out after so many packets, and up to as many more.
  static constexpr std::uint64_t kSkipEvery = 1000;
  std::uint64_t packets_until_skip_ = kSkipEvery / 2 + random_.below(kSkipEvery);
  Duration peer_idle_timeout_;
  bool background_;
  bool peer_takes_parity_ = false;
  std::shared_ptr<SiblingsByPeer> siblings_by_peer_;  // nullptr: the peer tells nothing of others
  PeersFlow peers_flow_;
  static constexpr Duration kKeepAliveMin = std::chrono::seconds(1);
  Duration keep_alive_max_ = kNever.time_since_epoch();
  std::optional<TimePoint> no_news_since_;  // nothing to send that has not been sent before
  std::optional<TimePoint> idle_since_;     // nothing to send, though there was room
  Duration idle_{};
  TimePoint train_began_{};
  std::uint64_t train_packets_ = 0;  // that left together since then
  ByteCount app_limited_until_ = 0;  // delivered bytes; below: samples are app-limited

  ByteCount bytes_sent_ = 0;
  ByteCount bytes_received_ = 0;
  std::uint64_t packets_received_ = 0;
  std::uint64_t packets_parity_ = 0;
  std::uint64_t acked_packets_ = 0;
  std::uint64_t lost_packets_ = 0;
  double loss_ = 0;
  // Received rate: the best of the last whole measuring intervals.
  TimePoint rate_interval_start_{};
  ByteCount rate_interval_bytes_ = 0;
  double received_before_ = 0;  // over this path, bytes/s; 0: unknown
  double receive_rate_ = 0;
  double receive_rate_mean_ = 0;  // of the last intervals
  double receive_rate_best_ = 0;
  TimePoint receive_rate_at_{};

  std::vector<SentFrame> frames_;  // scratch of the packet being assembled
};

}  // namespace tusk::transport

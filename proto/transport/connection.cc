#include "proto/transport/connection.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "proto/base/check.h"
#include "proto/base/overloaded.h"
#include "proto/transport/train_capacity.h"

namespace tusk::transport {
namespace {

constexpr int kProbePackets = 2;
constexpr std::size_t kPathResponsesMax = 8;
constexpr int kChallengeAttemptsMax = 5;
constexpr Duration kChallengeMin = 10ms;
constexpr Duration kChallengeHeldUp = 200ms;  // a busy machine is no reason that it could not go out
constexpr Duration kRateIntervalMin = 50ms;
constexpr Duration kReceiveRateKept = 10s;
constexpr double kReceiveRateWeight = 1.0 / 4;
constexpr Duration kKeepAliveWaiting = 2s;
// So often a client is heard before either side forgets the connection: two pings may get lost.
constexpr int kKeepAlivesPerIdleTimeout = 3;
constexpr Duration kPingTogether = 250ms;
// For a goodbye that cannot go out, because an unproven address may get no more.
constexpr Duration kClosePatience = 1s;

Part part_of(const SentFrame& frame) {
  return frame.kind == SentFrame::Kind::kBody ? Part::kBody : Part::kHeader;
}

}  // namespace

Connection::Connection(Role role, const ConnectionConfig& config, TimePoint now, Duration rtt)
    : role_(role),
      config_(config),
      exchanges_(role, config.credit, config.allocate_request),
      mtu_(config.datagram_size_max),
      capacity_probe_(now, rtt),
      congestion_(make_congestion_controller(config.congestion, config.seed)),
      random_(config.seed),
      last_received_(now),
      last_eliciting_sent_(now),
      peer_idle_timeout_(config.idle_timeout),
      background_(config.congestion == CongestionKind::kBackground) {
  if (rtt > Duration(0)) {
    rtt_.add(now, rtt);
    acks_.adapt_delay(rtt);
  }
  if (config_.remembered && config_.remembered->fits(rtt)) {
    congestion_->remember(config_.remembered->sent);
    received_before_ = config_.remembered->received;
  }
}

void Connection::close(ErrorCode code, std::string_view reason) {
  if (state_ != State::kOpen) return;
  state_ = State::kClosing;
  close_code_ = code;
  close_reason_ = reason.substr(0, wire::kCloseReasonMax);
}

void Connection::die(ErrorCode code, std::string reason) {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  events_.push_back(Closed{code, std::move(reason)});
}

void Connection::fail(const Error& error) {
  // The peer is told with the next packet; the layer above is told at once.
  if (state_ != State::kOpen) return;
  close(error.code, error.context);
  events_.push_back(Closed{error.code, error.context});
}

// ---------------------------------------------------------------- packets in

void Connection::handle_packet(TimePoint now, wire::PacketNumber number, std::span<const std::byte> payload,
                               std::size_t size, bool congestion_mark) {
  if (state_ == State::kClosed || !acks_.is_new(number)) return;
  last_received_ = now;
  ++packets_received_;
  bytes_received_ += size;
  update_receive_rate(now, size);

  bool eliciting = false;
  bool pinged = false;
  bool padded = false;
  ByteReader reader(payload);
  while (!reader.at_end() && state_ == State::kOpen) {
    const std::optional<wire::Frame> frame = wire::read_frame(reader);
    if (!frame) return fail({ErrorCode::kMalformed, "a malformed frame"});
    const Result<bool> handled = handle_frame(now, number, *frame);
    if (!handled) return fail(handled.error());
    eliciting |= *handled;
    pinged |= std::holds_alternative<wire::PingFrame>(*frame);
    padded |= std::holds_alternative<wire::PaddingFrame>(*frame);
  }
  acks_.record(now, number, eliciting, congestion_mark);
  // Somebody on an idle line wants to know whether we are there: to answer later is to wake up twice. Or
  // wants to know when this part of a train arrived. Probes, which have PADDING, can wait.
  if (pinged && !padded) acks_.hurry(now);

  while (auto event = exchanges_.poll_event())
    std::visit([&](auto& e) { events_.push_back(std::move(e)); }, *event);
}

// The result says whether the frame asks for an acknowledgement.
Result<bool> Connection::handle_frame(TimePoint now, wire::PacketNumber number, const wire::Frame& frame) {
  const auto eliciting = [](const Result<void>& result) -> Result<bool> {
    if (!result) return std::unexpected(result.error());
    return true;
  };
  return std::visit(
      Overloaded{
          [&](const wire::PaddingFrame&) -> Result<bool> { return false; },
          [&](const wire::PingFrame&) -> Result<bool> { return true; },
          [&](const wire::AckFrame& f) -> Result<bool> {
            TUSK_TRY(handle_ack(now, f));
            return false;
          },
          [&](const wire::SettingsFrame& f) -> Result<bool> { return handle_settings(number, f), true; },
          [&](const wire::CreditFrame& f) -> Result<bool> { return exchanges_.handle_credit(f), true; },
          [&](const wire::FloorFrame& f) -> Result<bool> { return acks_.raise_floor(f.floor), false; },
          [&](const wire::MessageHeaderFrame& f) { return eliciting(exchanges_.handle_header(f)); },
          [&](const wire::BodyFrame& f) { return eliciting(exchanges_.handle_body(f)); },
          [&](const wire::ParityFrame& f) { return eliciting(exchanges_.handle_parity(f)); },
          [&](const wire::FlowNewsFrame& f) -> Result<bool> {
            return peers_flow_.hear(now, number, f, receive_rate_, bytes_received_), false;
          },
          [&](const wire::OtherFlowsFrame& f) -> Result<bool> {
            if (siblings_by_peer_) siblings_by_peer_->hear(now, number, f, rtt_.smoothed());
            return false;
          },
          [&](const wire::CancelFrame& f) { return eliciting(exchanges_.handle_cancel(f)); },
          [&](const wire::PathChallengeFrame& f) -> Result<bool> {
            if (path_responses_.size() < kPathResponsesMax) path_responses_.push_back(f.data);
            return true;
          },
          [&](const wire::PathResponseFrame& f) -> Result<bool> {
            if (challenge_ && challenge_->data == f.data) {
              challenge_.reset();
              events_.push_back(PathValidated{});
            }
            return true;
          },
          [&](const wire::CloseFrame& f) -> Result<bool> {
            die(static_cast<ErrorCode>(f.code), std::string(as_text(f.reason)));
            return false;
          },
          [&](const wire::AddressTokenFrame& f) -> Result<bool> {
            events_.push_back(AddressTokenArrived{{f.token.begin(), f.token.end()}});
            return true;
          },
          [&](const wire::ResetTokenFrame& f) -> Result<bool> {
            events_.push_back(ResetTokenArrived{{f.token.begin(), f.token.end()}});
            return true;
          },
          [&](const wire::CryptoFrame&) -> Result<bool> {
            return tusk::fail(ErrorCode::kMalformed, "handshake bytes after the handshake");
          },
          [&](const wire::CryptoAckFrame&) -> Result<bool> {
            return tusk::fail(ErrorCode::kMalformed, "handshake bytes after the handshake");
          },
      },
      frame);
}

void Connection::share_with(std::uint64_t flows) {
  const std::uint64_t shared_by = std::clamp<std::uint64_t>(flows, 1, wire::kFlowsMax);
  flows_ = shared_by;
  settings_due_ = true;
  congestion_->take_part(1 / static_cast<double>(shared_by));
}

void Connection::meet(std::shared_ptr<Siblings> siblings) { congestion_->meet(std::move(siblings)); }

// They may be said again, and overtake what was said before.
void Connection::handle_settings(wire::PacketNumber number, const wire::SettingsFrame& settings) {
  if (settings_heard_ && number < *settings_heard_) return;
  settings_heard_ = number;
  for (const wire::Setting& setting : settings.settings) {
    if (setting.key > std::numeric_limits<std::underlying_type_t<wire::SettingKey>>::max()) continue;
    switch (static_cast<wire::SettingKey>(setting.key)) {
      case wire::SettingKey::kReceiveSizeMax:
        mtu_.limit(static_cast<std::uint32_t>(
            std::clamp<std::uint64_t>(setting.value, wire::kDatagramSizeMin, wire::kDatagramSizeMax)));
        break;
      case wire::SettingKey::kIdleTimeoutMs:
        peer_idle_timeout_ =
            std::chrono::milliseconds(std::clamp<std::uint64_t>(setting.value, 1'000, 3'600'000));
        break;
      case wire::SettingKey::kPriority:
        if (setting.value != wire::kPriorityBackground || background_) break;
        congestion_ = make_congestion_controller(CongestionKind::kBackground, config_.seed);
        background_ = true;
        break;
      case wire::SettingKey::kFlows:
        congestion_->take_part(
            1 / static_cast<double>(std::clamp<std::uint64_t>(setting.value, 1, wire::kFlowsMax)));
        break;
      case wire::SettingKey::kReceived:
        congestion_->remember(kBytesPerKbit * static_cast<double>(setting.value));
        break;
      case wire::SettingKey::kFeatures:
        peer_takes_parity_ = (setting.value & wire::kFeatureParity) != 0;
        if ((setting.value & wire::kFeatureFlowNews) == 0) break;
        peers_flow_.let_hear();
        if (role_ == Role::kServer || siblings_by_peer_) break;
        siblings_by_peer_ = std::make_shared<SiblingsByPeer>();
        congestion_->meet(siblings_by_peer_);
        break;
    }
  }
}

Result<void> Connection::handle_ack(TimePoint now, const wire::AckFrame& ack) {
  SentPackets::Outcome outcome;
  if (!sent_.handle_ack(now, ack, rtt_, outcome))
    return tusk::fail(ErrorCode::kMalformed, "an acknowledgement of what was never sent");
  if (outcome.any_acked) last_progress_ = now;
  if (const auto& arrival = outcome.arrival)
    arrival_ =
        arrival->at % kPingTogether + kPingTogether - arrival->sent_at.time_since_epoch() % kPingTogether;
  acks_.adapt_delay(rtt_.smoothed());
  return apply(now, outcome);
}

Result<void> Connection::apply(TimePoint now, const SentPackets::Outcome& outcome) {
  for (const SentFrame& frame : outcome.acked) handle_frame_acked(frame);
  acked_packets_ += outcome.event.acked_packets;
  lost_packets_ += outcome.event.lost_packets;
  const bool ending = ends_within_a_round_trip();
  for (const SentFrame& frame : outcome.lost) {
    const RepeatedLosses::Verdict verdict = note_loss(now, frame);
    if (verdict == RepeatedLosses::Verdict::kChance)
      handle_frame_lost(now, frame, ending);
    else if (verdict == RepeatedLosses::Verdict::kUnlikely)
      repairs_later_.emplace(now + from_seconds(random_.uniform() * to_seconds(rtt_.smoothed())), frame);
    else
      return tusk::fail(ErrorCode::kTimedOut,
                        "the peer does not take a part of a message, however often it is sent");
  }
  const AckEvent& event = outcome.event;
  if (outcome.full_size_acked) {
    mtu_.handle_full_size_acked();
  } else if (outcome.full_size_swallowed) {
    mtu_.handle_full_size_lost(now);
  }
  sent_.watch_size(mtu_.datagram_size());
  const std::uint64_t settled = event.acked_packets + event.lost_packets;
  if (settled == 0) return {};
  const double share = static_cast<double>(event.lost_packets) / static_cast<double>(settled);
  copies_.handle_settled(event.acked_packets, event.lost_packets);
  loss_ += (share - loss_) * std::min(1.0, static_cast<double>(settled) / 5000);
  congestion_->handle_ack(event, rtt_);
  pacer_.note_rate(now, congestion_->pacing_rate());
  return {};
}

void Connection::handle_frame_acked(const SentFrame& frame) {
  switch (frame.kind) {
    case SentFrame::Kind::kBody:
      return exchanges_.handle_acked(frame.exchange, Part::kBody, frame.offset, frame.length);
    case SentFrame::Kind::kHeader:
      return exchanges_.handle_acked(frame.exchange, Part::kHeader, frame.offset, frame.length);
    case SentFrame::Kind::kMtuProbe:
      return mtu_.handle_probe_acked(frame.offset);
    case SentFrame::Kind::kParity:
    case SentFrame::Kind::kCancel:
    case SentFrame::Kind::kCredit:
    case SentFrame::Kind::kSettings:
    case SentFrame::Kind::kPing:
    case SentFrame::Kind::kPathResponse:
    case SentFrame::Kind::kAddressToken:
    case SentFrame::Kind::kResetToken:
      return;
  }
}

void Connection::repair(const SentFrame& frame) {
  exchanges_.handle_lost(frame.exchange, part_of(frame), frame.offset, frame.length);
}

// Who acknowledges all else would have us keep what it asked for, too. What a probe repeats does not count:
// only the acknowledgement of something later tells that it is not an outage.
RepeatedLosses::Verdict Connection::note_loss(TimePoint now, const SentFrame& frame) {
  if (frame.kind != SentFrame::Kind::kBody && frame.kind != SentFrame::Kind::kHeader)
    return RepeatedLosses::Verdict::kChance;
  const RepeatedLosses::Seen seen{now, rtt_.smoothed(), config_.idle_timeout, acked_packets_, lost_packets_};
  return exchanges_.note_loss(seen, frame.exchange, part_of(frame), frame.offset, frame.length);
}

// A repair that is lost from now on would be repaired after all else has arrived, as far as is known here: a
// server that has its answers only as it reads them copies more repairs, of which the line carries a
// sixteenth at most.
bool Connection::ends_within_a_round_trip() const {
  const double round_trip = congestion_->bandwidth() * to_seconds(rtt_.smoothed());
  return !exchanges_.has_outgoing() || static_cast<double>(exchanges_.unsent_bytes()) < round_trip;
}

void Connection::handle_frame_lost(TimePoint now, const SentFrame& frame, bool ending) {
  switch (frame.kind) {
    case SentFrame::Kind::kBody:
    case SentFrame::Kind::kHeader:
      copies_.handle_lost(now, frame, ending, rtt_.smoothed());
      return repair(frame);
    case SentFrame::Kind::kCancel:
      return lost_cancels_.push_back({frame.exchange, frame.length});
    case SentFrame::Kind::kCredit:
      credit_resend_ = true;
      return;
    case SentFrame::Kind::kSettings:
      settings_due_ = true;
      return;
    case SentFrame::Kind::kResetToken:
      reset_token_due_ = true;
      return;
    // Parity and a token for the next time are gifts, a ping's loss is an answer, and the peer repeats its
    // challenge by itself.
    case SentFrame::Kind::kParity:
    case SentFrame::Kind::kMtuProbe:
    case SentFrame::Kind::kPing:
    case SentFrame::Kind::kPathResponse:
    case SentFrame::Kind::kAddressToken:
      return;
  }
}

void Connection::update_receive_rate(TimePoint now, std::size_t size) {
  const Duration interval = std::max(kRateIntervalMin, rtt_.has_sample() ? rtt_.smoothed() / 2 : Duration(0));
  if (now - rate_interval_start_ >= interval) {
    const double rate = static_cast<double>(rate_interval_bytes_) / to_seconds(now - rate_interval_start_);
    // The best of the last busy seconds: an idle line is not a slow one.
    if (rate >= receive_rate_ || now - receive_rate_at_ > kReceiveRateKept) {
      receive_rate_ = std::max(rate, receive_rate_ / 2);
      receive_rate_at_ = now;
    }
    // One interval alone may have been a burst.
    receive_rate_mean_ += (rate - receive_rate_mean_) * kReceiveRateWeight;
    receive_rate_best_ = std::max(receive_rate_best_, receive_rate_mean_);
    rate_interval_start_ = now;
    rate_interval_bytes_ = 0;
  }
  rate_interval_bytes_ += size;
}

// ---------------------------------------------------------------- path and time

void Connection::challenge_path(TimePoint now) { challenge_ = Challenge{draw_secret(), now, 0}; }

// One that could not go out, because what came from there does not allow it, counts as well.
void Connection::judge_challenge(TimePoint now) {
  const Duration late = std::max(challenge_patience(), kChallengeHeldUp);
  if (now >= challenge_->resend_at + late && challenge_->attempts < kChallengeAttemptsMax) {
    ++challenge_->attempts;
    challenge_->resend_at = now;
  }
  if (now < challenge_->resend_at || challenge_->attempts < kChallengeAttemptsMax) return;
  challenge_.reset();
  events_.push_back(PathFailed{});
}

Duration Connection::challenge_patience() const {
  return std::max<Duration>(kChallengeMin, 2 * rtt_.smoothed());
}

Duration Connection::keep_alive() const {
  // Who waits for an answer wants to know soon that none can come.
  const Duration waiting = exchanges_.open_count() > 0 ? kKeepAliveWaiting : config_.keep_alive;
  const Duration forgotten_after = std::min(config_.idle_timeout, peer_idle_timeout_);
  return std::min(
      {config_.keep_alive, waiting, keep_alive_max_, forgotten_after / kKeepAlivesPerIdleTimeout});
}

// Of many clients that are idle each would wake the server up by itself. So they ping a little sooner, when
// by the server's clock a quarter of a second begins: then it wakes up for many at once.
TimePoint Connection::ping_at() const {
  const TimePoint due = last_eliciting_sent_ + keep_alive();
  if (!arrival_ || keep_alive() < 2 * kPingTogether) return due;
  return due - (due.time_since_epoch() + *arrival_) % kPingTogether;
}

TimePoint Connection::next_timeout() const {
  if (state_ == State::kClosed) return kNever;
  if (state_ == State::kClosing || probes_due_ > 0 || has_control()) return TimePoint{};
  TimePoint next = std::min(acks_.due_at(), sent_.next_timeout(rtt_));
  if (exchanges_.has_outgoing() && sent_.in_flight() < congestion_->window())
    next = std::min(next, pacer_.next());
  next = std::min({next, mtu_.next_timeout(), copies_.next_timeout()});
  if (!repairs_later_.empty()) next = std::min(next, repairs_later_.begin()->first);
  if (!exchanges_.has_outgoing() && sent_.in_flight() < congestion_->window()) {
    next = std::min(next, std::max(pacer_.next(), capacity_probe_.next_timeout()));
    if (tail_.pending() || exchanges_.has_unprotected())
      next =
          std::min(next, std::max(pacer_.next(), no_news_since_.value_or(TimePoint{}) + TailParity::kRest));
  }
  next = std::min(next, last_received_ + std::min(config_.idle_timeout, peer_idle_timeout_));
  if (sent_.in_flight() > 0) next = std::min(next, last_progress_ + config_.idle_timeout);
  if (role_ == Role::kClient) next = std::min(next, ping_at());
  if (challenge_) next = std::min(next, challenge_->resend_at);
  return next;
}

void Connection::handle_timeout(TimePoint now) {
  if (state_ == State::kClosing) {
    if (close_by_ == kNever) close_by_ = now + kClosePatience;
    if (now >= close_by_) state_ = State::kClosed;
  }
  if (state_ != State::kOpen) return;
  if (now >= last_received_ + std::min(config_.idle_timeout, peer_idle_timeout_))
    return die(ErrorCode::kTimedOut, "the peer fell silent");
  // Who talks and acknowledges nothing would have us keep all that it asked for.
  if (sent_.in_flight() > 0 && now >= last_progress_ + config_.idle_timeout)
    return die(ErrorCode::kTimedOut, "the peer acknowledges nothing");
  if (role_ == Role::kClient && now >= ping_at()) ping_due_ = true;
  if (challenge_) judge_challenge(now);
  SentPackets::Outcome outcome;
  const bool probe = sent_.handle_timeout(now, rtt_, outcome);
  if (const Result<void> applied = apply(now, outcome); !applied) return fail(applied.error());
  if (!probe) return;
  probes_due_ = kProbePackets;
  for (const SentFrame& frame : sent_.oldest_outstanding()) handle_frame_lost(now, frame, false);
  if (sent_.probes_unanswered() == SentPackets::kOutageProbes) congestion_->handle_outage(now);
}

std::optional<Event> Connection::poll_event() {
  if (next_event_ >= events_.size()) {
    events_.clear();
    next_event_ = 0;
    return std::nullopt;
  }
  return std::move(events_[next_event_++]);
}

ConnectionStats Connection::stats() const {
  ConnectionStats stats;
  stats.rtt_min = rtt_.has_sample() ? rtt_.minimum() : Duration(0);
  stats.rtt_smoothed = rtt_.has_sample() ? rtt_.smoothed() : Duration(0);
  stats.queueing = rtt_.has_sample() ? rtt_.queueing() : Duration(0);
  stats.send_bandwidth = congestion_->bandwidth();
  stats.capacity = congestion_->capacity();
  stats.receive_bandwidth = receive_rate_;
  stats.receive_best = receive_rate_best_;
  stats.loss = loss_;
  stats.datagram_size = mtu_.datagram_size();
  stats.bytes_sent = bytes_sent_;
  stats.bytes_received = bytes_received_;
  stats.body_bytes_received = exchanges_.body_bytes_received();
  stats.packets_sent = sent_.next_number().value();
  stats.packets_received = packets_received_;
  stats.packets_lost = sent_.lost_total();
  stats.packets_spurious = sent_.spurious_total();
  stats.packets_parity = packets_parity_;
  stats.in_flight = sent_.in_flight();
  stats.window = congestion_->window();
  stats.pacing_rate = congestion_->pacing_rate();
  stats.idle = idle_;
  stats.congestion_state = congestion_->state();
  stats.background = background_;
  return stats;
}

}  // namespace tusk::transport

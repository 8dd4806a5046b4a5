// What a connection's packets are made of, and when they leave.
#include <algorithm>
#include <utility>

#include "proto/transport/connection.h"
#include "proto/transport/train_capacity.h"

namespace tusk::transport {
namespace {

constexpr std::size_t kOverhead = wire::kShortHeaderSize + wire::kTagSize;
// Of a close frame: type, code, length of the reason.
constexpr std::size_t kCloseOverhead = 1 + 2 + 2;
constexpr std::uint64_t kPacketsPerFloor = 64;
// So much to send at once is a transfer that begins.
constexpr ByteCount kDemand = 128 << 10;

}  // namespace

// The packet under construction: where its frames are written and what must be remembered of them.
struct Connection::Assembly {
  Assembly(std::span<std::byte> payload, std::vector<SentFrame>& sent) : writer(payload), frames(sent) {
    frames.clear();
  }
  [[nodiscard]] bool empty() const { return writer.written() == 0; }

  ByteWriter writer;
  std::vector<SentFrame>& frames;
  bool closed_by_body = false;           // a body without length: nothing may follow
  std::span<const std::byte> tail = {};  // its bytes, which are not copied
};

bool Connection::may_send_data(TimePoint now) const {
  return sent_.in_flight() < congestion_->window() && pacer_.ready(now);
}

bool Connection::has_control() const {
  return settings_due_ || credit_resend_ || exchanges_.credit_due() || ping_due_ || !lost_cancels_.empty() ||
         !path_responses_.empty() || !address_token_.empty() || reset_token_due_;
}

std::optional<Connection::Packet> Connection::poll_packet(TimePoint now, std::span<std::byte> payload) {
  if (state_ == State::kClosing) return poll_close(now, payload);
  if (state_ == State::kClosed) return std::nullopt;

  queue_due_repairs(now);
  pacer_.note_wish(now, exchanges_.has_outgoing() && sent_.in_flight() < congestion_->window());
  // Room for less than any packet: the address is not proven, see rpc/transmit.h.
  const bool limited = payload.size() < wire::kDatagramSizeMax - kOverhead;
  const bool data_allowed = may_send_data(now);
  if (limited) {
    mtu_.postpone(now + rtt_.smoothed());
    capacity_probe_.abandon();
  } else if (data_allowed || probes_due_ == 0) {
    if (auto probe = poll_mtu_probe(now, payload)) return probe;
  }
  if (!limited && data_allowed && !exchanges_.has_outgoing() &&
      capacity_probe_.due(now, TrainCapacity::bytes_min(mtu_.datagram_size()), congestion_->probe_train(),
                          sent_.in_flight()))
    return poll_capacity_probe(now, payload);
  const bool probing = probes_due_ > 0;
  const bool ack_due = acks_.due_at() <= now;
  // Before one looks whether there is anything to send: it may find something to be said again.
  const bool parity = data_allowed && !probing && !exchanges_.has_outgoing() && find_parity(now, limited);
  const bool data = probing || (data_allowed && !parity && exchanges_.has_outgoing());
  const bool challenge_due = challenge_ && challenge_->resend_at <= now;
  if (!ack_due && !has_control() && !challenge_due && !data && !parity) {
    if (data_allowed) note_app_limited(now);
    return std::nullopt;
  }
  // A probe stays small, so that it passes even where large packets stopped to.
  const std::size_t datagram = probing ? wire::kDatagramSizeMin : mtu_.datagram_size();
  Assembly assembly(payload.first(std::min(payload.size(), datagram - kOverhead)), frames_);
  // Where little fits, the challenge that lifts the limit goes before acknowledgements.
  if (limited) add_control(now, assembly);
  const bool ack = ack_due || (acks_.pending() && !exchanges_.has_outgoing() && !parity);
  // What the others have counts when the acknowledgement behind it ends a round.
  if (!probing && !limited) add_flow_news(now, ack, assembly);
  if (ack) add_ack(now, assembly);
  if (!limited) add_control(now, assembly);
  if (data && !probing && !limited) mark_train(now, assembly);
  if (data) add_messages(now, assembly);
  if (parity) add_parity(now, assembly);
  // An acknowledgement may have filled what little an unproven address gets; then the next packet is the
  // probe.
  if (probing && (!assembly.frames.empty() || assembly.writer.room() > 0)) {
    --probes_due_;
    if (assembly.frames.empty()) {
      write_frame(wire::PingFrame{}, assembly.writer);
      assembly.frames.push_back({SentFrame::Kind::kPing, {}, 0, 0});
    }
  }
  if (assembly.empty()) return std::nullopt;
  return finish(now, assembly);
}

// A piece that arrived meanwhile is not queued again, and a repair goes before all else.
void Connection::queue_due_repairs(TimePoint now) {
  while (!repairs_later_.empty() && repairs_later_.begin()->first <= now) {
    repair(repairs_later_.begin()->second);
    repairs_later_.erase(repairs_later_.begin());
  }
  while (const auto frame = copies_.take_due(now, sent_.in_flight(), congestion_->window())) repair(*frame);
}

// Is there parity to be sent? Called when there is nothing else to; afterwards there may be repairs of small
// messages.
bool Connection::find_parity(TimePoint now, bool limited) {
  if (!tail_.pending() && !exchanges_.has_unprotected()) return false;
  const double loss = copies_.seen_loss();
  if (limited || !peer_takes_parity_ || !TailParity::worthwhile(rtt_.minimum(), loss)) {
    exchanges_.forget_unprotected();
    tail_.drop();
    return false;
  }
  if (!no_news_since_) no_news_since_ = now;
  if (now < *no_news_since_ + TailParity::kRest) return false;
  const std::size_t room = mtu_.datagram_size() - kOverhead;
  if (tail_.pending() && (tail_.frame_size() > room || !exchanges_.unacknowledged(tail_.exchange())))
    tail_.drop();
  while (!tail_.pending()) {
    const auto part = exchanges_.next_unprotected(room);
    if (!part) return false;
    // What all goes out twice needs no parity.
    const ByteCount urgent = part->urgent_size;
    if (urgent > 0 && copies_.copies(urgent, rtt_.smoothed(), congestion_->pacing_rate())) continue;
    tail_.protect(*part, loss);
  }
  return true;
}

void Connection::note_app_limited(TimePoint now) {
  if (exchanges_.has_outgoing()) return;
  if (!idle_since_) idle_since_ = now;
  app_limited_until_ = sent_.delivered() + std::max<ByteCount>(sent_.in_flight(), 1);
}

Connection::Packet Connection::finish(TimePoint now, Assembly& assembly) {
  const bool tracked = !assembly.frames.empty();
  if (tracked) skip_now_and_then();
  const std::size_t payload_size = assembly.writer.written() + assembly.tail.size();
  const Packet packet{sent_.next_number(), payload_size, false, assembly.tail};
  const auto size = static_cast<std::uint32_t>(packet.payload_size + kOverhead);
  if (tracked && sent_.in_flight() == 0) last_progress_ = now;
  sent_.record(now, size, assembly.frames, sent_.delivered() < app_limited_until_);
  if (!tracked) sent_.forget_settled(now, rtt_);
  if (tracked) {
    if (idle_since_) {
      idle_ += now - *std::exchange(idle_since_, std::nullopt);
      if (exchanges_.unsent_bytes() >= kDemand) congestion_->handle_demand(now, rtt_);
    }
    pacer_.on_sent(now, size, congestion_->pacing_rate(), congestion_->burst(), congestion_->catch_up());
    last_eliciting_sent_ = now;
  }
  bytes_sent_ += size;
  copies_.handle_bytes_sent(size);
  return packet;
}

// What a train tells is told by numbers: not within one. Before what asks for an acknowledgement: with that
// the one that was left out is settled.
void Connection::skip_now_and_then() {
  if (packets_until_skip_ > 0) --packets_until_skip_;
  if (packets_until_skip_ > 0 || (congestion_->measures_trains() && train_packets_ > 1)) return;
  packets_until_skip_ = kSkipEvery + draw_secret() % kSkipEvery;
  sent_.skip();
}

void Connection::add_ack(TimePoint now, Assembly& assembly) {
  if (const auto frame = acks_.take_frame(now, assembly.writer.room())) write_frame(*frame, assembly.writer);
}

void Connection::write_settings(ByteWriter& writer) const {
  const auto idle_ms = std::chrono::duration_cast<std::chrono::milliseconds>(config_.idle_timeout).count();
  const bool background = config_.congestion == CongestionKind::kBackground;
  // Who only has what the others leave is none of them.
  const std::uint64_t features = wire::kFeatureParity | (background ? 0 : wire::kFeatureFlowNews);
  wire::SettingsFrame settings{{
      {static_cast<std::uint64_t>(wire::SettingKey::kReceiveSizeMax), config_.datagram_size_max},
      {static_cast<std::uint64_t>(wire::SettingKey::kIdleTimeoutMs), static_cast<std::uint64_t>(idle_ms)},
      {static_cast<std::uint64_t>(wire::SettingKey::kFeatures), features},
  }};
  if (background)
    settings.settings.push_back(
        {static_cast<std::uint64_t>(wire::SettingKey::kPriority), wire::kPriorityBackground});
  if (received_before_ > 0)
    settings.settings.push_back({static_cast<std::uint64_t>(wire::SettingKey::kReceived),
                                 static_cast<std::uint64_t>(received_before_ / kBytesPerKbit)});
  if (flows_) settings.settings.push_back({static_cast<std::uint64_t>(wire::SettingKey::kFlows), *flows_});
  write_frame(settings, writer);
}

// They ask for no acknowledgement and are not repeated: a round trip later there are newer ones.
void Connection::add_flow_news(TimePoint now, bool ack, Assembly& assembly) {
  ByteWriter& writer = assembly.writer;
  if (siblings_by_peer_ && writer.room() >= wire::kFlowNewsFrameMax)
    if (const auto news = siblings_by_peer_->take_news(now)) write_frame(*news, writer);
  if (ack && writer.room() >= wire::kOtherFlowsFrameMax)
    if (const auto others = peers_flow_.take_answer(now)) write_frame(*others, writer);
}

void Connection::add_control(TimePoint now, Assembly& assembly) {
  ByteWriter& writer = assembly.writer;
  const auto note = [&](SentFrame::Kind kind, wire::ExchangeId exchange = {}, std::uint32_t length = 0) {
    assembly.frames.push_back({kind, exchange, 0, length});
  };
  // Where little fits, it is what lifts the limit.
  if (challenge_ && now >= challenge_->resend_at && writer.room() >= wire::kSmallFrameMax) {
    write_frame(wire::PathChallengeFrame{challenge_->data}, writer);
    note(SentFrame::Kind::kPing);
    ++challenge_->attempts;
    challenge_->resend_at = now + challenge_patience();
  }
  if (++packets_since_floor_ >= kPacketsPerFloor && writer.room() >= wire::kSmallFrameMax) {
    packets_since_floor_ = 0;
    write_frame(wire::FloorFrame{sent_.floor()}, writer);
  }
  if (settings_due_ && writer.room() >= wire::kSettingsFrameMax) {
    settings_due_ = false;
    write_settings(writer);
    note(SentFrame::Kind::kSettings);
  }
  if ((credit_resend_ || exchanges_.credit_due()) && writer.room() >= wire::kSmallFrameMax) {
    credit_resend_ = false;
    write_frame(exchanges_.take_credit(), writer);
    note(SentFrame::Kind::kCredit);
  }
  while (!path_responses_.empty() && writer.room() >= wire::kSmallFrameMax) {
    write_frame(wire::PathResponseFrame{path_responses_.back()}, writer);
    path_responses_.pop_back();
    // No window holds them back, and it is the peer that decides how many there are. Beyond the window they
    // are not waited for: it repeats its challenge, and what fills the window has a timer.
    if (sent_.in_flight() < congestion_->window()) note(SentFrame::Kind::kPathResponse);
  }
  while (!lost_cancels_.empty() && writer.room() >= wire::kSmallFrameMax) {
    const wire::CancelFrame frame = lost_cancels_.back();
    lost_cancels_.pop_back();
    write_frame(frame, writer);
    note(SentFrame::Kind::kCancel, frame.exchange, static_cast<std::uint32_t>(frame.request_bytes));
  }
  if (!address_token_.empty() && writer.room() >= wire::kSmallFrameMax + address_token_.size()) {
    write_frame(wire::AddressTokenFrame{address_token_}, writer);
    address_token_.clear();
    note(SentFrame::Kind::kAddressToken);
  }
  if (reset_token_due_ && writer.room() >= 1 + wire::kResetTokenSize) {
    write_frame(wire::ResetTokenFrame{reset_token_}, writer);
    reset_token_due_ = false;
    note(SentFrame::Kind::kResetToken);
  }
  if (ping_due_ && writer.room() >= 1) {
    ping_due_ = false;
    write_frame(wire::PingFrame{}, writer);
    note(SentFrame::Kind::kPing);
  }
}

// Acknowledgements thin out, but what a train tells are the times at which two of its packets arrived.
void Connection::mark_train(TimePoint now, Assembly& assembly) {
  if (now - train_began_ > TrainEstimator::kTogether) {
    train_began_ = now;
    train_packets_ = 0;
  }
  const bool slow = TrainEstimator::one_by_one(congestion_->pacing_rate(), mtu_.datagram_size());
  // What is shorter tells nothing.
  const std::uint64_t least = slow ? TrainEstimator::kPacketsSlow : TrainEstimator::kPacketsMin;
  const bool long_enough =
      exchanges_.unsent_bytes() >= (train_packets_ == 0 ? least * mtu_.datagram_size() : 1);
  const std::uint64_t index = train_packets_++;
  const bool due =
      index % TrainEstimator::kPacketsMin == 0 || (slow && index == TrainEstimator::kPacketsSlow);
  if (!due || !long_enough || !congestion_->measures_trains()) return;
  write_frame(wire::PingFrame{}, assembly.writer);
  assembly.frames.push_back({SentFrame::Kind::kPing, {}, 0, 0});
}

void Connection::add_messages(TimePoint now, Assembly& assembly) {
  ByteWriter& writer = assembly.writer;
  while (writer.room() >= wire::kSmallFrameMax) {
    const auto cancel = exchanges_.poll_cancel();
    if (!cancel) break;
    write_frame(*cancel, writer);
    assembly.frames.push_back(
        {SentFrame::Kind::kCancel, cancel->exchange, 0, static_cast<std::uint32_t>(cancel->request_bytes)});
  }
  while (!assembly.closed_by_body) {
    const auto outgoing = exchanges_.next_outgoing(writer.room());
    if (!outgoing) return;
    const OutgoingMessage::Piece& piece = outgoing->piece;
    if (!outgoing->repair) no_news_since_.reset();
    if (piece.part == Part::kHeader) {
      write_frame(outgoing->header, writer);
    } else {
      assembly.closed_by_body = outgoing->body_fills_packet;
      if (assembly.closed_by_body) assembly.tail = piece.data;
      const auto copied = assembly.closed_by_body ? std::span<const std::byte>() : piece.data;
      write_frame(wire::BodyFrame{outgoing->exchange, piece.offset, copied}, assembly.closed_by_body, writer);
      if (exchanges_.unsent_bytes() >= kDemand)
        capacity_probe_.abandon();
      else
        capacity_probe_.postpone(now);
    }
    assembly.frames.push_back(
        {piece.part == Part::kHeader ? SentFrame::Kind::kHeader : SentFrame::Kind::kBody, outgoing->exchange,
         static_cast<std::uint32_t>(piece.offset), static_cast<std::uint32_t>(piece.data.size()),
         outgoing->repair});
    if (outgoing->urgent_size > 0)
      copies_.handle_sent(now, assembly.frames.back(), outgoing->urgent_size, rtt_.smoothed(),
                          congestion_->pacing_rate());
  }
}

// A row fills a packet: beside a frame that was due it waits for the next.
void Connection::add_parity(TimePoint now, Assembly& assembly) {
  if (assembly.writer.room() < tail_.frame_size()) return;
  note_app_limited(now);
  assembly.frames.push_back(tail_.write_next(assembly.writer));
  ++packets_parity_;
}

std::optional<Connection::Packet> Connection::poll_mtu_probe(TimePoint now, std::span<std::byte> payload) {
  const auto size = mtu_.poll_probe(now, rtt_.smoothed());
  if (!size) return std::nullopt;
  Assembly assembly(payload.first(*size - kOverhead), frames_);
  write_frame(wire::PingFrame{}, assembly.writer);
  write_frame(wire::PaddingFrame{assembly.writer.room()}, assembly.writer);
  assembly.frames.push_back({SentFrame::Kind::kMtuProbe, {}, *size, 0});
  Packet packet = finish(now, assembly);
  packet.mtu_probe = true;
  return packet;
}

Connection::Packet Connection::poll_capacity_probe(TimePoint now, std::span<std::byte> payload) {
  note_app_limited(now);
  capacity_probe_.handle_sent(now, mtu_.datagram_size());
  Assembly assembly(payload.first(mtu_.datagram_size() - kOverhead), frames_);
  write_frame(wire::PingFrame{}, assembly.writer);
  write_frame(wire::PaddingFrame{assembly.writer.room()}, assembly.writer);
  assembly.frames.push_back({SentFrame::Kind::kPing, {}, 0, 0});
  return finish(now, assembly);
}

std::optional<Connection::Packet> Connection::poll_close(TimePoint now, std::span<std::byte> payload) {
  state_ = State::kClosed;
  Assembly assembly(payload.first(std::min(payload.size(), wire::kDatagramSizeMin - kOverhead)), frames_);
  const auto reason = as_byte_span(close_reason_);
  const std::size_t room = assembly.writer.room() - kCloseOverhead;
  write_frame(
      wire::CloseFrame{static_cast<std::uint16_t>(close_code_), reason.first(std::min(room, reason.size()))},
      assembly.writer);
  return finish(now, assembly);
}

}  // namespace tusk::transport

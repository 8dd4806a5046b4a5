// One connection and a peer played by the test, frame by frame.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/transport/connection.h"
#include "tests/golden/samples/samples.h"
#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {

using golden::Bytes;
using golden::counting_bytes;
using golden::from_hex;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using wire::ExchangeId;
using wire::Frame;
using wire::PacketNumber;

constexpr std::size_t kOverhead = wire::kShortHeaderSize + wire::kTagSize;

struct SentPacketText {
  std::uint64_t number = 0;
  std::size_t size = 0;  // of the datagram
  bool mtu_probe = false;
  std::vector<std::string> frames;
};

class ConnectionTest : public testing::Test {
 protected:
  explicit ConnectionTest(Role role = Role::kServer, ConnectionConfig config = {})
      : connection_(role, config, now_, 100ms) {}

  // ------------------------------------------------ the peer
  void receive(std::span<const std::byte> payload) {
    connection_.handle_packet(now_, PacketNumber(next_number_++), payload, payload.size() + kOverhead, false);
  }
  void receive(std::initializer_list<Frame> frames) {
    Bytes payload;
    for (const Frame& frame : frames) {
      const Bytes bytes = golden::encode(frame);
      payload.insert(payload.end(), bytes.begin(), bytes.end());
    }
    receive(payload);
  }
  void receive_hex(std::string_view hex) { receive(from_hex(hex).value()); }
  void acknowledge(std::uint64_t first, std::uint64_t last) {
    wire::AckFrame ack;
    ack.ranges.push_back({PacketNumber(first), PacketNumber(last)});
    receive({ack});
  }
  void acknowledge_all_but(std::uint64_t missing) {
    const std::uint64_t last = connection_.sent_packets().next_number().value() - 1;
    wire::AckFrame ack;
    if (last > missing) ack.ranges.push_back({PacketNumber(missing + 1), PacketNumber(last)});
    if (missing > 0) ack.ranges.push_back({PacketNumber(0), PacketNumber(missing - 1)});
    receive({ack});
  }
  void acknowledge_all() {
    const std::uint64_t next = connection_.sent_packets().next_number().value();
    if (next > 0) acknowledge(0, next - 1);
  }

  // ------------------------------------------------ the connection
  // Everything it sends at this moment, and later as far as pacing holds it back.
  std::vector<SentPacketText> packets() {
    std::vector<SentPacketText> sent;
    Bytes payload(wire::kDatagramSizeMax);
    while (const auto packet = connection_.poll_packet(now_, payload)) {
      packet->copy_tail(payload);
      const auto frames = golden::decode_all(std::span(payload).first(packet->payload_size));
      EXPECT_TRUE(frames) << "it sent what no peer accepts";
      SentPacketText text{packet->number.value(), packet->payload_size + kOverhead, packet->mtu_probe, {}};
      for (const Frame& frame : *frames) text.frames.push_back(golden::describe(frame));
      sent.push_back(std::move(text));
      EXPECT_LT(sent.size(), 10'000u) << "it never stops";
    }
    return sent;
  }
  // The frames of packets(), without probes of the MTU.
  std::vector<std::string> frames() {
    std::vector<std::string> texts;
    for (const auto& packet : packets())
      if (!packet.mtu_probe) texts.insert(texts.end(), packet.frames.begin(), packet.frames.end());
    return texts;
  }
  // The number of the packet among those sent now with a frame that begins so.
  std::uint64_t number_of_packet_with(std::string_view start) {
    std::optional<std::uint64_t> found;
    for (const auto& packet : packets())
      for (const std::string& frame : packet.frames)
        if (frame.starts_with(start)) found = packet.number;
    EXPECT_TRUE(found) << "no " << start;
    return found.value_or(0);
  }

  void wait(Duration duration) { now_ += duration; }
  // A packet that must be acknowledged and needs no answer.
  void send_something() {
    wait(1ms);
    connection_.send_address_token(counting_bytes(4));
    (void)packets();
  }
  // Lets timers fire for so long; what is sent meanwhile is lost.
  void run_in_silence(Duration duration) {
    const TimePoint end = now_ + duration;
    for (int i = 0; connection_.next_timeout() <= end && !connection_.closed(); ++i) {
      ASSERT_LT(i, 100'000) << "it spins";
      now_ = std::max(now_, connection_.next_timeout());
      connection_.handle_timeout(now_);
      (void)packets();
    }
    now_ = end;
  }
  // Both sides have said what they have to say at the start.
  void settle() {
    receive({wire::SettingsFrame{{{1, 1472}, {2, 30'000}}}});
    for (int i = 0; i < 10; ++i) {
      (void)packets();
      wait(100ms);
      acknowledge_all();
      connection_.handle_timeout(now_);
    }
    (void)packets();
    (void)events();
  }
  // Its request is acknowledged, and then nothing is heard for so long.
  void expect_ping_while_a_call_is_open(Duration after) {
    settle();
    open();
    (void)packets();
    wait(100ms);
    acknowledge_all();
    (void)packets();
    wait(after);
    connection_.handle_timeout(now_);
    EXPECT_THAT(frames(), Contains("PING"));
  }
  std::vector<std::string> events() {
    std::vector<std::string> texts;
    while (const auto event = connection_.poll_event()) {
      if (const auto* closed = std::get_if<Closed>(&*event)) {
        texts.push_back(fmt::format("closed {} {}", static_cast<int>(closed->code), closed->reason));
      } else if (const auto* request = std::get_if<RequestArrived>(&*event)) {
        texts.push_back(fmt::format("request {}", request->exchange.value()));
      } else if (const auto* reply = std::get_if<ReplyArrived>(&*event)) {
        texts.push_back(fmt::format("reply {}", reply->exchange.value()));
      } else if (const auto* cancelled = std::get_if<RequestCancelled>(&*event)) {
        texts.push_back(fmt::format("cancelled {}", cancelled->exchange.value()));
      } else if (const auto* token = std::get_if<AddressTokenArrived>(&*event)) {
        texts.push_back("address token " + golden::to_hex(token->token));
      } else if (const auto* reset = std::get_if<ResetTokenArrived>(&*event)) {
        texts.push_back("reset token " + golden::to_hex(reset->token));
      } else {
        texts.push_back(std::holds_alternative<PathValidated>(*event) ? "path validated" : "path failed");
      }
    }
    return texts;
  }
  ExchangeId open(std::size_t body = 0) {
    return connection_.open_exchange(copy_bytes(counting_bytes(10)), copy_bytes(Bytes(body)),
                                     allocate_bytes(100), wire::Priority::kInteractive);
  }

  TimePoint now_ = at(1s);
  std::uint64_t next_number_ = 0;
  Connection connection_;
};

class ClientConnectionTest : public ConnectionTest {
 protected:
  ClientConnectionTest() : ConnectionTest(Role::kClient) {}
};

inline wire::MessageHeaderFrame request_header(std::uint64_t exchange, ByteCount header_size,
                                               ByteCount body_size, std::span<const std::byte> data) {
  return {ExchangeId(exchange), wire::Priority::kBulk, header_size, body_size, 0, 0, data};
}

}  // namespace tusk::transport

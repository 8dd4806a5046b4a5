// One connection against a peer that has the keys and no manners: any frames in any order. It may close;
// it may not crash, spin, speak nonsense or grow without bound.
#include <algorithm>
#include <deque>

#include "proto/base/check.h"
#include "proto/transport/connection.h"
#include "tests/fuzz/targets/operations.h"
#include "tests/fuzz/targets/targets.h"
#include "tests/golden/samples/samples.h"

namespace tusk::fuzz {
namespace {

using transport::Connection;
using transport::Role;
using wire::ExchangeId;

constexpr int kOperationsMax = 400;
constexpr int kPacketsAtOnceMax = 20'000;  // of what may be sent at one moment
constexpr int kTimersAtOnceMax = 50;
constexpr ByteCount kOpenedMax = 1 << 20;
constexpr std::size_t kPacketMax = 1500;

class Victim {
 public:
  explicit Victim(Operations& operations)
      : operations_(operations),
        role_(operations.flag() ? Role::kServer : Role::kClient),
        connection_(role_, config(operations), now_, operations.flag() ? Duration(0) : Duration(20ms)) {}

  void run() {
    settle();
    for (int i = 0; i < kOperationsMax && !operations_.at_end() && !connection_.closed(); ++i) {
      step();
      settle();
    }
    // Whatever happened, silence ends it.
    for (int i = 0; i < 10'000 && !connection_.closed(); ++i) {
      now_ = std::max(now_, connection_.next_timeout());
      settle();
    }
    TUSK_CHECK(connection_.closed());
    TUSK_CHECK(connection_.next_timeout() == kNever);
  }

 private:
  static transport::ConnectionConfig config(Operations& operations) {
    transport::ConnectionConfig config;
    if (operations.flag()) config.credit = {.request_bytes = 20'000, .exchanges = 8};
    if (operations.flag()) config.datagram_size_max = wire::kDatagramSizeMin;
    config.seed = operations.u8();
    return config;
  }

  void step() {
    switch (operations_.below(14)) {
      case 0:
      case 1:
      case 2:
        return receive(operations_.bytes(kPacketMax));
      case 3:
        return acknowledge();
      case 4:
        return receive_piece();
      case 5:
        return receive_sample();
      case 6:
        now_ += std::chrono::microseconds(operations_.u16());
        return;
      case 7:
        now_ += std::chrono::milliseconds(operations_.u16() % 4000);
        return;
      case 8:
        return open();
      case 9:
        return connection_.cancel_exchange(ExchangeId(operations_.u8()));
      case 10:
        return reply();
      case 11:
        return connection_.challenge_path(now_);
      case 12:
        return connection_.handle_too_big(operations_.u16());
      default:
        if (operations_.u8() == 0) return connection_.close(ErrorCode::kPeerClosed, "enough");
        connection_.send_address_token(golden::counting_bytes(1 + operations_.below(wire::kTokenMax)));
        connection_.send_reset_token(golden::counting_bytes(wire::kResetTokenSize));
    }
  }

  void receive(std::span<const std::byte> payload) {
    // Mostly in order; now and then an old number, or a leap.
    const std::uint8_t choice = operations_.u8();
    std::uint64_t number = next_number_;
    if (choice < 32) number -= std::min<std::uint64_t>(number, choice);
    if (choice > 250) number += 1ull << (choice - 230);
    next_number_ = std::max(next_number_, number + 1);
    connection_.handle_packet(now_, wire::PacketNumber(number), payload, payload.size() + 29, choice == 100);
  }
  void receive(const wire::Frame& frame) { receive(golden::encode(frame)); }

  // Packets that were sent, so that recovery and congestion control have something to do.
  void acknowledge() {
    const std::uint64_t next = connection_.sent_packets().next_number().value();
    if (next == 0) return;
    wire::AckFrame ack;
    ack.delay_us = operations_.u16();
    ack.received_at_us = operations_.flag() ? static_cast<std::uint64_t>((now_ - TimePoint()).count() / 1000)
                                            : std::uint64_t{operations_.u16()} << (operations_.u8() % 46);
    ack.congestion_marks = operations_.u8();
    std::uint64_t last = next - 1 - std::min(next - 1, operations_.below(20));
    for (std::uint64_t ranges = 1 + operations_.below(4); ranges > 0; --ranges) {
      const std::uint64_t first = last - std::min(last, operations_.below(200));
      ack.ranges.push_back({wire::PacketNumber(first), wire::PacketNumber(last)});
      const std::uint64_t gap = 2 + operations_.below(8);
      if (first < gap) break;
      last = first - gap;
    }
    receive(wire::Frame(ack));
  }

  // A piece of a call of the peer's, or of an answer, with sizes that fit more often than not.
  void receive_piece() {
    const Bytes data = golden::counting_bytes(1 + operations_.below(200));
    const ExchangeId exchange(operations_.below(12));
    const ByteCount size = 1 + operations_.below(256);
    const std::uint64_t kind = operations_.below(4);
    if (kind < 2) return receive(wire::Frame(wire::BodyFrame{exchange, operations_.below(256), data}));
    if (kind == 2)
      return receive(wire::Frame(wire::ParityFrame{exchange, operations_.below(256), size,
                                                   static_cast<std::uint8_t>(operations_.below(16)), data}));
    const auto part = std::span(data).first(std::min<std::size_t>(data.size(), size));
    receive(
        wire::Frame(wire::MessageHeaderFrame{exchange, wire::Priority::kBulk, size, operations_.below(256),
                                             100, operations_.flag() ? 0 : size - part.size(), part}));
  }

  void receive_sample() {
    const auto& samples = golden::frame_samples();
    const auto& sample = samples[operations_.below(samples.size())];
    receive(golden::encode(sample.frame, sample.form));
  }

  void open() {
    const std::size_t body = operations_.below(60'000);
    if (opened_ + body > kOpenedMax) return;
    opened_ += body + 1;
    (void)connection_.open_exchange(copy_bytes(golden::counting_bytes(1 + operations_.below(100))),
                                    allocate_bytes(body).first(body),
                                    allocate_bytes(operations_.below(60'000)),
                                    static_cast<wire::Priority>(operations_.below(wire::kPriorityCount)));
  }

  void reply() {
    if (requests_.empty()) return;
    const auto [exchange, capacity] = requests_.front();
    requests_.pop_front();
    const std::size_t body = std::min<ByteCount>(capacity, operations_.u16());
    connection_.reply(exchange, copy_bytes(golden::counting_bytes(3)), allocate_bytes(body).first(body));
  }

  // What a driver does: everything that is due now. It must come to an end.
  void settle() {
    for (int i = 0;; ++i) {
      TUSK_CHECK(i < kTimersAtOnceMax);
      if (connection_.next_timeout() <= now_) connection_.handle_timeout(now_);
      send_all();
      while (const auto event = connection_.poll_event()) look(*event);
      if (connection_.closed() || connection_.next_timeout() > now_) return;
    }
  }

  void send_all() {
    std::byte payload[wire::kDatagramSizeMax];
    for (int i = 0;; ++i) {
      TUSK_CHECK(i < kPacketsAtOnceMax);
      const auto packet = connection_.poll_packet(now_, payload);
      if (!packet) return;
      TUSK_CHECK(packet->payload_size > 0 && packet->payload_size + 29 <= wire::kDatagramSizeMax);
      packet->copy_tail(payload);
      TUSK_CHECK(golden::decode_all(std::span(payload).first(packet->payload_size)));
    }
  }

  void look(const transport::Event& event) {
    TUSK_CHECK(!closed_);
    if (std::holds_alternative<transport::Closed>(event)) closed_ = true;
    if (const auto* request = std::get_if<transport::RequestArrived>(&event)) {
      TUSK_CHECK(!request->header.empty());
      requests_.emplace_back(request->exchange, request->reply_capacity);
    } else if (const auto* cancelled = std::get_if<transport::RequestCancelled>(&event)) {
      std::erase_if(requests_, [&](const auto& r) { return r.first == cancelled->exchange; });
    }
  }

  Operations& operations_;
  TimePoint now_ = TimePoint() + 1s;
  const Role role_;
  Connection connection_;
  std::uint64_t next_number_ = 0;
  ByteCount opened_ = 0;
  bool closed_ = false;
  std::deque<std::pair<ExchangeId, ByteCount>> requests_;
};

}  // namespace

void run_connection(std::span<const std::byte> input) {
  Operations operations(input);
  Victim(operations).run();
}

std::vector<Bytes> connection_seeds() {
  std::vector<Bytes> seeds;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) seeds.push_back(random_operations(seed, 150 * seed));
  return seeds;
}

}  // namespace tusk::fuzz

#include "tests/golden/samples/samples.h"

#include "proto/base/shared_bytes.h"

namespace tusk::golden {
namespace {

using wire::ExchangeId;
using wire::PacketNumber;

std::span<const std::byte> data(std::size_t size) {
  static const Bytes kData = counting_bytes(256);
  return std::span(kData).first(size);
}

wire::ConnectionIdBytes id_from(unsigned first) {
  wire::ConnectionIdBytes id;
  const Bytes bytes = counting_bytes(wire::ConnectionIdBytes::kSize, first);
  std::copy(bytes.begin(), bytes.end(), id.bytes.begin());
  return id;
}

wire::AckFrame ack_of(std::vector<wire::AckRange> ranges) {
  return {.delay_us = 25, .received_at_us = 1'000'000, .congestion_marks = 3, .ranges = std::move(ranges)};
}

wire::AckFrame ack_with_most_ranges() {
  std::vector<wire::AckRange> ranges;
  for (std::uint64_t i = 0; i < wire::kAckRangesMax; ++i)
    ranges.push_back({PacketNumber(1000 - 10 * i - i % 3), PacketNumber(1000 - 10 * i)});
  return ack_of(std::move(ranges));
}

std::vector<FrameSample> make_frame_samples() {
  return {
      {"padding", wire::PaddingFrame{5}},
      {"ping", wire::PingFrame{}},
      {"ack-one-packet", ack_of({{PacketNumber(0), PacketNumber(0)}})},
      {"ack-three-ranges", ack_of({{PacketNumber(90), PacketNumber(100)},
                                   {PacketNumber(70), PacketNumber(70)},
                                   {PacketNumber(0), PacketNumber(68)}})},
      {"ack-most-ranges", ack_with_most_ranges()},
      {"settings", wire::SettingsFrame{{{1, 8972}, {2, 30'000}, {3, 0}}}},
      {"settings-features", wire::SettingsFrame{{{3, wire::kFeatureParity}}}},
      {"settings-unknown-key", wire::SettingsFrame{{{1, 1472}, {4711, kVarintMax}}}},
      {"credit", wire::CreditFrame{64ull << 20, 16384}},
      {"floor", wire::FloorFrame{PacketNumber(123'456'789)}},
      {"message-header-request",
       wire::MessageHeaderFrame{ExchangeId(4), wire::Priority::kBulk, 40, 1 << 20, 65536, 0, data(40)}},
      {"message-header-piece",
       wire::MessageHeaderFrame{ExchangeId(5), wire::Priority::kInteractive, 3000, 0, 0, 2990, data(10)}},
      {"body-to-the-end", wire::BodyFrame{ExchangeId(1'000'000), 1'048'560, data(16)}, BodyForm::kToTheEnd},
      {"body-sized", wire::BodyFrame{ExchangeId(7), 0, data(16)}, BodyForm::kSized},
      {"parity", wire::ParityFrame{ExchangeId(10'000), 1'000'000, 6'001, 3, data(64)}},
      {"parity-most-rows", wire::ParityFrame{ExchangeId(6), 0, erasure::kRowsMax * 16, 15, data(16)}},
      {"flow-news", wire::FlowNewsFrame{2, 12'500'000, 1ull << 33, 125'000'000, 20'000, 8'000, 1'500'001}},
      {"flow-news-start", wire::FlowNewsFrame{}},
      {"other-flows", wire::OtherFlowsFrame{1'000, true, 63, 63 * wire::kPartUnits, 123'000'000, 124'000'000,
                                            125'000'000, 1, 65'536, 0}},
      {"other-flows-behind", wire::OtherFlowsFrame{2, true, 1, 420, 1'000'000, 1'000'000, 0, 0, 0, 5'000}},
      {"other-flows-around", wire::OtherFlowsFrame{64}},
      {"cancel", wire::CancelFrame{ExchangeId(20), 5'000}},
      {"path-challenge", wire::PathChallengeFrame{0x0123456789abcdef}},
      {"path-response", wire::PathResponseFrame{0x0123456789abcdef}},
      {"close", wire::CloseFrame{1009, as_byte_span("goodbye")}},
      {"close-without-reason", wire::CloseFrame{0, {}}},
      {"address-token", wire::AddressTokenFrame{data(42)}},
      {"reset-token", wire::ResetTokenFrame{data(wire::kResetTokenSize)}},
      {"crypto", wire::CryptoFrame{517, data(32)}},
      {"crypto-ack", wire::CryptoAckFrame{1200}},
  };
}

std::vector<LongHeaderSample> make_long_header_samples() {
  using wire::LongType;
  const auto to = id_from(0x10);
  const auto from = id_from(0x20);
  return {
      {"handshake-first", {LongType::kHandshake, wire::kVersion, to, from, {}, 0}},
      {"handshake-with-token", {LongType::kHandshake, wire::kVersion, to, from, data(42), 0xfffffffe}},
      {"retry", {LongType::kRetry, wire::kVersion, to, from, data(42), 0}},
      {"version-negotiation", {LongType::kVersionNegotiation, wire::kVersion, to, from, {}, 0}},
      {"reset", {LongType::kReset, wire::kVersion, {}, from, data(wire::kResetTokenSize), 0}},
  };
}

std::vector<MessageSample> make_message_samples() {
  MessageSample attach{"attach", {}};
  auto& hello = *attach.request.mutable_attach();
  hello.set_export_name("music");
  hello.set_token(std::string(16, '\x11'));
  hello.set_session(std::string(16, '\x22'));
  hello.set_read_only(true);
  hello.set_client_name("laptop");
  hello.set_version(1);

  MessageSample with_leases = attach;
  with_leases.name = "attach-leases";
  with_leases.request.mutable_attach()->set_leases(true);

  MessageSample take_back{"invalidate", {}};
  auto& change = *take_back.request.mutable_invalidate();
  change.set_lease_floor(0x0102030405060708);
  change.set_changed(true);
  change.add_items()->set_handle("a file");
  change.mutable_items(0)->set_data(true);
  change.add_items()->set_handle("a directory");
  change.mutable_items(1)->set_name("a name");

  MessageSample read{"read", {}};
  read.request.set_sequence(0);
  auto& wanted = *read.request.mutable_read();
  wanted.set_handle("a handle");
  wanted.set_open_id(77);
  wanted.set_offset(1ull << 40);
  wanted.set_length(1 << 20);

  MessageSample invalidate{"invalidate-compressed", {}, true};
  for (int i = 0; i < 64; ++i) {
    auto& item = *invalidate.request.mutable_invalidate()->add_items();
    item.set_handle("the same handle over and over");
    item.set_entries(true);
    item.set_name("file " + std::to_string(i));
  }
  MessageSample walk{"walk", {}};
  auto& subtrees = *walk.request.mutable_walk();
  subtrees.add_starts()->set_handle("a directory");
  auto& start = *subtrees.add_starts();
  start.set_handle("another");
  start.add_names("src");
  start.add_names("docs");
  subtrees.set_limit_bytes(1 << 20);
  subtrees.set_deep(true);
  MessageSample walk_again{"walk-with-kept-listings", walk.request};
  walk_again.request.mutable_walk()->set_digests(true);
  walk_again.request.mutable_walk()->add_known(0x0123456789abcdef);
  walk_again.request.mutable_walk()->add_known(1);

  MessageSample read_files{"read-files", {}};
  auto& files = *read_files.request.mutable_read_files();
  auto& folder = *files.add_folders();
  folder.set_handle("a directory");
  folder.add_names("README");
  folder.add_names("LICENSE");
  folder.add_known_changes(0);
  folder.add_known_changes(0x0123456789abcdef);
  files.set_file_bytes_max(64 << 10);
  files.set_limit_bytes(1 << 20);
  files.set_compress(true);
  return {attach, with_leases, take_back, read, invalidate, walk, walk_again, read_files};
}

}  // namespace

const std::vector<FrameSample>& frame_samples() {
  static const std::vector<FrameSample> kSamples = make_frame_samples();
  return kSamples;
}

const std::vector<ShortHeaderSample>& short_header_samples() {
  static const std::vector<ShortHeaderSample> kSamples = {
      {"short", {id_from(0x30), false, 0x01020304}},
      {"short-key-phase", {id_from(0x30), true, 0xffffffff}},
  };
  return kSamples;
}

const std::vector<LongHeaderSample>& long_header_samples() {
  static const std::vector<LongHeaderSample> kSamples = make_long_header_samples();
  return kSamples;
}

const std::vector<MessageSample>& message_samples() {
  static const std::vector<MessageSample> kSamples = make_message_samples();
  return kSamples;
}

}  // namespace tusk::golden

// Packet headers and frames: what parses can be written again and reads the same.
#include <algorithm>

#include "proto/base/check.h"
#include "proto/wire/frame.h"
#include "proto/wire/packet_header.h"
#include "tests/fuzz/targets/targets.h"
#include "tests/golden/samples/samples.h"

namespace tusk::fuzz {

void run_packet_headers(std::span<const std::byte> input) {
  const auto is_long = wire::is_long_packet(input);
  if (const auto parsed = wire::parse_short_header(input)) {
    TUSK_CHECK(is_long == false);
    TUSK_CHECK(std::ranges::equal(golden::encode(parsed->header), input.first(parsed->size)));
    const auto number =
        wire::expand_packet_number(parsed->header.packet_number_low, wire::PacketNumber(1ull << 40));
    TUSK_CHECK(static_cast<std::uint32_t>(number.value()) == parsed->header.packet_number_low);
  }
  if (const auto parsed = wire::parse_long_header(input)) {
    TUSK_CHECK(is_long == true);
    TUSK_CHECK(parsed->header.token.size() <= wire::kTokenMax);
    TUSK_CHECK(std::ranges::equal(golden::encode(parsed->header), input.first(parsed->size)));
  }
}

std::vector<Bytes> packet_header_seeds() {
  std::vector<Bytes> seeds;
  for (const auto& sample : golden::short_header_samples()) seeds.push_back(golden::encode(sample.header));
  for (const auto& sample : golden::long_header_samples()) seeds.push_back(golden::encode(sample.header));
  return seeds;
}

void run_frames(std::span<const std::byte> input) {
  ByteReader reader(input);
  while (!reader.at_end()) {
    const std::size_t before = reader.remaining();
    const auto frame = wire::read_frame(reader);
    if (!frame) return;
    TUSK_CHECK(reader.remaining() < before);
    // A frame with longer integers than it needs becomes shorter, and means the same.
    const Bytes again = golden::encode(*frame);
    const auto decoded = golden::decode_one(again);
    TUSK_CHECK(decoded && golden::describe(*decoded) == golden::describe(*frame));
  }
}

std::vector<Bytes> frame_seeds() {
  std::vector<Bytes> seeds;
  Bytes all;
  for (const auto& sample : golden::frame_samples()) {
    seeds.push_back(golden::encode(sample.frame, sample.form));
    if (sample.name.starts_with("padding") || sample.form == golden::BodyForm::kToTheEnd) continue;
    all.insert(all.end(), seeds.back().begin(), seeds.back().end());
  }
  seeds.push_back(all);
  return seeds;
}

}  // namespace tusk::fuzz

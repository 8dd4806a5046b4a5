#include "tests/golden/samples/wire_text.h"

#include <fmt/format.h>

#include <type_traits>
#include <variant>

#include "proto/base/bytes.h"
#include "proto/base/overloaded.h"

namespace tusk::golden {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

std::string describe_ack(const wire::AckFrame& frame) {
  std::string text =
      fmt::format("ACK delay_us={} received_at_us={} congestion_marks={} ranges=", frame.delay_us,
                  frame.received_at_us, frame.congestion_marks);
  for (std::size_t i = 0; i < frame.ranges.size(); ++i)
    text += fmt::format("{}{}-{}", i == 0 ? "" : ",", frame.ranges[i].first.value(),
                        frame.ranges[i].last.value());
  return text;
}

std::string describe_settings(const wire::SettingsFrame& frame) {
  std::string text = "SETTINGS";
  for (const wire::Setting& setting : frame.settings)
    text += fmt::format(" {}={}", setting.key, setting.value);
  return text;
}

std::string describe_message_header(const wire::MessageHeaderFrame& frame) {
  return fmt::format(
      "MESSAGE_HEADER exchange={} priority={} header_size={} body_size={} reply_capacity={} offset={} "
      "data={}",
      frame.exchange.value(), static_cast<int>(frame.priority), frame.header_size, frame.body_size,
      frame.reply_capacity, frame.offset, to_hex(frame.data));
}

std::string_view type_name(wire::LongType type) {
  switch (type) {
    case wire::LongType::kHandshake:
      return "handshake";
    case wire::LongType::kRetry:
      return "retry";
    case wire::LongType::kVersionNegotiation:
      return "version negotiation";
    case wire::LongType::kReset:
      return "reset";
  }
  return "?";
}

int hex_value(char digit) {
  const auto at = kHexDigits.find(digit);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

}  // namespace

Bytes encode(const wire::Frame& frame, BodyForm form) {
  Bytes bytes(wire::kDatagramSizeMax);
  ByteWriter writer(bytes);
  std::visit(
      [&](const auto& f) {
        if constexpr (std::is_same_v<std::decay_t<decltype(f)>, wire::BodyFrame>) {
          write_frame(f, form == BodyForm::kToTheEnd, writer);
        } else {
          write_frame(f, writer);
        }
      },
      frame);
  bytes.resize(writer.written());
  return bytes;
}

Bytes encode(const wire::ShortHeader& header) {
  Bytes bytes(wire::kShortHeaderSize);
  bytes.resize(wire::write_short_header(header, bytes));
  return bytes;
}

Bytes encode(const wire::LongHeader& header) {
  Bytes bytes(wire::long_header_size(header.token.size()));
  bytes.resize(wire::write_long_header(header, bytes));
  return bytes;
}

std::optional<std::vector<wire::Frame>> decode_all(std::span<const std::byte> payload) {
  std::vector<wire::Frame> frames;
  ByteReader reader(payload);
  while (!reader.at_end()) {
    auto frame = wire::read_frame(reader);
    if (!frame) return std::nullopt;
    frames.push_back(std::move(*frame));
  }
  return frames;
}

std::optional<wire::Frame> decode_one(std::span<const std::byte> payload) {
  auto frames = decode_all(payload);
  if (!frames || frames->size() != 1) return std::nullopt;
  return std::move(frames->front());
}

std::string describe(const wire::Frame& frame) {
  return std::visit(
      Overloaded{
          [](const wire::PaddingFrame& f) { return fmt::format("PADDING size={}", f.size); },
          [](const wire::PingFrame&) { return std::string("PING"); },
          [](const wire::AckFrame& f) { return describe_ack(f); },
          [](const wire::SettingsFrame& f) { return describe_settings(f); },
          [](const wire::CreditFrame& f) {
            return fmt::format("CREDIT request_bytes={} exchanges={}", f.request_bytes, f.exchanges);
          },
          [](const wire::FloorFrame& f) { return fmt::format("FLOOR {}", f.floor.value()); },
          [](const wire::MessageHeaderFrame& f) { return describe_message_header(f); },
          [](const wire::BodyFrame& f) {
            return fmt::format("BODY exchange={} offset={} data={}", f.exchange.value(), f.offset,
                               to_hex(f.data));
          },
          [](const wire::ParityFrame& f) {
            return fmt::format("PARITY exchange={} offset={} length={} index={} data={}", f.exchange.value(),
                               f.offset, f.length, f.index, to_hex(f.data));
          },
          [](const wire::FlowNewsFrame& f) {
            return fmt::format(
                "FLOW_NEWS flows={} rate={} delivered={} capacity={} base_us={} queue_us={} emptied_us={}",
                f.flows, f.rate, f.delivered, f.capacity, f.base_us, f.queue_us, f.emptied_us);
          },
          [](const wire::OtherFlowsFrame& f) {
            return fmt::format(
                "OTHER_FLOWS around={} answers={} flows={} parts={} rate={} rate_of_all={} capacity={} "
                "emptied_us={} ahead={} "
                "behind={}",
                f.around, f.answers ? 1 : 0, f.flows, f.parts, f.rate, f.rate_of_all, f.capacity,
                f.emptied_us, f.ahead, f.behind);
          },
          [](const wire::CancelFrame& f) {
            return fmt::format("CANCEL exchange={} request_bytes={}", f.exchange.value(), f.request_bytes);
          },
          [](const wire::PathChallengeFrame& f) { return fmt::format("PATH_CHALLENGE {:016x}", f.data); },
          [](const wire::PathResponseFrame& f) { return fmt::format("PATH_RESPONSE {:016x}", f.data); },
          [](const wire::CloseFrame& f) {
            return fmt::format("CLOSE code={} reason={}", f.code, to_hex(f.reason));
          },
          [](const wire::AddressTokenFrame& f) { return fmt::format("ADDRESS_TOKEN {}", to_hex(f.token)); },
          [](const wire::ResetTokenFrame& f) { return fmt::format("RESET_TOKEN {}", to_hex(f.token)); },
          [](const wire::CryptoFrame& f) {
            return fmt::format("CRYPTO offset={} data={}", f.offset, to_hex(f.data));
          },
          [](const wire::CryptoAckFrame& f) { return fmt::format("CRYPTO_ACK {}", f.received); },
      },
      frame);
}

std::string describe(const wire::ShortHeader& header) {
  return fmt::format("short to={} key_phase={} packet_number_low={}", to_hex(header.to.bytes),
                     header.key_phase ? 1 : 0, header.packet_number_low);
}

std::string describe(const wire::LongHeader& header) {
  return fmt::format("{} version={:08x} to={} from={} token={} packet_number_low={}", type_name(header.type),
                     header.version, to_hex(header.to.bytes), to_hex(header.from.bytes), to_hex(header.token),
                     header.packet_number_low);
}

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte b : bytes) {
    text += kHexDigits[std::to_integer<unsigned>(b) >> 4];
    text += kHexDigits[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

std::optional<Bytes> from_hex(std::string_view text) {
  Bytes bytes;
  int high = -1;
  for (const char c : text) {
    if (c == ' ' || c == '\n') continue;
    const int value = hex_value(c);
    if (value < 0) return std::nullopt;
    if (high < 0) {
      high = value;
    } else {
      bytes.push_back(static_cast<std::byte>(high << 4 | value));
      high = -1;
    }
  }
  if (high >= 0) return std::nullopt;
  return bytes;
}

Bytes counting_bytes(std::size_t size, unsigned first) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(first + i);
  return bytes;
}

}  // namespace tusk::golden

// Frames and headers as bytes, as hexadecimal and as one line of text: the words in which tests talk
// about the wire.
//
// describe() names every field, so two frames are equal exactly when their descriptions are.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/wire/frame.h"
#include "proto/wire/packet_header.h"

namespace tusk::golden {

using Bytes = std::vector<std::byte>;

// Whether a body frame names its length (SIZED_BODY) or runs to the packet's end (BODY).
enum class BodyForm { kSized, kToTheEnd };

[[nodiscard]] Bytes encode(const wire::Frame& frame, BodyForm form = BodyForm::kSized);
[[nodiscard]] Bytes encode(const wire::ShortHeader& header);
[[nodiscard]] Bytes encode(const wire::LongHeader& header);

// The frames of a packet's payload one after the other; nullopt as soon as one is malformed. Spans
// point into `payload`.
[[nodiscard]] std::optional<std::vector<wire::Frame>> decode_all(std::span<const std::byte> payload);
// Exactly one frame and nothing behind it.
[[nodiscard]] std::optional<wire::Frame> decode_one(std::span<const std::byte> payload);

[[nodiscard]] std::string describe(const wire::Frame& frame);
[[nodiscard]] std::string describe(const wire::ShortHeader& header);
[[nodiscard]] std::string describe(const wire::LongHeader& header);

// Two lower-case digits a byte, without separators.
[[nodiscard]] std::string to_hex(std::span<const std::byte> bytes);
// Spaces and line ends are skipped; nullopt for anything else that is no digit, or half a byte.
[[nodiscard]] std::optional<Bytes> from_hex(std::string_view text);

// `size` bytes that count up from `first`: data whose place can be seen in a dump.
[[nodiscard]] Bytes counting_bytes(std::size_t size, unsigned first = 0);

}  // namespace tusk::golden

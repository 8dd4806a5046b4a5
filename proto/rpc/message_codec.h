// Protobuf messages as the header bytes of an exchange: one byte of encoding, then the message,
// compressed with zstd where that saves bytes (docs/PROTOCOL.md, "Messages").
//
// Thread-safe: contexts are kept per thread.
#pragma once

#include "proto/base/result.h"
#include "proto/base/shared_bytes.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::rpc {

// Messages shorter than this are not worth compressing.
constexpr std::size_t kCompressFrom = 512;

enum class Packing : std::uint8_t { kNever, kWhereItPays };

// kLimitExceeded: larger than wire::kMessageHeaderMax even when compressed.
[[nodiscard]] Result<SharedBytes> encode_message(const google::protobuf::MessageLite& message,
                                                 Packing packing = Packing::kWhereItPays);

// A few hundred bytes can unpack to megabytes, and those become several times as much in objects: what a
// server takes depends on who sends it.
struct DecodeLimits {
  std::size_t size_max = 8 << 20;  // of the message, unpacked
  bool packed = true;              // it may be compressed
};
constexpr DecodeLimits kReplyLimits;  // of a server, which the client trusts with more
constexpr DecodeLimits kRequestLimits{.size_max = 256 << 10};
constexpr DecodeLimits kStrangersLimits{.size_max = 16 << 10, .packed = false};  // before an ATTACH succeeded

// kMalformed: not a message of this kind, or one beyond the limits.
[[nodiscard]] Result<void> decode_message(std::span<const std::byte> bytes,
                                          google::protobuf::MessageLite& message,
                                          DecodeLimits limits = kReplyLimits);

}  // namespace tusk::rpc

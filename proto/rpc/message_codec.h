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

// kLimitExceeded: larger than wire::kMessageHeaderMax even when compressed.
[[nodiscard]] Result<SharedBytes> encode_message(const google::protobuf::MessageLite& message);

// kMalformed: not a message of this kind, or one that unpacks to more than kUnpackedMax.
constexpr std::size_t kUnpackedMax = 8 << 20;
[[nodiscard]] Result<void> decode_message(std::span<const std::byte> bytes,
                                          google::protobuf::MessageLite& message);

}  // namespace tusk::rpc

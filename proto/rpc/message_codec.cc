#include "proto/rpc/message_codec.h"

#include <google/protobuf/stubs/logging.h>

#include <vector>

#include "proto/rpc/zstd_context.h"
#include "proto/wire/types.h"

namespace tusk::rpc {
namespace {

// The first byte of an exchange's header.
enum class Encoding : std::uint8_t { kPlain = 0, kZstd = 1 };

}  // namespace

Result<SharedBytes> encode_message(const google::protobuf::MessageLite& message, Packing packing) {
  const std::size_t size = message.ByteSizeLong();
  if (size > kReplyLimits.size_max)
    return fail(ErrorCode::kLimitExceeded, "a message of " + std::to_string(size) + " bytes");
  MutableSharedBytes plain = allocate_bytes(size + 1);
  plain.bytes[0] = static_cast<std::byte>(Encoding::kPlain);
  message.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(plain.bytes.data() + 1));
  if (size >= kCompressFrom && packing == Packing::kWhereItPays) {
    MutableSharedBytes packed = allocate_bytes(ZSTD_compressBound(size) + 1);
    packed.bytes[0] = static_cast<std::byte>(Encoding::kZstd);
    const std::size_t written =
        ZSTD_compressCCtx(zstd_compressor(), packed.bytes.data() + 1, packed.size() - 1,
                          plain.bytes.data() + 1, size, kZstdLevel);
    if (!ZSTD_isError(written) && written < size && written + 1 <= wire::kMessageHeaderMax)
      return copy_bytes(packed.bytes.first(written + 1));
  }
  if (plain.size() > wire::kMessageHeaderMax)
    return fail(ErrorCode::kLimitExceeded, "a message of " + std::to_string(size) + " bytes");
  return plain.first(plain.size());
}

Result<void> decode_message(std::span<const std::byte> bytes, google::protobuf::MessageLite& message,
                            DecodeLimits limits) {
  // Protobuf would print a line for every message that a hostile peer sends.
  [[maybe_unused]] static auto* const kSilenced = google::protobuf::SetLogHandler(nullptr);
  if (bytes.empty()) return fail(ErrorCode::kMalformed, "an empty message");
  const auto encoding = static_cast<Encoding>(bytes[0]);
  std::span<const std::byte> content = bytes.subspan(1);
  std::vector<std::byte> unpacked;
  if (encoding == Encoding::kZstd && limits.packed) {
    const unsigned long long size = ZSTD_getFrameContentSize(content.data(), content.size());
    if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR || size > limits.size_max)
      return fail(ErrorCode::kMalformed, "a compressed message without a sane size");
    unpacked.resize(size);
    const std::size_t written = ZSTD_decompressDCtx(zstd_decompressor(), unpacked.data(), unpacked.size(),
                                                    content.data(), content.size());
    if (ZSTD_isError(written) || written != size)
      return fail(ErrorCode::kMalformed, "a compressed message that does not unpack");
    content = unpacked;
  } else if (encoding != Encoding::kPlain) {
    return fail(ErrorCode::kMalformed, "a message encoding that is unknown or has no place here");
  }
  if (content.size() > limits.size_max) return fail(ErrorCode::kMalformed, "a message without measure");
  if (!message.ParseFromArray(content.data(), static_cast<int>(content.size())))
    return fail(ErrorCode::kMalformed, "a message that does not parse");
  return {};
}

}  // namespace tusk::rpc

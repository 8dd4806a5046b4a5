#include "proto/rpc/compression.h"

#include "proto/rpc/zstd_context.h"

namespace tusk::rpc {
namespace {

constexpr std::size_t kSampleBytes = 16 * 1024;
constexpr std::size_t kWorthwhileMin = 4 * 1024;  // below this the packets are as many either way

bool saves_a_tenth(std::size_t compressed, std::size_t original) {
  return compressed <= original - original / 10;
}

std::optional<SharedBytes> compress(std::span<const std::byte> bytes) {
  const MutableSharedBytes out = allocate_bytes(ZSTD_compressBound(bytes.size()));
  const std::size_t size = ZSTD_compressCCtx(zstd_compressor(), out.bytes.data(), out.size(), bytes.data(),
                                             bytes.size(), kZstdLevel);
  if (ZSTD_isError(size) || !saves_a_tenth(size, bytes.size())) return std::nullopt;
  return out.first(size);
}

}  // namespace

std::optional<SharedBytes> compress_if_it_helps(std::span<const std::byte> bytes) {
  if (bytes.size() < kWorthwhileMin) return std::nullopt;
  // From the middle: the beginning is often a header unlike the rest.
  if (bytes.size() > 4 * kSampleBytes && !compress(bytes.subspan(bytes.size() / 2, kSampleBytes)))
    return std::nullopt;
  return compress(bytes);
}

Result<SharedBytes> decompress(std::span<const std::byte> frame, std::size_t size) {
  const MutableSharedBytes out = allocate_bytes(size);
  const std::size_t result =
      ZSTD_decompressDCtx(zstd_decompressor(), out.bytes.data(), out.size(), frame.data(), frame.size());
  if (ZSTD_isError(result)) return fail(ErrorCode::kMalformed, ZSTD_getErrorName(result));
  if (result != size) return fail(ErrorCode::kMalformed, "compressed data of another length than announced");
  return out.first(size);
}

}  // namespace tusk::rpc

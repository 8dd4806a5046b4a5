// zstd's working memory, one of each kind per thread: making one costs more than compressing a message.
#pragma once

#include <zstd.h>

namespace tusk::rpc {

// The fastest level: keeps up with disks, and metadata is short-lived.
constexpr int kZstdLevel = 1;

[[nodiscard]] ZSTD_CCtx* zstd_compressor();
[[nodiscard]] ZSTD_DCtx* zstd_decompressor();

}  // namespace tusk::rpc

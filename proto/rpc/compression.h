// zstd for file data on slow lines, as READ and WRITE carry it: one frame per body, made only when it
// pays. Any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "proto/base/result.h"
#include "proto/base/shared_bytes.h"

namespace tusk::rpc {

// The bytes as one zstd frame, or nothing when that would save less than a tenth: a sample says so
// before the whole is tried.
[[nodiscard]] std::optional<SharedBytes> compress_if_it_helps(std::span<const std::byte> bytes);

// The frame's content, which must be exactly `size` bytes: kMalformed otherwise, whatever the frame
// itself promises.
[[nodiscard]] Result<SharedBytes> decompress(std::span<const std::byte> frame, std::size_t size);

}  // namespace tusk::rpc

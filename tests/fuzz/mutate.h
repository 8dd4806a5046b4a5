// Inputs made from others by small, seeded damage.
#pragma once

#include <vector>

#include "proto/base/random.h"
#include "tests/fuzz/targets/fuzz_target.h"

namespace tusk::fuzz {

constexpr std::size_t kInputBytesMax = 8192;

// One of `inputs` (not empty) with one to a few changes: bits, bytes, stretches removed, repeated or
// taken from another input.
[[nodiscard]] Bytes mutate(const std::vector<Bytes>& inputs, Random& random);

}  // namespace tusk::fuzz

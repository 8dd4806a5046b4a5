// What can be fuzzed: each target is a function of bytes that ends the process (TUSK_CHECK) when the
// code under test breaks a promise. Crashes and overruns are the sanitizers' to find.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tests/golden/samples/wire_text.h"

namespace tusk::fuzz {

using golden::Bytes;

struct FuzzTarget {
  std::string_view name;
  void (*run)(std::span<const std::byte> input);
  // Well-formed inputs to start from.
  std::vector<Bytes> (*seeds)();
  // So many mutations take the replay test about a second in a release build.
  int replay_mutations;
};

// All but the canary.
[[nodiscard]] std::span<const FuzzTarget> fuzz_targets();
// Breaks its promise for an input one mutation away from its seed: a harness that does not find that
// finds nothing.
[[nodiscard]] const FuzzTarget& canary_target();
// nullptr: there is none of that name.
[[nodiscard]] const FuzzTarget* find_target(std::string_view name);

}  // namespace tusk::fuzz

// One target as libFuzzer wants it; built once for each name (TUSK_FUZZ_TARGET).
#include <cstddef>
#include <cstdint>

#include "proto/base/check.h"
#include "tests/fuzz/targets/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tusk::fuzz::FuzzTarget* const kTarget = tusk::fuzz::find_target(TUSK_FUZZ_TARGET);
  TUSK_CHECK(kTarget != nullptr);
  kTarget->run(std::as_bytes(std::span(data, size)));
  return 0;
}

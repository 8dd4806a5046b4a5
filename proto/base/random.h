// Seeded randomness: the pure core gets it as a constructor argument, so a seed replays a run.
// Not for secrets; those come from crypto/.
#pragma once

#include <cstdint>
#include <random>

namespace tusk {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  [[nodiscard]] std::uint64_t next() { return engine_(); }
  // Uniform in [0, bound); bound > 0. The modulo's bias is below 2^-32 for the bounds used here.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }
  // Uniform in [0, 1).
  [[nodiscard]] double uniform() { return static_cast<double>(engine_() >> 11) * 0x1.0p-53; }
  [[nodiscard]] bool chance(double probability) { return uniform() < probability; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace tusk

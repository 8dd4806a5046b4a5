// Makes OpenSSL's random numbers a function of a seed, so that keys, connection ids and every sealed
// byte of a simulated run are the same each time. For simulations only: nothing is secret any more.
#pragma once

#include <cstdint>

#include "proto/base/random.h"

namespace tusk::support {

// While one lives, all of the process's cryptographic randomness comes from its seed. One at a time,
// one thread.
class SeededCrypto {
 public:
  explicit SeededCrypto(std::uint64_t seed);
  SeededCrypto(const SeededCrypto&) = delete;
  SeededCrypto& operator=(const SeededCrypto&) = delete;
  ~SeededCrypto();
};

}  // namespace tusk::support

#include "tests/support/sim_random.h"

#include <openssl/rand.h>

#include <optional>

#include "proto/base/check.h"

// The replaced way to replace the generator; its successor, a provider, would take a page.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace tusk::support {
namespace {

std::optional<Random> generator;

int fill(unsigned char* out, int size) {
  for (int i = 0; i < size; ++i) out[i] = static_cast<unsigned char>(generator->next() >> 32);
  return 1;
}

int always_ready() { return 1; }

const RAND_METHOD kSeeded = {nullptr, fill, nullptr, nullptr, fill, always_ready};

}  // namespace

SeededCrypto::SeededCrypto(std::uint64_t seed) {
  TUSK_CHECK(!generator);
  generator.emplace(seed);
  TUSK_CHECK(RAND_set_rand_method(&kSeeded) == 1);
}

SeededCrypto::~SeededCrypto() {
  TUSK_CHECK(RAND_set_rand_method(nullptr) == 1);
  generator.reset();
}

}  // namespace tusk::support

#include "tests/fuzz/mutate.h"

#include <algorithm>

namespace tusk::fuzz {
namespace {

constexpr int kChangesMax = 6;
constexpr std::size_t kStretchMax = 64;

const Bytes& any_of(const std::vector<Bytes>& inputs, Random& random) {
  return inputs[random.below(inputs.size())];
}

std::span<const std::byte> any_stretch(const Bytes& bytes, Random& random) {
  if (bytes.empty()) return {};
  const std::size_t begin = random.below(bytes.size());
  const std::size_t size = 1 + random.below(std::min(kStretchMax, bytes.size() - begin));
  return std::span(bytes).subspan(begin, size);
}

void insert(Bytes& bytes, std::span<const std::byte> what, Random& random) {
  const Bytes copy(what.begin(), what.end());  // it may be a stretch of `bytes`
  bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(random.below(bytes.size() + 1)), copy.begin(),
               copy.end());
}

void change(Bytes& bytes, const std::vector<Bytes>& inputs, Random& random) {
  if (bytes.empty()) return bytes.push_back(static_cast<std::byte>(random.next()));
  const std::size_t at = random.below(bytes.size());
  const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
  switch (random.below(8)) {
    case 0:
      bytes[at] ^= static_cast<std::byte>(1u << random.below(8));
      return;
    case 1:
      bytes[at] = static_cast<std::byte>(random.next());
      return;
    case 2: {
      constexpr unsigned kInteresting[] = {0x00, 0x01, 0x3f, 0x40, 0x7f, 0x80, 0xbf, 0xc0, 0xfe, 0xff};
      bytes[at] = static_cast<std::byte>(kInteresting[random.below(std::size(kInteresting))]);
      return;
    }
    case 3: {
      const std::size_t size = 1 + random.below(std::min(kStretchMax, bytes.size() - at));
      bytes.erase(place, place + static_cast<std::ptrdiff_t>(size));
      return;
    }
    case 4:
      return insert(bytes, any_stretch(bytes, random), random);
    case 5:
      return insert(bytes, any_stretch(any_of(inputs, random), random), random);
    case 6:
      bytes.resize(at);
      return;
    default:
      bytes.insert(place, static_cast<std::byte>(random.next()));
      return;
  }
}

}  // namespace

Bytes mutate(const std::vector<Bytes>& inputs, Random& random) {
  Bytes bytes = any_of(inputs, random);
  for (std::uint64_t changes = 1 + random.below(kChangesMax); changes > 0; --changes)
    change(bytes, inputs, random);
  if (bytes.size() > kInputBytesMax) bytes.resize(kInputBytesMax);
  return bytes;
}

}  // namespace tusk::fuzz

// How much of a whole one right may have, so that no right can refuse another its first: sessions,
// connections, descriptors, memory. The thresholds are dynamic (Choudhury and Hahne, 1998): they follow what
// is left.
#pragma once

#include <algorithm>
#include <cstddef>

namespace tusk::rpc {

// At most so much in all, when `left` of `limit` will be left. A right that is alone may have nine sixteenths
// of the whole. A quarter is kept for those who come later: of what is left each may have only the part that
// it is of the whole. When n rights, one after the other, have taken all they can, about an n-th is left.
[[nodiscard]] constexpr std::size_t right_share(std::size_t limit, std::size_t left) {
  constexpr std::size_t kWeight = 3;
  if (limit == 0) return 0;
  const std::size_t kept = limit / 4;
  const std::size_t shared = left > kept ? kWeight * (left - kept) : 0;
  const auto part = static_cast<double>(left) / static_cast<double>(limit);
  return std::max(shared, static_cast<std::size_t>(part * static_cast<double>(left)));
}

}  // namespace tusk::rpc

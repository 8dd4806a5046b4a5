// An integer that cannot be mistaken for another kind of integer.
//
//   using PacketNumber = StrongInt<struct PacketNumberTag>;
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tusk {

template <class Tag, class Rep = std::uint64_t>
class StrongInt {
 public:
  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Rep value) : value_(value) {}

  [[nodiscard]] constexpr Rep value() const { return value_; }

  constexpr auto operator<=>(const StrongInt&) const = default;
  constexpr StrongInt& operator++() { return ++value_, *this; }
  constexpr StrongInt operator+(Rep n) const { return StrongInt(value_ + n); }
  constexpr StrongInt operator-(Rep n) const { return StrongInt(value_ - n); }
  constexpr Rep operator-(StrongInt other) const { return value_ - other.value_; }

 private:
  Rep value_ = 0;
};

// Bytes are counted everywhere and mixed with sizes of spans in every line, so a strong type would
// only add noise: the alias documents the unit.
using ByteCount = std::uint64_t;

}  // namespace tusk

template <class Tag, class Rep>
struct std::hash<tusk::StrongInt<Tag, Rep>> {
  std::size_t operator()(tusk::StrongInt<Tag, Rep> v) const { return std::hash<Rep>()(v.value()); }
};

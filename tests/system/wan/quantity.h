// Numbers with units as people write them: "1gbit", "50ms", "0.1%", "64kb".
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/base/result.h"
#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::wan {

// bit, kbit, mbit, gbit (per second, decimal); a bare number is bit/s; "unlimited" is 0.
[[nodiscard]] Result<std::uint64_t> parse_rate(std::string_view text);

// b, kb, mb, gb (decimal), kib, mib, gib (binary); a bare number is bytes.
[[nodiscard]] Result<ByteCount> parse_size(std::string_view text);

// ns, us, ms, s. A unit is required, but for 0.
[[nodiscard]] Result<Duration> parse_duration(std::string_view text);

// "0.1%" or "0.001"; within [0, 1].
[[nodiscard]] Result<double> parse_fraction(std::string_view text);

// A bare number of at least `minimum`.
[[nodiscard]] Result<double> parse_number(std::string_view text, double minimum);

}  // namespace tusk::wan

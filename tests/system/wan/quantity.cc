#include "tests/system/wan/quantity.h"

#include <charconv>
#include <cmath>
#include <span>
#include <string>

namespace tusk::wan {
namespace {

// Keeps every conversion to 64-bit integers defined, and is far beyond any use.
constexpr double kQuantityMax = 1e15;

struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit kRateUnits[] = {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
constexpr Unit kSizeUnits[] = {{"b", 1},
                               {"kb", 1e3},
                               {"mb", 1e6},
                               {"gb", 1e9},
                               {"kib", 1024},
                               {"mib", 1024 * 1024},
                               {"gib", 1024.0 * 1024 * 1024}};
constexpr Unit kTimeUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
constexpr Unit kFractionUnits[] = {{"%", 0.01}};

std::unexpected<Error> bad(std::string_view text, std::string_view wanted) {
  return fail(ErrorCode::kBadConfig, "\"" + std::string(text) + "\" is not " + std::string(wanted));
}

// bare: the factor of a number without a unit; 0: a unit is required.
Result<double> parse(std::string_view text, std::span<const Unit> units, double bare,
                     std::string_view wanted) {
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc{} || !std::isfinite(number) || number < 0) return bad(text, wanted);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  double factor = bare;
  bool known = unit.empty() && (bare != 0 || number == 0);
  for (const Unit& candidate : units) {
    if (candidate.name != unit) continue;
    factor = candidate.factor;
    known = true;
  }
  if (!known || number * factor > kQuantityMax) return bad(text, wanted);
  return number * factor;
}

}  // namespace

Result<std::uint64_t> parse_rate(std::string_view text) {
  if (text == "unlimited") return 0;
  TUSK_ASSIGN(const double value, parse(text, kRateUnits, 1, "a rate such as 100mbit, 2.5gbit or unlimited"));
  return static_cast<std::uint64_t>(std::llround(value));
}

Result<ByteCount> parse_size(std::string_view text) {
  TUSK_ASSIGN(const double value, parse(text, kSizeUnits, 1, "a size such as 1500, 64kb or 1mib"));
  return static_cast<ByteCount>(std::llround(value));
}

Result<Duration> parse_duration(std::string_view text) {
  TUSK_ASSIGN(const double value, parse(text, kTimeUnits, 0, "a time such as 50ms, 200us or 1.5s"));
  return Duration(std::llround(value));
}

Result<double> parse_fraction(std::string_view text) {
  constexpr std::string_view kWanted = "a share such as 0.1% or 0.001";
  TUSK_ASSIGN(const double value, parse(text, kFractionUnits, 1, kWanted));
  if (value > 1) return bad(text, kWanted);
  return value;
}

Result<double> parse_number(std::string_view text, double minimum) {
  TUSK_ASSIGN(const double value, parse(text, {}, 1, "a number"));
  if (value < minimum) return bad(text, "large enough");
  return value;
}

}  // namespace tusk::wan

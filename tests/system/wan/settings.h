// The settings of a path by name: one table behind the command line, the schedule and the control socket.
#pragma once

#include <span>
#include <string_view>

#include "proto/base/result.h"
#include "tests/support/link/link.h"

namespace tusk::wan {

// Both directions. ab: what namespace A sends to namespace B.
struct PathParameters {
  support::LinkParameters ab;
  support::LinkParameters ba;

  bool operator==(const PathParameters&) const = default;
};

struct Setting {
  std::string_view name;     // as in "rate=1gbit", "ab-rate=1gbit" and --rate
  std::string_view example;  // of a value
  std::string_view help;
  Result<void> (*apply)(support::LinkParameters&, std::string_view value);
};

[[nodiscard]] std::span<const Setting> settings();

// "rate=100mbit,ab-delay=46ms": a name alone goes to both directions, ab- and ba- choose one.
// Nothing is half applied: the result is `parameters` with all changes, or an error that names one.
[[nodiscard]] Result<PathParameters> with_changes(PathParameters parameters, std::string_view changes);

}  // namespace tusk::wan

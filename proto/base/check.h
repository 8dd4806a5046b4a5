// TUSK_CHECK: an invariant of our own code, checked in every build.
//
// For our bugs only. What a peer, the system or a user can cause is a Result (result.h).
#pragma once

#include <cstdio>
#include <cstdlib>

namespace tusk::detail {
[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, condition);
  std::abort();
}
}  // namespace tusk::detail

#define TUSK_CHECK(condition)                        \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? void()                                      \
       : ::tusk::detail::check_failed(#condition, __FILE__, __LINE__))

// Result<T>: a value, or an Error with a code from one closed set and a sentence of context.
//
// For everything that peers, the system and users can cause. Nothing here throws.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace tusk {

// Values below 1000 are Linux errno numbers (asm-generic), which is also how they travel
// (docs/PROTOCOL.md, "Error codes"): a file system error crosses the wire without a table.
// Values from 1000 are Tusk's own. Never renumber: they are on the wire.
enum class ErrorCode : std::uint16_t {
  kOk = 0,

  // The transport and the session.
  kMalformed = 1000,             // bytes that no correct peer sends
  kAuthenticationFailed = 1001,  // a packet or a peer that is not who it should be
  kFingerprintMismatch = 1002,   // the server's key is not the one the URL or an earlier mount named
  kTokenRefused = 1003,          // the right to enter is missing, wrong, expired or for another export
  kNoSuchExport = 1004,
  kUnreachable = 1005,  // nothing answers: host down, UDP blocked, wrong port
  kTimedOut = 1006,
  kCancelled = 1007,        // the caller gave up; the effect may or may not have happened
  kConnectionLost = 1008,   // the connection ended before the answer
  kPeerClosed = 1009,       // the peer said goodbye
  kVersionMismatch = 1010,  // no protocol version in common
  kLimitExceeded = 1011,    // a named limit of ours or of the peer's
  kInternal = 1012,         // a failure inside the peer that is nobody's errno
  kBadConfig = 1013,        // a configuration, URL or option that cannot be used
  kUnsupported = 1014,      // a request this peer does not know
  kServerRestarted = 1015,  // state the server no longer has: an open file, a lock
};

// The errno with this number as an ErrorCode.
[[nodiscard]] constexpr ErrorCode from_errno(int number) { return static_cast<ErrorCode>(number); }

// The errno a program sees for `code`: itself below 1000, a fixed table above. Never 0 but for kOk.
[[nodiscard]] int to_errno(ErrorCode code);

// A short name for logs and messages: "ENOENT", "token refused".
[[nodiscard]] std::string_view error_name(ErrorCode code);

// What went wrong, and in which context: "open /srv/data: No such file or directory".
struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string context;

  [[nodiscard]] std::string message() const;
};

template <class T>
using Result = std::expected<T, Error>;

[[nodiscard]] inline std::unexpected<Error> fail(ErrorCode code, std::string context = {}) {
  return std::unexpected(Error{code, std::move(context)});
}

// The calling thread's errno, with context.
[[nodiscard]] std::unexpected<Error> fail_errno(std::string context);

}  // namespace tusk

#define TUSK_CONCAT_INNER(a, b) a##b
#define TUSK_CONCAT(a, b) TUSK_CONCAT_INNER(a, b)

// Returns the error of a Result<void>-like expression from the enclosing function.
#define TUSK_TRY(expression)                                      \
  do {                                                            \
    if (auto tusk_try_result = (expression); !tusk_try_result)    \
      return std::unexpected(std::move(tusk_try_result).error()); \
  } while (false)

// `TUSK_ASSIGN(auto x, f())`: x gets the value of a Result, or the enclosing function returns its error.
#define TUSK_ASSIGN(declaration, expression) \
  TUSK_ASSIGN_INNER(TUSK_CONCAT(tusk_assign_, __LINE__), declaration, expression)
#define TUSK_ASSIGN_INNER(result, declaration, expression)        \
  auto result = (expression);                                     \
  if (!result) return std::unexpected(std::move(result).error()); \
  declaration = std::move(*result)

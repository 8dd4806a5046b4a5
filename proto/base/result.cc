#include "proto/base/result.h"

#include <cerrno>
#include <cstring>

namespace tusk {
namespace {

struct OwnCode {
  ErrorCode code;
  int number;
  std::string_view name;
};

constexpr OwnCode kOwnCodes[] = {
    {ErrorCode::kMalformed, EBADMSG, "malformed data"},
    {ErrorCode::kAuthenticationFailed, EACCES, "authentication failed"},
    {ErrorCode::kFingerprintMismatch, EACCES, "server key mismatch"},
    {ErrorCode::kTokenRefused, EACCES, "token refused"},
    {ErrorCode::kNoSuchExport, ENOENT, "no such export"},
    {ErrorCode::kUnreachable, EHOSTUNREACH, "server unreachable"},
    {ErrorCode::kTimedOut, ETIMEDOUT, "timed out"},
    {ErrorCode::kCancelled, EINTR, "cancelled"},
    {ErrorCode::kConnectionLost, ENOTCONN, "connection lost"},
    {ErrorCode::kPeerClosed, ENOTCONN, "closed by the peer"},
    {ErrorCode::kVersionMismatch, EPROTONOSUPPORT, "no common protocol version"},
    {ErrorCode::kLimitExceeded, EAGAIN, "limit exceeded"},
    {ErrorCode::kInternal, EIO, "internal error"},
    {ErrorCode::kBadConfig, EINVAL, "bad configuration"},
    {ErrorCode::kUnsupported, EOPNOTSUPP, "not supported"},
    {ErrorCode::kServerRestarted, ESTALE, "the server restarted"},
};

constexpr int kFirstOwnCode = 1000;

const OwnCode* find_own(ErrorCode code) {
  for (const OwnCode& own : kOwnCodes)
    if (own.code == code) return &own;
  return nullptr;
}

}  // namespace

int to_errno(ErrorCode code) {
  const int number = static_cast<int>(code);
  if (number < kFirstOwnCode) return number;
  const OwnCode* own = find_own(code);
  return own ? own->number : EIO;
}

std::string_view error_name(ErrorCode code) {
  if (code == ErrorCode::kOk) return "ok";
  if (const OwnCode* own = find_own(code)) return own->name;
  const char* name = strerrordesc_np(static_cast<int>(code));
  return name ? name : "unknown error";
}

std::string Error::message() const {
  std::string text = context;
  if (!text.empty()) text += ": ";
  text += error_name(code);
  return text;
}

std::unexpected<Error> fail_errno(std::string context) {
  const int number = errno;
  return fail(from_errno(number), std::move(context));
}

}  // namespace tusk

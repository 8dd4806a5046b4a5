#include "proto/crypto/openssl.h"

#include <openssl/err.h>

namespace tusk::crypto {
namespace {
// A queue holds at most 16 errors; more than a few only repeat the first one's consequences.
constexpr int kReasonsInContextMax = 4;
}  // namespace

std::string drain_openssl_errors() {
  std::string text;
  int reasons = 0;
  const char* data = nullptr;
  int flags = 0;
  while (const unsigned long code = ERR_get_error_all(nullptr, nullptr, nullptr, &data, &flags)) {
    if (++reasons > kReasonsInContextMax) continue;  // still drain
    const char* reason = ERR_reason_error_string(code);
    if (!text.empty()) text += "; ";
    text += reason ? reason : "OpenSSL error " + std::to_string(code);
    if (data && (flags & ERR_TXT_STRING) && *data) text += std::string(" (") + data + ")";
  }
  return text;
}

std::unexpected<Error> fail_openssl(ErrorCode code, std::string context) {
  const std::string reasons = drain_openssl_errors();
  if (!reasons.empty()) context += ": " + reasons;
  return fail(code, std::move(context));
}

}  // namespace tusk::crypto

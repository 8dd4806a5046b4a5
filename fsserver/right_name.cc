#include "fsserver/right_name.h"

namespace tusk::server {

std::string name_of_right(AccessStore* access, std::string_view export_name, const crypto::Fingerprint& key,
                          std::string_view token, std::int64_t now_unix_s) {
  const crypto::Fingerprint nobody{};
  if (access != nullptr && !token.empty() &&
      access->right_of(export_name, nobody, as_byte_span(token), now_unix_s))
    return "token " + std::string(token);
  return "key " + key.to_text();
}

}  // namespace tusk::server

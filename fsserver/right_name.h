// The name of the right by which a client has entered an export: its token, or its key.
//
// A client has any number of sessions, and who holds a token any number of keys: what they may use up
// together, and what they have done wrong, is counted by this name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fsserver/access_store.h"

namespace tusk::server {

// `access` may be null. A token counts only if it opens the export: any other is the client's to choose.
[[nodiscard]] std::string name_of_right(AccessStore* access, std::string_view export_name,
                                        const crypto::Fingerprint& key, std::string_view token,
                                        std::int64_t now_unix_s);

}  // namespace tusk::server

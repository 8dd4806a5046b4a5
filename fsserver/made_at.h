// Times of what a client has made and told its programs of before this server heard of it.
#pragma once

#include "fsserver/call.h"

namespace tusk::server {

enum class MadeTimes : std::uint8_t { kBoth, kModification };

// Request.made_at_ns of an entry of a LOG, as far as it is not in the future. Best effort: who may write a
// file may not set its times to what it likes.
void set_made_at(const Call& call, const Fd& node, MadeTimes which);

// It has that mtime, to which such an entry has set it.
[[nodiscard]] bool was_made_at(const Call& call, const Status& status);

}  // namespace tusk::server

// Exclusiveness of directories' names for the session of a call: what the export's file system must grant,
// beside what LeaseTable says, and telling it in the reply. On the worker that acts as the right user.
#pragma once

#include <string>

#include "fsserver/call.h"

namespace tusk::server {

// After a request with want_exclusive, or an entry of a LOG, has succeeded.
void tell_exclusive(Call& call);

// The file system has room for what this session and all others may have answered and not yet sent.
[[nodiscard]] bool has_room(const LeaseKeeper& leases, SessionNumber session, Export& exported);

}  // namespace tusk::server

// What gives whoever opens or runs a file on the server's machine privileges of somebody else: set-user-ID
// and set-group-ID bits, file capabilities, device nodes. Clients make these only on exports that say `setuid
// = true`.
//
// The set-group-ID bit of a directory is inheritance and no privilege: it stays. RENAME and LINK give names
// to files that exist, and so no privileges.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string_view>

#include "fsserver/call.h"
#include "proto/base/result.h"

namespace tusk::server {

// The permission bits that a file of this type (S_IFMT) gets where the client asks for `wanted`.
[[nodiscard]] mode_t permitted_mode(const Call& call, mode_t type, mode_t wanted);

// Whether the client may make a device node. EPERM. A whiteout (overlayfs) is no device.
[[nodiscard]] Result<void> check_device(const Call& call, mode_t type, std::uint64_t rdev);

// Whether the client may set an extended attribute of this name. EPERM, as for a process without CAP_SETFCAP.
[[nodiscard]] Result<void> check_privileged_attribute(const Call& call, std::string_view name);

// A write, truncation or allocation takes the set-user-ID and set-group-ID bits away from an executable. The
// kernel does so unless the writer is root: here it has to be done for it, before bytes are written.
[[nodiscard]] Result<void> strip_special_bits(const Call& call, const Fd& file);

}  // namespace tusk::server

// statx(2) and how its facts look on the wire.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>

#include "fsserver/fd.h"
#include "proto/base/result.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::server {

using Status = struct statx;

// Of the inode of any descriptor, O_PATH included.
[[nodiscard]] Result<Status> status_of(const Fd& fd);

[[nodiscard]] inline std::uint64_t device_of(const Status& status) {
  return (static_cast<std::uint64_t>(status.stx_dev_major) << 32) | status.stx_dev_minor;
}

// One number for a file in the whole export. On the root's own device it is the inode number. On a
// device mounted inside the export it is mixed with the device and has its top bit set, since two
// devices use the same inode numbers.
[[nodiscard]] std::uint64_t export_ino(std::uint64_t device, std::uint64_t ino, std::uint64_t root_device);

// Differs whenever content or attributes differ, as far as ctime does: kernels before 6.13 stamp it
// with the timer tick (1 to 10 ms), so the size is mixed in.
[[nodiscard]] std::uint64_t change_of(const Status& status);

// The same for who did not make the change: 0, "nobody knows", while another change could still get the
// same stamp, as bytes that are cached under it would be taken for the file's ever after.
[[nodiscard]] std::uint64_t observed_change(const Status& status);
// Its decision, for tests: `coarse` kernels stamp with the tick.
[[nodiscard]] bool stamp_may_repeat(const statx_timestamp& ctime, const timespec& now, bool coarse);

[[nodiscard]] schema::Attr to_attr(const Status& status, std::uint64_t root_device);

}  // namespace tusk::server

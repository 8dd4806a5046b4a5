// Places where a directory is, and a mount would be foolish: it hides what it needs, or lies in that.
//
// Each check: kBadConfig or an errno, with a sentence of what is wrong and what to do. All places absolute
// and free of symbolic links (resolve_mountpoint()). None asks the server or another mount.
#pragma once

#include <filesystem>

#include "proto/base/result.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::client {

// /proc, /sys and what else the kernel makes up by itself.
[[nodiscard]] Result<void> check_no_kernel_place(const std::filesystem::path& mountpoint);

// `cache_folder` is that of -o cache, empty for none. Neither may lie in the other.
[[nodiscard]] Result<void> check_cache_place(const std::filesystem::path& mountpoint,
                                             const std::filesystem::path& cache_folder);

// If the server is this machine: the mount point must not be in what is mounted, or the server would find its
// own answers there, without an end. `attached` is its answer to the attach.
[[nodiscard]] Result<void> check_outside_the_export(const std::filesystem::path& mountpoint,
                                                    const schema::AttachReply& attached);

}  // namespace tusk::client

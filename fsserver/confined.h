// Going from a directory to something in it, and from an inode to an open file, without ever leaving
// the export: the only places of the file server that resolve names from outside.
#pragma once

#include <string_view>

#include "fsserver/fd.h"
#include "proto/base/result.h"

namespace tusk::server {

constexpr std::size_t kFileNameBytesMax = 255;

// ENAMETOOLONG; EINVAL for "", ".", "..", and names with '/' or NUL. Any other bytes are a name.
[[nodiscard]] Result<void> check_file_name(std::string_view name);

// The thing called `name` in `directory` as an O_PATH descriptor; a symlink is the symlink itself.
// Mount points are crossed. `name` has been checked.
[[nodiscard]] Result<Fd> open_child(const Fd& directory, std::string_view name);

// A new regular file `name` in `directory`, opened with `flags` (access mode). EEXIST whatever is there
// already, a dangling symlink too. `name` has been checked.
[[nodiscard]] Result<Fd> create_child(const Fd& directory, std::string_view name, int flags, unsigned mode);

// The inode of an O_PATH descriptor opened for `flags` (access mode, O_TRUNC, O_DIRECTORY), with the
// kernel's permission check. The caller has made sure that it is a regular file or a directory:
// opening a fifo would block, opening a device would do something.
[[nodiscard]] Result<Fd> reopen(const Fd& node, int flags);

}  // namespace tusk::server

// What a listing is told by to a client that has kept it: the same number only if it would be told the same.
//
// Not in it: covers, which say how long an answer may be used and not what a file is; and the atime of what
// is no regular file: to list a directory and to read a link moves it, so a tree would differ every day from
// having been looked at. Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/schema/tusk.pb.h"

namespace tusk::server {

// Of the directory with this handle and `entries` in this order. Never 0.
[[nodiscard]] std::uint64_t listing_digest(
    std::string_view handle, const google::protobuf::RepeatedPtrField<schema::DirEntry>& entries);

}  // namespace tusk::server

// What clients call nodes and open files whose handles and ids they cannot know yet (docs/PROTOCOL.md, "The
// log"; LOOKUPs that open).
//
// A handle on the wire is an alias if it is 9 bytes, 0xff and a number; handles of any server are longer
// (fsserver/handle_codec.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/schema/tusk.pb.h"

namespace tusk::rpc {

constexpr std::size_t kAliasBytes = 9;

// Open ids from this on are the client's to choose, those below the server's.
constexpr std::uint64_t kClientOpenIdMin = 1ull << 63;

// nullopt: it is none.
[[nodiscard]] std::optional<std::uint64_t> alias_of(std::string_view handle);
// How it looks in place of a handle.
[[nodiscard]] std::string handle_of_alias(std::uint64_t alias);

// Calls `visit` with each handle that a request names a node by, for it to be replaced.
template <class Visit>
void for_each_handle(schema::Request& request, Visit&& visit) {
  using Request = schema::Request;
  if (!request.node().empty()) visit(*request.mutable_node());
  switch (request.operation_case()) {
    case Request::kCreate:
      return visit(*request.mutable_create()->mutable_parent());
    case Request::kMakeNode:
      return visit(*request.mutable_make_node()->mutable_parent());
    case Request::kRemove:
      visit(*request.mutable_remove()->mutable_parent());
      return visit(*request.mutable_remove()->mutable_expected());
    case Request::kRename:
      visit(*request.mutable_rename()->mutable_old_parent());
      visit(*request.mutable_rename()->mutable_new_parent());
      visit(*request.mutable_rename()->mutable_expected());
      return visit(*request.mutable_rename()->mutable_replaced());
    case Request::kLink:
      visit(*request.mutable_link()->mutable_handle());
      return visit(*request.mutable_link()->mutable_new_parent());
    case Request::kSetattr:
      return visit(*request.mutable_setattr()->mutable_handle());
    case Request::kWrite:
      return visit(*request.mutable_write()->mutable_handle());
    case Request::kSetxattr:
      return visit(*request.mutable_setxattr()->mutable_handle());
    case Request::kRemovexattr:
      return visit(*request.mutable_removexattr()->mutable_handle());
    case Request::kAllocate:
      return visit(*request.mutable_allocate()->mutable_handle());
    default:
      return;
  }
}

}  // namespace tusk::rpc

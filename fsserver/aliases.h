// What the entries of a session's LOGs call nodes that earlier entries make: the client has no handles of
// them yet. Not thread-safe: used by the LOG whose turn it is.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "proto/base/result.h"
#include "proto/rpc/log_alias.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::server {

using rpc::alias_of;
using rpc::handle_of_alias;

constexpr std::size_t kAliasesMax = 65'536;  // of a session

class AliasTable {
 public:
  // Of the LOG of this number. When there are too many the node gets none.
  void define(std::uint64_t alias, std::uint64_t log, std::string handle);
  // Making what would have been called so has failed.
  void drop(std::uint64_t alias) { nodes_.erase(alias); }
  // Those of LOGs up to this one.
  void forget(std::uint64_t answered);
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }

  // Handles in place of the aliases in an entry. ESTALE: nothing is called so, since making it has failed.
  [[nodiscard]] Result<void> replace(schema::Request& entry) const;

 private:
  struct Node {
    std::uint64_t log;
    std::string handle;
  };
  [[nodiscard]] Result<void> replace(std::string& handle) const;

  std::unordered_map<std::uint64_t, Node> nodes_;
};

}  // namespace tusk::server

#include "fsserver/aliases.h"

#include <utility>

#include "fsserver/handle_codec.h"

namespace tusk::server {

static_assert(rpc::kAliasBytes < kHandleMacBytes);

void AliasTable::define(std::uint64_t alias, std::uint64_t log, std::string handle) {
  if (nodes_.size() >= kAliasesMax && !nodes_.contains(alias)) return;
  nodes_[alias] = {log, std::move(handle)};
}

void AliasTable::forget(std::uint64_t answered) {
  std::erase_if(nodes_, [answered](const auto& item) { return item.second.log <= answered; });
}

Result<void> AliasTable::replace(std::string& handle) const {
  const auto alias = alias_of(handle);
  if (!alias) return {};
  const auto found = nodes_.find(*alias);
  if (found == nodes_.end()) return fail(from_errno(ESTALE), "an alias of nothing");
  handle = found->second.handle;
  return {};
}

Result<void> AliasTable::replace(schema::Request& entry) const {
  Result<void> replaced;
  rpc::for_each_handle(entry, [&](std::string& handle) {
    if (replaced) replaced = replace(handle);
  });
  return replaced;
}

}  // namespace tusk::server

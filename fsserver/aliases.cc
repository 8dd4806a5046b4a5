#include "fsserver/aliases.h"

#include <utility>

#include "fsserver/handle_codec.h"

namespace tusk::server {
namespace {

constexpr std::size_t kAliasBytes = 9;
constexpr char kAliasMark = '\xff';
static_assert(kAliasBytes < kHandleMacBytes);

}  // namespace

std::optional<std::uint64_t> alias_of(std::string_view handle) {
  if (handle.size() != kAliasBytes || handle[0] != kAliasMark) return std::nullopt;
  std::uint64_t number = 0;
  for (const char byte : handle.substr(1)) number = (number << 8) | static_cast<unsigned char>(byte);
  return number;
}

std::string handle_of_alias(std::uint64_t alias) {
  std::string handle(1, kAliasMark);
  for (int shift = 56; shift >= 0; shift -= 8) handle += static_cast<char>(alias >> shift);
  return handle;
}

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
  using Request = schema::Request;
  switch (entry.operation_case()) {
    case Request::kCreate:
      return replace(*entry.mutable_create()->mutable_parent());
    case Request::kMakeNode:
      return replace(*entry.mutable_make_node()->mutable_parent());
    case Request::kRemove:
      TUSK_TRY(replace(*entry.mutable_remove()->mutable_parent()));
      return replace(*entry.mutable_remove()->mutable_expected());
    case Request::kRename:
      TUSK_TRY(replace(*entry.mutable_rename()->mutable_old_parent()));
      TUSK_TRY(replace(*entry.mutable_rename()->mutable_new_parent()));
      TUSK_TRY(replace(*entry.mutable_rename()->mutable_expected()));
      return replace(*entry.mutable_rename()->mutable_replaced());
    case Request::kSetattr:
      return replace(*entry.mutable_setattr()->mutable_handle());
    case Request::kWrite:
      return replace(*entry.mutable_write()->mutable_handle());
    default:
      return {};
  }
}

}  // namespace tusk::server

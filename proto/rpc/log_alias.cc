#include "proto/rpc/log_alias.h"

namespace tusk::rpc {
namespace {

constexpr char kAliasMark = '\xff';

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

}  // namespace tusk::rpc

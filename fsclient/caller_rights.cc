#include "fsclient/caller_rights.h"

#include <linux/capability.h>

#include <fstream>
#include <sstream>
#include <string>

namespace tusk::client {
namespace {

// The fourth number of "Gid:" is the one that counts for files.
bool is_among(std::istream& numbers, std::uint32_t gid, int first) {
  std::uint32_t number = 0;
  for (int index = 0; numbers >> number; ++index)
    if (index >= first && number == gid) return true;
  return false;
}

}  // namespace

bool status_keeps_set_group_id(std::istream& status, std::uint32_t gid) {
  constexpr int kFileSystemId = 3;
  for (std::string line; std::getline(status, line);) {
    std::istringstream fields(line);
    std::string key;
    fields >> key;
    if (key == "Gid:" && is_among(fields, gid, kFileSystemId)) return true;
    if (key == "Groups:" && is_among(fields, gid, 0)) return true;
    std::uint64_t capabilities = 0;
    if (key == "CapEff:" && fields >> std::hex >> capabilities && (capabilities >> CAP_FSETID & 1) != 0)
      return true;
  }
  return false;
}

bool may_keep_set_group_id(std::uint32_t pid, std::uint32_t gid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  return status_keeps_set_group_id(status, gid);
}

}  // namespace tusk::client

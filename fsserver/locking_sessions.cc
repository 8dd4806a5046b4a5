#include "fsserver/locking_sessions.h"

#include <spdlog/spdlog.h>

#include "fsserver/state_file.h"

namespace tusk::server {

void LockingSessions::add(const std::string& session, std::uint64_t number, const std::string& export_name) {
  Part& part = part_of(session);
  const std::lock_guard lock(part.mutex);
  part.added[session] = number;
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  if (const auto written = write_state_file(folder_ / session, export_name); !written)
    spdlog::warn("locks of a mount will not survive a restart: {}", written.error().message());
}

void LockingSessions::remove(const std::string& session, std::uint64_t number) {
  Part& part = part_of(session);
  const std::lock_guard lock(part.mutex);
  if (const auto added = part.added.find(session); added != part.added.end()) {
    if (added->second != number) return;
    part.added.erase(added);
  }
  std::error_code ignored;
  std::filesystem::remove(folder_ / session, ignored);
}

std::set<std::string> LockingSessions::of_export(const std::string& export_name) const {
  std::set<std::string> sessions;
  std::error_code ended;
  for (std::filesystem::directory_iterator item(folder_, ended), end; !ended && item != end;
       item.increment(ended)) {
    const auto content = read_state_file(item->path());
    if (content && *content && **content == export_name) sessions.insert(item->path().filename());
  }
  return sessions;
}

}  // namespace tusk::server

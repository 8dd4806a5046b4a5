#include "fsclient/core.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace tusk::client {

// Whether it goes to the log.
bool LastError::note(const std::string& text, bool to_log) {
  const std::lock_guard lock(mutex_);
  ++count_;
  text_ = text;
  return to_log && std::exchange(logged_, text) != text;
}

void LastError::set(std::string text) {
  if (note(text, true)) spdlog::error("{}", text);
}

void LastError::set(std::string text, Deferred& after, bool to_log) {
  if (note(text, to_log)) after.add([text = std::move(text)] { spdlog::error("{}", text); });
}

}  // namespace tusk::client

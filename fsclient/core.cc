#include "fsclient/core.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace tusk::client {

// Whether it is another than the last.
bool LastError::note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  ++count_;
  return std::exchange(text_, text) != text;
}

void LastError::set(std::string text) {
  if (note(text)) spdlog::error("{}", text);
}

void LastError::set(std::string text, Deferred& after, bool logged) {
  if (note(text) && logged) after.add([text = std::move(text)] { spdlog::error("{}", text); });
}

}  // namespace tusk::client

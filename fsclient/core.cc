#include "fsclient/core.h"

#include <spdlog/spdlog.h>

namespace tusk::client {

void LastError::set(std::string text) {
  bool again = false;  // as each block of a large file on a full disk
  {
    const std::lock_guard lock(mutex_);
    again = text == text_;
    text_ = text;
    ++count_;
  }
  if (!again) spdlog::error("{}", text);
}

}  // namespace tusk::client

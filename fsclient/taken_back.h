// Which nodes were taken back lately, for answers that are overtaken by the push that takes back what they
// tell: of a node that was not known when the push came nothing else remembers it. Thread-safe.
#pragma once

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "proto/base/time.h"

namespace tusk::client {

class TakenBack {
 public:
  static constexpr std::size_t kRememberedMax = 4096;

  void note(std::string_view handle, TimePoint now) {
    const std::lock_guard lock(mutex_);
    newest_.insert_or_assign(std::string(handle), now);
    order_.emplace_back(handle, now);
    while (order_.size() > kRememberedMax) {
      forgotten_until_ = order_.front().second;
      const auto found = newest_.find(order_.front().first);
      if (found != newest_.end() && found->second <= forgotten_until_) newest_.erase(found);
      order_.pop_front();
    }
  }

  // When the node was last taken back, as far as anybody knows; TimePoint::min(): never.
  [[nodiscard]] TimePoint newest(std::string_view handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = newest_.find(std::string(handle));
    return found == newest_.end() ? forgotten_until_ : std::max(forgotten_until_, found->second);
  }
  // An answer to a question asked at `started` may tell of the node as it was before it was taken back.
  [[nodiscard]] bool since(std::string_view handle, TimePoint started) const {
    return started <= newest(handle);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, TimePoint> newest_;
  std::deque<std::pair<std::string, TimePoint>> order_;
  TimePoint forgotten_until_ = TimePoint::min();
};

}  // namespace tusk::client

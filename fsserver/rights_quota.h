// What each right has of what all share: sessions, connections, descriptors, memory. A right is a token or a
// listed key; it may be used with any number of keys and mounts, and none of them gives it more. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "fsserver/body_budget.h"
#include "fsserver/quota.h"

namespace tusk::server {

struct RightHoldings {
  const std::string right;
  const std::shared_ptr<Quota> sessions;
  const std::shared_ptr<Quota> connections;
  const std::shared_ptr<Quota> descriptors;
  const std::shared_ptr<Quota> early_log_bytes;  // of LOGs before their turn
  const std::shared_ptr<BodyBudget::Share> bodies;
};

class RightsQuota {
 public:
  struct Limits {
    std::size_t sessions;
    std::size_t connections;
    std::size_t descriptors;
    std::size_t early_log_bytes;
  };
  explicit RightsQuota(const Limits& limits)
      : sessions_(std::make_shared<QuotaPool>(limits.sessions)),
        connections_(std::make_shared<QuotaPool>(limits.connections)),
        descriptors_(std::make_shared<QuotaPool>(limits.descriptors)),
        early_log_bytes_(std::make_shared<QuotaPool>(limits.early_log_bytes)) {}

  // The same for the same right as long as somebody holds it.
  [[nodiscard]] std::shared_ptr<const RightHoldings> of(const std::string& right) {
    const std::lock_guard lock(mutex_);
    if (const auto known = rights_.find(right); known != rights_.end())
      if (auto held = known->second.lock()) return held;
    std::erase_if(rights_, [](const auto& item) { return item.second.expired(); });
    auto made = std::make_shared<const RightHoldings>(
        RightHoldings{.right = right,
                      .sessions = std::make_shared<Quota>(sessions_),
                      .connections = std::make_shared<Quota>(connections_),
                      .descriptors = std::make_shared<Quota>(descriptors_),
                      .early_log_bytes = std::make_shared<Quota>(early_log_bytes_),
                      .bodies = std::make_shared<BodyBudget::Share>()});
    rights_.emplace(right, made);
    return made;
  }

 private:
  const std::shared_ptr<QuotaPool> sessions_;
  const std::shared_ptr<QuotaPool> connections_;
  const std::shared_ptr<QuotaPool> descriptors_;
  const std::shared_ptr<QuotaPool> early_log_bytes_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<const RightHoldings>> rights_;
};

}  // namespace tusk::server

#include "proto/rpc/host_siblings.h"

#include <algorithm>

namespace tusk::rpc {
namespace {

class SharedSiblings final : public transport::Siblings {
 public:
  Others tell(const void* flow, const News& news) override {
    const std::lock_guard lock(mutex_);
    return Siblings::tell(flow, news);
  }
  void leave(const void* flow) override {
    const std::lock_guard lock(mutex_);
    Siblings::leave(flow);
  }
  void count(int more) override {
    const std::lock_guard lock(mutex_);
    Siblings::count(more);
  }
  Glance glance() const override {
    const std::lock_guard lock(mutex_);
    return Siblings::glance();
  }

 private:
  mutable std::mutex mutex_;
};

}  // namespace

std::shared_ptr<transport::Siblings> HostSiblings::of(const io::Address& address) {
  constexpr std::size_t kPrefixBytes = 8;
  io::Address::Ip host = address.ip();
  if (!address.is_v4()) std::fill(host.begin() + kPrefixBytes, host.end(), std::uint8_t{0});
  const std::lock_guard lock(mutex_);
  if (hosts_.size() >= sweep_at_) {
    std::erase_if(hosts_, [](const auto& each) { return each.second.expired(); });
    sweep_at_ = 64 + 2 * hosts_.size();
  }
  std::weak_ptr<transport::Siblings>& kept = hosts_[host];
  auto siblings = kept.lock();
  if (!siblings) kept = siblings = std::make_shared<SharedSiblings>();
  return siblings;
}

}  // namespace tusk::rpc

// Which flows go to the same host, or come from it: one Siblings for each address that there are connections
// to.
//
// Thread-safe, and so is what it gives out: the flows of a host are on several shards.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "proto/io/address.h"
#include "proto/transport/siblings.h"

namespace tusk::rpc {

class HostSiblings {
 public:
  // Of an IPv4 address; of IPv6 of the first 64 bits, behind which each host has many (RFC 4291 §2.5.4).
  // Kept as long as somebody has it.
  [[nodiscard]] std::shared_ptr<transport::Siblings> of(const io::Address& address);

 private:
  std::mutex mutex_;
  std::map<io::Address::Ip, std::weak_ptr<transport::Siblings>> hosts_;
  std::size_t sweep_at_ = 64;
};

}  // namespace tusk::rpc

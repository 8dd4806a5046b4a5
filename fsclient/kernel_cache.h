// What the kernel was told and may go on using, for those who take it back.
#pragma once

#include <string>

#include "fsclient/inode.h"

namespace tusk::client {

// What the kernel caches of this mount. Called on the scheduler's notification thread only.
class KernelCache {
 public:
  virtual ~KernelCache() = default;
  // Drops pages and attributes of an inode.
  virtual void invalidate_inode(NodeId node) = 0;
  // Drops the attributes, and the pages from the one with the byte at `from` on.
  virtual void invalidate_from(NodeId node, ByteCount from) = 0;
  // The attributes, and the pages that the range touches.
  virtual void invalidate_range(NodeId node, Interval range) = 0;
  // The attributes alone; waits for nothing. False: it has no such inode, not yet or not any more.
  virtual bool invalidate_attributes(NodeId node) = 0;
  virtual void invalidate_entry(NodeId parent, const std::string& name) = 0;
};

}  // namespace tusk::client

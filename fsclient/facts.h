// Takes in what the server says of files: the one place where attributes enter the cache, and where a
// change made by others is noticed.
#pragma once

#include <memory>

#include "fsclient/core.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::client {

class Facts {
 public:
  explicit Facts(Core& core) : core_(core) {}

  // The inode of a node the server told of in answer to a request sent at `started`. kMalformed for a
  // node without a handle or a type.
  [[nodiscard]] Result<std::shared_ptr<Inode>> learn(const schema::Node& node, TimePoint started);

  // Thread-safe; takes the inode's mutex. True if somebody else changed the file's bytes: the kernel is
  // then told to drop its pages, and an answer that shows the new size should wait for that (behind a
  // notification), or a reader would see the old last page padded with zeros.
  bool learn(Inode& inode, const schema::Attr& attr, TimePoint started);
  // The same for an answer to a change of this mount's own: it does not count as somebody else's.
  void learn_own(Inode& inode, const schema::Attr& attr, TimePoint started);
  // With the mutex held. Returns whether somebody else changed the file's bytes.
  bool learn_locked(Inode& inode, const Attributes& attr, TimePoint started);

  // The kernel has been asked to drop the inode's pages and has not done so yet.
  [[nodiscard]] static bool pages_being_dropped(Inode& inode);

  // Nothing known of the inode is to be used without asking; its names and bytes as chosen.
  void forget(Inode& inode, bool data, bool entries);

 private:
  void prepare(Inode& inode, const Attributes& attr);
  void drop_kernel_pages(Inode& inode);

  Core& core_;
};

}  // namespace tusk::client

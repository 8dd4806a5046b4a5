// Which inode is which: the kernel's node ids and the server's handles.
//
// One Inode for one file of the server, so hard links share it. A node id is never used for another
// file. The kernel's references (lookups) are counted as it counts them; an Inode lives as long as the
// kernel or anything in this mount refers to it, whether it has a name or not.
//
// Thread-safe. Its mutex is a leaf: nothing else is locked under it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "fsclient/inode.h"
#include "fsclient/own_numbers.h"

namespace tusk::client {

class InodeTable {
 public:
  explicit InodeTable(std::string root_handle);
  InodeTable(const InodeTable&) = delete;
  InodeTable& operator=(const InodeTable&) = delete;
  ~InodeTable();  // no other thread uses an inode then

  [[nodiscard]] const std::shared_ptr<Inode>& root() const { return root_; }

  // The inode of a handle; made if there is none.
  [[nodiscard]] std::shared_ptr<Inode> intern(std::string_view handle);
  // One that the server is still to make: adopt() it once its handle is known.
  [[nodiscard]] std::shared_ptr<Inode> make();
  void adopt(const std::shared_ptr<Inode>& inode);
  // The server has lost it, and it was made again under another handle. It is found by both.
  void rename(const std::shared_ptr<Inode>& inode, const std::string& handle);
  // nullptr: not known.
  [[nodiscard]] std::shared_ptr<Inode> find(std::string_view handle);
  // nullptr: the kernel has no reference to it (which it should not ask about then).
  [[nodiscard]] std::shared_ptr<Inode> find(NodeId id);

  // The kernel gets one more reference with the reply about to be sent.
  void remember(const std::shared_ptr<Inode>& inode);
  // FORGET: O(1), no network.
  void forget(NodeId id, std::uint64_t lookups);

  [[nodiscard]] std::vector<std::shared_ptr<Inode>> all_remembered();
  [[nodiscard]] std::size_t remembered();  // inodes the kernel refers to

  // Without the mutex.
  [[nodiscard]] OwnNumbers& numbers() { return numbers_; }

 private:
  friend class Inode;
  void handle_gone(const std::string& handle);

  struct Remembered {
    std::shared_ptr<Inode> inode;
    std::uint64_t lookups = 0;
  };
  struct StringHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  OwnNumbers numbers_;
  std::mutex mutex_;
  std::uint64_t next_id_ = kRootNode.value();
  std::unordered_map<std::string, std::weak_ptr<Inode>, StringHash, std::equal_to<>> by_handle_;
  std::unordered_map<NodeId, Remembered> by_id_;
  std::shared_ptr<Inode> root_;  // last: goes first, while the maps still exist
};

}  // namespace tusk::client

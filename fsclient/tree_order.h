// Where a program that goes through a tree is, by what is known of the tree: what is in a directory, above
// it, and after it. TreeStream and FilesAhead ask.
//
// Thread-safe. No inode's mutex may be held by who calls it.
#pragma once

#include <memory>
#include <vector>

#include "fsclient/inode.h"
#include "fsclient/tree_walk.h"

namespace tusk::client {

// Null: not known.
[[nodiscard]] std::shared_ptr<Inode> parent_of(Inode& inode);
// Of the type (DT_DIR, DT_REG), in the order of the listing; none if that is not known.
[[nodiscard]] std::vector<Sibling> children_of(Inode& directory, unsigned char type);
// What a program comes to when it has been through the files of `directory`: depth first, each directory
// before what is in it. At most `count`, as far as listings are known.
[[nodiscard]] std::vector<std::shared_ptr<Inode>> directories_after(const std::shared_ptr<Inode>& directory,
                                                                    VisitOrder order, std::size_t count);

}  // namespace tusk::client

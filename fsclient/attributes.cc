#include "fsclient/attributes.h"

namespace tusk::client {

Attributes Attributes::from_schema(const schema::Attr& attr) {
  return {
      .ino = attr.ino(),
      .mode = attr.mode(),
      .nlink = attr.nlink(),
      .uid = attr.uid(),
      .gid = attr.gid(),
      .rdev = attr.rdev(),
      .size = attr.size(),
      .blocks = attr.blocks(),
      .block_size = attr.block_size() != 0 ? attr.block_size() : 4096,
      .atime = {attr.atime_s(), attr.atime_ns()},
      .mtime = {attr.mtime_s(), attr.mtime_ns()},
      .ctime = {attr.ctime_s(), attr.ctime_ns()},
      .change = attr.change(),
      .no_xattrs = attr.no_xattrs(),
  };
}

}  // namespace tusk::client

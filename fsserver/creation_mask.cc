#include "fsserver/creation_mask.h"

#include <sched.h>
#include <sys/stat.h>

namespace tusk::server {
namespace {

thread_local bool own_umask = false;

}  // namespace

void CreationMask::own_for_this_thread() {
  own_umask = ::unshare(CLONE_FS) == 0;
  ::umask(0);
}

CreationMask::CreationMask(mode_t mask) {
  if (own_umask)
    before_ = ::umask(mask & 0777);
  else
    left_out_ = mask & 0777;
}

CreationMask::~CreationMask() {
  if (own_umask) ::umask(before_);
}

}  // namespace tusk::server

// The kernel's struct file_handle with room for the largest one (name_to_handle_at(2)).
#pragma once

#include <fcntl.h>

namespace tusk::server {

struct KernelHandle {
  unsigned int handle_bytes;
  int handle_type;
  unsigned char f_handle[MAX_HANDLE_SZ];
};

}  // namespace tusk::server

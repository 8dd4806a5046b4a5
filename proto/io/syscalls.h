// The system calls of UdpSocket behind a seam: tests put one in between that fails on command, because
// no kernel can be asked to refuse GSO or to run out of send buffer at the third datagram.
#pragma once

#include <sys/socket.h>

namespace tusk::io {

// Each is the call of the same meaning: -1 and errno on failure. No thread rules of its own.
class Syscalls {
 public:
  virtual ~Syscalls() = default;

  virtual int open_socket(int family, int type, int protocol) { return ::socket(family, type, protocol); }
  virtual int set_option(int fd, int level, int name, const void* value, socklen_t size) {
    return ::setsockopt(fd, level, name, value, size);
  }
  virtual int send_many(int fd, mmsghdr* messages, unsigned count, int flags) {
    return ::sendmmsg(fd, messages, count, flags);
  }
  virtual int receive_many(int fd, mmsghdr* messages, unsigned count, int flags) {
    return ::recvmmsg(fd, messages, count, flags, nullptr);
  }

  // The kernel itself.
  [[nodiscard]] static Syscalls& kernel() {
    static Syscalls calls;
    return calls;
  }
};

}  // namespace tusk::io

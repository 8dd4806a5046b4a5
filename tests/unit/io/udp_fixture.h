// Vocabulary for the tests of UdpSocket: sockets on loopback, payloads that show where they were cut,
// and a kernel that fails on command.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "proto/io/syscalls.h"
#include "proto/io/udp_socket.h"

namespace tusk::io {

using Bytes = std::vector<std::byte>;

constexpr int kPatienceMs = 10'000;  // for what loopback does at once

inline UdpSocket open_socket(UdpOptions options) {
  auto socket = UdpSocket::open(options);
  if (!socket) throw std::runtime_error(socket.error().message());
  return std::move(*socket);
}

inline UdpSocket open_socket(const std::string& bind) { return open_socket({.bind = parse(bind).value()}); }

// Bytes that differ from place to place, so that a shifted or swapped datagram shows.
inline Bytes pattern(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 131 + i / 251) & 0xff);
  return bytes;
}

struct Received {
  Address from;
  Address local;
  Bytes bytes;
  std::uint8_t ecn = 0;
};

inline bool wait_for(int fd, short events) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  return ::poll(&entry, 1, kPatienceMs) == 1;
}

// What arrives, until there are `count` datagrams.
inline std::vector<Received> receive(UdpSocket& socket, std::size_t count) {
  std::vector<Received> received;
  ReceiveBatch batch;
  while (received.size() < count && wait_for(socket.fd(), POLLIN))
    socket.receive(batch, [&](const Datagram& datagram) {
      received.push_back(
          {datagram.from, datagram.local, {datagram.bytes.begin(), datagram.bytes.end()}, datagram.ecn});
    });
  EXPECT_EQ(received.size(), count);
  received.resize(std::max(received.size(), count));  // what is missing fails the test, not the process
  return received;
}

inline std::vector<std::size_t> sizes(const std::vector<Received>& received) {
  std::vector<std::size_t> sizes;
  for (const Received& datagram : received) sizes.push_back(datagram.bytes.size());
  return sizes;
}

inline Bytes joined(const std::vector<Received>& received) {
  Bytes bytes;
  for (const Received& datagram : received)
    bytes.insert(bytes.end(), datagram.bytes.begin(), datagram.bytes.end());
  return bytes;
}

inline SendResult send_one(UdpSocket& socket, const OutgoingBatch& batch) { return socket.send({&batch, 1}); }

inline bool is_gso(const mmsghdr& message) {
  for (auto* header = CMSG_FIRSTHDR(&message.msg_hdr); header;
       header = CMSG_NXTHDR(const_cast<msghdr*>(&message.msg_hdr), header))
    if (header->cmsg_level == IPPROTO_UDP) return true;
  return false;
}

// The kernel, but for the calls a test takes over.
class FaultyKernel : public Syscalls {
 public:
  int open_socket(int family, int type, int protocol) override {
    if (family == refuse_family) return errno = EAFNOSUPPORT, -1;
    return Syscalls::open_socket(family, type, protocol);
  }
  int set_option(int fd, int level, int name, const void* value, socklen_t size) override {
    if (refuse_option && refuse_option(level, name)) return errno = ENOPROTOOPT, -1;
    return Syscalls::set_option(fd, level, name, value, size);
  }
  // Passes each message alone, so that the test decides about each.
  int send_many(int fd, mmsghdr* messages, unsigned count, int flags) override {
    for (unsigned sent = 0; sent < count; ++sent) {
      const int error = send_error ? send_error(messages[sent]) : 0;
      if (error == 0 && Syscalls::send_many(fd, messages + sent, 1, flags) == 1) continue;
      if (error != 0) errno = error;
      return sent > 0 ? static_cast<int>(sent) : -1;
    }
    return static_cast<int>(count);
  }
  int receive_many(int fd, mmsghdr* messages, unsigned count, int flags) override {
    if (!receive_errors.empty()) {
      errno = receive_errors.front();
      receive_errors.pop_front();
      return -1;
    }
    const int received = Syscalls::receive_many(fd, messages, count, flags);
    for (int i = 0; i < received && spoil; ++i) spoil(messages[i]);
    return received;
  }

  int refuse_family = -1;
  std::function<bool(int level, int name)> refuse_option;
  std::function<int(const mmsghdr&)> send_error;  // errno, or 0 to pass it on
  std::deque<int> receive_errors;
  std::function<void(mmsghdr&)> spoil;
};

}  // namespace tusk::io

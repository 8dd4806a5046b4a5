// A socket's way out, shared by the connections that send through it: what it has not taken yet, and who is
// to go on once it takes more.
//
// Network thread only. The socket outlives it.
#pragma once

#include <spdlog/spdlog.h>

#include <functional>
#include <utility>
#include <vector>

#include "proto/base/result.h"
#include "proto/io/udp_socket.h"
#include "proto/rpc/datagram_queue.h"
#include "proto/rpc/service.h"

namespace tusk::rpc {

class Outlet {
 public:
  // Has its argument called once, when the socket is writable.
  using Wait = std::function<Result<void>(std::function<void()>)>;
  using TooBig = std::function<void(const io::Address&, std::size_t)>;
  using Resume = std::function<void(ConnectionId)>;

  // `too_big`: as DatagramQueue's. `resume`: of each connection that was held up, once the socket takes more.
  Outlet(io::UdpSocket& socket, Wait wait, TooBig too_big, Resume resume)
      : socket_(socket), wait_(std::move(wait)), too_big_(std::move(too_big)), resume_(std::move(resume)) {}
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  [[nodiscard]] bool blocked() const { return blocked_; }
  // `fill(queue, socket, too_big)` puts datagrams into the queue; false: the socket could not take them.
  template <class Fill>
  void send(Fill fill) {
    if (!fill(queue_, socket_, too_big_)) blocked_ = true;
  }
  // While it is blocked, and once for each connection until it is resumed.
  void hold_up(ConnectionId connection) { held_up_.push_back(connection); }

  void flush() {
    const bool was_blocked = std::exchange(blocked_, !queue_.flush(socket_, too_big_));
    if (blocked_) return wait_until_writable();
    if (!was_blocked) return;
    for (const ConnectionId connection : std::exchange(held_up_, {})) resume_(connection);
  }

 private:
  // One wait at a time, however often others try meanwhile: each takes a descriptor and three system calls.
  // When it is over there may be more in the queue than the socket's buffer holds.
  void wait_until_writable() {
    if (awaited_) return;
    const auto waiting = wait_([this] {
      awaited_ = false;
      flush();
    });
    awaited_ = waiting.has_value();
    if (!waiting) spdlog::error("cannot wait for the socket: {}", waiting.error().message());
  }

  io::UdpSocket& socket_;
  const Wait wait_;
  const TooBig too_big_;
  const Resume resume_;
  DatagramQueue queue_;
  bool blocked_ = false;
  bool awaited_ = false;
  std::vector<ConnectionId> held_up_;
};

}  // namespace tusk::rpc

// What a client sends: through its socket now, and later what that cannot take yet.
//
// Network thread only; reactor and socket outlive it.
#pragma once

#include <spdlog/spdlog.h>

#include <functional>
#include <utility>

#include "proto/io/reactor.h"
#include "proto/rpc/transmit.h"

namespace tusk::rpc {

class ClientSender {
 public:
  // `too_big` is told the size of datagrams that the interface refused; `resumed`: the socket takes more
  // again.
  ClientSender(io::Reactor& reactor, io::UdpSocket& socket, std::function<void(std::size_t)> too_big,
               std::function<void()> resumed)
      : reactor_(reactor),
        socket_(socket),
        too_big_([tell = std::move(too_big)](const io::Address&, std::size_t size) { tell(size); }),
        resumed_(std::move(resumed)) {}

  // Sends all that the connection has to send now; blocked() afterwards if the socket could not take it.
  void send(SecureConnection& connection, TimePoint now, const Route& route) {
    // Tried also here: nobody may be waiting for the socket, if the process had no descriptor left for that.
    if (blocked_ && !flush_rest()) return;
    blocked_ =
        !transmit(connection, now, route, queue_, socket_, too_big_) || !queue_.flush(socket_, too_big_);
    if (blocked_) resume_when_writable();
  }
  [[nodiscard]] bool blocked() const { return blocked_; }
  // At the end, when nobody is told of anything any more: what the socket does not take now is lost.
  void flush_at_the_end() {
    (void)queue_.flush(socket_, [](const io::Address&, std::size_t) {});
  }

 private:
  // False: the socket still takes no more.
  bool flush_rest() {
    blocked_ = !queue_.flush(socket_, too_big_);
    if (!blocked_) resumed_();
    return !blocked_;
  }

  // One time may not do: the queue holds more than the socket's buffer.
  void resume_when_writable() {
    const auto resume = [this] {
      if (blocked_ && !flush_rest()) resume_when_writable();
    };
    if (auto waiting = reactor_.wait_writable_once(socket_.fd(), resume); !waiting)
      spdlog::error("cannot wait for the socket: {}", waiting.error().message());
  }

  io::Reactor& reactor_;
  io::UdpSocket& socket_;
  const std::function<void(const io::Address&, std::size_t)> too_big_;
  const std::function<void()> resumed_;
  DatagramQueue queue_;
  bool blocked_ = false;
};

}  // namespace tusk::rpc

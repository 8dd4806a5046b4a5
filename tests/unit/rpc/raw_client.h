// A peer with keys and without manners, over loopback: connects, and from then on does what a test wants,
// on the test's own thread.
#pragma once

#include <poll.h>

#include <algorithm>
#include <map>
#include <vector>

#include "proto/io/clock.h"
#include "proto/rpc/message_codec.h"
#include "proto/rpc/transmit.h"

namespace tusk::rpc {

class RawClient {
 public:
  RawClient(const crypto::Identity& identity, std::uint16_t port,
            const io::Address& from = io::Address::any(0))
      : route_{*io::parse("127.0.0.1:" + std::to_string(port)), {}},
        socket_(*io::UdpSocket::open({.bind = from})),
        secure_(*SecureConnection::client({identity, {}, {}, {}, {}}, io::now())) {}

  // Sends and receives until `done()`; false: not within `patience`.
  template <class Done>
  bool run_until(Done done, Duration patience = 20s) {
    const TimePoint until = io::now() + patience;
    while (!done()) {
      const TimePoint now = io::now();
      if (now >= until) return false;
      turn(now);
      pollfd readable{socket_.fd(), POLLIN, 0};
      const TimePoint next = std::min(secure_->next_timeout(), now + 5ms);
      const auto pause = std::chrono::duration_cast<std::chrono::milliseconds>(next - now);
      ::poll(&readable, 1, static_cast<int>(std::max<std::int64_t>(pause.count(), 0)));
    }
    return true;
  }
  // Sends the first flight and nothing after it; what comes within `patience` is told, packet by packet.
  std::vector<std::vector<std::byte>> call_and_fall_silent(Duration patience) {
    flush(io::now());
    return hear(patience);
  }
  // Sends one datagram as it is.
  void send(std::span<const std::byte> datagram) {
    const io::OutgoingBatch batch{route_.to, route_.local, datagram,
                                  static_cast<std::uint16_t>(datagram.size()), 0};
    (void)socket_.send(std::span(&batch, 1));
  }
  std::vector<std::vector<std::byte>> hear(Duration patience) {
    std::vector<std::vector<std::byte>> heard;
    const TimePoint until = io::now() + patience;
    for (TimePoint now = io::now(); now < until; now = io::now()) {
      pollfd readable{socket_.fd(), POLLIN, 0};
      ::poll(
          &readable, 1,
          static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(until - now).count()) + 1);
      socket_.receive(batch_, [&](const io::Datagram& datagram) {
        heard.emplace_back(datagram.bytes.begin(), datagram.bytes.end());
      });
    }
    return heard;
  }
  bool connect(Duration patience = 20s) {
    return run_until([&] { return secure_->established(); }, patience);
  }
  // Until the server has ended the connection.
  bool run_to_the_end() {
    return run_until([&] { return closed_.has_value(); });
  }

  wire::ExchangeId ask(SharedBytes header, std::size_t body = 0, std::size_t room = 0) {
    return secure_->connection().open_exchange(std::move(header), allocate_bytes(body).first(body),
                                               allocate_bytes(room), wire::Priority::kInteractive);
  }
  bool attach() {
    schema::Request request;
    request.mutable_attach();
    const auto call = ask(*encode_message(request));
    return connect() && run_until([&] { return replies_.contains(call) || closed_; }) && !closed_;
  }

  // The newest that the server gave.
  [[nodiscard]] const std::vector<std::byte>& address_token() const { return address_token_; }
  [[nodiscard]] const std::optional<transport::Closed>& closed() const { return closed_; }
  [[nodiscard]] const std::map<wire::ExchangeId, ByteCount>& replies() const { return replies_; }

 private:
  void flush(TimePoint now) {
    const auto too_big = [](const io::Address&, std::size_t) {};
    if (transmit(*secure_, now, route_, queue_, socket_, too_big)) (void)queue_.flush(socket_, too_big);
  }
  void turn(TimePoint now) {
    socket_.receive(batch_, [&](const io::Datagram& datagram) {
      secure_->handle_datagram(now, datagram.bytes, datagram.ecn);
    });
    if (secure_->next_timeout() <= now) secure_->handle_timeout(now);
    flush(now);
    while (const auto event = secure_->poll_event()) {
      const auto* transport_event = std::get_if<transport::Event>(&*event);
      if (!transport_event) continue;
      if (const auto* token = std::get_if<transport::AddressTokenArrived>(transport_event))
        address_token_ = token->token;
      if (const auto* closed = std::get_if<transport::Closed>(transport_event)) closed_ = *closed;
      if (const auto* reply = std::get_if<transport::ReplyArrived>(transport_event))
        replies_[reply->exchange] = reply->body_size;
    }
  }

  const Route route_;
  io::UdpSocket socket_;
  io::ReceiveBatch batch_;
  DatagramQueue queue_;
  std::unique_ptr<SecureConnection> secure_;
  std::optional<transport::Closed> closed_;
  std::vector<std::byte> address_token_;
  std::map<wire::ExchangeId, ByteCount> replies_;
};

}  // namespace tusk::rpc

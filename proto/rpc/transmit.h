// Sends what a connection has to send now: the meeting point of engine and socket.
#pragma once

#include <algorithm>

#include "proto/rpc/datagram_queue.h"
#include "proto/rpc/secure_connection.h"

namespace tusk::rpc {

// Where a connection's packets go, and from which of our addresses.
struct Route {
  io::Address to;
  io::Address local;
  bool operator==(const Route&) const = default;
};

// Fills `queue` with the connection's datagrams and flushes it whenever it is full; datagrams stay in
// the queue when the socket is. `budget`: bytes that may go to an address that is not proven yet; with
// little left packets become small, so that even the answer to a bare ping can carry a challenge.
// False: the socket is full.
template <class TooBig>
bool transmit(SecureConnection& connection, TimePoint now, const Route& route, DatagramQueue& queue,
              io::UdpSocket& socket, const TooBig& too_big, ByteCount* budget = nullptr) {
  for (;;) {
    if (!queue.has_room() && !queue.flush(socket, too_big)) return false;
    std::span<std::byte> space = queue.space().first(wire::kDatagramSizeMax);
    if (budget) {
      if (*budget < SecureConnection::kDatagramRoomMin) return true;
      space = space.first(std::min<ByteCount>(*budget, space.size()));
    }
    const auto datagram = connection.poll_datagram(now, space);
    if (!datagram) return true;
    queue.commit(datagram->size, route.to, route.local, datagram->mtu_probe);
    if (budget) *budget -= std::min<ByteCount>(*budget, datagram->size);
  }
}

}  // namespace tusk::rpc

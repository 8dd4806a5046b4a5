#include "proto/rpc/path_stats.h"

#include "proto/rpc/secure_connection.h"

namespace tusk::rpc {

PathStats path_stats(const SecureConnection& connection, std::string peer_address) {
  const transport::ConnectionStats from = connection.connection().stats();
  PathStats stats;
  stats.connected = true;
  stats.peer_address = std::move(peer_address);
  stats.rtt_min = from.rtt_min;
  stats.rtt_smoothed = from.rtt_smoothed;
  stats.queueing_delay = from.queueing;
  stats.send_bandwidth = from.send_bandwidth;
  stats.receive_bandwidth = from.receive_bandwidth;
  stats.receive_best = from.receive_best;
  stats.loss = from.loss;
  stats.cipher = crypto::packet_cipher_name(connection.cipher());
  stats.mtu = from.datagram_size;
  stats.bytes_sent = from.bytes_sent;
  stats.bytes_received = from.bytes_received;
  stats.packets_sent = from.packets_sent;
  stats.packets_received = from.packets_received;
  stats.packets_lost = from.packets_lost;
  return stats;
}

}  // namespace tusk::rpc

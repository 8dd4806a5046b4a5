// What the connection knows of its path, for `tusk status`, logs and the read-ahead's sizing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::rpc {

struct PathStats {
  bool connected = false;
  // For how long nothing has come from a server that has something to answer; 0 while it has not.
  Duration silent{};
  std::string peer_address;
  Duration rtt_min{};  // the path without queueing; 0 before the first sample
  Duration rtt_smoothed{};
  Duration queueing_delay{};     // standing queue: what our packets wait now beyond rtt_min
  double send_bandwidth = 0;     // bytes/s this side believes the path carries, towards the peer
  double receive_bandwidth = 0;  // bytes/s lately received, highest of the last seconds
  double receive_best = 0;       // bytes/s that came for some round trips, at best; over the main connection
  double loss = 0;               // fraction of sent packets lost lately
  std::string_view cipher;  // what packets are sealed with, "AES-256-GCM"; empty before there was a handshake
  std::uint32_t mtu = 0;    // largest UDP payload known to pass, bytes
  ByteCount bytes_sent = 0;  // UDP payload
  ByteCount bytes_received = 0;
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t packets_lost = 0;
  std::uint64_t reconnects = 0;
  std::uint64_t calls_in_flight = 0;
};

class SecureConnection;

// Of an established connection.
[[nodiscard]] PathStats path_stats(const SecureConnection& connection, std::string peer_address);

}  // namespace tusk::rpc

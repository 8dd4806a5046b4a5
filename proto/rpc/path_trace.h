// What a connection's engine thinks over time, as a qlog file (draft-ietf-quic-qlog-main-schema, JSON text
// sequences) that `./dev plot` draws. On while the environment variable QLOGDIR names a directory.
//
// One network thread. A file of about 200 bytes for each kInterval in which something happened.
#pragma once

#include <fstream>
#include <memory>
#include <string_view>

#include "proto/base/time.h"
#include "proto/transport/connection.h"

namespace tusk::rpc {

class PathTrace {
 public:
  static constexpr Duration kInterval = 10ms;

  // nullptr when no trace is wanted, or the file cannot be made (a line in the log says so).
  // `vantage_point`: "client" or "server".
  [[nodiscard]] static std::unique_ptr<PathTrace> open_if_wanted(std::string_view vantage_point,
                                                                 TimePoint now);

  // After something happened to the connection.
  void note(TimePoint now, const transport::Connection& connection);

 private:
  PathTrace(std::ofstream file, TimePoint now) : file_(std::move(file)), began_(now), next_(now) {}

  std::ofstream file_;
  const TimePoint began_;
  TimePoint next_;
  std::string_view state_;  // of congestion control, as last written
};

}  // namespace tusk::rpc

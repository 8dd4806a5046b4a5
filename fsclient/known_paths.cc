#include "fsclient/known_paths.h"

#include <fmt/format.h>

#include <cmath>
#include <sstream>

#include "fsclient/state_lines.h"

namespace tusk::client {

std::optional<transport::RememberedPath> KnownPaths::find(const std::string& server) const {
  const std::optional<StateLine> line = find_state_line(file_, server);
  if (!line) return std::nullopt;
  std::istringstream words(line->words);
  double round_trip_us = 0, sent = 0, received = 0;
  if (!(words >> round_trip_us >> sent >> received)) return std::nullopt;
  // A terabyte a second and an hour are beyond any path; what is damaged may say so.
  const auto sane = [](double value, double most) {
    return std::isfinite(value) && value >= 0 && value <= most;
  };
  if (!sane(round_trip_us, 3.6e9) || !sane(sent, 1e12) || !sane(received, 1e12)) return std::nullopt;
  return transport::RememberedPath{.round_trip = std::chrono::duration_cast<Duration>(
                                       std::chrono::duration<double, std::micro>(round_trip_us)),
                                   .sent = sent,
                                   .received = received};
}

Result<void> KnownPaths::remember(const std::string& server, const rpc::PathStats& path) const {
  if (path.rtt_min <= Duration(0)) return {};
  const bool sent = path.bytes_sent >= kMovedMin;
  const bool received = path.bytes_received >= kMovedMin;
  if (!sent && !received) return {};
  transport::RememberedPath known = find(server).value_or(transport::RememberedPath{});
  if (!known.fits(path.rtt_min)) known = {};
  known.round_trip = path.rtt_min;
  if (sent) known.sent = path.send_bandwidth;
  if (received) known.received = path.receive_best;
  return replace_state_line(
      file_, server,
      fmt::format("{:.0f} {:.0f} {:.0f}", to_seconds(known.round_trip) * 1e6, known.sent, known.received));
}

}  // namespace tusk::client

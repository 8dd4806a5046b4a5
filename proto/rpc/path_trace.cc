#include "proto/rpc/path_trace.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "proto/io/clock.h"

namespace tusk::rpc {
namespace {

constexpr char kRecordSeparator = '\x1e';  // RFC 7464

double milliseconds(Duration duration) { return to_seconds(duration) * 1e3; }

}  // namespace

std::unique_ptr<PathTrace> PathTrace::open_if_wanted(std::string_view vantage_point, TimePoint now) {
  const char* const folder = std::getenv("QLOGDIR");
  if (folder == nullptr || *folder == '\0') return nullptr;
  static std::atomic<int> count = 0;
  const auto path = std::filesystem::path(folder) /
                    fmt::format("tusk-{}-{}-{}.sqlog", vantage_point, ::getpid(), count.fetch_add(1));
  std::ofstream file(path);
  file << kRecordSeparator
       << fmt::format(
              R"({{"qlog_version":"0.4","qlog_format":"JSON-SEQ","title":"Tusk",)"
              R"("trace":{{"vantage_point":{{"type":"{}"}},"common_fields":{{"time_format":"relative",)"
              R"("reference_time":{}}}}}}})",
              vantage_point, io::unix_seconds() * 1000)
       << std::endl;
  if (!file) {
    spdlog::warn("no trace of this connection: cannot write {}", path.string());
    return nullptr;
  }
  spdlog::info("a trace of this connection goes to {}", path.string());
  return std::unique_ptr<PathTrace>(new PathTrace(std::move(file), now));
}

void PathTrace::note(TimePoint now, const transport::Connection& connection) {
  const std::string_view state = connection.congestion().state();
  if (now < next_ && state == state_) return;
  const transport::ConnectionStats stats = connection.stats();
  const double at = milliseconds(now - began_);
  if (state != state_) {
    file_
        << kRecordSeparator
        << fmt::format(
               R"({{"time":{:.3f},"name":"recovery:congestion_state_updated","data":{{"old":"{}","new":"{}"}}}})",
               at, state_, state)
        << '\n';
    state_ = state;
  }
  if (now < next_) return;
  next_ = now + kInterval;
  file_
      << kRecordSeparator
      << fmt::format(
             R"({{"time":{:.3f},"name":"recovery:metrics_updated","data":{{"min_rtt":{:.3f},"smoothed_rtt":{:.3f},)"
             R"("congestion_window":{},"bytes_in_flight":{},"pacing_rate":{:.0f},"bandwidth":{:.0f},"capacity":{:.0f},)"
             R"("bytes_sent":{},"bytes_received":{},"packets_sent":{},"packets_lost":{},"packets_spurious":{},"idle":{:.3f}}}}})",
             at, milliseconds(stats.rtt_min), milliseconds(stats.rtt_smoothed), stats.window, stats.in_flight,
             stats.pacing_rate * 8, stats.send_bandwidth * 8, stats.capacity * 8, stats.bytes_sent,
             stats.bytes_received, stats.packets_sent, stats.packets_lost, stats.packets_spurious,
             milliseconds(stats.idle))
      << '\n';
}

}  // namespace tusk::rpc

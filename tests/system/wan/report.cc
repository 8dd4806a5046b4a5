#include "tests/system/wan/report.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace tusk::wan {
namespace {

using support::DropCause;

double milliseconds(Duration duration) { return to_seconds(duration) * 1e3; }

Duration queue_at(const DirectionStatistics& statistics, TimePoint now) {
  return std::max(statistics.bottleneck_free - now, Duration(0));
}

std::string direction_json(const Lane::Figures& figures, TimePoint now) {
  const DirectionStatistics& all = figures.statistics;
  const support::LinkStatistics& link = all.link;
  const auto drops = [&link](DropCause cause) { return link.drops[static_cast<std::size_t>(cause)]; };
  std::ostringstream out;
  out << std::fixed << std::setprecision(4);
  out << "{\"packets_in\":" << link.packets_in << ",\"bytes_in\":" << link.bytes_in
      << ",\"packets_out\":" << all.delivered_packets << ",\"bytes_out\":" << all.delivered_bytes
      << ",\"under_way\":" << all.under_way;
  out << ",\"drops\":{\"total\":" << link.dropped() << ",\"outage\":" << drops(DropCause::kOutage)
      << ",\"policer\":" << drops(DropCause::kPolicer) << ",\"queue\":" << drops(DropCause::kQueue)
      << ",\"loss\":" << drops(DropCause::kLoss) << ",\"burst_loss\":" << drops(DropCause::kBurstLoss)
      << ",\"overflow\":" << all.overflowed << ",\"refused\":" << all.refused << "}";
  out << ",\"duplicated\":" << link.duplicated << ",\"corrupted\":" << link.corrupted
      << ",\"reordered\":" << link.reordered << ",\"ecn_marked\":" << link.marked;
  out << ",\"queue_ms\":{\"now\":" << milliseconds(queue_at(all, now))
      << ",\"max\":" << milliseconds(link.queue_max) << ",\"mean\":" << milliseconds(link.queue_mean())
      << "}";
  out << ",\"cpu_s\":" << to_seconds(figures.cpu) << ",\"stood_still_s\":" << to_seconds(figures.stood_still)
      << "}";
  return out.str();
}

void write_direction(std::ostream& out, const DirectionStatistics& before, const DirectionStatistics& after,
                     TimePoint now, Duration interval) {
  const double bits = 8.0 * static_cast<double>(after.delivered_bytes - before.delivered_bytes);
  out << ',' << bits / to_seconds(interval) / 1e6 << ',' << milliseconds(queue_at(after, now)) << ','
      << after.under_way << ',' << after.link.dropped() - before.link.dropped();
}

}  // namespace

std::string to_json(const Lane::Figures& ab, const Lane::Figures& ba, TimePoint now, Duration elapsed) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(3) << "{\"elapsed_s\":" << to_seconds(elapsed)
      << ",\"ab\":" << direction_json(ab, now) << ",\"ba\":" << direction_json(ba, now) << "}";
  return out.str();
}

Result<TimeSeries> TimeSeries::create(const std::string& path, TimePoint start) {
  std::ofstream file(path);
  if (!file) return fail_errno("write " + path);
  return TimeSeries(std::move(file), start);
}

TimeSeries::TimeSeries(std::ofstream file, TimePoint start)
    : file_(std::move(file)), start_(start), last_(start) {
  file_ << "time_s,ab_mbit,ab_queue_ms,ab_under_way,ab_drops,ba_mbit,ba_queue_ms,ba_under_way,ba_drops\n"
        << std::fixed << std::setprecision(3);
}

void TimeSeries::add(const Lane::Figures& ab, const Lane::Figures& ba, TimePoint now) {
  if (now <= last_) return;
  file_ << to_seconds(now - start_);
  write_direction(file_, last_ab_, ab.statistics, now, now - last_);
  write_direction(file_, last_ba_, ba.statistics, now, now - last_);
  file_ << '\n';
  last_ab_ = ab.statistics;
  last_ba_ = ba.statistics;
  last_ = now;
}

}  // namespace tusk::wan

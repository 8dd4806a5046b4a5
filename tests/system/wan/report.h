// The emulator's figures as text: JSON for programs, CSV for plots. docs/TESTING.md names the keys.
#pragma once

#include <fstream>
#include <string>

#include "proto/base/result.h"
#include "tests/system/wan/emulator.h"

namespace tusk::wan {

// One line: {"elapsed_s":..., "ab":{...}, "ba":{...}}. Times in ms, CPU and elapsed time in s.
[[nodiscard]] std::string to_json(const Lane::Figures& ab, const Lane::Figures& ba, TimePoint now,
                                  Duration elapsed);

// A row for every interval: seconds since the start, and per direction the delivered Mbit/s, the queue's
// length in ms at that moment, the packets under way and the packets dropped in the interval.
class TimeSeries {
 public:
  [[nodiscard]] static Result<TimeSeries> create(const std::string& path, TimePoint start);

  void add(const Lane::Figures& ab, const Lane::Figures& ba, TimePoint now);

 private:
  TimeSeries(std::ofstream file, TimePoint start);

  std::ofstream file_;
  TimePoint start_;
  TimePoint last_;
  DirectionStatistics last_ab_;
  DirectionStatistics last_ba_;
};

}  // namespace tusk::wan

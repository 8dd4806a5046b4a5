// spdlog's patterns, with every message made printable: nothing that a peer or a file name says can begin a
// line of the log or steer a terminal.
#pragma once

#include <spdlog/pattern_formatter.h>

#include <memory>
#include <string>
#include <utility>

#include "proto/base/text.h"

namespace tusk::rpc {

class PrintableFormatter final : public spdlog::formatter {
 public:
  static constexpr std::size_t kMessageBytesMax = 16 * 1024;

  explicit PrintableFormatter(std::string pattern, std::string line_end = "\n")
      : pattern_(std::move(pattern)),
        line_end_(std::move(line_end)),
        formatter_(pattern_, spdlog::pattern_time_type::local, line_end_) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& into) override {
    const std::string text = printable({message.payload.data(), message.payload.size()}, kMessageBytesMax);
    spdlog::details::log_msg clean = message;
    clean.payload = text;
    formatter_.format(clean, into);
    message.color_range_start = clean.color_range_start;
    message.color_range_end = clean.color_range_end;
  }

  [[nodiscard]] std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<PrintableFormatter>(pattern_, line_end_);
  }

 private:
  const std::string pattern_;
  const std::string line_end_;
  spdlog::pattern_formatter formatter_;
};

}  // namespace tusk::rpc

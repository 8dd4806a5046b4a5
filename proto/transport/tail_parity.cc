#include "proto/transport/tail_parity.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/base/erasure.h"

namespace tusk::transport {

std::size_t TailParity::rows_for(double overdue, double underway, double loss) {
  const double mean = loss * underway;
  const double rows = std::ceil(overdue) + std::ceil(mean + 4 * std::sqrt(mean) + 2);
  // If all of it is missing.
  const double most = std::ceil(overdue + underway) + 1;
  return std::min(static_cast<std::size_t>(std::min(rows, most)), erasure::kParityMax);
}

void TailParity::protect(const Exchanges::Unprotected& part, double loss) {
  const auto in_rows = [&](ByteCount bytes) {
    return static_cast<double>(bytes) / static_cast<double>(part.row_size);
  };
  row_size_ = part.row_size;
  row_ = {part.header.exchange, part.offset, part.data.size(), 0, {}};
  header_ = part.header;
  header_data_.assign(part.header.data.begin(), part.header.data.end());
  header_.data = header_data_;
  count_ = rows_for(in_rows(part.overdue), in_rows(part.underway), loss);
  next_ = 0;
  rows_.resize(count_ * row_size_);
  erasure::encode(part.data, row_size_, rows_);
}

std::size_t TailParity::frame_size() const {
  return header_.data.empty() ? wire::parity_frame_overhead(row_) + row_size_
                              : wire::message_header_frame_overhead(header_) + header_.data.size();
}

SentFrame TailParity::write_next(ByteWriter& writer) {
  const auto size = [](std::span<const std::byte> data) { return static_cast<std::uint32_t>(data.size()); };
  if (!header_.data.empty()) {
    wire::write_frame(header_, writer);
    return {SentFrame::Kind::kHeader, header_.exchange, 0, size(std::exchange(header_.data, {})), true};
  }
  wire::ParityFrame frame = row_;
  frame.index = static_cast<std::uint8_t>(next_);
  frame.data = std::span(rows_).subspan(next_ * row_size_, row_size_);
  wire::write_frame(frame, writer);
  ++next_;
  return {SentFrame::Kind::kParity, frame.exchange, 0, size(frame.data)};
}

}  // namespace tusk::transport

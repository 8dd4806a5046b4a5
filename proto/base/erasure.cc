#include "proto/base/erasure.h"

#include <isa-l/erasure_code.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "proto/base/check.h"

namespace tusk::erasure {
namespace {

using Bytes = std::vector<unsigned char>;

// A table of ISA-L's for each coefficient.
constexpr std::size_t kTableSize = 32;

unsigned char* pointer(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
// ISA-L reads its sources through pointers that could write.
unsigned char* source(const std::byte* bytes) { return pointer(const_cast<std::byte*>(bytes)); }

// Parity has the elements below kParityMax, data those that follow. Not ISA-L's own Cauchy matrix: there the
// coefficients depend on how many rows there are.
unsigned char coefficient(std::size_t parity, std::size_t row) {
  return gf_inv(static_cast<unsigned char>(parity ^ (kParityMax + row)));
}

// outputs[i] = sum over j of matrix[i][j] * sources[j], each of `size` bytes.
void multiply(Bytes matrix, std::size_t size, std::vector<unsigned char*>& sources,
              std::vector<unsigned char*>& outputs) {
  const int columns = static_cast<int>(sources.size());
  const int rows = static_cast<int>(outputs.size());
  Bytes tables(matrix.size() * kTableSize);
  ec_init_tables(columns, rows, matrix.data(), tables.data());
  ec_encode_data(static_cast<int>(size), columns, rows, tables.data(), sources.data(), outputs.data());
}

// Missing bytes of one row: [begin, end) are columns.
struct Hole {
  std::size_t row;
  std::size_t begin;
  std::size_t end;
};

std::vector<Hole> holes_of(std::span<const Interval> missing, std::size_t row_size) {
  std::vector<Hole> holes;
  for (const Interval& run : missing) {
    for (std::size_t at = run.begin; at < run.end;) {
      const std::size_t row = at / row_size;
      const std::size_t end = std::min<std::size_t>(run.end, (row + 1) * row_size);
      holes.push_back({row, at - row * row_size, end - row * row_size});
      at = end;
    }
  }
  return holes;
}

// Columns in which the same rows are missing.
struct Segment {
  std::size_t begin;
  std::size_t end;
  std::vector<std::size_t> rows;
};

// nullopt: some columns miss more than `rows_max` rows.
std::optional<std::vector<Segment>> segments_of(const std::vector<Hole>& holes, std::size_t rows_max) {
  std::vector<std::size_t> cuts;
  for (const Hole& hole : holes) {
    cuts.push_back(hole.begin);
    cuts.push_back(hole.end);
  }
  std::ranges::sort(cuts);
  cuts.erase(std::ranges::unique(cuts).begin(), cuts.end());
  std::vector<Segment> segments;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    Segment segment{cuts[i], cuts[i + 1], {}};
    for (const Hole& hole : holes)
      if (hole.begin < segment.end && segment.begin < hole.end) segment.rows.push_back(hole.row);
    if (segment.rows.size() > rows_max) return std::nullopt;
    if (!segment.rows.empty()) segments.push_back(std::move(segment));
  }
  return segments;
}

// The rows of `data` as sources of a sum over the columns from `begin` to `end`.
class Sources {
 public:
  Sources(std::span<const std::byte> data, std::size_t row_size)
      : data_(data), row_size_(row_size), zeros_(row_size), last_(row_size) {}

  // `absent`: rows to be taken for zeros.
  [[nodiscard]] std::vector<unsigned char*> of(std::size_t begin, std::size_t end,
                                               std::span<const std::size_t> absent) {
    const std::size_t rows = rows_of(data_.size(), row_size_);
    std::vector<unsigned char*> pointers(rows);
    for (std::size_t row = 0; row + 1 < rows; ++row)
      pointers[row] = source(data_.data() + row * row_size_ + begin);
    pointers[rows - 1] = last_row(begin, end);
    for (const std::size_t row : absent) pointers[row] = zeros_.data();
    return pointers;
  }

 private:
  // With the zeros that follow it.
  unsigned char* last_row(std::size_t begin, std::size_t end) {
    const std::size_t at = (rows_of(data_.size(), row_size_) - 1) * row_size_ + begin;
    const std::size_t there = at < data_.size() ? std::min(end - begin, data_.size() - at) : 0;
    std::ranges::fill(last_, 0);
    if (there > 0) std::memcpy(last_.data(), data_.data() + at, there);
    return last_.data();
  }

  std::span<const std::byte> data_;
  std::size_t row_size_;
  Bytes zeros_;
  Bytes last_;
};

// What the missing rows contributed to the parity is what is left of it without the others; from as many rows
// of that the missing ones follow.
void solve(std::span<std::byte> data, std::size_t row_size, const Segment& segment, Sources& sources,
           std::span<const ParityRow> parity) {
  const std::size_t count = segment.rows.size();
  const std::size_t size = segment.end - segment.begin;
  std::vector<unsigned char*> present = sources.of(segment.begin, segment.end, segment.rows);
  Bytes known;
  Bytes lost;
  for (const ParityRow& row : parity.first(count)) {
    for (std::size_t i = 0; i < present.size(); ++i) known.push_back(coefficient(row.index, i));
    for (const std::size_t i : segment.rows) lost.push_back(coefficient(row.index, i));
  }
  Bytes rest(count * size);
  std::vector<unsigned char*> rests;
  for (std::size_t i = 0; i < count; ++i) rests.push_back(rest.data() + i * size);
  multiply(std::move(known), size, present, rests);
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t at = 0; at < size; ++at)
      rests[i][at] ^= std::to_integer<unsigned char>(parity[i].bytes[segment.begin + at]);

  Bytes inverse(lost.size());
  const int singular = gf_invert_matrix(lost.data(), inverse.data(), static_cast<int>(count));
  TUSK_CHECK(singular == 0);
  std::vector<unsigned char*> targets;
  for (const std::size_t row : segment.rows)
    targets.push_back(pointer(data.data() + row * row_size + segment.begin));
  multiply(std::move(inverse), size, rests, targets);
}

}  // namespace

void encode(std::span<const std::byte> data, std::size_t row_size, std::span<std::byte> parity) {
  TUSK_CHECK(row_size > 0 && !data.empty() && rows_of(data.size(), row_size) <= kRowsMax);
  const std::size_t count = parity.size() / row_size;
  TUSK_CHECK(count > 0 && count <= kParityMax && parity.size() == count * row_size);
  Sources sources(data, row_size);
  std::vector<unsigned char*> rows = sources.of(0, row_size, {});
  Bytes matrix;
  std::vector<unsigned char*> outputs;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t row = 0; row < rows.size(); ++row) matrix.push_back(coefficient(i, row));
    outputs.push_back(pointer(parity.data() + i * row_size));
  }
  multiply(std::move(matrix), row_size, rows, outputs);
}

bool restore(std::span<std::byte> data, std::span<const Interval> missing, std::size_t row_size,
             std::span<const ParityRow> parity) {
  TUSK_CHECK(row_size > 0 && !data.empty() && rows_of(data.size(), row_size) <= kRowsMax);
  if (missing.size() > runs_max(parity.size())) return false;
  std::size_t bytes = 0;
  for (const Interval& run : missing) bytes += run.size();
  if (bytes > parity.size() * row_size) return false;
  const auto segments = segments_of(holes_of(missing, row_size), parity.size());
  if (!segments) return false;
  Sources sources(data, row_size);
  for (const Segment& segment : *segments) solve(data, row_size, segment, sources, parity);
  return true;
}

}  // namespace tusk::erasure

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

// The rows of `data` as sources, with zeros for what is missing. Rows with holes and the last one, which ends
// early, are copied to `scratch`.
std::vector<unsigned char*> rows_without(std::span<const std::byte> data, std::size_t row_size,
                                         std::span<const Hole> holes, Bytes& scratch) {
  const std::size_t count = rows_of(data.size(), row_size);
  std::vector<unsigned char*> rows(count);
  for (std::size_t row = 0; row < count; ++row) rows[row] = source(data.data() + row * row_size);
  std::vector<std::size_t> copied{count - 1};
  for (const Hole& hole : holes)
    if (hole.row != copied.back() && hole.row != count - 1) copied.push_back(hole.row);
  scratch.assign(copied.size() * row_size, 0);
  for (std::size_t i = 0; i < copied.size(); ++i) {
    const std::size_t at = copied[i] * row_size;
    rows[copied[i]] = scratch.data() + i * row_size;
    std::memcpy(rows[copied[i]], data.data() + at, std::min(row_size, data.size() - at));
  }
  for (const Hole& hole : holes)
    std::fill(rows[hole.row] + hole.begin, rows[hole.row] + hole.end, static_cast<unsigned char>(0));
  return rows;
}

// `rests`: what the missing rows contributed to the rows of parity; as many of those as are missing tell
// these.
void solve(std::span<std::byte> data, std::size_t row_size, const Segment& segment,
           std::span<const ParityRow> parity, Bytes& rests) {
  const std::size_t count = segment.rows.size();
  Bytes lost;
  std::vector<unsigned char*> known;
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::size_t row : segment.rows) lost.push_back(coefficient(parity[i].index, row));
    known.push_back(rests.data() + i * row_size + segment.begin);
  }
  Bytes inverse(lost.size());
  const int singular = gf_invert_matrix(lost.data(), inverse.data(), static_cast<int>(count));
  TUSK_CHECK(singular == 0);
  std::vector<unsigned char*> targets;
  for (const std::size_t row : segment.rows)
    targets.push_back(pointer(data.data() + row * row_size + segment.begin));
  multiply(std::move(inverse), segment.end - segment.begin, known, targets);
}

// The sums of `rows` that rows of parity with these indices are.
Bytes sums(std::vector<unsigned char*>& rows, std::size_t row_size, std::span<const ParityRow> parity) {
  Bytes matrix;
  Bytes sums(parity.size() * row_size);
  std::vector<unsigned char*> outputs;
  for (const ParityRow& one : parity) {
    outputs.push_back(sums.data() + outputs.size() * row_size);
    for (std::size_t row = 0; row < rows.size(); ++row) matrix.push_back(coefficient(one.index, row));
  }
  multiply(std::move(matrix), row_size, rows, outputs);
  return sums;
}

}  // namespace

void encode(std::span<const std::byte> data, std::size_t row_size, std::span<std::byte> parity) {
  TUSK_CHECK(row_size > 0 && !data.empty() && rows_of(data.size(), row_size) <= kRowsMax);
  const std::size_t count = parity.size() / row_size;
  TUSK_CHECK(count > 0 && count <= kParityMax && parity.size() == count * row_size);
  Bytes scratch;
  std::vector<unsigned char*> rows = rows_without(data, row_size, {}, scratch);
  std::vector<ParityRow> wanted(count);
  for (std::size_t i = 0; i < count; ++i) wanted[i].index = static_cast<std::uint8_t>(i);
  const Bytes made = sums(rows, row_size, wanted);
  std::memcpy(parity.data(), made.data(), made.size());
}

bool restore(std::span<std::byte> data, std::span<const Interval> missing, std::size_t row_size,
             std::span<const ParityRow> parity) {
  TUSK_CHECK(row_size > 0 && !data.empty() && rows_of(data.size(), row_size) <= kRowsMax);
  if (missing.size() > runs_max(parity.size())) return false;
  std::size_t bytes = 0;
  for (const Interval& run : missing) bytes += run.size();
  if (bytes > parity.size() * row_size) return false;
  const std::vector<Hole> holes = holes_of(missing, row_size);
  const auto segments = segments_of(holes, parity.size());
  if (!segments) return false;
  std::size_t needed = 0;
  for (const Segment& segment : *segments) needed = std::max(needed, segment.rows.size());
  if (needed == 0) return true;
  Bytes scratch;
  std::vector<unsigned char*> rows = rows_without(data, row_size, holes, scratch);
  Bytes rests = sums(rows, row_size, parity.first(needed));
  for (std::size_t i = 0; i < needed; ++i)
    for (std::size_t at = 0; at < row_size; ++at)
      rests[i * row_size + at] ^= std::to_integer<unsigned char>(parity[i].bytes[at]);
  for (const Segment& segment : *segments) solve(data, row_size, segment, parity, rests);
  return true;
}

}  // namespace tusk::erasure

// An erasure code: from some bytes parity is made that brings back what of them gets lost.
//
// The bytes are taken for rows of equal size, the last one as if zeros followed; a row of parity is the sum
// of all rows, each times a coefficient of its own, in GF(2^8) (a Cauchy matrix: any rows of parity bring
// back as many others). What is lost need not be whole rows: each column of bytes is a code of its own, and a
// run of lost bytes that is no longer than a row takes at most one byte of a column. docs/PROTOCOL.md,
// "Parity", names the coefficients. Pure functions over ISA-L.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/base/interval_set.h"

namespace tusk::erasure {

// Of data, and of parity, for one code: elements of GF(2^8) name both, and none may name two.
constexpr std::size_t kRowsMax = 240;
constexpr std::size_t kParityMax = 16;

[[nodiscard]] constexpr std::size_t rows_of(std::size_t size, std::size_t row_size) {
  return (size + row_size - 1) / row_size;
}

// The first rows of parity of `data` (1 to kRowsMax rows), one after the other in `parity`: 1 to kParityMax
// whole rows. Takes about 0.1 ms for 256 KiB and 8 rows.
void encode(std::span<const std::byte> data, std::size_t row_size, std::span<std::byte> parity);

struct ParityRow {
  std::uint8_t index = 0;            // below kParityMax
  std::span<const std::byte> bytes;  // a whole row
};

// Fills in what is `missing` of `data` (sorted, disjoint, within it), from parity with different indices.
// False, with nothing changed: the parity does not suffice. It may suffice though `missing` has more runs
// than there is parity; beyond twice as many and two nobody looks, since only who cuts into crumbs loses so.
[[nodiscard]] bool restore(std::span<std::byte> data, std::span<const Interval> missing, std::size_t row_size,
                           std::span<const ParityRow> parity);

// Runs of missing bytes that restore() looks at.
[[nodiscard]] constexpr std::size_t runs_max(std::size_t parity_rows) { return 2 * parity_rows + 2; }

}  // namespace tusk::erasure

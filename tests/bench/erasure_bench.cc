// What parity costs the network thread: making it for a message, and bringing back from it what was lost.
#include <benchmark/benchmark.h>

#include <vector>

#include "proto/base/erasure.h"

namespace tusk::erasure {
namespace {

constexpr std::size_t kMessage = 256 << 10;
constexpr std::size_t kRow = 1427;  // of what fits into a packet

void make_parity(benchmark::State& state) {
  const std::vector<std::byte> message(kMessage, std::byte{7});
  std::vector<std::byte> parity(static_cast<std::size_t>(state.range(0)) * kRow);
  for (auto _ : state) {
    encode(message, kRow, parity);
    benchmark::DoNotOptimize(parity.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kMessage));
}
BENCHMARK(make_parity)->Name("erasure/encode 256 KiB, rows of parity")->Arg(4)->Arg(10)->Arg(16);

void bring_back(benchmark::State& state) {
  std::vector<std::byte> message(kMessage, std::byte{7});
  const auto lost = static_cast<std::size_t>(state.range(0));
  std::vector<std::byte> parity((lost + 1) * kRow);
  encode(message, kRow, parity);
  std::vector<ParityRow> rows;
  for (std::size_t i = 0; i <= lost; ++i)
    rows.push_back({static_cast<std::uint8_t>(i), std::span(parity).subspan(i * kRow, kRow)});
  std::vector<Interval> missing;
  for (std::size_t i = 0; i < lost; ++i) missing.push_back({20'000 * i, 20'000 * i + 1434});
  for (auto _ : state) benchmark::DoNotOptimize(restore(message, missing, kRow, rows));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kMessage));
}
BENCHMARK(bring_back)->Name("erasure/restore 256 KiB, lost packets")->Arg(1)->Arg(3)->Arg(8);

}  // namespace
}  // namespace tusk::erasure

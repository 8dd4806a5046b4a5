// Runs the micro benchmarks. Refuses where figures would mislead; --tiny runs each for an instant
// anywhere, so that the tests notice when one no longer works.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

namespace {

constexpr std::string_view kTinyFlag = "--tiny";
char tiny_min_time[] = "--benchmark_min_time=0.0001";

constexpr bool kTrustworthy =
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

}  // namespace

int main(int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  const auto is_tiny = [](std::string_view argument) { return argument == kTinyFlag; };
  const auto tiny = std::find_if(arguments.begin(), arguments.end(), is_tiny);
  if (tiny != arguments.end()) {
    *tiny = tiny_min_time;
  } else if (!kTrustworthy) {
    std::fputs("tusk_bench: built without optimisation or with a sanitizer; only --tiny runs here\n", stderr);
    return 2;
  }
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

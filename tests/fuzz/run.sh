#!/bin/bash
# tests/fuzz/run.sh [SECONDS [TARGET...]]: runs every libFuzzer target, or those named, so long in all.
#
# Builds the preset "fuzz" (clang with the fuzzer, address and undefined-behaviour sanitizers). New inputs
# are kept in build/fuzz/corpus, those that break something in build/fuzz/findings; the latter belong into
# tests/fuzz/corpus/TARGET once repaired. First it proves with a planted fault that it finds anything.
# TUSK_FUZZ_BUILD names another build directory.
set -euo pipefail

readonly seconds=${1:-60}
shift || true
root=$(cd "$(dirname "$0")/../.." && pwd)
readonly root
readonly build=${TUSK_FUZZ_BUILD:-$root/build/fuzz}
readonly corpus=$build/corpus
readonly findings=$build/findings
readonly input_bytes_max=8192

cmake --preset fuzz -S "$root" -B "$build" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
cmake --build "$build" --target fuzzers -- -j "${TUSK_JOBS:-2}"

mkdir -p "$corpus" "$findings"
mapfile -t targets < <("$build/tests/fuzz/fuzz_seeds" "$corpus")
if (($#)); then targets=("$@"); fi
each=$((seconds / ${#targets[@]}))
readonly each=$((each > 0 ? each : 1))

# fuzz TARGET SECONDS: libFuzzer's exit code; its output in TARGET.log.
fuzz() {
  local kept=()
  if [[ -d $root/tests/fuzz/corpus/$1 ]]; then kept=("$root/tests/fuzz/corpus/$1"); fi
  "$build/tests/fuzz/fuzz_$1" -max_total_time="$2" -max_len=$input_bytes_max -timeout=20 -rss_limit_mb=4096 \
    -print_final_stats=1 -artifact_prefix="$findings/$1-" "$corpus/$1" "${kept[@]}" >"$build/$1.log" 2>&1
}

if fuzz canary 60; then
  echo "fuzz: the planted fault was not found: this fuzzer finds nothing"
  exit 1
fi
grep -q the_canary_is_alive "$build/canary.log" || { tail -20 "$build/canary.log"; exit 1; }
rm -f "$findings"/canary-*
echo "fuzz: the planted fault was found"

failed=0
for target in "${targets[@]}"; do
  if fuzz "$target" "$each"; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log")
    echo "fuzz: $target: nothing broke in $runs runs"
  else
    failed=1
    echo "fuzz: $target BROKE; its output is in $build/$target.log:"
    grep -E -A 12 'ERROR|invariant broken|runtime error' "$build/$target.log" | head -40 || true
    echo "fuzz: replay with: $build/tests/fuzz/fuzz_$target $findings/$target-*"
  fi
done
exit $failed

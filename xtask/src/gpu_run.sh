#!/usr/bin/env bash
# Runs the suites of this folder on the first GPU: ./run.sh [SECONDS [SUITE...]]
# SECONDS bounds all of them together (default 540); the suites are gpu, fixtures, conformance.
# Failures are printed with the first line of their error, and go to $OUT (default ./out) in full.
# MEMBAR_TEST_FILTER chooses cases by a part of their name, MEMBAR_TEST_PROCESSES their processes.
set -uo pipefail
cd "$(dirname "$0")"
seconds=${1:-540}
[ $# -gt 0 ] && shift
suites=${*:-gpu fixtures conformance}
here=$PWD
out=${OUT:-$here/out}
work=${MEMBAR_TEST_WORK:-/tmp/membar-gpu-$(id -u)}
mkdir -p "$out"
mkdir -p -m 700 "$work"
if [ ! -e "$work/unpacked" ]; then
  mkdir -p "$work/data"
  tar -xJf data.tar.xz -C "$work/data" && touch "$work/unpacked"
fi
chmod +x gpu-suite fixtures conformance membar 2>/dev/null
export MEMBAR_REQUIRE_GPU=1 MEMBAR_GPU_CUBINS=$here/cubins
export MEMBAR_TEST_DEVICE=${MEMBAR_TEST_DEVICE:-cuda:0} MEMBAR_TEST_DATA=$work/data
export MEMBAR_TEST_PROCESSES=${MEMBAR_TEST_PROCESSES:-16} MEMBAR_TEST_CACHE=$work/cache
end=$(($(date +%s) + seconds))
status=0
for suite in $suites; do
  left=$((end - $(date +%s)))
  if [ "$left" -le 0 ]; then
    echo "$suite: not run, no time is left"
    status=1
  elif [ "$suite" = gpu ]; then
    timeout "$left" ./gpu-suite --nocapture gpu:: >"$out/gpu.txt" 2>&1
    code=$?
    [ $code -ne 0 ] && status=1
    grep -E '^test .*FAILED|^test result' "$out/gpu.txt" || tail -n 20 "$out/gpu.txt"
    [ $code -eq 124 ] && echo "gpu: stopped after $left s"
  else
    MEMBAR_TEST_SECONDS=$left MEMBAR_TEST_REPORT=$out/$suite-failures.txt \
      ./"$suite" 2>"$out/$suite-errors.txt" | tee "$out/$suite.txt"
    [ "${PIPESTATUS[0]}" -ne 0 ] && status=1
  fi
done
exit $status

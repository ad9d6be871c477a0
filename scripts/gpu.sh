#!/usr/bin/env bash
# Builds on a bare GPU machine (no network, no virtual environment: python3 holds PyTorch and the
# build tools) and runs the suites named: scripts/gpu.sh gpu overhead attention
# A suite's log goes to $OUT (default build/gpu/logs). Fails if any suite failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
suites=(cpu compile python cpp gpu attention decode serving gemm window variant epilogue norm merge append
  quantize moe groups pdl overhead compile-time bench
  bench-full tune memcheck racecheck)
if [[ $# -eq 0 ]]; then
  echo "usage: scripts/gpu.sh SUITE...   (${suites[*]})" >&2
  exit 2
fi
for suite in "$@"; do
  if [[ " ${suites[*]} " != *" $suite "* ]]; then
    echo "scripts/gpu.sh: no suite is called '$suite'; there are: ${suites[*]}" >&2
    exit 2
  fi
done

logs=${OUT:-build/gpu/logs}
mkdir -p "$logs"
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

build() {
  local tests=OFF
  [[ " $* " =~ " "(cpu|compile|cpp)" " ]] && tests=ON
  cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DKILN_BUILD_PYTHON=ON \
    -DKILN_BUILD_TESTS=$tests -DPython_EXECUTABLE="$(command -v python3)" &&
    cmake --build build/gpu -j "$(nproc)" &&
    cmake --install build/gpu --component python --prefix build/gpu/package
}

pytest() { python3 -m pytest -q -p no:cacheprovider "$@"; }

# The few cells of the short mode; bench-full measures the whole grids.
bench() { python3 bench/run.py --suite "$1" --short --out "$logs"; }

run_suite() {
  case $1 in
    cpu) ctest --test-dir build/gpu -L cpu --output-on-failure -j 4 && pytest tests/cpu ;;
    compile)
      ctest --test-dir build/gpu -L compile --output-on-failure -j 4 && pytest tests/compile ;;
    python) pytest tests/python ;;
    cpp) pytest tests/cpp ;;
    gpu) pytest tests/kernels --device cuda ;;
    attention | decode | serving | gemm | window | variant | epilogue | norm | merge | append | \
      quantize | moe | groups | pdl | overhead) bench "$1" ;;
    compile-time) bench compile ;;
    bench) bench all ;;
    bench-full) python3 bench/run.py --suite all --out "$logs" ;;
    # How far the built-in choices are from the fastest tiles, and the table of these.
    tune)
      python3 -m kiln tune gemm --model llama-3.1-8b --out "$logs/tiles.json" &&
        python3 -m kiln tune attention --out "$logs/tiles.json" ;;
    memcheck | racecheck) sanitize "$1" ;;
  esac
}

# Over the tests of layouts, tails and odd sizes, where an overrun or a race would be.
sanitize() {
  local tests
  IFS=" " read -r -a tests <<<"${KILN_SANITIZER_TESTS:-tests/kernels/test_gemm.py \
    tests/kernels/test_attention_layouts.py tests/kernels/test_variants.py}"
  scripts/gpu_sanitizer.sh "$1" "${tests[@]}"
}

summary=()
failures=0
report() {  # name, exit status, seconds
  local verdict=ok
  [[ $2 -eq 0 ]] || { verdict="FAILED ($2)"; failures=$((failures + 1)); }
  summary+=("$(printf '%-14s %-12s %4d s   %s' "$1" "$verdict" "$3" "$logs/$1.log")")
}

start=$SECONDS
build "$@" >"$logs/build.log" 2>&1
status=$?
report build $status $((SECONDS - start))
if [[ $status -ne 0 ]]; then
  tail -n 60 "$logs/build.log"
  printf '%s\n' "${summary[@]}"
  exit 1
fi

export PYTHONPATH=$PWD/build/gpu/package${PYTHONPATH:+:$PYTHONPATH}
for suite in "$@"; do
  echo "== $suite"
  start=$SECONDS
  run_suite "$suite" 2>&1 | tee "$logs/$suite.log" | tail -n 80
  report "$suite" "${PIPESTATUS[0]}" $((SECONDS - start))
done
echo "== summary"
printf '%s\n' "${summary[@]}"
[[ $failures -eq 0 ]]

#!/usr/bin/env bash
# Runs tests of kernels on a GPU under a tool of compute-sanitizer:
#   scripts/gpu_sanitizer.sh memcheck|racecheck|initcheck|synccheck TESTS...
# Only Kiln's kernels are instrumented: PyTorch's, which compute the references, would take most of
# the time. The tests are dealt to processes that run side by side, because most of what is left is
# spent on the host. KILN_SANITIZER_SIZE (full or small): how large the problems are.
# KILN_SANITIZER_SECONDS: the limit for each process; KILN_SANITIZER_PROCESSES: how many there are.
# Four reports are the tools' own:
# - racecheck does not follow an arrival of one lane for its whole warp, where the others of the warp
#   meet at __syncwarp() before it. In Hopper's attention it therefore reports the ring through which
#   the scheduler warp publishes its walk, wherever a CTA computes several query tiles, the scales by
#   which a warpgroup multiplied queries beside a quantised cache, and 8-bit values that are cleared
#   behind a sequence's last one before other warps transpose them.
# - racecheck seems to count the barriers that a warp has passed, whatever their numbers: where teams
#   of two warps meet at barriers of their own, as often as they have tiles of keys, it reports the
#   partial results of portable attention, although the CTA's barrier lies between write and read in
#   the machine code (test_shapes with few keys).
# - racecheck ends products of cuBLAS for Hopper in an error of its own, after which no test of the
#   process runs: the host computes those of attention's references.
# - memcheck takes the 128 bytes that a product of tilts reads (ALiBi, biases by distance), rows
#   without a stride, for 4096, and reports an invalid read of shared memory. The emulated device
#   checks what is read.
# A graph cannot be captured without PyTorch's caching allocator, so that a test of one fails under
# memcheck.
set -uo pipefail
tool=$1
shift
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer) || {
  echo "compute-sanitizer was not found on PATH or in /usr/local/cuda/bin." >&2
  exit 1
}
parts=${KILN_SANITIZER_PROCESSES:-$(($(nproc) * 3 / 4))}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
options=(-q -p no:cacheprovider -m "not slow" --device cuda
  --size "${KILN_SANITIZER_SIZE:-full}")
export KILN_TEST_CACHE=${KILN_TEST_CACHE:-$work/cache}

# One run without the tool fills the cache, so that no process under it compiles.
together=()
python3 -c 'import xdist' 2>/dev/null && together=(-n "$parts" --dist load)
if ! python3 -m pytest "${options[@]}" "${together[@]}" "$@" >"$work/plain.log" 2>&1; then
  tail -n 30 "$work/plain.log"
  exit 1
fi
python3 -m pytest "${options[@]}" --collect-only "$@" | grep '::' >"$work/tests"
split -n "r/$parts" "$work/tests" "$work/part-"

# PyTorch's caching allocator hides overruns inside its blocks: it is switched off.
[[ $tool == memcheck ]] && export PYTORCH_NO_CUDA_MEMORY_CACHING=1
[[ $tool == racecheck ]] && export KILN_TEST_PRODUCTS=host
check() {  # the file with the names of the tests
  mapfile -t tests <"$1"
  [[ ${#tests[@]} -eq 0 ]] && return
  timeout "${KILN_SANITIZER_SECONDS:-3600}" "$sanitizer" --tool "$tool" --error-exitcode 9 --target-processes all \
    --kernel-regex kns=kiln_kernel \
    python3 -m pytest "${options[@]}" --compiled "${tests[@]}" >"$1.log" 2>&1
  echo $? >"$1.status"
}
for part in "$work"/part-??; do
  check "$part" &
done
wait
status=0
for part in "$work"/part-??; do
  code=$(cat "$part.status" 2>/dev/null || echo "no status")
  if [[ $code != 0 ]]; then
    status=1
    echo "== ${part##*/}: $code"
    grep -v '^\.*$' "$part.log" | tail -n 40
  fi
done
echo "$tool: $(wc -l <"$work/tests") tests in $parts processes"
grep -h "passed\|failed" "$work"/part-??.log | sort | uniq -c
grep -h "SUMMARY" "$work"/part-??.log | sort | uniq -c
[[ -n ${OUT:-} ]] && cp "$work"/part-??.log "$work/plain.log" "$OUT"
exit $status

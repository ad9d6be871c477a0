#!/usr/bin/env bash
# Runs the tests of this checkout against build/dev and .venv, and prints what each suite took.
#
#   scripts/run_tests.sh          what `make test` runs: of the built-in kernels and of the mutants a
#                                 part, of which KILN_TEST_SEED (else the commit) decides a sample
#   scripts/run_tests.sh --full   everything: `make test-all`
set -euo pipefail
cd "$(dirname "$0")/.."

# The suites in their order: a runner below and its argument. tests/compile comes early, as the later
# ones run the PTX that it leaves in the cache which all of them share.
suites=(
  "run_ctest --label-exclude emulator"
  "run_pytest tests/cpu"
  "run_pytest_by_test tests/compile"
  "run_pytest_by_file tests/python"
  "run_pytest_by_file tests/cpp"
  "run_ctest --label-regex emulator"
  "run_pytest_by_file tests/emulator"
  "run_pytest_by_test tests/kernels --device emulator"
  "count_kernels"
)
more_suites=(
  "run_all_mutants"
  "run_template_faults"
)
# The most kernels that the shared cache may hold after `make test`: what a new family or a wider
# test adds is paid for by everybody, at about 0.4 s of CPU time for each.
most_kernels=2800

if .venv/bin/python -c 'import torch; raise SystemExit(not torch.cuda.is_available())'; then
  suites+=("run_pytest tests/kernels --device cuda")
fi

full=0
if [[ ${1-} == --full && $# -eq 1 ]]; then
  full=1
  suites+=("${more_suites[@]}")
elif [[ $# -ne 0 ]]; then
  echo "usage: scripts/run_tests.sh [--full]" >&2
  exit 2
fi
if [[ -z ${KILN_TEST_SEED-} ]]; then
  KILN_TEST_SEED=$(git rev-parse --short=12 HEAD 2>/dev/null) || KILN_TEST_SEED=0
fi
export KILN_TEST_SEED KILN_TEST_FULL=$full
export PATH="$PWD/.venv/bin:$PATH"
export KILN_TEST_CACHE="$PWD/build/dev/test-cache"
# PyTorch's threads spin while they wait for each other: two processes of tests on two cores took twice
# the processor time that one thread each takes.
export OMP_NUM_THREADS=1
rm -rf "$KILN_TEST_CACHE"
mkdir -m 700 "$KILN_TEST_CACHE"

run_ctest() { ctest --preset dev "$@"; }
# A process for each folder: it may set the environment that Kiln reads once.
run_pytest() { python -m pytest "$@" -q; }
# Likewise in two processes, each of which takes whole files; and where a file may take minutes,
# each takes half of the tests in their order, and who is done first takes of the other's.
run_pytest_by_file() { python -m pytest "$@" -q -n 2 --dist loadfile; }
run_pytest_by_test() { python -m pytest "$@" -q -n 2 --dist worksteal; }
run_all_mutants() { build/dev/tests/kiln_mutate; }
run_template_faults() { python scripts/plant_faults.py; }

count_kernels() {
  local kernels
  kernels=$(find "$KILN_TEST_CACHE" -name '*.cubin' | wc -l)
  echo "The suites compiled $kernels kernels into the cache that they share."
  [[ $full -eq 1 ]] && return
  echo "They may compile $most_kernels: most_kernels in scripts/run_tests.sh."
  [[ $kernels -le $most_kernels ]]
}

# Sets `cpu`: whole CPU seconds of all processes so far that were waited for. Through a file, as a
# substitution's own shell would have none.
times_file=$(mktemp)
trap 'rm -f "$times_file"' EXIT
measure_cpu() {
  times >"$times_file"
  cpu=$(awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4) }' "$times_file")
}

echo "== seed $KILN_TEST_SEED (KILN_TEST_SEED), full: $full"
rows=()
failed=()
cpu=0
for suite in "${suites[@]}"; do
  read -ra words <<<"$suite"
  echo "== $suite"
  start=$SECONDS first_cpu=$cpu verdict=ok
  "${words[@]}" || { verdict=FAILED && failed+=("$suite"); }
  measure_cpu
  rows+=("$(printf '%8d %8d   %-7s %s' $((SECONDS - start)) $((cpu - first_cpu)) "$verdict" "$suite")")
done

echo "== seconds"
printf '%8s %8s\n' elapsed CPU
printf '%s\n' "${rows[@]}"
printf '%8d %8d   together\n' "$SECONDS" "$cpu"
if [[ ${#failed[@]} -ne 0 ]]; then
  printf 'FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "All suites passed."

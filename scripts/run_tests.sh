#!/usr/bin/env bash
# Runs every test of this checkout against build/dev and .venv: ctest, then pytest by folder (one
# process each: a test folder may set the environment that Kiln reads once). The emulated tests come
# behind tests/compile, whose PTX they run.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
export KILN_TEST_CACHE="$PWD/build/dev/test-cache"
rm -rf "$KILN_TEST_CACHE"
mkdir -m 700 "$KILN_TEST_CACHE"

failed=()
run_ctest() {
  echo "== ctest $*"
  ctest --preset dev "$@" || failed+=("ctest $*")
}
run_pytest() {
  echo "== pytest $1"
  python -m pytest "$1" -q || failed+=("$1")
}
run_ctest --label-exclude emulated
run_pytest tests/cpu
run_pytest tests/python
run_pytest tests/compile
run_pytest tests/cpp
run_ctest --label-regex emulated
run_pytest tests/emulated
run_pytest tests/gpu
if [[ ${#failed[@]} -ne 0 ]]; then
  printf 'FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "All suites passed."

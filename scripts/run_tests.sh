#!/usr/bin/env bash
# Runs every test of this checkout against build/dev and .venv: ctest, then pytest by folder (one
# process each: a test folder may set the environment that Kiln reads once).
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

failed=()
echo "== ctest"
ctest --preset dev || failed+=("ctest")
for folder in tests/cpu tests/python tests/compile tests/emulated tests/gpu; do
  echo "== pytest $folder"
  python -m pytest "$folder" -q || failed+=("$folder")
done
if [[ ${#failed[@]} -ne 0 ]]; then
  echo "FAILED: ${failed[*]}" >&2
  exit 1
fi
echo "All suites passed."

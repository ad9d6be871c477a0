#!/usr/bin/env bash
# Compiles with other versions of NVRTC, as users may have them, what tests/compile takes of the
# built-in kernels: none may fail, spill or use local memory, nor may ptxas complain. Archs that a
# version does not know are skipped. The wheels come from PyPI: nvidia-cuda-nvrtc, and below 13
# nvidia-cuda-nvrtc-cu12.
#
#   scripts/nvrtc_versions.sh 12.4.127 13.5.37
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# -eq 0 ]]; then
  echo "usage: scripts/nvrtc_versions.sh VERSION…, for example 12.4.127 13.5.37" >&2
  exit 2
fi
make -s build/stamps/ready

failed=()
for version in "$@"; do
  package=nvidia-cuda-nvrtc
  [[ ${version%%.*} -ge 13 ]] || package+=-cu12
  folder=build/nvrtc/$version
  [[ -d $folder ]] ||
    .venv/bin/python -m pip install -qq --no-deps --target "$folder" "$package==$version"
  library=$(find "$PWD/$folder" -name 'libnvrtc.so.1?')
  echo "== NVRTC $version"
  KILN_NVRTC=$library .venv/bin/python -m pytest tests/compile/test_rows.py -q -n 2 \
    --dist worksteal -k compiles_clean --durations 6 || failed+=("$version")
done
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "not clean with NVRTC ${failed[*]}" >&2
  exit 1
fi

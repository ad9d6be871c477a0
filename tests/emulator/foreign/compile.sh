#!/usr/bin/env bash
# Compiles the foreign kernels again with the nvcc of this machine; *.ptx are committed, since the
# tests must run where no nvcc is. Needs CUDA 12.4 or newer.
set -euo pipefail
cd "$(dirname "$0")"
build() {  # SOURCE TARGET FLAGS…
  nvcc -ptx -arch=sm_90a -std=c++17 "${@:3}" "$1.cu" -o "$2.ptx"
  # Folders of this machine say nothing about the kernels; in debug sections they begin with 47, '/'.
  sed -i -E -e '/^\/\/ .*(Build|Driver|Based on|Cuda comp)/d' -e 's/^\.b8 47,.*/.b8 46/' \
    -e 's#^(\t?\.file[[:space:]]+[0-9]+ )"[^"]*/([^/"]+)".*#\1"\2"#' "$2.ptx"
}
build reduce reduce
build reduce reduce_lines -lineinfo
build numbers numbers
build calls calls
build calls calls_debug -G
build pipeline pipeline

#!/usr/bin/env bash
# Installs the Debian packages that building and testing Kiln need and this machine lacks. Asks the
# compiler and Python, not the package database, so that it serves where they came from elsewhere.
set -euo pipefail

has_header() {
  printf '#if !__has_include(<%s>)\n#error missing\n#endif\n' "$1" |
    c++ -std=c++20 -E -x c++ - >/dev/null 2>&1
}
has_python_header() {
  python3 -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}

missing=()
if ! command -v c++ >/dev/null; then
  missing=(build-essential zlib1g-dev nlohmann-json3-dev catch2)  # headers cannot be asked for yet
else
  has_header zlib.h || missing+=(zlib1g-dev)
  has_header nlohmann/json.hpp || missing+=(nlohmann-json3-dev)
  has_header catch2/catch.hpp || has_header catch2/catch_all.hpp || missing+=(catch2)
fi
if ! command -v python3 >/dev/null; then
  missing+=(python3 python3-dev python3-venv)
else
  has_python_header || missing+=(python3-dev)
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
fi
command -v pkg-config >/dev/null || missing+=(pkg-config)
[[ ${#missing[@]} -eq 0 ]] && exit 0

echo "== system packages: ${missing[*]}"
sudo=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    echo "These packages are missing and this user is neither root nor allowed to use sudo" \
      "without a password. Ask an administrator for: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  sudo=(sudo -n)
fi
if ! command -v apt-get >/dev/null; then
  echo "This machine has no apt-get. Install what these Debian packages hold: ${missing[*]}" >&2
  exit 1
fi
"${sudo[@]}" apt-get update -q
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -q --no-install-recommends "${missing[@]}"

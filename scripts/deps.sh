#!/usr/bin/env bash
# Fills .deps/ with zlib, nlohmann/json and Catch2 out of Debian's packages (x86-64), without
# installing them: for machines that have neither the packages nor a network. CMake looks there.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
  echo "scripts/deps.sh needs apt-get and dpkg-deb: run it on Debian or Ubuntu." >&2
  exit 1
fi

downloads=$(mktemp -d)
trap 'rm -rf "$downloads"' EXIT
chmod 755 "$downloads"  # apt downloads as a user of its own
packages=(zlib1g:amd64 zlib1g-dev:amd64 nlohmann-json3-dev catch2)
(cd "$downloads" && apt-get -q download "${packages[@]}")

rm -rf .deps
for package in "$downloads"/*.deb; do
  dpkg-deb -x "$package" .deps
done

# Links may not survive the journey: the library goes along as a file under the linker's name. The
# static one is dropped, since it is not position-independent.
library_folder=.deps/usr/lib/x86_64-linux-gnu
shared=$(find .deps -name 'libz.so.1.*' -type f | head -n 1)
mkdir -p "$library_folder"
cp --remove-destination "$shared" "$library_folder/libz.so.copy"
find .deps \( -name 'libz.so.1*' -o -name libz.a -o -type l \) -delete
cp "$library_folder/libz.so.copy" "$library_folder/libz.so.1"
mv "$library_folder/libz.so.copy" "$library_folder/libz.so"
rm -rf .deps/usr/share/doc
echo ".deps/ is filled: $(du -sh .deps | cut -f1)"

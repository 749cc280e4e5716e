#!/usr/bin/env bash
# Puts an empty library into DIRECTORY for each one of OpenCV and FFmpeg that LIBRARY is linked with for
# nothing: it takes no symbol from it, nor do the libraries that it does take symbols from need it. Debian's
# libtorch is linked so, and through them with Qt and GDAL: 220 of the 288 libraries of a process, and two
# fifths of its start. Tests, which start a thousand, find the empty ones by LD_LIBRARY_PATH. Smaller ones
# that are linked for nothing are left alone: other programs that a test runs do need them.
# usage: empty_libraries.sh LIBRARY DIRECTORY
set -euo pipefail
export LC_ALL=C
library=$1 directory=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

needed_by() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }
path_of() { awk -v name="$1" -F' => ' '$1 ~ "^[ \t]*" name "$" { sub(/ .*/, "", $2); print $2; exit }' "$work/loaded"; }
symbols() { nm -D "--$1-only" --format=posix "$2" | sed 's/[@ ].*//' | sort -u; }

ldd "$library" > "$work/loaded"
symbols undefined "$library" > "$work/taken"
used=() idle=()
for name in $(needed_by "$library"); do
  path=$(path_of "$name")
  [[ -e $path ]] || continue
  if [[ $(symbols defined "$path" | comm -12 - "$work/taken") ]]; then
    used+=("$path")
  elif [[ $name =~ ^lib(opencv_|av|sw) ]]; then
    idle+=("$name")
  fi
done
for path in "${used[@]}"; do ldd "$path"; done | awk '{ print $1 }' | sort -u > "$work/needed"

rm -rf "$directory"
mkdir -p "$directory"
for name in "${idle[@]}"; do
  grep -qxF "$name" "$work/needed" || cc -shared -nostdlib -o "$directory/$name" "-Wl,-soname,$name" -x c /dev/null
done

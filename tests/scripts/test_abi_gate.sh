#!/usr/bin/env bash
# The ABI gate passes the libraries as they are, and a program of the first release runs on them.
# With doctored copies of a small header and its libraries: the gate passes what may change and
# refuses everything else, each for its reason.
# usage: test_abi_gate.sh SOURCE_DIR BUILD_DIR     77: this build has no libnxd.so
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
need_built "$build/src/libnxd.so"
need_python pycparser
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$source/scripts/check_abi" --libraries "$build/src"
gcc -std=c99 -Wall -Werror "$source/tests/abi/consumer.c" -o "$work/consumer" \
  -L"$build/src" -lnxd -lnxd_core -Wl,-rpath,"$build/src"
timeout 300 "$work/consumer" || { echo "a program of the first release does not run"; exit 1; }

# Builds the libraries in a directory from the sources there.
build_fake() {
  for library in nxd_core nxd; do
    gcc -shared -fPIC -g "$1/$library.c" -I"$1" -o "$1/lib$library.so" \
      -Wl,-soname,lib$library.so.0 -Wl,--version-script="$1/map"
  done
}
gate() {
  "$source/scripts/check_abi" --baseline "$work/baseline" --include "$1" --libraries "$1" "${@:2}"
}
# A fresh copy to doctor.
copy() {
  rm -rf "$work/now"
  cp -r "$work/first" "$work/now"
}
cp -r "$source/tests/abi/fake" "$work/first"
printf 'NXD_0 { global: nxd_*; local: *; };\n' > "$work/first/map"
build_fake "$work/first"
gate "$work/first" > "$work/log" && { echo "no baseline, and the gate passes"; exit 1; }
gate "$work/first" --update > /dev/null

passes() {
  build_fake "$work/now"
  gate "$work/now" > "$work/log" 2>&1 || { echo "FAILED: $1 is refused"; cat "$work/log"; exit 1; }
  grep -q "$2" "$work/log" || { echo "FAILED: $1: expected '$2'"; cat "$work/log"; exit 1; }
}
refuses() {
  [[ ${3:-} == built ]] || build_fake "$work/now"
  if gate "$work/now" > "$work/log" 2>&1; then echo "FAILED: $1 passes"; exit 1; fi
  grep -q "$2" "$work/log" || { echo "FAILED: $1: expected '$2'"; cat "$work/log"; exit 1; }
}
edit() {
  sed -i "$2" "$work/now/$1"
  ! cmp -s "$work/now/$1" "$work/first/$1" || { echo "FAILED: nothing to edit: $2"; exit 1; }
}

copy && passes "nothing changed" ", 0 additions, 0 problems"
copy && edit nxd/box.h 's|  double weight;.*|&\n  int64_t depth;|'
passes "a field behind the options' last" "nxd_box_options_t.depth"
copy && edit nxd/box.h 's|  int32_t reserved;|  int32_t depth;|'
passes "a field where one was reserved" "nxd_box_options_t.depth"
copy && edit nxd/box.h 's|  int32_t reserved;|  nxd_status_t last;|'
passes "an enumeration where a number was reserved" "nxd_box_options_t.last"
copy && edit nxd/thing.h 's|^#endif|/** [local] New.\n *  @since 0.2 */\nNXD_API void nxd_thing_stop(void);\n&|' &&
  edit nxd.c '$a void nxd_thing_stop(void) {}'
passes "a new function" "nxd_thing_stop"
copy && edit nxd/box.h 's|NXD_ERROR_FULL = -2|&, NXD_ERROR_LOST = -3|'
passes "a new constant" "NXD_ERROR_LOST"

copy && edit nxd/box.h 's|  int32_t height;|  int64_t depth;\n&|'
refuses "a field in the middle" "nxd_box_options_t.height: was"
grep -q "abidiff libnxd_core.abi" "$work/log" || { echo "FAILED: abidiff saw no field"; exit 1; }
copy && edit nxd/box.h 's|  int32_t height;|  float height;|'
refuses "a field of another type" "nxd_box_options_t.height: was"
copy && edit nxd/box.h 's|  int32_t reserved;|  float depth;|'
refuses "a field of another type where one was reserved" "nxd_box_options_t.reserved: was"
copy && edit nxd/box.h 's|  int32_t colour;|  int32_t depth;|'
refuses "a field where another one was" "nxd_box_options_t.colour: was"
copy && edit nxd/box.h 's|  int32_t height;|  float height;|;s|  double weight;.*|&\n  int64_t depth;|'
refuses "a field of another type, and one behind the last" "nxd_box_options_t.height: was"
copy && edit nxd/box.h 's|  int32_t x, y;|  int32_t x, y, z;|'
refuses "a longer struct without struct_size" "nxd_place_t.z is added to a struct without"
copy && edit nxd/box.h '/^\/\*\* .* Shows/,/^NXD_API/d' && edit nxd_core.c '/nxd_box_look/,/^}/d'
refuses "a function that is gone" "functions: nxd_box_look is gone"
copy && edit nxd_core.c '/nxd_box_look/,/^}/d'
refuses "a function that is declared alone" "nxd_box_look is declared, not exported"
copy && edit nxd_core.c '$a void nxd_box_secret(void) {}'
refuses "a function that is exported alone" "nxd_box_secret is exported, not declared"
copy && edit nxd/box.h 's|NXD_ERROR_FULL = -2|NXD_ERROR_FULL = -3|'
refuses "a constant with another value" "NXD_ERROR_FULL: was -2, is -3"
copy && edit nxd/box.h 's|, NXD_ERROR_FULL = -2||'
refuses "a constant that is gone" "NXD_ERROR_FULL is gone"
copy && edit nxd/thing.h 's|int64_t steps|int32_t steps|' && edit nxd.c 's|int64_t steps|int32_t steps|'
refuses "another parameter" "nxd_thing_move: was"
grep -q "abidiff libnxd.abi" "$work/log" || { echo "FAILED: abidiff saw no parameter"; exit 1; }
copy && edit nxd/box.h 's|(\*nxd_look_fn)(int32_t|(*nxd_look_fn)(int64_t|'
refuses "another callback" "nxd_look_fn: was"
copy && edit nxd/box.h 's|#define NXD_ABI_VERSION 0|#define NXD_ABI_VERSION 1|'
refuses "another ABI number" "is not in NXD_1"
copy && edit map 's|NXD_0|NXD_9|'
refuses "another version node" "is not in NXD_0"
# The debug information disagrees with the header: only abidiff sees it.
copy && mkdir "$work/now/built" &&
  cp -r "$work/now"/*.[ch] "$work/now/nxd" "$work/now/map" "$work/now/built" &&
  sed -i 's|int64_t steps|uint64_t steps|' "$work/now/built"/nxd{.c,/thing.h} && build_fake "$work/now/built" &&
  mv "$work/now/built"/*.so "$work/now"
refuses "a library that was built from another header" "abidiff libnxd.abi" built
copy && strip "$work/now/libnxd.so"
refuses "a stripped library" "libnxd.so has no .debug_info" built
copy && gcc -shared -fPIC -g1 "$work/now/nxd.c" -I"$work/now" -o "$work/now/libnxd.so" \
  -Wl,-soname,libnxd.so.0 -Wl,--version-script="$work/now/map"
refuses "a library without types" "no types of nxd_thing_move" built
copy && rm "$work/now/libnxd.so"
refuses "a missing library" "libnxd.so is missing" built

mkdir "$work/bin"
for tool in abidw gcc nm readelf bash env dirname; do ln -s "$(command -v $tool)" "$work/bin"; done
copy
if PATH=$work/bin gate "$work/now" > "$work/log" 2>&1; then echo "FAILED: passes without abidiff"; exit 1; fi
grep -q "abidiff missing" "$work/log" || { cat "$work/log"; exit 1; }
echo "the gate passes what may change and refuses the rest"

#!/usr/bin/env bash
# Installs into a directory, moves that elsewhere, and builds programs against it out of tree, with
# pkg-config and with find_package; a program of nxd-core alone maps no libtorch.
# usage: test_install.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

DESTDIR='' cmake --install "$build" --prefix "$work/first" > "$work/install.log"
mv "$work/first" "$work/prefix"
prefix=$work/prefix
libdir=$(dirname "$(find "$prefix" -name libnxd_core.so)")
engine=0
[[ -e $libdir/libnxd.so ]] && engine=1

diff -r --exclude nxd_single.h "$source/include" "$prefix/include"
"$source/scripts/single_header" | cmp - "$prefix/include/nxd_single.h"
# As whole paths: one of them may be as short as /build.
if grep -rnE "(^|[^A-Za-z0-9_./}-])($work/first|$source|$build)([^A-Za-z0-9_.-]|\$)" "$prefix" \
  --include='*.pc' --include='*.cmake'; then
  echo "installed files name the directories they were made in"
  exit 1
fi
check_soname() {
  readelf -d "$libdir/lib$1.so.0" | grep "SONAME.*\[lib$1.so.0\]" > /dev/null || { echo "lib$1.so: wrong SONAME"; exit 1; }
}
check_soname nxd_core
((engine)) && check_soname nxd
# A host that unloads its plug-ins leaves them: threads of theirs go on, and memory has their functions.
for library in "$libdir"/libnxd*.so.0; do
  readelf -d "$library" | grep "FLAGS_1.*NODELETE" > /dev/null || { echo "$library: can be unloaded"; exit 1; }
done
# The libgomp of PyTorch's packages, which a process may have loaded first, knows OpenMP up to 4.5.
if readelf -V "$libdir/libnxd_core.so.0" | grep -E 'Name: G?OMP_[5-9]'; then
  echo "libnxd_core.so cannot be loaded beside an OpenMP of before 5.0"
  exit 1
fi

cat > "$work/core.c" <<'EOF'
#include <stdio.h>
#include <string.h>

#include <nxd.h>

int main(void) {
  char line[4096];
  int32_t count = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  if (nxd_abi_version() != NXD_ABI_VERSION) return 1;
  if (nxd_layout_get_group_count(NULL, 8, NXD_AXIS_DATA, &count) != NXD_OK || count != 1) return 2;
  while (maps && fgets(line, sizeof line, maps))
    if (strstr(line, "libtorch") || strstr(line, "libc10")) return 3;
  if (!maps || fclose(maps) != 0) return 4;
  return strcmp(nxd_version(), "0.1.0") == 0 ? 0 : 5;
}
EOF
cat > "$work/engine.c" <<'EOF'
#include <nxd.h>

int main(void) {
  nxd_tensor_destroy(NULL);
  return nxd_abi_version() == NXD_ABI_VERSION ? 0 : 1;
}
EOF
# Places outside the prefix stay where they are.
for outside in LIBDIR=/elsewhere/lib INCLUDEDIR=/elsewhere/include; do
  cmake -S "$source" -B "$work/outside" -DNXD_BUILD_ENGINE=OFF -DNXD_BUILD_TESTS=OFF -DNXD_BUILD_EXAMPLES=OFF \
    -DCMAKE_INSTALL_PREFIX=/own -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_INCLUDEDIR=include \
    "-DCMAKE_INSTALL_$outside" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  for entry in LIBDIR=/own/lib INCLUDEDIR=/own/include; do
    name=${entry%%=*} place=${entry#*=}
    [[ ${outside%%=*} != "$name" ]] || place=${outside#*=}
    got=$(pkg-config --define-variable=pcfiledir=/own/lib/pkgconfig --variable="${name,,}" "$work/outside/nxd-core.pc")
    [[ $(realpath -m "$got") == "$place" ]] || { echo "$outside: ${name,,} is $got, expected $place"; exit 1; }
  done
done

programs=(core:nxd-core:nxd_core)
((engine)) && programs+=(engine:nxd:nxd)

export PKG_CONFIG_PATH=$libdir/pkgconfig
for entry in "${programs[@]}"; do
  IFS=: read -r program package target <<< "$entry"
  [[ $(pkg-config --modversion "$package") == 0.1.0 ]]
  [[ $(pkg-config --libs-only-l "$package" | tr -d ' ') == "-l$target" ]]  # and no more than that
  # shellcheck disable=SC2046
  gcc -std=c99 -Wall -Werror "$work/$program.c" -o "$work/$program" \
    $(pkg-config --cflags --libs "$package") -Wl,--no-undefined
  LD_LIBRARY_PATH=$libdir "$work/$program" || { echo "$program by pkg-config: exit $?"; exit 1; }

  mkdir -p "$work/cmake-$program"
  cat > "$work/cmake-$program/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES C)
find_package(nxd 0.1 REQUIRED COMPONENTS $target)
add_executable(consumer ../$program.c)
target_link_libraries(consumer PRIVATE nxd::$target)
EOF
  cmake -S "$work/cmake-$program" -B "$work/cmake-$program/build" -DCMAKE_PREFIX_PATH="$prefix" > "$work/log" 2>&1 &&
    cmake --build "$work/cmake-$program/build" >> "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  # find_package leaves the way to the library in the program.
  "$work/cmake-$program/build/consumer" || { echo "$program by find_package: exit $?"; exit 1; }
done
# A component that is not there is an error by its name.
sed -i 's/COMPONENTS .*/COMPONENTS nxd_core cuda)/' "$work/cmake-core/CMakeLists.txt"
if cmake -S "$work/cmake-core" -B "$work/cmake-core/other" -DCMAKE_PREFIX_PATH="$prefix" > "$work/log" 2>&1; then
  echo "find_package found the component cuda"
  exit 1
fi
if ! grep -q 'no component cuda here' "$work/log"; then
  cat "$work/log"
  exit 1
fi
if ldd "$work/cmake-core/build/consumer" | grep -i torch; then
  echo "a program of nxd-core loads libtorch"
  exit 1
fi
echo "installed, moved and used: ${programs[*]%%:*}"

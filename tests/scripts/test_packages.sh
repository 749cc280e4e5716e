#!/usr/bin/env bash
# The Debian packages install, serve programs that are linked by pkg-config and by CMake, and go without
# leaving a file: in a root that is this machine's with a layer of its own, so that dependencies are real
# and the machine stays as it is.
# usage: test_packages.sh SOURCE_DIR BUILD_DIR     77: takes root, overlay mounts, dpkg and libnxd.so
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build=$2
((EUID == 0)) || skip "an overlay takes root" "run it as root"
need_commands dpkg-deb:dpkg dpkg-shlibdeps:dpkg-dev cpack:cmake pkg-config unshare:util-linux
need_built "$build/src/libnxd.so"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/enter" <<'END'
# Runs the rest in a root with a layer over this machine's, with the directory $1 as /tmp/trial.
set -eu
trial=$1
shift
mkdir -p "$trial/layers"
mount -t tmpfs tmpfs "$trial/layers"
cd "$trial/layers"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
mount -t proc proc root/proc
mount --bind /dev root/dev
mount -t tmpfs tmpfs root/tmp
mkdir root/tmp/trial
mount --bind "$trial" root/tmp/trial
env -u LD_LIBRARY_PATH -u PKG_CONFIG_PATH DEBIAN_FRONTEND=noninteractive chroot root "$@"
# The layer has what was written and still is. dpkg and ldconfig keep books of their own.
cd upper
find . \( -path ./var/lib/dpkg -o -path ./var/cache -o -path ./var/log -o -path ./tmp \) -prune -o -print |
  while read -r path; do [ -e "/$path" ] || echo "came and stayed: $path"; done > "$trial/stayed"
cat "$trial/stayed"
[ ! -s "$trial/stayed" ]
END
enter() {
  unshare --mount --pid --fork --kill-child sh "$work/enter" "$work" "$@"
}
enter true > "$work/log" 2>&1 || skip "no overlay mounts here: $(tail -n 1 "$work/log")" "run it where root may mount them"
if enter dpkg -s libnxd0 > /dev/null 2>&1; then skip "libnxd0 is installed on this machine" "remove it"; fi

# By a user who shares nothing otherwise.
(umask 077 && cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/packages") > "$work/log" 2>&1 ||
  { cat "$work/log"; exit 1; }
packages=("$work"/packages/*.deb)
((${#packages[@]} == 3)) || { ls "$work/packages"; exit 1; }
for package in "${packages[@]}"; do
  if dpkg-deb --contents "$package" | grep -vE '^(drwxr-xr-x|-rw[-x]r-[-x]r-[-x]|l)'; then
    echo "$package: others cannot read these"
    exit 1
  fi
done
# oneDNN is loaded by name, which no tool sees.
dpkg-deb --field "$work"/packages/libnxd0_*.deb Depends | grep 'libdnnl' > /dev/null

cat > "$work/check" <<'END'
set -eu
cd /tmp/trial
dpkg --install packages/*.deb > log 2>&1 || { cat log; exit 1; }
dpkg --verify libnxd0 libnxd-dev nxd-tools

cc -Wall -Werror program.c -o program $(pkg-config --cflags --libs nxd)
./program
nxdrun -n 2 ./program
cc -Wall -Werror -DCORE program.c -o core $(pkg-config --cflags --libs nxd-core)
./core
if ldd core | grep torch; then echo "a program of nxd-core loads libtorch"; exit 1; fi
cmake -S . -B cmake > log 2>&1 && cmake --build cmake >> log 2>&1 || { cat log; exit 1; }
cmake/program

if dpkg --remove libnxd0 > log 2>&1; then echo "libnxd0 went while others need it"; exit 1; fi
dpkg --purge nxd-tools libnxd-dev libnxd0 > log 2>&1 || { cat log; exit 1; }
END
cat > "$work/program.c" <<'END'
#include <nxd.h>
int main(void) {
#ifndef CORE
  nxd_tensor_destroy(NULL);
#endif
  return nxd_abi_version() == NXD_ABI_VERSION && nxd_last_error()[0] == '\0' ? 0 : 1;
}
END
cat > "$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(program LANGUAGES C)
find_package(nxd 0.1 REQUIRED)
add_executable(program program.c)
target_link_libraries(program PRIVATE nxd::nxd)
END
enter sh /tmp/trial/check
echo "installed, used and removed: $(basename -a "${packages[@]}" | tr '\n' ' ')"
if command -v lintian > /dev/null; then
  # Warnings ask for a history in Debian, and for manual pages.
  lintian --profile debian --fail-on error "${packages[@]}"
fi

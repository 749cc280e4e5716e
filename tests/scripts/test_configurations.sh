#!/usr/bin/env bash
# A build without the engine links nothing with it, one where ccache cannot keep anything goes without it, and installed programs find the libraries from wherever the
# two are installed. A project of a user's that has this one as a directory of
# its own gets the libraries by the names that find_package gives them, without tests, examples and packages
# of ours, and keeps its own build type.
# usage: test_configurations.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1
need_commands cmake ninja:ninja-build
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# configure DIRECTORY ARGUMENT...: without building anything; what Ninja would run is in $work/commands.
configure() {
  cmake -S "$1" -B "$work/build" -G Ninja "${@:2}" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  ninja -C "$work/build" -t commands > "$work/commands"
}

configure "$source" -DNXD_BUILD_ENGINE=OFF -DNXD_UNITY=ON -DCMAKE_INSTALL_BINDIR=libexec/nxd/bin -DCMAKE_INSTALL_LIBDIR=lib/some
grep -q 'libnxd_core\.so' "$work/commands" || { echo "no command makes libnxd_core"; exit 1; }
if grep -E -- '(-lnxd|libnxd\.so)( |$)' "$work/commands" | cut -c1-300; then
  echo "a build without the engine is linked with it"
  exit 1
fi
grep -F '\$ORIGIN/../../../lib/some"' "$work/build/tools/cmake_install.cmake" > "$work/rpaths" ||
  { grep ORIGIN "$work/build/tools/cmake_install.cmake"; exit 1; }
rm -rf "$work/build"

CCACHE_DIR=/dev/null/cache configure "$source" -DNXD_BUILD_ENGINE=OFF -DNXD_UNITY=ON -DNXD_BUILD_TESTS=OFF -DNXD_BUILD_EXAMPLES=OFF
if grep ccache "$work/commands" | cut -c1-300; then
  echo "a build goes through a ccache that cannot keep anything"
  exit 1
fi
rm -rf "$work/build"

mkdir "$work/parent"
cat > "$work/parent/CMakeLists.txt" << END
cmake_minimum_required(VERSION 3.22)
project(parent VERSION 3.1 LANGUAGES C CXX)
add_subdirectory("$source" nxd)
add_executable(program program.c)
target_link_libraries(program PRIVATE nxd::nxd_core)
include(CPack)
END
echo 'int main(void) { return 0; }' > "$work/parent/program.c"
configure "$work/parent" -DNXD_BUILD_ENGINE=OFF -DNXD_UNITY=ON -DCMAKE_BUILD_TYPE=
if grep -i warning "$work/log"; then cat "$work/log"; exit 1; fi
grep -E -- '-o program .*libnxd_core\.so' "$work/commands" > /dev/null || { echo "nxd::nxd_core is not linked"; exit 1; }
if grep -E -- '-o (\S*/)?(tests|examples|bench)/' "$work/commands" | cut -c1-300; then
  echo "tests or examples are built in a project of a user's"
  exit 1
fi
grep -q '^CMAKE_BUILD_TYPE:[A-Z]*=$' "$work/build/CMakeCache.txt" || { grep CMAKE_BUILD_TYPE "$work/build/CMakeCache.txt"; exit 1; }
grep -q 'CPACK_PACKAGE_NAME "parent"' "$work/build/CPackConfig.cmake"
if grep -i 'libnxd' "$work/build/CPackConfig.cmake"; then echo "packages of the parent have our settings"; exit 1; fi

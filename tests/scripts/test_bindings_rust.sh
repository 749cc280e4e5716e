#!/usr/bin/env bash
# The Rust crates: tests, examples and programs against the same in C, the page's code, and two ways to load
# the wrong library.
# usage: test_bindings_rust.sh SOURCE_DIR BUILD_DIR     77: no Rust on this machine
# NXD_PREFIX: an installed tree. NXD_LONG=1: more repetitions.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/programs.sh"
source=$1/bindings/rust
out=$2/bindings-rust
# The distribution's Rust before any other.
PATH=/usr/bin:$PATH
need_commands cargo rustc pkg-config cc:gcc
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CARGO_HOME=$out/home CARGO_TARGET_DIR=$out/target CARGO_PROFILE_DEV_DEBUG=0
# Nothing is built twice, and the faster linker takes a third less time.
export CARGO_INCREMENTAL=0 RUSTFLAGS="-D warnings"
if command -v ld.gold > /dev/null; then RUSTFLAGS+=" -C link-arg=-fuse-ld=gold"; fi
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 RUST_BACKTRACE=0
examples=$(find_c_examples "$2")
if [[ -n $examples ]]; then
  export NXD_C_EXAMPLES=$examples NXD_RUN=$NXD_PREFIX/bin/nxdrun
else
  skip_part "rust against the examples in C" "there are none" "build them with scripts/build"
fi
cd "$source"

cargo test --quiet --offline --locked --no-fail-fast
if [[ -x $(dirname "$(command -v cargo)")/cargo-clippy ]]; then
  cargo clippy --quiet --offline --locked --all-targets -- -D warnings
fi

program() { timeout 300 "$CARGO_TARGET_DIR/debug/examples/$1" "${@:2}"; }
[[ -z $examples ]] || compare_programs "$1" "$2/programs_in_c" "$work"
lazy() { program lazy_mlp && program lazy_ddp; }
[[ -z $examples ]] || compare_lazy_programs "$2/programs_in_c" "$work" 2 lazy

# Without the engine there is no libtorch in the process.
cargo build --quiet --offline --locked -p nxd --no-default-features --example show_error
show_error=$CARGO_TARGET_DIR/debug/examples/show_error
ldd "$show_error" | grep libnxd_core > /dev/null
loads_no_libtorch "$show_error"
timeout 300 "$show_error" | grep "the group goes on: 2 ranks" > /dev/null

# A library of another ABI is refused by name.
echo 'unsigned nxd_abi_version(void) { return 7; }' | cc -shared -fPIC -x c -o "$out/other_abi.so" -
refused=0
LD_PRELOAD=$out/other_abi.so timeout 300 "$show_error" >"$out/refused" 2>&1 || refused=$?
if [[ $refused != 1 ]] || ! grep -q "ABI_MISMATCH.*has ABI 7, and this program was built for ABI 0" "$out/refused"; then
  cat "$out/refused"
  exit 1
fi
echo "rust $(rustc --version | cut -d' ' -f2): all well"

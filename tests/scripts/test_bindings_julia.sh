#!/usr/bin/env bash
# NXD.jl, in parts, of which each is a test: its suite; that suite's file that runs the examples, the README's
# code and the benchmark; its programs against those in C.
# usage: test_bindings_julia.sh SOURCE_DIR BUILD_DIR suite|examples|programs
#   NXD_PREFIX   an installed tree
#   NXD_JULIA    the julia to run; else /opt/julia15, where scripts/install_julia puts it, or PATH's
#   NXD_LONG=1   longer repetitions
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/programs.sh"
source=$1 build=$2 part=$3
: "${NXD_PREFIX:?names the installed tree}"
julia=${NXD_JULIA:-/opt/julia15/bin/julia}
[[ -x $julia ]] || julia=$(command -v julia) || skip "julia is missing" "install it with scripts/install_julia"
(($(getconf _NPROCESSORS_ONLN) > 1)) || skip "a second processor is missing, for Julia's threads" "run it on a machine with two"

# Compiled code is kept from run to run; two ranks that start at once must find it made.
export JULIA_DEPOT_PATH=$build/bindings-julia
mkdir -p "$JULIA_DEPOT_PATH"
unset JULIA_LOAD_PATH JULIA_PROJECT RANK WORLD_SIZE
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_PREFIX
NXD_C_EXAMPLES=$(find_c_examples "$build")
[[ -n $NXD_C_EXAMPLES ]] || skip_part "julia against the examples in C" "there are none" "build them with scripts/build"
export NXD_C_EXAMPLES

package=$source/bindings/julia/NXD
run() { timeout -k 10 3000 "$julia" --startup-file=no --project="$package" "$@"; }
# One of the parts compiles the package.
(
  flock 9
  run -e 'using NXD'
) 9> "$JULIA_DEPOT_PATH/lock"

case $part in
  suite) run "$package/test/runtests.jl" --without programs ;;
  examples) run "$package/test/runtests.jl" programs ;;
  programs)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # They are short: to interpret them takes less time than to compile them.
    program() { run -t 1 -O0 --compile=min "$package/examples/$1.jl" "${@:2}"; }
    [[ -z $NXD_C_EXAMPLES ]] || compare_programs "$source" "$build/programs_in_c" "$work"
    # One process, and one rank, since Julia takes longer to start than they take to run.
    lazy() {
      RANK=0 WORLD_SIZE=1 run -t 1 -O0 -e 'using NXD
        for path in ARGS
          NXD.reset_device_metrics()
          Base.include(Module(), path)
          flush(stdout)
        end' "$package"/examples/lazy_{mlp,ddp}.jl
    }
    [[ -z $NXD_C_EXAMPLES ]] || compare_lazy_programs "$build/programs_in_c" "$work" 1 lazy
    ;;
  *) echo "test_bindings_julia.sh: $part is no part" >&2; exit 2 ;;
esac

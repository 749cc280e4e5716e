#!/usr/bin/env bash
# The Python binding against an installed tree: its raw layer, ranks as threads and as processes, its
# examples and programs against those in C, lifetimes, and some tests once more under a collector that
# runs at every allocation. NXD_LONG=1: more repetitions and variants, and all but the long tests collected.
# usage: test_bindings_python.sh SOURCE_DIR BUILD_DIR     77: no Python with cffi and numpy
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/programs.sh"
python=/usr/bin/python3
need_python cffi numpy
binding=$1/bindings/python
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
export PYTHONPATH=$binding PYTHONDONTWRITEBYTECODE=1 NXD_CPU_MODE=1 OMP_NUM_THREADS=1
NXD_C_EXAMPLES=$(find_c_examples "$2")
program() { timeout 300 "$python" -W error "$binding/examples/$1.py" "${@:2}"; }
[[ -n $NXD_C_EXAMPLES ]] || skip_part "python against the examples in C" "there are none" "build them with scripts/build"
export NXD_C_EXAMPLES
limit=3000
collected=(test_core test_arrays test_tensor)
if [[ -n ${NXD_LONG:-} ]]; then
  limit=3600
  collected+=(test_checkpoint test_data test_layer_arrays test_module test_models)
fi
cd "$binding/tests"

# suite NAME MODULE...: runs modules of tests and keeps what they say.
suite() {
  local name=$1
  shift
  timeout $limit "$python" -W error -X faulthandler -m unittest "$@" > "$work/$name.log" 2>&1
}

suite lifetimes test_lifetimes test_cycles & lifetimes=$!
suite all test_raw test_core test_errors test_machine test_checkpoint test_arguments test_arrays test_bf16 test_dlpack test_data test_layer_arrays test_tensor test_module test_models test_libtorch test_processes test_readme &
all=$!
status=0
wait $lifetimes || status=1
NXD_TEST_GC=1 suite collected "${collected[@]}" || status=1
wait $all || status=1
for name in lifetimes all collected; do
  if [[ $status == 0 ]]; then tail -n 3 "$work/$name.log"; else cat "$work/$name.log"; fi
done
grep -hE '^skip: ' "$work"/*.log | sort -u || true
lazy() { program lazy_mlp && program lazy_ddp; }
if [[ $status == 0 && -n $NXD_C_EXAMPLES ]]; then
  compare_programs "$1" "$2/programs_in_c" "$work"
  compare_lazy_programs "$2/programs_in_c" "$work" 2 lazy
fi
exit $status

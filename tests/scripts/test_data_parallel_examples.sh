#!/usr/bin/env bash
# The examples of data parallelism, and of tensor parallelism over a caller's arrays, on one, two and
# three or four ranks: losses fall, and do not depend on the number of ranks. lazy_ddp also under nxd_spawn, by NEURON_NUM_DEVICES, and as ranks of mpirun.
# usage: test_data_parallel_examples.sh SOURCE_DIR BUILD_DIR     77: this build has no examples
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build=$2
need_built "$build/examples/c/lazy_ddp"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000

losses "$work/zero1.1" "$build/examples/c/embed_zero1"
for n in 2 3; do losses "$work/zero1.$n" "$build/tools/nxdrun" -n $n "$build/examples/c/embed_zero1"; done
compare_losses 2e-6 "$work"/zero1.[123]
grep -h "bytes of state" "$work"/zero1.*.log
loads_no_libtorch "$build/examples/c/embed_zero1"

# Two ranks are tensor parallel, or data parallel; of four, two are tensor parallel.
embedded=$build/examples/c/embed_tensor_parallel
losses "$work/tensor.1" "$embedded"
losses "$work/tensor.tp2" "$build/tools/nxdrun" -n 2 "$embedded" 2
losses "$work/tensor.dp2" "$build/tools/nxdrun" -n 2 "$embedded" 1
losses "$work/tensor.tp2dp2" "$build/tools/nxdrun" -n 4 "$embedded" 2
compare_losses 2e-6 "$work"/tensor.{1,tp2,dp2,tp2dp2}
loads_no_libtorch "$embedded"

losses "$work/lazy.1" "$build/examples/c/lazy_ddp"
for n in 2 4; do losses "$work/lazy.$n" "$build/tools/nxdrun" -n $n "$build/examples/c/lazy_ddp"; done
losses "$work/lazy.spawn" env NEURON_NUM_DEVICES=2 "$build/examples/c/lazy_ddp"
losses "$work/lazy.mpirun" env NEURON_NUM_DEVICES=2 "${as_mpirun[@]}" "$build/examples/c/lazy_ddp"
# Recorded on device XLA, by one switch.
for n in 1 2; do
  losses "$work/lazy.xla$n" env -u NXD_CPU_MODE NXD_XLA_BACKEND=replay "$build/tools/nxdrun" -n $n \
    "$build/examples/c/lazy_ddp"
done
compare_losses 1e-5 "$work"/lazy.{1,2,4,spawn,mpirun,xla1,xla2}
# one_graph_a_step NAME: the 100 steps are runs of one graph, with nothing eager and no early read. The
# other rank may have compiled it.
one_graph_a_step() {
  grep -Eq '(^| )steps 100 (compiles 1 loads 0|compiles 0 loads 1) executions 100 implicit_syncs 0 fallbacks 0$' "$work/$1.log" ||
    { cat "$work/$1.log"; exit 1; }
}
for n in 1 2; do one_graph_a_step lazy.xla$n; done
# The same through a PJRT plug-in, whose programs call the ranks' collectives.
if plugin=$(pjrt_plugin); then
  losses "$work/lazy.pjrt2" env -u NXD_CPU_MODE NXD_PJRT_PLUGIN="$plugin" NXD_PJRT_FAST_COMPILE=1 \
    PJRT_NPROC=1 TF_CPP_MIN_LOG_LEVEL=1 "$build/tools/nxdrun" -n 2 "$build/examples/c/lazy_ddp"
  compare_losses 1e-5 "$work"/lazy.{1,pjrt2}
  one_graph_a_step lazy.pjrt2
fi

#!/usr/bin/env bash
# PyTorch trains over libnxd_core, which brings no libtorch: tensor-parallel, data-parallel with ZeRO-1, as
# a pipeline, and by DistributedDataParallel with libnxd as the backend; all have the losses of PyTorch
# alone.
# NXD_TORCH_PYTHON: a Python with another torch than Debian's, such as a wheel's.
# usage: test_framework_pytorch.sh SOURCE_DIR BUILD_DIR     77: no torch
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
[[ -n ${NXD_TORCH_PYTHON:-} ]] || need_python torch cffi numpy
python=${NXD_TORCH_PYTHON:-/usr/bin/python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$build/src PYTHONPATH=$source/bindings/python PYTHONDONTWRITEBYTECODE=1
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000
examples=$source/examples/pytorch
loads_no_libtorch "$build/src/libnxd_core.so"

losses "$work/alone" "$python" "$examples/mlp.py"
for layout in "2 2" "2 1" "4 2"; do
  read -r ranks tp <<< "$layout"
  losses "$work/$ranks-ranks-tp$tp" "$build/tools/nxdrun" -n "$ranks" \
    "$python" "$examples/mlp_parallel.py" "$tp"
done
losses "$work/distributed" "$build/tools/nxdrun" -n 2 "$python" "$examples/mlp_distributed.py" "$work/meet"
losses "$work/pipeline" "$build/tools/nxdrun" -n 2 "$python" "$examples/mlp_pipeline.py"
compare_losses 1e-5 "$work"/{alone,2-ranks-tp2,2-ranks-tp1,4-ranks-tp2,distributed,pipeline}

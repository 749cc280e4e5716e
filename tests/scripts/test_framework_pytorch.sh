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
cat > "$work/works.py" << 'PY'
import datetime, os, sys, time
import torch
import torch.distributed as dist
import nxd_backend

rank, told = int(os.environ["RANK"]), sys.argv[2]
dist.init_process_group("nxd", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2,
                        timeout=datetime.timedelta(seconds=60))
x = torch.full((3,), float(rank))
# A wait with a bound ends without the message, which comes when the peer hears of that.
if rank == 0:
    work = dist.irecv(x, 1)
    try:
        work.wait(datetime.timedelta(seconds=1))
        sys.exit("the wait has not ended by its timeout")
    except RuntimeError as error:
        assert "0:00:01" in str(error), error
    assert not work.is_completed() and not work.is_success()
    open(told, "w").close()
else:
    while not os.path.exists(told):
        time.sleep(0.05)
    work = dist.isend(x, 0)
assert work.wait() and work.is_completed() and work.is_success()
assert x.tolist() == [1, 1, 1]
# Nor does a message wait for those that were issued before it.
y = torch.ones(3)
if rank == 0:
    early = dist.irecv(x, 1)
    for tag in 1, 2:
        dist.isend(y, 1, tag=tag).wait()
    early.wait()
else:
    for tag in 1, 2:
        dist.recv(y, 0, tag=tag)
    dist.send(x, 0)
work = dist.all_reduce(torch.zeros(2 + rank), async_op=True)
try:
    work.wait()
    sys.exit("a call that ranks make differently succeeds")
except Exception as error:
    assert "rank" in str(error), error
assert work.is_completed() and not work.is_success()
dist.destroy_process_group()
nxd_backend.finalize()
PY
PYTHONPATH=$examples:$PYTHONPATH "$build/tools/nxdrun" -n 2 "$python" "$work/works.py" "$work/meet_again" "$work/told"
# A tensor that one rank cannot give makes a layer fail on all.
cat > "$work/sparse.py" << 'PY'
import sys
import torch
import nxd.core as nxd
import nxd_torch

with nxd.Context() as ctx:
    ctx.init_model_parallel(tensor_parallel_size=2)
    x, weight, bias = torch.ones(3, 4), torch.ones(5, 4), torch.ones(5)
    try:
        nxd_torch.row_linear(ctx, x, weight, bias.to_sparse() if ctx.rank == 1 else bias)
    except nxd.InvalidArgument as error:
        assert "does not export its memory" in str(error), error
    else:
        sys.exit("a sparse bias was taken")
    assert (nxd_torch.row_linear(ctx, x, weight, bias) == 9).all()
    ctx.master_print("the layer after it goes well")
PY
PYTHONPATH=$examples:$PYTHONPATH timeout 300 "$build/tools/nxdrun" -n 2 "$python" "$work/sparse.py" \
  > "$work/sparse.log" 2>&1 || { cat "$work/sparse.log"; exit 1; }
grep "goes well" "$work/sparse.log"
# A gradient that one rank cannot bind fails the step on all, and a next one goes well.
cat > "$work/unbound.py" << 'PY'
import sys
import torch
import nxd.core as nxd
import nxd_torch

with nxd.Context() as ctx:
    table = torch.nn.Parameter(torch.ones(6, 2))
    other = torch.nn.Parameter(torch.ones(2))
    optimizer = nxd_torch.Zero1(ctx, {"table": table, "other": other}, bucket_bytes=8, learning_rate=0.5)

    def backward(sparse):
        optimizer.zero_grad()
        rows = torch.nn.functional.embedding(torch.tensor([1, ctx.rank]), table, sparse=sparse)
        (rows * other).sum().backward()

    backward(sparse=ctx.rank == 1)
    try:
        optimizer.step()
    except Exception as error:
        rejected = isinstance(error, nxd.InvalidArgument) and "scale" in str(error)
        assert rejected == (ctx.rank == 0), error
    else:
        sys.exit("a sparse gradient was taken")
    # Nothing was updated; a parameter that one rank does not use is bound in the step.
    assert (table == 1).all() and (other == 1).all()
    backward(sparse=False)
    optimizer.step()
    assert (other < 0.7).all() and (table[:2] < 0.7).all() and (table[2:] > 0.9).all(), (table, other)
    ctx.master_print("the step after it goes well")
PY
PYTHONPATH=$examples:$PYTHONPATH timeout 300 "$build/tools/nxdrun" -n 2 "$python" "$work/unbound.py" \
  > "$work/unbound.log" 2>&1 || { cat "$work/unbound.log"; exit 1; }
grep "goes well" "$work/unbound.log"
losses "$work/pipeline" "$build/tools/nxdrun" -n 2 "$python" "$examples/mlp_pipeline.py"
if grep Warning "$work"/{alone,distributed,pipeline}.log; then echo "an example warns"; exit 1; fi
compare_losses 1e-5 "$work"/{alone,2-ranks-tp2,2-ranks-tp1,4-ranks-tp2,distributed,pipeline}

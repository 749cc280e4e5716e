#!/usr/bin/env bash
# JAX trains over libnxd_core in a process without libtorch: tensor-parallel, data-parallel with ZeRO-1 and
# as a pipeline, and all have the losses of JAX alone. Arguments that are bad on one rank are an error on all.
# usage: test_framework_jax.sh SOURCE_DIR BUILD_DIR     77: no JAX
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
need_commands c++:g++
python=$(framework_python jax)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$build/src PYTHONPATH=$source/bindings/python PYTHONDONTWRITEBYTECODE=1
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000 JAX_PLATFORMS=cpu

export NXD_JAX_LIBRARY=$work/libnxd_jax.so
c++ -std=c++17 -O1 -Wall -Werror -shared -fPIC "$source/examples/jax/nxd_jax.cpp" -o "$NXD_JAX_LIBRARY" \
  -isystem "$("$python" -c 'import jax; print(jax.ffi.include_dir())')" -I"$source/include" \
  -L"$build/src" -lnxd_core
loads_no_libtorch "$NXD_JAX_LIBRARY"

losses "$work/alone" "$python" "$source/examples/jax/mlp.py"
for layout in "1 1" "2 2" "2 1" "4 2"; do
  read -r ranks tp <<< "$layout"
  losses "$work/$ranks-ranks-tp$tp" "$build/tools/nxdrun" -n "$ranks" \
    "$python" "$source/tests/scripts/without_libtorch.py" "$source/examples/jax/mlp_parallel.py" "$tp"
done
losses "$work/pipeline" "$build/tools/nxdrun" -n 2 \
  "$python" "$source/tests/scripts/without_libtorch.py" "$source/examples/jax/mlp_pipeline.py"
compare_losses 1e-5 "$work"/{alone,1-ranks-tp1,2-ranks-tp2,2-ranks-tp1,4-ranks-tp2,pipeline}
grep -h "bytes of state" "$work"/*.log

cat > "$work/rejected.py" << 'END'
import sys
import jax
import jax.numpy as jnp
import numpy as np
import nxd.core as nxd
sys.path.append(sys.argv[1])
import nxd_jax

with nxd.Context() as ctx:
    ctx.init_model_parallel(tensor_parallel_size=2)
    linear = jax.jit(lambda x, w, b: nxd_jax.row_linear(ctx, x, w, b))
    x, bias = jnp.ones((3, 4)), jnp.ones(5)
    try:
        jax.block_until_ready(linear(x, jnp.ones((5, 4 - ctx.rank)), bias))
    except jax.errors.JaxRuntimeError as error:
        assert "INVALID_ARGUMENT" in str(error) and "expected 3 features" in str(error), error
    else:
        sys.exit("a weight of another size was taken")
    y = linear(x, jnp.ones((5, 4)), bias)
    assert (y == 9).all(), y
    # Arrays never change: others may have the same memory.
    for dtype in (jnp.float32, jnp.bfloat16):
        array, out = jnp.ones(4, dtype), np.zeros(4, dtype)
        ctx.world.all_reduce(array, out)
        assert (out == 2).all(), out
        try:
            ctx.world.all_reduce(array)
        except nxd.InvalidArgument as error:
            assert "the array is read-only" in str(error), error
        else:
            sys.exit("an array of JAX was written")
    ctx.master_print("rejected on both ranks")
END
cat > "$work/unbound.py" << 'END'
import pathlib
import sys
import time
import jax
import jax.numpy as jnp
import nxd.core as nxd
sys.path.append(sys.argv[1])
import nxd_jax

ctx, heard = nxd.Context(), pathlib.Path(sys.argv[2])
params = {"w": jnp.ones((4, 3))}
adamw = nxd_jax.AdamW(ctx, params)
grads = dict(params)
if ctx.rank == 1 and sys.argv[3] == "size":
    params = grads = {"w": jnp.ones((4, 4))}  # which the ddp does not have
elif ctx.rank == 1:
    grads = {"v": jnp.ones((4, 3))}
try:
    jax.block_until_ready(jax.jit(adamw.update)(params, grads))
except jax.errors.JaxRuntimeError as error:
    assert ("UNAVAILABLE" if ctx.rank == 0 else "INVALID_ARGUMENT") in str(error), error
except KeyError:
    assert ctx.rank == 1 and sys.argv[3] == "name"
else:
    sys.exit("an array of another size or name was taken")
if ctx.rank == 0:
    heard.touch()
while not heard.exists():  # its peer hears of it from the failed step, not from its end
    time.sleep(0.01)
ctx.close()
END
timeout 300 "$build/tools/nxdrun" -n 2 "$python" "$work/rejected.py" "$source/examples/jax" > "$work/log" 2>&1 ||
  { cat "$work/log"; exit 1; }
grep "rejected on both ranks" "$work/log"

for wrong in size name; do
  timeout 300 "$build/tools/nxdrun" -n 2 "$python" "$work/unbound.py" "$source/examples/jax" "$work/heard-$wrong" \
    "$wrong" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
done

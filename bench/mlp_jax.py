"""The MLP of bench_mlp_layers with JAX's shard_map: the first weight split by rows, the second by columns,
and the sum over ranks written out. Run by scripts/bench_mlp_layers, with RANK and WORLD_SIZE set by the
launcher."""
# First, as it says on which cores JAX may run before JAX is there.
from step_jax import RANK, SIZE, meet

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from mlp_inputs import parse_arguments, report, whole_arrays


def main():
    arguments = parse_arguments()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(meet(arguments.init), num_processes=SIZE, process_id=RANK)
    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    specs = (P(), P("ranks", None), P(None, "ranks"))

    def put(array, spec):
        return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec),
                                            lambda index: array[index])

    def mlp(x, first, second):
        return jax.lax.psum((x @ first.T) @ second.T, "ranks")

    split = jax.shard_map(mlp, mesh=mesh, in_specs=specs, out_specs=P())

    @jax.jit
    def train(x, first, second, dy):
        y, backward = jax.vjp(split, x, first, second)
        return y, *backward(dy)

    arrays = [put(a, s) for a, s in zip(whole_arrays(arguments), (*specs, P()))]

    def step():
        out = jax.block_until_ready(train(*arrays))
        return [array.addressable_shards[0].data for array in out]

    report(arguments, RANK, jax.__version__, step,
           lambda: multihost_utils.sync_global_devices("round"))
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()

"""The fit on all ranks: by gradient descent over numpy arrays, and by a module of the library."""

import numpy as np
import nxd
from nxd import ops

from tides.gauge import features, measurements


def descend(ctx, x, y):
    """Weights that all ranks agree on; each rank sees the samples of its share alone."""
    params, grads = {"w": np.zeros(x.shape[1])}, {"w": np.zeros(x.shape[1])}
    ddp = nxd.Ddp.over_arrays(ctx, params, grads, zero_stage=1)
    sgd = nxd.Sgd(ddp, learning_rate=0.9, momentum=0.5)
    share = slice(ctx.rank, None, ctx.size)
    for _ in range(400):
        grads["w"][:] = x[share].T @ (x[share] @ params["w"] - y[share]) / len(y)
        sgd.step()
    return params["w"]


class Prediction(nxd.Module):
    """Heights of the tides at some hours, of weights that are split over the ranks."""

    def __init__(self, ctx, w):
        super().__init__(ctx)
        self.linear = self.add_child("linear", nxd.RowParallelLinear(
            ctx, len(w), 1, bias=False, dtype="f64"))
        self.linear.parameter("weight").set_full(nxd.tensor(w[None]))

    def forward(self, x):
        return ops.flatten(self.linear(x), 0, -1, overload="using_ints")


def main():
    hours, heights = measurements()
    x = features(hours)
    with nxd.Context(timeout_ms=60000) as ctx:
        w = descend(ctx, x, heights)
        best = np.linalg.lstsq(x, heights, rcond=None)[0]
        assert np.abs(w - best).max() < 1e-3, (w, best)

        ctx.init_model_parallel(tensor_parallel_size=ctx.size)
        # Features in even number, so that the ranks can share them.
        padded = np.concatenate([x, np.zeros((len(x), 1))], 1)
        with nxd.no_grad():
            predicted = Prediction(ctx, np.append(w, 0))(nxd.tensor(padded)).numpy()
        error = np.sqrt(np.square(predicted - heights).mean())
        try:
            ctx.world.all_reduce(np.zeros(1 + ctx.rank))
        except nxd.InvalidArgument as disagreement:
            assert disagreement.info.operation == "all_reduce", disagreement.info
        ctx.master_print(f"{ctx.size} ranks, error {error:.3f} m")


if __name__ == "__main__":
    main()

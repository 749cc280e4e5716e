"""Two linear layers split over all ranks, the first by columns and the second by rows, and the same
computed unsplit with plain operators: both must agree.

    nxdrun -n 2 python3 mlp_tensor_parallel.py
    python3 mlp_tensor_parallel.py                    (one rank)
"""

import sys

import numpy
import nxd

HIDDEN, ROWS = 1024, 4


def make_input():
    """The same on every rank, in [0, 1)."""
    state, values = 1, []
    for _ in range(ROWS * HIDDEN):
        state = (state * 1664525 + 1013904223) % 2**32
        values.append((state >> 8) / 2**24)
    return nxd.tensor(numpy.array(values, "f4").reshape(ROWS, HIDDEN))


class Mlp(nxd.Module):
    def __init__(self, ctx):
        super().__init__(ctx)
        self.column = self.add_child("0", nxd.ColumnParallelLinear(
            ctx, HIDDEN, HIDDEN, name="0", bias=False, gather_output=False,
            keep_master_weight=True))
        self.row = self.add_child("1", nxd.RowParallelLinear(
            ctx, HIDDEN, HIDDEN, name="1", bias=False, input_is_parallel=True,
            keep_master_weight=True))

    def forward(self, x):
        return self.row(self.column(x))


def main():
    with nxd.Context() as ctx:
        ctx.init_model_parallel(tensor_parallel_size=ctx.size)
        mlp, x = Mlp(ctx), make_input()
        with nxd.no_grad():
            got = mlp(x).numpy()
            hidden = nxd.ops.linear(x, mlp.column.master_weight())
            want = nxd.ops.linear(hidden, mlp.row.master_weight()).numpy()
        difference, largest = abs(want - got).max(), abs(want).max()
        total = got.astype("f8").sum()
        ctx.master_print(f"Output sum is {total:.6f}; largest difference to the unsplit MLP "
                         f"{difference:.2g} of {largest:.2g}")
        return 0 if difference <= 1e-5 * largest else 1


if __name__ == "__main__":
    sys.exit(main())

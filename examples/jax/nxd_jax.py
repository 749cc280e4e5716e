"""libnxd_core as functions of JAX: tensor-parallel linear layers with gradients, and an optimizer whose
state is divided over the ranks. All of them can be jitted. JAX owns every array; the process has no
libtorch.

NXD_JAX_LIBRARY is the path of what nxd_jax.cpp was compiled to; by default libnxd_jax.so beside this file.
"""

import ctypes
import functools
import os
from pathlib import Path

import jax
import numpy as np
import nxd.core as nxd
from nxd.raw import ffi

_library = ctypes.CDLL(os.environ.get("NXD_JAX_LIBRARY", Path(__file__).with_name("libnxd_jax.so")))
for _name in ("column_linear_forward", "column_linear_backward", "row_linear_forward",
              "row_linear_backward", "optimizer_step"):
    _symbol = getattr(_library, f"nxd_jax_{_name}")
    jax.ffi.register_ffi_target(f"nxd_{_name}", jax.ffi.pycapsule(_symbol), platform="cpu")


def address(handle):
    """A handle of libnxd as an attribute of a custom call. It is part of the compiled function, so the
    handle lives as long as the function is called."""
    return np.int64(int(ffi.cast("intptr_t", handle.pointer)))


def like(array):
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _differentiable(kind):
    def call(context, x, weight, bias):
        y = jax.ShapeDtypeStruct((*x.shape[:-1], weight.shape[0]), x.dtype)
        return jax.ffi.ffi_call(f"nxd_{kind}_forward", y)(x, weight, bias, context=address(context))

    def forward(context, x, weight, bias):
        return call(context, x, weight, bias), (x, weight, bias)

    def backward(context, saved, grad_y):
        x, weight, _ = saved
        gradients = jax.ffi.ffi_call(f"nxd_{kind}_backward", tuple(like(a) for a in saved))
        return gradients(x, weight, grad_y, context=address(context))

    function = jax.custom_vjp(call, nondiff_argnums=(0,))
    function.defvjp(forward, backward)
    return function


# linear(context, x, weight, bias), over the tensor-parallel ranks of an nxd.Context. column_linear has
# the rows of weight and bias that make this rank's features of y; row_linear has the columns of weight
# that read this rank's features of x, and all of bias.
column_linear = _differentiable("column_linear")
row_linear = _differentiable("row_linear")


class AdamW:
    """AdamW over a dict of arrays, with ZeRO-1: gradients are summed over the data-parallel ranks, each
    rank keeps the state of its share, updates it, and gets the others' parameters."""

    def __init__(self, context, params, **options):
        """`params` become those of the group's first rank. [collective: data-parallel group]"""
        first = {name: np.array(value) for name, value in params.items()}
        sums = {name: np.zeros_like(value) for name, value in first.items()}
        self.context = context
        self.ddp = nxd.Ddp.over_arrays(context, first, sums, zero_stage=1)
        self.optimizer = nxd.AdamW(self.ddp, **options)
        params.update((name, jax.numpy.array(value)) for name, value in first.items())

    def update(self, params, grads):
        """The parameters of the next step. [collective: data-parallel group]

        Called in a jitted function that donates them, it writes them where they are.
        """
        names = self.ddp.names
        try:
            arrays = [params[name] for name in names] + [grads[name] for name in names]
        except KeyError:
            # The peers are in the step, or come to it, as where nxd_jax.cpp cannot bind an array.
            self.context.abort()
            raise
        step = jax.ffi.ffi_call("nxd_optimizer_step", [like(a) for a in arrays],
                                input_output_aliases={i: i for i in range(len(arrays))})
        after = step(*arrays, context=address(self.context), ddp=address(self.ddp),
                     optimizer=address(self.optimizer))
        return dict(zip(names, after))

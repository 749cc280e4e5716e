"""Calls as C has them."""
import random

import numpy as np

from memory import Array
from nxd.raw import core, ffi


def error():
    return ffi.string(core.nxd_last_error()).decode()


def options(struct, values):
    made = ffi.new(struct + "*")
    init = struct.replace("_t", "").removesuffix("_t") + "_init"
    getattr(core, init)(made, ffi.sizeof(struct))
    for name, value in values.items():
        setattr(made, name, value)
    return made


def arguments(context, call):
    kept = call.kept = []

    def one(array):
        if isinstance(array, list):
            listed = ffi.new("DLTensor*[]", [ffi.NULL if a is None else a.tensor for a in array])
            kept.append(listed)
            return listed
        return ffi.NULL if array is None else array.tensor
    inputs = [one(a) for _, a in call.inputs]
    leading = [v.encode() if isinstance(v, str) else v for v in call.leading]
    kept.append(leading)
    if getattr(call, "count", None) is not None:
        inputs.append(call.count)
    struct = [call.struct_c] if call.struct else []
    return [context.pointer, *leading, *inputs, *struct, *[one(a) for _, a in call.outputs]]


def dropped(context, name, p, shape, position):
    """An undivided array of ones after dropout; every rank of the group has all of it."""
    ones, out = Array(shape, "f64", np.ones(shape)), Array(shape, "f64")
    ones.lay(random.Random(0), False, True)
    out.lay(random.Random(0), True, True)
    given = options("nxd_dropout_options_t", dict(p=p, has_position=1, step=position[0], microbatch=position[1]))
    if core.nxd_dropout_forward(context.pointer, name.encode(), ones.tensor, given, out.tensor):
        raise RuntimeError(error())
    return out.read()

"""Runs drawn programs with the library, and compares values, dtypes, shapes and gradients with torch's.
usage: replay.py PATH [SEED]...     NXD_TEST_DEVICE=xla: on the recorded device. With seeds these alone, shown.
"""
import os
import pickle
import sys

import numpy as np

import nxd
from instructions import D, V
from nxd.enums import DType

# Shares of the largest value of a tensor.
TOLERANCES = {"f32": 2e-5, "f64": 1e-11, "bf16": 1.6e-2, "f16": 2e-3}
KINDS = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i32": np.int32, "i64": np.int64, "u8": np.uint8,
         "i8": np.int8, "i16": np.int16, "bool": np.bool_, "bf16": np.uint16}
# The recorded device does what torch rejects, as it has no strides.
MADE_BY_THE_DEVICE = ("single memory location", "needs_dynamic_casting", "view size is not compatible", "i1_cpu",
                      "without overflow")

# Errors that depend on values.
OF_VALUES = ("out of bounds", "index out of range in self", "element is out of DATA bounds",
             "out of range: tried to access", "Mask tensor can take 0 and 1 values only")


class Differs(Exception):
    """The library gave something else."""


class Ends(Exception):
    """The rest of the program cannot be compared."""


def words(a):
    """The upper halves of f32."""
    return (np.ascontiguousarray(a, np.float32).view(np.uint32) >> 16).astype(np.uint16).reshape(np.shape(a))


def numbers(tensor):
    dtype = tensor.dtype.name.lower()
    raw = np.frombuffer(tensor.tobytes(), KINDS[dtype]).reshape(tensor.shape)
    if dtype == "bf16":
        raw = np.atleast_1d(raw.astype(np.uint32) << 16).astype(np.uint32).view(np.float32).reshape(tensor.shape)
    return raw


def tolerances_of(code):
    """A value that is cast to a wider dtype is as far off as the narrower: a compiler keeps casts of its own way, and
    long sums of convolutions are rounded to either neighbour."""
    convolves = any(instruction[0] == "op" and instruction[1].startswith("conv") for instruction in code)
    if os.environ.get("NXD_XLA_BACKEND") != "pjrt" and not convolves:
        return TOLERANCES
    names = [word for instruction in code for word in instruction if isinstance(word, str)]
    names += [word.name for instruction in code if instruction[0] == "op" for word in instruction[3].values()
               if isinstance(word, D)]
    widest = max((TOLERANCES[word] for word in names if word in TOLERANCES), default=0)
    widest *= 2 if convolves else 1  # which adds up many products in bf16
    return {dtype: max(widest, tolerance) for dtype, tolerance in TOLERANCES.items()}


def check_close(what, got, wanted, dtype, tolerances):
    if dtype not in tolerances:
        close = np.array_equal(got, wanted)
    else:
        a, b = got.astype(np.float64), wanted.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        largest = np.max(np.abs(b[finite]), initial=0.0)
        with np.errstate(all="ignore"):
            near = finite & (np.abs(a - b) <= tolerances[dtype] * (largest + 1e-3))
        close = (near | (a == b) | (np.isnan(a) & np.isnan(b))).all()
    if not close:
        raise Differs(f"{what} {dtype}{list(wanted.shape)} is {got.tolist()}, torch's {wanted.tolist()}")


def two_backward(call, g, h):
    a, b = call.saved(0), call.saved(1)
    of_product = (None, None) if h is None else (h * b, h * a)
    if g is None:
        return of_product
    return tuple(g if each is None else g + each for each in of_product)


FUNCTIONS = {
    "square": nxd.Function("drawn::square", lambda c, x: (c.save(x), x * x)[1], lambda c, g: g * c.saved(0) * 2),
    "two": nxd.Function("drawn::two", lambda c, a, b: (c.save(a, b), (a + b, a * b))[1], two_backward,
                        num_outputs=2),
    "pass": nxd.Function("drawn::pass", lambda c, x: x * 3, lambda c, g: g)}


class Replay:
    """The tensors of one program."""

    def __init__(self, device, tolerances):
        self.device, self.tensors, self.hosts, self.tolerances = device, {}, {}, tolerances
        self.last = []

    def argument(self, value):
        if isinstance(value, V):
            return self.tensors[value.i]
        if isinstance(value, D):
            return DType[value.name.upper()]
        if isinstance(value, list) and any(isinstance(each, V) for each in value):
            return self.several([None if each is None else each.i for each in value])
        return value

    def several(self, numbers_):
        return [None if i is None else self.tensors[i] for i in numbers_]

    def rejected(self, expected, run):
        """Runs what torch has rejected, where expected is its message."""
        try:
            run()
        except nxd.NxdError as error:
            if expected is None:
                raise
            kinds = (nxd.InvalidArgument, nxd.InvalidState, nxd.Unsupported)
            if not isinstance(error, kinds) and "INTERNAL ASSERT" not in expected:
                raise Differs(f"{type(error).__name__}: {error}; torch: {expected}") from None
            return
        if expected is None:
            return
        if "INTERNAL ASSERT" in expected:  # a defect of torch's, which the library does not have
            raise Ends
        if self.device == "xla" and any(sign in expected for sign in MADE_BY_THE_DEVICE):
            raise Ends
        if self.device == "xla" and any(sign in expected for sign in OF_VALUES):
            self.fail_late(expected)
            raise Ends
        raise Differs(f"no error; torch: {expected}")

    @staticmethod
    def fail_late(expected):
        """An error that depends on values is that of the graph, as long as something holds a result."""
        try:
            nxd.mark_step()
        except nxd.InvalidArgument:
            return
        raise Differs(f"no error of the graph; torch: {expected}")

    def run(self, instruction):
        getattr(self, instruction[0])(*instruction[1:])

    # Instructions, by their names.

    def data(self, i, array, dtype):
        given = words(array) if dtype == "bf16" else array
        tensor = nxd.tensor(np.ascontiguousarray(given).reshape(np.shape(array)), dtype)
        self.tensors[i] = tensor.to_device(self.device)

    def share(self, i, host, base, parts, order):
        kept = np.array(base, copy=True, order="K")
        self.hosts[host] = kept, i
        self.tensors[i] = nxd.from_dlpack(kept[tuple(slice(*part) for part in parts)].transpose(order))

    def host_write(self, host, array):
        kept, i = self.hosts[host]
        kept[...] = array
        if i in self.tensors:
            self.tensors[i].mark_modified()

    def requires(self, i, on):
        self.tensors[i].requires_grad = on

    def recording(self, on):
        nxd.raw.engine.nxd_set_grad_enabled(on, nxd.raw.ffi.NULL)

    def detach(self, i, source):
        self.tensors[i] = self.tensors[source].detach()

    def drop(self, i):
        self.tensors.pop(i).close()

    def op(self, name, overload, arguments, results, error):
        def run():
            op = nxd.Op("aten::" + name, overload)
            got = op(**{key: self.argument(value) for key, value in arguments.items()})
            self.last = got = list(got) if isinstance(got, tuple) else [got]
            for (kind, i), value in zip(results or [], got):
                if kind == "var":
                    self.tensors.setdefault(i, value)
        self.rejected(error, run)

    def custom(self, function, inputs, outputs):
        got = FUNCTIONS[function](*self.several(inputs))
        self.tensors.update(zip(outputs, got if isinstance(got, tuple) else (got,)))

    def backward(self, outputs, grads, retain, error):
        self.rejected(error, lambda: nxd.backward(self.several(outputs), self.several(grads), retain))

    def grad(self, outputs, grads, inputs, retain, results, error):
        def run():
            got = nxd.grad(self.several(outputs), self.several(inputs), self.several(grads), retain)
            for i, value in zip(results, got):
                if (i is None) != (value is None):
                    raise Differs(f"a gradient is {value}, torch's {i}")
                if i is not None:
                    self.tensors[i] = value
        self.rejected(error, run)

    def share_grad(self, i, leaf):
        self.tensors[i] = self.tensors[leaf].grad

    def set_grad(self, leaf, i):
        self.tensors[leaf].grad = None if i is None else self.tensors[i]

    def copy_from(self, i, array):
        tensor = self.tensors[i]
        given = words(array) if tensor.dtype is DType.BF16 else array
        tensor.copy_from(np.ascontiguousarray(given).reshape(np.shape(array)))

    def mark_step(self):
        nxd.mark_step()

    def check(self, tensors, hosts):
        for i, (wanted, dtype, shape, _, requires, grad) in tensors.items():
            tensor = self.tensors[i]
            # Integers have no gradient here; torch's get a history from what is written to them.
            requires = requires and dtype in TOLERANCES
            found = tensor.dtype.name.lower(), list(tensor.shape), tensor.requires_grad
            if found != (dtype, shape, requires):
                raise Differs(f"v{i} has {found}, torch's {(dtype, shape, requires)}")
            check_close(f"v{i}", numbers(tensor), wanted, dtype, self.tolerances)
            if grad is not None:
                own = tensor.grad
                if own is None:
                    raise Differs(f"v{i} has no gradient")
                check_close(f"v{i}.grad", numbers(own), *grad, self.tolerances)
        for host, base in hosts.items():
            if not np.array_equal(self.hosts[host][0], base, equal_nan=base.dtype.kind == "f"):
                raise Differs(f"memory {host} is {self.hosts[host][0].tolist()}, torch's {base.tolist()}")


def shown(instruction):
    return "check" if instruction[0] == "check" else " ".join(str(word) for word in instruction)


def difference(code, device, shows):
    """Where a program differs first; None where it does not."""
    replay = Replay(device, tolerances_of(code))
    replay.recording(True)
    for number, instruction in enumerate(code):
        if shows:
            print(number, shown(instruction), flush=True)
        try:
            replay.run(instruction)
        except Ends:
            return None
        except (Differs, nxd.NxdError) as error:
            return f"instruction {number} of {len(code)}, {shown(instruction)[:300]}: {error}"
    return None


def main():
    device = os.environ.get("NXD_TEST_DEVICE", "cpu")
    seeds = [int(word) for word in sys.argv[2:]]
    with open(sys.argv[1], "rb") as file:
        programs = pickle.load(file)
    bad = 0
    for seed in seeds or programs:
        found = difference(programs[seed], device, bool(seeds))
        if found:
            bad += 1
            print(f"FAILED: program {seed} on {device}: {found}")
    print(f"{len(seeds or programs)} programs on {device}, {bad} differ")
    sys.exit(bad > 0)


main()

"""A drawn program: its tensors in the library and in the simulation, and what differs."""
import os
import random

import numpy as np
import torch

import nxd
from memory import Array
from nxd.raw import engine, ffi
from simulate import Simulator, allowance

DEVICE = os.environ.get("NXD_TEST_DEVICE", "cpu")
BIG = [[2, 70, 16], [132, 1, 8], [1, 36, 64], [72, 2, 16], [12, 1, 4, 32], [300, 8]]
LARGEST = 20000  # elements of what goes on into other operators
SHAPES = [[2, 4, 3], [4, 2, 6], [4, 4], [3, 4, 8], [1, 4, 5], [2, 3], [4], [2, 2, 2, 4], [4, 1, 4], [12, 2, 3]]
NUMPY = {"f64": np.float64, "f32": np.float32, "bf16": np.int16}
TORCH = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "i64": torch.int64, "bool": torch.bool}


class Variable:
    """A tensor of the library on this rank, and all ranks' of the simulation."""

    def __init__(self, tensor, simulated, same, leaf=False):
        self.tensor, self.simulated, self.same, self.leaf, self.is_loss = tensor, simulated, same, leaf, False
        self.uneven = len({tuple(x.shape) for x in simulated.copies[0]}) > 1

    @property
    def shape(self):
        return list(self.simulated.copies[0][0].shape)

    @property
    def floats(self):
        return self.simulated.copies[0][0].is_floating_point()


class Program:
    def __init__(self, context, seed):
        self.context, self.ranks, self.rank = context, context.parallel_size("tensor"), context.parallel_rank("tensor")
        self.r = random.Random(seed * 6007 + context.size)
        self.g = np.random.default_rng([seed, context.size])
        self.dtype = self.r.choice(["f64", "f64", "f32", "f32", "bf16"])
        # Parameters stay in f32, and products run in bf16.
        self.casts = self.dtype == "f32" and self.r.random() < 0.2
        self.simulator = Simulator(self.ranks, "cast" if self.casts else self.dtype, seed)
        self.variables, self.layers, self.log, self.wrong = [], [], [], []
        self.device, self.overwritten = DEVICE, False
        self.places = random.Random(seed * 104729 + context.rank)
        self.is_big = self.r.random() < 0.06 and self.dtype != "f64"
        self.shapes = BIG if self.is_big else SHAPES

    def numbers(self, shape, scale=1.0, dtype=None):
        """Values that the dtype has, in float64."""
        values = torch.from_numpy(np.asarray(self.g.standard_normal(shape) * scale)).reshape(list(shape))
        return values.to(TORCH[dtype or self.dtype]).double()

    def tensor(self, values, dtype=None):
        dtype = dtype or self.dtype
        if self.places.random() < 0.2:
            made = self.of_memory(values, dtype)
        elif dtype == "bf16":
            made = nxd.tensor(values.bfloat16().contiguous().view(torch.int16).numpy().view(np.uint16), "bf16")
        else:
            made = nxd.tensor(values.to(TORCH[dtype]).contiguous().numpy())
        return made.to_device(DEVICE) if DEVICE != "cpu" else made

    def of_memory(self, values, dtype):
        """A copy of memory in any strides."""
        array = Array(list(values.shape), dtype, values.numpy())
        array.lay(self.places, False)
        out = ffi.new("nxd_tensor_t**")
        nxd.check(engine.nxd_tensor_from_dltensor(array.tensor, out))
        return nxd.Tensor(out[0])

    def note(self, *words):
        self.log.append(" ".join(str(w) for w in words))

    def say(self, *words):
        self.wrong.append(" ".join(str(w) for w in words))

    def add(self, tensor, simulated, same, *words):
        self.variables.append(Variable(tensor, simulated, same))
        self.note(f"v{len(self.variables) - 1} =", *words)
        return self.variables[-1]

    def name(self, v):
        return f"v{next(k for k, each in enumerate(self.variables) if each is v)}"

    def leaf(self, shape, same=True, grad=True):
        own = [self.numbers(shape)] * self.ranks if same else [self.numbers(shape) for _ in range(self.ranks)]
        simulated = self.simulator.leaf(own, grad)
        tensor = self.tensor(own[self.rank])
        tensor.requires_grad = grad
        v = self.add(tensor, simulated, same, "leaf", list(shape), "same" if same else "own", "grad" if grad else "")
        v.leaf = grad
        return v

    def pick(self, good=lambda v: True):
        # Losses are of a wider dtype, which layers do not take.
        found = [v for v in self.variables if v.floats and not (v.is_loss and self.dtype == "bf16") and
                 v.simulated.copies[0][0].numel() <= LARGEST and good(v)]
        return self.r.choice(found[-6:] if self.r.random() < 0.7 else found) if found else None

    # Comparisons.

    def read(self, tensor):
        t = tensor.detach()
        dtype = t.dtype.name.lower()
        values = torch.from_numpy(np.frombuffer(t.tobytes(), NUMPY[dtype]).copy()).reshape(list(t.shape))
        return (values.view(torch.bfloat16) if dtype == "bf16" else values).double(), dtype

    def compare(self, what, tensor, simulated, padding=None, dim=0):
        want = simulated.copies[0][self.rank]
        if tensor is None:
            if want is not None and want.numel() and want.abs().max() > 0:
                self.say(what, "is missing")
            return
        got, dtype = self.read(tensor)
        if want is None:
            if got.numel() and got.abs().max() > 0:
                self.say(what, "should be missing, and is", got.flatten()[:6].tolist())
            return
        if got.shape != want.shape:
            return self.say(what, "has the shape", list(got.shape), "for", list(want.shape))
        if not got.numel():
            return
        if padding is not None:
            want = want * torch.tensor([float(not p) for p in padding[self.rank]]).reshape(
                [-1 if d == dim else 1 for d in range(want.dim())]).double()
        allowed = allowance(simulated.copies, self.rank, self.simulator.dtype)
        off = (got - want).abs()
        if not bool((off <= allowed).all()):
            k = int(torch.nan_to_num(off, nan=float("inf")).argmax())
            self.say(what, f"{dtype}{list(got.shape)} differs: element {k} is {got.flatten()[k].item():.9g} for "
                     f"{want.flatten()[k].item():.9g}, which may be off by {allowed:.3g}")
        if padding is not None and any(padding[self.rank]):
            index = torch.tensor([k for k, p in enumerate(padding[self.rank]) if p])
            if got.index_select(dim, index).abs().max() > 0:
                self.say(what, "padding is not 0")

"""A program over tensors: its instructions, and what torch makes of them while they are drawn."""
import random

import numpy as np
import torch

from instructions import D, V

DT = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16, "i32": torch.int32,
      "i64": torch.int64, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "bool": torch.bool}
NAME = {dtype: name for name, dtype in DT.items()}
FLOATS = ["f32", "f32", "f32", "f64", "bf16", "bf16", "f16"]
aten = torch.ops.aten


class Skip(Exception):
    """The instruction cannot be carried out."""


def value(t):
    t = t.detach()
    if t.dtype is torch.bfloat16:
        t = t.float()
    return np.array(t.numpy(), copy=True)


def fresh(a, like):
    """A tensor of these numbers, of the shape and dtype of another, that is no view."""
    t = torch.tensor(np.array(a)).to(like.dtype)
    return t if t.shape == like.shape else t.reshape(like.shape).clone()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 2


class TwoOut(torch.autograd.Function):
    """(a + b, a * b)"""
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a + b, a * b

    @staticmethod
    def backward(ctx, g, h):
        a, b = ctx.saved_tensors
        return g + h * b, g + h * a


class Pass(torch.autograd.Function):
    """Gives its gradient on as it is."""
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return g


class Program:
    """Tensors by number, and the instructions that have made them so."""

    def __init__(self, seed, device):
        self.r = random.Random(seed)
        self.g = np.random.default_rng(seed)
        self.device = device
        self.vars, self.n, self.code, self.hosts, self.shared = {}, 0, [], {}, []
        self.autograd = self.r.random() < 0.6
        self.recording = True
        self.dtypes = self.r.choice([["f32"], ["f32"], ["f64"], ["bf16"], ["f16"], FLOATS, FLOATS])

    def numbers(self, shape, dtype):
        """Few bits each, so that short sums do not round."""
        if dtype == "bool":
            return self.g.integers(0, 2, shape).astype(bool)
        if dtype == "u8":
            return self.g.integers(0, 9, shape).astype(np.uint8)
        if dtype in ("i32", "i64", "i8", "i16"):
            return self.g.integers(-8, 9, shape).astype({"i32": np.int32, "i64": np.int64, "i8": np.int8,
                    "i16": np.int16}[dtype])
        a = self.g.integers(-16, 17, shape) / 8.0
        return a.astype({"f32": np.float32, "f64": np.float64, "bf16": np.float32, "f16": np.float16}[dtype])

    def new(self, t):
        """The number of one more tensor."""
        i = self.n
        self.n += 1
        self.vars[i] = t
        return i

    def shape(self):
        nd = self.r.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])
        return [self.r.choice([0, 1, 1, 2, 3, 4, 5, 7] if self.r.random() < 0.4 else [2, 3, 4, 5]) for _ in range(nd)]

    def make(self, shape=None, dtype=None):
        shape = self.shape() if shape is None else shape
        dtype = dtype or self.r.choice(self.dtypes)
        a = self.numbers(shape, dtype)
        t = torch.from_numpy(np.array(a, copy=True)).to(DT[dtype], copy=True)  # which can be resized
        if list(t.shape) != list(shape):
            t = t.reshape(shape).clone()
        i = self.new(t)
        self.code.append(("data", i, a, dtype))
        if self.autograd and dtype in FLOATS and self.r.random() < 0.6:
            t.requires_grad_(True)
            self.code.append(("requires", i, True))
        return i

    def share(self):
        """A tensor over a strided part of the host's memory."""
        dtype = self.r.choice([d for d in self.dtypes if d != "bf16"] or ["f32"])
        base_shape = [self.r.choice([2, 3, 4, 6]) for _ in range(self.r.choice([1, 2, 3]))]
        base = self.numbers(base_shape, dtype)
        if self.r.random() < 0.3:
            base = np.asfortranarray(base)
        spec = []
        for size in base_shape:
            start = self.r.randrange(0, size)
            spec.append((start, self.r.randrange(start, size + 1), self.r.choice([1, 1, 2])))
        perm = list(range(len(base_shape)))
        if self.r.random() < 0.4:
            self.r.shuffle(perm)
        kept = np.array(base, copy=True, order="K")
        view = base[tuple(slice(*s) for s in spec)].transpose(perm)
        h = len(self.hosts)
        self.hosts[h] = (base, view)
        i = self.new(torch.from_numpy(view))
        self.shared.append((h, self.vars[i]))
        self.code.append(("share", i, h, kept, spec, perm))
        return i

    def some(self, test=lambda t: True):
        ids = [i for i, t in self.vars.items() if test(t)]
        if not ids:
            raise Skip
        if self.r.random() < 0.5:
            ids = ids[-4:]
        return self.r.choice(ids)

    def float_var(self, min_nd=0):
        return self.some(lambda t: t.is_floating_point() and t.dim() >= min_nd)

    def like(self, i, broadcast=True):
        """A variable, old or new, that is broadcast with i."""
        t = self.vars[i]
        def fits(o):
            try:
                return torch.broadcast_shapes(o.shape, t.shape) == t.shape
            except RuntimeError:
                return False
        same = [j for j, o in self.vars.items()
                if o.is_floating_point() and fits(o) and (self.r.random() < 0.2 or o.dtype == t.dtype)]
        if same and self.r.random() < 0.7:
            return self.r.choice(same)
        shape = list(t.shape)
        if broadcast and shape and self.r.random() < 0.4:
            shape[self.r.randrange(len(shape))] = 1
            if self.r.random() < 0.3:
                shape = shape[1:]
        return self.make(shape, NAME[t.dtype] if t.is_floating_point() and self.r.random() < 0.85 else None)

    def dim(self, t):
        if t.dim() == 0:
            raise Skip
        d = self.r.randrange(t.dim())
        return d - t.dim() if self.r.random() < 0.3 else d

    def call(self, name, overload, /, **args):
        """Runs an operator; records it with the results, or that it is rejected."""
        def real(a):
            if isinstance(a, V):
                return self.vars[a.i]
            if isinstance(a, D):
                return DT[a.name]
            if isinstance(a, list) and any(isinstance(x, V) for x in a):
                return [None if x is None else self.vars[x.i] for x in a]
            return a
        op = getattr(getattr(aten, name), overload or "default")
        given = {k: real(a) for k, a in args.items()}
        given_self = given.get("self")
        if name in ("masked_scatter", "masked_scatter_") and not given_self.is_contiguous():
            raise Skip  # torch 1.13 reads the strides of what it writes wrong
        if name in ("gelu", "gelu_") and given_self.dtype == torch.bfloat16:
            raise Skip  # without oneDNN torch 1.13 rounds what is between
        if name == "baddbmm" and given["beta"] == 0:
            # torch 1.13 multiplies what it is to ignore by 0, even where it is NaN.
            all_of_it = torch.ones_like(given["self"], dtype=torch.bool)
            given |= {"self": given["self"].masked_fill(all_of_it, 0), "beta": 1}
        if name == "baddbmm_" and given["beta"] == 0 and not torch.isfinite(given_self.detach().double()).all():
            raise Skip  # the same
        try:
            positional = [given.pop(argument.name, argument.default_value) for argument in op._schema.arguments
                          if not argument.kwarg_only]
            got = op(*positional, **given)
        except (RuntimeError, IndexError, NotImplementedError) as error:
            if "not implemented for" in str(error) or "Could not run" in str(error):
                raise Skip
            self.code.append(("op", name, overload, args, None, str(error).split("\n")[0]))
            raise Skip
        if name in ("contiguous", "reshape", "flatten") and self.device != "cpu":
            # The recorded device, where all is dense, gives a view where torch has to copy.
            if got.storage().data_ptr() != given_self.storage().data_ptr():
                raise Skip
        results = list(got) if isinstance(got, (tuple, list)) else [got]
        out = []
        for t in results:
            if not isinstance(t, torch.Tensor):
                out.append(("number", float(t)))
                continue
            if t.numel() > 4096 or t.dim() > 6 or t.is_complex() or t.layout != torch.strided:
                raise Skip
            same = [j for j, o in self.vars.items() if o is t]
            out.append(("var", same[0] if same else self.new(t)))
        self.code.append(("op", name, overload, args, out, None))
        return out

    def sane(self):
        """Drops views that torch itself does not look at any more."""
        for i, t in list(self.vars.items()):
            try:
                t.is_leaf
            except RuntimeError:
                del self.vars[i]
                self.code.append(("drop", i))

    def check(self):
        state = {}
        self.sane()
        for i, t in self.vars.items():
            g = t.grad if t.is_leaf else None
            state[i] = (value(t), NAME[t.dtype], list(t.shape), list(t.stride()), t.requires_grad,
                        None if g is None else (value(g), NAME[g.dtype]))
        self.code.append(("check", state, {h: np.array(b, copy=True) for h, (b, _) in self.hosts.items()}))

    def step(self, kinds):
        """One instruction, of a kind that the others lead to."""
        kind = self.r.choice(kinds)
        self.sane()
        kind(self)

"""Draws what changes the state of a program: gradients, passes, casts, modes, the host's memory."""
import numpy as np
import torch

from instructions import D, V
from program import FLOATS, NAME, Pass, Skip, Square, TwoOut, fresh


def cast(p):
    i = p.some()
    target = p.r.choice(FLOATS + (["i32", "i64"] if p.r.random() < 0.2 else []))
    t = p.vars[i]
    if target in ("i32", "i64") and t.is_floating_point() and not torch.isfinite(t.detach().double()).all():
        raise Skip
    p.call("to", "dtype", self=V(i), dtype=D(target), copy=p.r.random() < 0.3)


def integers(p):
    r = p.r
    i = p.make(p.shape(), r.choice(["i32", "i64", "u8", "i8", "i16", "bool"]))
    v = V(i)
    name = r.choice(["add", "bitwise_and", "sum", "eq", "mul", "cumsum", "lt", "neg", "bitwise_not", "floor_divide",
            "lshift", "max", "any"])
    t = p.vars[i]
    if name in ("add", "mul"):
        p.call(name, "Tensor", self=v, other=V(p.some()))
    elif name == "bitwise_and":
        p.call(name, "Scalar", self=v, other=3)
    elif name in ("sum", "max", "any", "neg", "bitwise_not"):
        p.call(name, "", self=v)
    elif name in ("eq", "lt"):
        p.call(name, "Scalar", self=v, other=1)
    elif name == "floor_divide":
        p.call(name, "Scalar", self=v, other=3)
    elif name == "cumsum":
        p.call(name, "", self=v, dim=p.dim(t))


def custom(p):
    if not p.recording:
        raise Skip
    r = p.r
    i = p.float_var()
    if not torch.isfinite(p.vars[i].detach().double()).all():
        raise Skip  # torch multiplies by zeros for a gradient that is not there
    which = r.choice(["square", "two", "pass"])
    try:
        if which == "square":
            out = [Square.apply(p.vars[i])]
            ins = [i]
        elif which == "pass":
            out = [Pass.apply(p.vars[i])]
            ins = [i]
        else:
            same = [j for j, o in p.vars.items() if o.shape == p.vars[i].shape and o.dtype == p.vars[i].dtype]
            j = r.choice(same)
            out = list(TwoOut.apply(p.vars[i], p.vars[j]))
            ins = [i, j]
    except RuntimeError:
        raise Skip
    p.code.append(("custom", which, ins, [p.new(t) for t in out]))


def backward(p):
    if not p.autograd:
        raise Skip
    r = p.r
    ids = [i for i, t in p.vars.items()
           if t.requires_grad and (t.grad_fn is not None or r.random() < 0.1) and not nograd_view(t)]
    if not ids:
        raise Skip
    outs = [r.choice(ids[-6:]) for _ in range(r.choice([1, 1, 2]))]
    outs = list(dict.fromkeys(outs))
    grads = []
    for i in outs:
        t = p.vars[i]
        if t.numel() == 1 and t.dim() == 0 and r.random() < 0.5:
            grads.append(None)
        else:
            same = [j for j, o in p.vars.items() if o.shape == t.shape and o.dtype == t.dtype and not o.requires_grad]
            if same and r.random() < 0.4:
                grads.append(r.choice(same))
            else:
                a = p.numbers(list(t.shape), NAME[t.dtype])
                g = fresh(a, t)
                j = p.new(g)
                p.code.append(("data", j, a, NAME[t.dtype]))
                grads.append(j)
    retain = r.random() < 0.4
    if r.random() < 0.65:
        error = None
        new = [t for t in p.vars.values() if t.is_leaf and t.grad is None]
        try:
            torch.autograd.backward([p.vars[i] for i in outs], [None if g is None else p.vars[g] for g in grads],
                    retain_graph=retain)
        except (RuntimeError, IndexError) as e:
            error = str(e).split("\n")[0]
        for t in new:
            if t.grad is not None:
                t.grad = t.grad.clone()
        p.code.append(("backward", outs, grads, retain, error))
        if error:
            raise StopIteration
    else:
        candidates = [i for i, t in p.vars.items() if t.requires_grad and not nograd_view(t)]
        ins = list(dict.fromkeys(r.choice(candidates) for _ in range(r.choice([1, 2, 3]))))
        error, got = None, []
        try:
            got = torch.autograd.grad([p.vars[i] for i in outs], [p.vars[i] for i in ins],
                    [None if g is None else p.vars[g] for g in grads],
                                      retain_graph=retain, allow_unused=True)
        except (RuntimeError, IndexError) as e:
            error = str(e).split("\n")[0]
        res = [None if g is None else p.new(g.detach().clone()) for g in got]
        p.code.append(("grad", outs, grads, ins, retain, res, error))
        if error:
            raise StopIteration


def nograd_view(t):
    """A view that was made while nothing was recorded."""
    return t.grad_fn is None and t._is_view() and t._base.requires_grad


def grads(p):
    """Reads, sets, clears gradients."""
    r = p.r
    ids = [i for i, t in p.vars.items() if t.is_leaf and t.requires_grad]
    if not ids:
        raise Skip
    i = r.choice(ids)
    t = p.vars[i]
    which = r.choice(["share", "set", "clear", "off", "zero"])
    if which == "share" and t.grad is not None:
        if any(o is t.grad for o in p.vars.values()):
            raise Skip
        p.code.append(("share_grad", p.new(t.grad), i))
    elif which == "set":
        a = p.numbers(list(t.shape), NAME[t.dtype])
        g = fresh(a, t)
        j = p.new(g)
        p.code.append(("data", j, a, NAME[t.dtype]))
        t.grad = g
        p.code.append(("set_grad", i, j))
    elif which == "clear":
        t.grad = None
        p.code.append(("set_grad", i, None))
    elif which == "off":
        t.requires_grad_(False)
        p.code.append(("requires", i, False))


def requires(p):
    if not p.autograd:
        raise Skip
    i = p.some()
    error = None
    t = p.vars[i]
    if t.is_leaf and not t.is_floating_point() or not t.is_leaf and t.requires_grad:
        raise Skip
    try:
        t.requires_grad_(True)
    except RuntimeError as e:
        raise Skip
    p.code.append(("requires", i, True))


def mode(p):
    p.recording = not p.recording if p.r.random() < 0.5 else True
    torch.set_grad_enabled(p.recording)
    p.code.append(("recording", p.recording))


def drop(p):
    if len(p.vars) < 6:
        raise Skip
    i = p.some()
    del p.vars[i]
    p.code.append(("drop", i))


def host_write(p):
    if not p.hosts or p.device != "cpu":
        raise Skip
    h = p.r.choice(list(p.hosts))
    base, view = p.hosts[h]
    a = p.numbers(list(base.shape), NAME[torch.from_numpy(base[:0].copy()).dtype])
    base[...] = a
    for t in [t for n, t in p.shared if n == h]:
        with torch.no_grad():
            t.copy_(t.clone())
    p.code.append(("host_write", h, np.array(a)))


def check(p):
    p.check()


def moved(p):
    i = p.some()
    if p.device != "cpu":
        p.code.append(("mark_step",))
    else:
        raise Skip


def create(p):
    if p.r.random() < 0.35 and p.device == "cpu":
        p.share()
    else:
        p.make()

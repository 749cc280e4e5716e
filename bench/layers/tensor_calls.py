"""Draws calls of layers, of moves between ranks, and of plain operators."""
import numpy as np
import torch
import torch.nn.functional as F

import layers
import nxd
from passing import dropped
from simulate import copy_to, gather, part, reduce_from, reduce_scatter, scatter


def sequence_of(p, v):
    """A dimension, not the last, of which ranks have parts."""
    return p.r.randrange(len(v.shape) - 1) if len(v.shape) > 1 else None


def layer_of(p, kind, *arguments):
    """A new layer, or one that there is."""
    made = [each for each in p.layers if isinstance(each, kind) and each.key == arguments]
    if made and p.r.random() < 0.4:
        return p.r.choice(made)
    layer = kind(p, *arguments)
    layer.key = arguments
    p.layers.append(layer)
    return layer


def parts_of(layer):
    return [each[1] for each in layer.weights.named.values()]


def column(p):
    parallel = p.r.random() < 0.4
    v = p.pick(lambda v: len(v.shape) >= (2 if parallel else 1) and (parallel or v.same) and not v.uneven and
               0 not in v.shape)
    if v is None:
        return
    dim = sequence_of(p, v) if parallel else None
    layer = layer_of(p, layers.Column, v.shape[-1], dim)
    out = layer.module(v.tensor, num_outputs=layer.outputs)
    simulated = p.simulator.run(layer.simulate, v.simulated, layer.w, layer.b)
    first = out[0] if layer.outputs == 2 else out
    p.add(first, simulated, layer.gather, "column", p.name(v), layer.weights.named.keys(), vars_of(layer))
    if layer.outputs == 2:
        p.add(out[1], layer.b, layer.gather, "its bias")


def vars_of(layer):
    return {k: v for k, v in vars(layer).items() if isinstance(v, (int, float, bool, str, dict)) and k not in ("n",) and
            k not in ("named",)}


def row(p):
    parallel = p.r.random() < 0.6
    in_sequence = parallel and p.r.random() < 0.5
    v = p.pick(lambda v: (parallel or v.same) and len(v.shape) >= (2 if in_sequence else 1) and not v.uneven and
               0 not in v.shape)
    if v is None:
        return
    dim = None
    if in_sequence:
        dims = [d for d in range(len(v.shape) - 1) if v.shape[d] % p.ranks == 0]
        if not dims:
            return
        dim = p.r.choice(dims)
    whole = v.shape[-1] * (p.ranks if parallel else 1)
    if parallel and whole > p.ranks and p.r.random() < 0.3:
        whole -= p.r.randrange(p.ranks)  # the last ones are padding
    layer = layer_of(p, layers.Row, whole, parallel, dim, v.shape[-1])
    out = layer.module(v.tensor, num_outputs=layer.outputs)
    simulated = p.simulator.run(layer.simulate, v.simulated, layer.w, layer.b)
    p.add(out[0] if layer.outputs == 2 else out, simulated, dim is None and layer.reduce, "row", p.name(v),
          vars_of(layer), list(layer.weights.named))
    if layer.outputs == 2:
        p.add(out[1], layer.b, True, "its bias")


def linear(p):
    v = p.pick(lambda v: len(v.shape) >= 1 and v.shape[-1] > 0 and not v.uneven)
    if v is None:
        return
    layer = layer_of(p, layers.Linear, v.shape[-1])
    out = layer.module(v.tensor, num_outputs=layer.outputs)
    p.add(out[0] if layer.outputs == 2 else out, p.simulator.run(layer.simulate, v.simulated, layer.w, layer.b), v.same,
          "linear", p.name(v), vars_of(layer))
    if layer.outputs == 2:
        p.add(out[1], layer.b, True, "its bias")


def norm(p):
    v = p.pick(lambda v: len(v.shape) >= 1 and v.shape[-1] > 0 and not v.uneven)
    if v is None:
        return
    layer = layer_of(p, layers.Norm, v.shape[-1])
    w = p.pick(lambda u: u.shape == v.shape and not u.uneven) if p.r.random() < 0.5 else None
    count = p.r.choice([1, 2])
    inputs = [v.tensor] + ([w.tensor] if w else [])
    out = layer.module(*inputs, num_outputs=count)
    y, s = p.simulator.run(layer.simulate, v.simulated, w.simulated if w else None, layer.w, layer.b)
    same = v.same and (w is None or w.same)
    p.add(out[0] if count == 2 else out, y, same, "norm", p.name(v), p.name(w) if w else "", count, vars_of(layer))
    if count == 2:
        p.add(out[1], s, same, "its sum")


def embedding(p):
    shape = p.r.choice([[4], [2, 4], [4, 3], [], [0, 4], [12]])
    dims = [d for d in range(len(shape)) if shape[d] % p.ranks == 0]
    dim = p.r.choice(dims) if dims and p.r.random() < 0.4 else None
    layer = layer_of(p, layers.Embedding, dim, None)
    ids = torch.from_numpy(np.asarray(p.g.integers(0, layer.count, shape)))
    out = layer.module(p.tensor(ids, "i64"))
    simulated = p.simulator.run(layer.simulate, [ids] * p.ranks, layer.w)
    p.add(out, simulated, dim is None, "embedding", ids.tolist(), vars_of(layer))


def attention(p):
    parallel = p.r.random() < 0.4
    v = p.pick(lambda v: len(v.shape) == 3 and 0 not in v.shape and (parallel or v.same) and not v.uneven)
    if v is None:
        return
    layer = layer_of(p, layers.Attention, v.shape[-1], parallel)
    batch, length = (v.shape[1], v.shape[0] * p.ranks) if parallel else v.shape[:2]
    mask = None
    inputs = [v.tensor]
    if p.r.random() < 0.4:
        mask = torch.from_numpy(p.g.integers(0, 2, [batch, length]))
        mask[:, 0] = 1
        inputs.append(p.tensor(mask, p.r.choice(["i64", "bool"])))
    out = layer.module(*inputs)
    simulated = p.simulator.run(layer.simulate, v.simulated, None if mask is None else [mask] * p.ranks,
                                *layer.named.values())
    p.add(out, simulated, not parallel, "attention", p.name(v), None if mask is None else mask.tolist(), vars_of(layer),
          layer.heads.queries, layer.heads.keys)


def qkv(p):
    parallel = p.r.random() < 0.4
    v = p.pick(lambda v: len(v.shape) >= (2 if parallel else 1) and 0 not in v.shape and (parallel or v.same) and
               not v.uneven)
    if v is None:
        return
    layer = layer_of(p, layers.Qkv, v.shape[-1], parallel)
    count = p.r.choice([1, 2, 3, 3])
    out = layer.module(v.tensor, num_outputs=count)
    three = p.simulator.run(layer.simulate, v.simulated, *layer.named.values())
    for k in range(count):
        p.add(out if count == 1 else out[k], three[k], False, "qkv"[k], p.name(v), vars_of(layer))


def mlp(p):
    parallel = p.r.random() < 0.4
    v = p.pick(lambda v: len(v.shape) >= (2 if parallel else 1) and 0 not in v.shape and (parallel or v.same) and
               not v.uneven)
    if v is None:
        return
    layer = layer_of(p, layers.Mlp, v.shape[-1], parallel)
    p.add(layer.module(v.tensor), p.simulator.run(layer.simulate, v.simulated, *layer.named.values()), not parallel,
          "mlp", p.name(v), vars_of(layer))


def rotary(p):
    v = p.pick(lambda v: len(v.shape) == 4 and v.shape[-1] % 2 == 0 and v.shape[-1] > 0)
    if v is None:
        return
    options = layers.rope_options(p.r, v.shape[-1])
    if options["type"] == 2 and (options["rotary_dim"] or v.shape[-1]) <= 2:
        return
    module = nxd.RotaryEmbedding(p.context, v.shape[-1], **options)
    out = module(v.tensor)
    p.add(out, p.simulator.run(lambda xs: [layers.rotate(x, options, 1) for x in xs], v.simulated), v.same, "rotary",
          p.name(v), options)


def dropout(p):
    v = p.pick(lambda v: not v.uneven)
    if v is None:
        return
    probability, name = p.r.choice([0.0, 0.1, 0.5, 0.9]), f"site.{p.r.randrange(3)}"
    dim = p.r.randrange(-1, len(v.shape)) if not v.same else -1
    module = nxd.Dropout(p.context, probability, name, dim)
    if p.r.random() < 0.3:
        module.train(False)
        p.add(module(v.tensor), v.simulated, v.same, "dropout in evaluation", p.name(v))
        return
    shape = [n * p.ranks if k == dim else n for k, n in enumerate(v.shape)]
    kept = torch.from_numpy(dropped(p.context, name, probability, shape, p.context.step))

    def simulate(xs):
        return [x * (part(kept, dim, k, len(xs)) if dim >= 0 else kept) for k, x in enumerate(xs)]
    p.add(module(v.tensor), p.simulator.run(simulate, v.simulated), v.same, "dropout", p.name(v), probability, dim)


def region(p):
    which = p.r.randrange(7)
    v = p.pick(lambda v: len(v.shape) >= 1 and not v.uneven)
    if v is None:
        return
    dims = len(v.shape)
    dim = p.r.randrange(dims) if which >= 4 else dims - 1
    if which in (2, 4, 6) and v.shape[dim] % p.ranks or (which in (2, 4) and not v.same):
        return
    given = dim - dims if p.r.random() < 0.3 else dim
    model = p.r.random() < 0.5
    calls = [(nxd.copy_to_tensor_region, (), copy_to, v.same), (nxd.reduce_from_tensor_region, (), reduce_from, True),
             (nxd.scatter_to_tensor_region, (), lambda xs: scatter(xs, dim), False),
             (nxd.gather_from_tensor_region, (), lambda xs: gather(xs, dim, False), True),
             (nxd.scatter_to_sequence_region, (given,), lambda xs: scatter(xs, dim), False),
             (nxd.gather_from_sequence_region, (given, model), lambda xs: gather(xs, dim, model), True),
             (nxd.reduce_scatter_to_sequence_region, (given,), lambda xs: reduce_scatter(xs, dim), False)]
    call, arguments, simulate, same = calls[which]
    p.add(call(p.context, v.tensor, *arguments), p.simulator.run(simulate, v.simulated), same, call.__name__, p.name(v),
          arguments)


def plain(p):
    v = p.pick(lambda v: not v.is_loss)
    if v is None:
        return
    name = p.r.choice(["silu", "tanh", "gelu", "mul", "add", "self", "scale", "sum", "softmax", "detach", "transpose",
                       "slice", "reshape", "cat", "expand", "select"])
    s, t = p.simulator, v.tensor
    if name in ("silu", "tanh", "gelu"):
        f = {"silu": F.silu, "tanh": torch.tanh, "gelu": F.gelu}[name]
        p.add(nxd.ops.call(name, "", t), s.run(lambda xs: [f(x) for x in xs], v.simulated), v.same, name, p.name(v))
    elif name in ("mul", "add"):
        w = p.pick(lambda u: u.shape == v.shape and u.uneven == v.uneven and not u.uneven and not u.is_loss)
        if w is None:
            return
        f = torch.mul if name == "mul" else torch.add
        p.add(nxd.ops.call(name, "Tensor", t, w.tensor), s.run(lambda xs, ys: [f(x, y) for x, y in zip(xs, ys)],
              v.simulated, w.simulated), v.same and w.same, name, p.name(v), p.name(w))
    elif name == "self":
        p.add(nxd.ops.call("mul", "Tensor", t, t), s.run(lambda xs: [x * x for x in xs], v.simulated), v.same,
              "square", p.name(v))
    elif name == "scale":
        p.add(nxd.ops.call("mul", "Scalar", t, -0.5), s.run(lambda xs: [x * -0.5 for x in xs], v.simulated), v.same,
              "scale", p.name(v))
    elif name == "sum":
        d = len(v.shape)
        if d:
            p.add(nxd.ops.call("sum", "dim_IntList", t, dim=[0]), s.run(lambda xs: [s.sum(x) for x in xs], v.simulated),
                  v.same, "sum", p.name(v))
    elif name == "detach":
        p.add(t.detach(), s.run(lambda xs: [x.detach() for x in xs], v.simulated), v.same, "detach", p.name(v))
    else:
        shaped(p, name, v)


def shaped(p, name, v):
    s, t, d = p.simulator, v.tensor, len(v.shape)
    if not d:
        return
    k = p.r.randrange(d)
    if name == "transpose":
        j = p.r.randrange(d)
        p.add(nxd.ops.call("transpose", "int", t, j, k), s.run(lambda xs: [x.transpose(j, k) for x in xs], v.simulated,
              noise=False), v.same, "transpose", p.name(v), j, k)
    elif name == "slice" and not v.uneven and v.shape[k] > 1:
        step = p.r.choice([1, 2])
        n = v.shape[k] // 2 if step == 1 else v.shape[k]

        def cut(x):
            index = [slice(None)] * x.dim()
            index[k] = slice(0, n, step)
            return x[tuple(index)]
        p.add(nxd.ops.call("slice", "Tensor", t, dim=k, start=0, end=n, step=step),
              s.run(lambda xs: [cut(x) for x in xs], v.simulated, noise=False), v.same, "slice", p.name(v), k, n, step)
    elif name == "select" and not v.uneven and v.shape[k] > 0:
        p.add(nxd.ops.call("select", "int", t, dim=k, index=v.shape[k] - 1),
              s.run(lambda xs: [x.select(k, -1) for x in xs], v.simulated, noise=False), v.same, "select", p.name(v), k)
    elif name == "reshape" and d >= 2 and not v.uneven and 0 not in v.shape:
        shape = v.shape[:k] + [v.shape[k] * v.shape[k + 1]] + v.shape[k + 2:] if k + 1 < d else v.shape + [1]
        p.add(nxd.ops.call("reshape", "", t, shape), s.run(lambda xs: [x.reshape(shape) for x in xs], v.simulated,
              noise=False), v.same, "reshape", p.name(v), shape)
    elif name == "cat" and not v.uneven:
        w = p.pick(lambda u: u.shape == v.shape and not u.uneven) or v
        p.add(nxd.ops.call("cat", "", [t, w.tensor], k), s.run(lambda xs, ys: [torch.cat([x, y], k) for x, y in
              zip(xs, ys)], v.simulated, w.simulated, noise=False), v.same and w.same, "cat", p.name(v), p.name(w), k)
    elif name == "softmax":
        p.add(nxd.ops.call("softmax", "int", t, dim=k), s.run(lambda xs: [s.softmax(x, k) for x in xs], v.simulated),
              v.same, "softmax", p.name(v), k)
    elif name == "expand" and not v.uneven and d <= 3:
        shape = [2] + v.shape
        p.add(nxd.ops.call("expand", "", t, shape), s.run(lambda xs: [x.expand(shape) for x in xs], v.simulated,
              noise=False), v.same, "expand", p.name(v))

"""Layers of the library with drawn options, beside what they are on all ranks of a simulation."""
import torch
import torch.nn.functional as F

import nxd
from rotary import rotate
from simulate import copy_to, gather, reduce_from, reduce_scatter, scatter

ON, OFF = 1, 2


def nearly_equal(n, rank, ranks):
    return range(n * rank // ranks, n * (rank + 1) // ranks)


class Weights:
    """Parameters of a layer: whole values, and what each rank has of them."""

    def __init__(self, program):
        self.program, self.named, self.frozen = program, {}, set()

    def add(self, name, whole, rows=None, dim=0, over=None):
        """rows[rank]: indices along dim that the rank has, -1 for padding; None: all. over: ranks whose gradients
        are summed in the end, by the rank."""
        def shard(k):
            if rows is None:
                return whole
            index = torch.tensor([max(i, 0) for i in rows[k]], dtype=torch.long)
            keep = torch.tensor([float(i >= 0) for i in rows[k]], dtype=torch.float64)
            shape = [1] * whole.dim()
            shape[dim] = -1
            return whole.index_select(dim, index) * keep.reshape(shape)
        padding = None if rows is None else [[i < 0 for i in r] for r in rows]
        simulated = self.program.simulator.leaf([shard(k) for k in range(self.program.ranks)], True)
        self.named[name] = whole, simulated, over, padding, dim
        return simulated

    def set_in(self, module, prefix=""):
        """Gives the library's module these values."""
        have = {p.name: p for p in module.parameters()}
        if set(have) != {prefix + n for n in self.named}:
            raise AssertionError(f"parameters {sorted(have)} for {sorted(self.named)}")
        for name, (whole, *_) in self.named.items():
            have[prefix + name].set_full(self.program.tensor(whole))
        self.handles = {name: have[prefix + name] for name in self.named}
        if self.program.r.random() < 0.2:
            self.freeze(self.program.r.sample(sorted(self.named), self.program.r.randrange(len(self.named) + 1)))

    def freeze(self, names):
        """They get no gradient."""
        self.frozen.update(names)
        for name in names:
            self.handles[name].set_trainable(False)
            simulated = self.named[name][1]
            self.program.simulator.leaves = [each for each in self.program.simulator.leaves if each is not simulated]
            for ranks in simulated.copies:
                for x in ranks:
                    x.requires_grad_(False)

    def trained(self):
        """(name, whole, simulated, over, padding, dim) of each that gets a gradient."""
        return [(name, *each) for name, each in self.named.items() if name not in self.frozen]


class Layer:
    """forward(*variables) runs both; at most one call of the library's module."""

    def __init__(self, program):
        self.p, self.r, self.n = program, program.r, program.ranks
        self.weights, self.affine = Weights(program), program.simulator.affine

    def finish(self, module, recompute):
        self.root = module
        self.outputs_of_tape = getattr(self, "outputs", 1)
        if self.p.device != "cpu":
            module.move_to(self.p.device)
        self.weights.set_in(module)
        self.module = module
        if recompute:
            self.module = nxd.Sequential(self.p.context, module, num_outputs=1)
            self.module.checkpoint(["0"])

    def whole(self, *shape):
        return self.p.numbers(shape, 0.5)


def split_rows(n, ranks, stride=1):
    """With stride blocks each, as Megatron's."""
    each = -(-n // (ranks * stride))
    return [[b * each * ranks + k * each + i if b * each * ranks + k * each + i < n else -1 for b in range(stride)
             for i in range(each)] for k in range(ranks)]


class Column(Layer):
    def __init__(self, program, features, sequence_dim):
        super().__init__(program)
        r, n = self.r, self.n
        self.dim = sequence_dim
        self.stride = r.choice([1, 1, 2])
        pad = r.random() < 0.3
        self.gather = sequence_dim is None and self.stride == 1 and r.random() < 0.4
        out = r.choice([1, 2, 3, 5]) * (1 if pad else n * self.stride)
        if pad and self.stride > 1:
            self.stride = 1
        bias, self.skip = r.random() < 0.6, r.random() < 0.2
        rows = split_rows(out, n, self.stride)
        self.out = out
        self.w = self.weights.add("weight", self.whole(out, features), rows)
        self.b = None
        if bias:
            self.b = self.weights.add("bias", self.whole(out), None if self.gather else rows)
        self.outputs = 2 if self.skip and bias and r.random() < 0.7 else 1
        self.finish(nxd.ColumnParallelLinear(
            program.context, features, out, dtype=program.dtype, bias=ON if bias else OFF,
            gather_output=(ON if self.gather else OFF) if r.random() < 0.7 or not self.gather else 0,
            sequence_parallel=int(sequence_dim is not None), sequence_dim=sequence_dim or 0,
            skip_bias_add=int(self.skip), stride=self.stride, pad=int(pad)), r.random() < 0.2 and self.outputs == 1)

    def simulate(self, xs, ws, bs):
        xs = gather(xs, self.dim, True) if self.dim is not None else copy_to(xs)
        add = [None] * len(xs) if self.skip or bs is None else bs
        if not self.gather:
            return [self.affine(x, w, b) for x, w, b in zip(xs, ws, add)]
        ys = gather([self.p.simulator.off(self.affine(x, w, None)) for x, w in zip(xs, ws)], -1, False)
        ys = [y[..., :self.out] for y in ys]
        return [y if b is None else y + b for y, b in zip(ys, add)]


class Row(Layer):
    def __init__(self, program, features, parallel, sequence_dim, each):
        """features: those of the whole input; parallel: it is split already, each features on a rank."""
        super().__init__(program)
        r, n = self.r, self.n
        self.dim, self.parallel = sequence_dim, parallel
        self.stride = r.choice([1, 1, 2]) if parallel and features % (2 * n) == 0 else 1
        pad = features % n != 0 or r.random() < 0.2
        out = r.choice([1, 2, 3, 5])
        bias, self.skip = r.random() < 0.6, r.random() < 0.2
        self.reduce = sequence_dim is not None or r.random() < 0.85
        rows = split_rows(features, n, self.stride)
        self.w = self.weights.add("weight", self.whole(out, features), rows, 1)
        everybody = [list(range(n))] * n if sequence_dim is not None else None
        self.b = self.weights.add("bias", self.whole(out), over=everybody) if bias else None
        self.each = len(rows[0])
        self.outputs = 2 if self.skip and bias and r.random() < 0.7 else 1
        self.finish(nxd.RowParallelLinear(
            program.context, features, out, dtype=program.dtype, bias=ON if bias else OFF,
            reduce_output=ON if self.reduce else OFF, input_is_parallel=int(parallel),
            sequence_parallel=int(sequence_dim is not None), sequence_dim=sequence_dim or 0,
            skip_bias_add=int(self.skip), stride=self.stride, pad=int(pad)), r.random() < 0.2 and self.outputs == 1)

    def simulate(self, xs, ws, bs):
        if not self.parallel:
            lacking = self.each * self.n - xs[0].shape[-1]
            xs = scatter([F.pad(x, (0, lacking)) for x in xs], -1)
        ys = [self.affine(x, w, None) for x, w in zip(xs, ws)]
        if self.dim is not None:
            ys = reduce_scatter(ys, self.dim)
        elif self.reduce:
            ys = reduce_from(ys)
        add = bs is not None and not self.skip and self.reduce
        return [y + b for y, b in zip(ys, bs)] if add else ys


class Linear(Layer):
    def __init__(self, program, features):
        super().__init__(program)
        r, n = self.r, self.n
        parallel, bias, self.skip = r.random() < 0.3, r.random() < 0.6, r.random() < 0.2
        out = r.choice([1, 2, 4])
        over = [list(range(n))] * n if parallel else None
        self.w = self.weights.add("weight", self.whole(out, features), over=over)
        self.b = self.weights.add("bias", self.whole(out), over=over) if bias else None
        self.outputs = 2 if self.skip and bias and r.random() < 0.7 else 1
        self.finish(nxd.Linear(program.context, features, out, dtype=program.dtype, bias=ON if bias else OFF,
                               sequence_parallel=int(parallel), skip_bias_add=int(self.skip)),
                    r.random() < 0.2 and self.outputs == 1)

    def simulate(self, xs, ws, bs):
        add = [None] * len(xs) if self.skip or bs is None else bs
        return [self.affine(x, w, b) for x, w, b in zip(xs, ws, add)]


class Norm(Layer):
    def __init__(self, program, features):
        super().__init__(program)
        r, n = self.r, self.n
        self.is_layer, parallel = r.random() < 0.5, r.random() < 0.3
        has, bias = r.random() < 0.8, r.random() < 0.7
        self.eps = r.choice([0, 1e-5, 0.1])
        over = [list(range(n))] * n if parallel else None
        self.w = self.weights.add("weight", self.whole(features), over=over) if has else None
        self.b = self.weights.add("bias", self.whole(features), over=over) if has and bias and self.is_layer else None
        options = dict(dtype=program.dtype, eps=self.eps, affine=ON if has else OFF, bias=OFF if self.b is None else ON,
                       sequence_parallel=int(parallel))
        self.eps = self.eps or 1e-5
        self.finish((nxd.LayerNorm if self.is_layer else nxd.RmsNorm)(program.context, features, **options),
                    r.random() < 0.3)

    def simulate(self, xs, residuals, ws, bs):
        sums = [self.p.simulator.off(x + y) for x, y in zip(xs, residuals)] if residuals else xs
        out = []
        for k, x in enumerate(sums):
            c = x - x.mean(-1, keepdim=True) if self.is_layer else x
            wide = self.p.simulator.wide
            c = wide(c)
            y = c * wide(1 / torch.sqrt((c * c).mean(-1, keepdim=True) + self.eps))
            y = wide(y) * ws[k] if ws else y
            out.append(y + bs[k] if bs else y)
        return out, sums


class Embedding(Layer):
    def __init__(self, program, sequence_dim, dims):
        super().__init__(program)
        r, n = self.r, self.n
        self.dim = sequence_dim
        self.columns = r.random() < 0.3
        self.count = r.choice([1, 2, 3]) * n
        self.size = r.choice([1, 2, 3]) * (n if self.columns else 1)
        self.padding = r.choice([None, None, 0, self.count - 1])
        table = self.whole(self.count, self.size)
        self.w = self.weights.add("weight", table, split_rows(self.size if self.columns else self.count, n),
                                  1 if self.columns else 0)
        self.finish(nxd.ParallelEmbedding(
            program.context, self.count, self.size, dtype=program.dtype, padding_idx=self.padding or 0,
            has_padding_idx=int(self.padding is not None), shard_across_embedding=int(self.columns),
            sequence_parallel=int(sequence_dim is not None), sequence_dim=sequence_dim or 0), False)

    def simulate(self, ids, ws):
        ids = ids[0]
        ys = []
        for k, w in enumerate(ws):
            first = 0 if self.columns else k * w.shape[0]
            local = ids - first
            held = (local >= 0) & (local < w.shape[0])
            rows = w[torch.where(held, local, torch.zeros_like(local))]
            if self.padding is not None:
                rows = torch.where((ids == self.padding)[..., None], rows.detach(), rows)
            ys.append(torch.where(held[..., None], rows, torch.zeros(()).double()))
        if self.columns:
            ys = gather(ys, -1, False)
            return scatter(ys, self.dim) if self.dim is not None else ys
        return reduce_scatter(ys, self.dim) if self.dim is not None else reduce_from(ys)


class Heads:
    """Each rank's query and key heads."""

    def __init__(self, heads, keys, ranks):
        each = heads // keys
        self.queries, self.keys, self.over = [], [], None
        if keys >= ranks:
            self.keys = [list(nearly_equal(keys, k, ranks)) for k in range(ranks)]
            self.queries = [[h * each + i for h in own for i in range(each)] for own in self.keys]
            return
        key = [k * keys // ranks for k in range(ranks)]
        self.over = [[j for j in range(ranks) if key[j] == key[k]] for k in range(ranks)]
        self.keys = [[h] for h in key]
        for k in range(ranks):
            place = self.over[k].index(k)
            own = nearly_equal(each, place, len(self.over[k]))
            self.queries.append([key[k] * each + i for i in own])


def features(heads, d):
    return [[h * d + i for h in own for i in range(d)] for own in heads]


def drawn_heads(r, ranks, fused):
    for _ in range(100):
        keys = r.choice([1, 2, 3, 4, 6])
        heads = keys * r.choice([1, 1, 2, 3])
        least = -(-ranks // keys) * keys
        if heads >= least and not (fused and keys < ranks):
            return heads, keys
    return ranks, ranks


def rope_options(r, head_dim):
    kind = r.choice([0, 0, 1, 2, 3, 4])
    o = dict(type=kind, theta=r.choice([0, 10000.0, 500.0]))
    turned = r.choice([0, 0, head_dim, head_dim // 2 // 2 * 2])
    o["rotary_dim"] = turned if turned >= 4 or not turned else 0
    if kind:
        o["factor"] = r.choice([2.0, 4.0, 1.0])
    if kind in (2, 3, 4):
        o["original_max_position_embeddings"] = r.choice([2, 4, 64])
    if kind == 4:
        o["low_freq_factor"], o["high_freq_factor"] = r.choice([(0, 0), (1.0, 2.0)])
    if kind == 3:
        o["attention_factor"] = r.choice([0, 1.5])
        o["beta_fast"] = r.choice([0, 16.0])
    return o


class Attention(Layer):
    def __init__(self, program, hidden, parallel):
        super().__init__(program)
        r, n = self.r, self.n
        self.parallel = parallel
        heads, keys = drawn_heads(r, n, False)
        self.d = r.choice([4, 8, 16, 64] if program.is_big else [4, 8])
        self.causal = r.random() < 0.6
        self.rope = rope_options(r, self.d) if r.random() < 0.6 else None
        qkv_bias, out_bias = r.random() < 0.4, r.random() < 0.4
        self.each = heads // keys
        self.heads = share = Heads(heads, keys, n)
        d, add = self.d, self.weights.add
        q, k = features(share.queries, d), features(share.keys, d)
        self.named = {}
        for name, count, rows, over in (("q_proj", heads, q, None), ("k_proj", keys, k, share.over),
                                        ("v_proj", keys, k, share.over)):
            self.named[name] = add(name + ".weight", self.whole(count * d, hidden), rows, over=over)
            if qkv_bias:
                self.named[name + "b"] = add(name + ".bias", self.whole(count * d), rows, over=over)
        self.named["o"] = add("o_proj.weight", self.whole(hidden, heads * d), q, 1)
        if out_bias:
            self.named["ob"] = add("o_proj.bias", self.whole(hidden),
                                   over=[list(range(n))] * n if parallel else None)
        self.finish(nxd.Attention(
            program.context, hidden, heads, dtype=program.dtype, num_kv_heads=keys, head_dim=d,
            rope=self.rope, causal=ON if self.causal else OFF, qkv_bias=ON if qkv_bias else OFF,
            output_bias=ON if out_bias else OFF, sequence_parallel=int(parallel)), r.random() < 0.2)

    def simulate(self, xs, mask, *parts):
        named = dict(zip(self.named, parts))
        xs = gather(xs, 0, True) if self.parallel else copy_to(xs)
        ys, off = [], self.p.simulator.off
        for k, x in enumerate(xs):
            def heads(name):
                b = named.get(name + "b")
                y = off(self.affine(x, named[name][k], None if b is None else b[k]))
                y = y.unflatten(-1, (-1, self.d)) if y.numel() else y.reshape(*y.shape[:-1], -1, self.d)
                return y
            q, key, v = heads("q_proj"), heads("k_proj"), heads("v_proj")
            at = 0 if self.parallel else 1
            if self.rope is not None:
                q, key = off(rotate(q, self.rope, at)), off(rotate(key, self.rope, at))
            if self.parallel:
                q, key, v = (t.transpose(0, 1) for t in (q, key, v))
            q, key, v = (t.transpose(1, 2) for t in (q, key, v))  # [b, h, s, d]
            each = q.shape[1] // key.shape[1]
            key, v = (t.repeat_interleave(each, 1) for t in (key, v))
            scores = self.p.simulator.product(q, key.transpose(-1, -2)) / self.d ** 0.5
            s = scores.shape[-1]
            seen = torch.ones(s, s, dtype=torch.bool).tril() if self.causal else torch.ones(s, s, dtype=torch.bool)
            if mask is not None:
                seen = seen & (mask[0] != 0)[:, None, None, :]
            scores = scores.masked_fill(~seen, float("-inf"))
            seen_by = off(self.p.simulator.softmax(scores, -1))
            out = off(self.p.simulator.product(seen_by, v).transpose(1, 2).flatten(2))
            out = out.transpose(0, 1) if self.parallel else out
            ys.append(self.affine(out, named["o"][k], None))
        ys = reduce_scatter(ys, 0) if self.parallel else reduce_from(ys)
        return [y + b for y, b in zip(ys, named["ob"])] if "ob" in named else ys


class Qkv(Layer):
    def __init__(self, program, hidden, parallel):
        super().__init__(program)
        r, n = self.r, self.n
        self.parallel, self.fusion = parallel, r.choice([0, 1, 2])
        heads, keys = drawn_heads(r, n, self.fusion != 0)
        if self.fusion and keys < n:
            self.fusion = 0
        self.d = d = r.choice([1, 2, 4])
        self.each = heads // keys
        bias = r.random() < 0.5
        self.heads = share = Heads(heads, keys, n)
        q, k = features(share.queries, d), features(share.keys, d)
        self.q, self.k = [len(v) for v in q], [len(v) for v in k]
        self.named = {}
        if self.fusion == 0:
            for name, count, rows, over in (("q_proj", heads, q, None), ("k_proj", keys, k, share.over),
                                            ("v_proj", keys, k, share.over)):
                self.named[name] = self.weights.add(name + ".weight", self.whole(count * d, hidden), rows, over=over)
                if bias:
                    self.named[name + "b"] = self.weights.add(name + ".bias", self.whole(count * d), rows, over=over)
        else:
            if self.fusion == 1:
                rows = [a + [heads * d + i for i in b] + [(heads + keys) * d + i for i in b] for a, b in zip(q, k)]
            else:
                block = (self.each + 2) * d
                rows = [[h * block + i for h in own for i in range(block)] for own in share.keys]
            total = (heads + 2 * keys) * d
            self.named["w"] = self.weights.add("weight", self.whole(total, hidden), rows)
            if bias:
                self.named["wb"] = self.weights.add("bias", self.whole(total), rows)
        self.finish(nxd.QkvLinear(program.context, hidden, heads, dtype=program.dtype, num_kv_heads=keys, head_dim=d,
                                  fusion=self.fusion, bias=ON if bias else OFF, sequence_parallel=int(parallel)), False)

    def simulate(self, xs, *parts):
        named = dict(zip(self.named, parts))
        xs = gather(xs, 0, True) if self.parallel else copy_to(xs)
        outs = [], [], []
        for k, x in enumerate(xs):
            def product(name):
                b = named.get(name + "b")
                return self.affine(x, named[name][k], None if b is None else b[k])
            if self.fusion == 0:
                three = [product(n).reshape(*x.shape[:-1], -1, self.d) for n in ("q_proj", "k_proj", "v_proj")]
            else:
                y = product("w")
                lead = list(x.shape[:-1])
                keys = self.k[k] // self.d
                if self.fusion == 1:
                    three = [t.reshape(lead + [t.shape[-1] // self.d, self.d])
                             for t in y.split([self.q[k], self.k[k], self.k[k]], -1)]
                else:
                    y = y.reshape(lead + [keys, self.each + 2, self.d])
                    three = [y[..., :self.each, :].reshape(lead + [keys * self.each, self.d]), y[..., self.each, :],
                             y[..., self.each + 1, :]]
            for out, t in zip(outs, three):
                out.append(t)
        return outs


ACTIVATIONS = [F.silu, F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.relu]


class Mlp(Layer):
    def __init__(self, program, hidden, parallel):
        super().__init__(program)
        r, n = self.r, self.n
        self.parallel, self.which = parallel, r.randrange(4)
        inner = r.choice([n, n + 1, 2 * n, 2 * n + 3])
        rows = [list(nearly_equal(inner, k, n)) for k in range(n)]
        bias = r.random() < 0.5
        over = [list(range(n))] * n if parallel else None
        add = self.weights.add
        self.named = {"gate": add("gate_proj.weight", self.whole(inner, hidden), rows),
                      "up": add("up_proj.weight", self.whole(inner, hidden), rows),
                      "down": add("down_proj.weight", self.whole(hidden, inner), rows, 1)}
        if bias:
            self.named.update(gateb=add("gate_proj.bias", self.whole(inner), rows),
                              upb=add("up_proj.bias", self.whole(inner), rows),
                              downb=add("down_proj.bias", self.whole(hidden), over=over))
        self.finish(nxd.GatedMlp(program.context, hidden, inner, dtype=program.dtype, activation=self.which,
                                 bias=ON if bias else OFF, sequence_parallel=int(parallel)), r.random() < 0.2)

    def simulate(self, xs, *parts):
        named = dict(zip(self.named, parts))
        xs = gather(xs, 0, True) if self.parallel else copy_to(xs)

        def product(name, x, k):
            b = named.get(name + "b")
            return self.affine(x, named[name][k], None if b is None else b[k])
        off = self.p.simulator.off
        ys = [self.affine(off(ACTIVATIONS[self.which](off(product("gate", x, k))) * off(product("up", x, k))),
                          named["down"][k], None) for k, x in enumerate(xs)]
        ys = reduce_scatter(ys, 0) if self.parallel else reduce_from(ys)
        return [y + b for y, b in zip(ys, named["downb"])] if "downb" in named else ys

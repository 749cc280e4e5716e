"""Draws calls of layers over buffers, with the results that a whole layer of one process has."""
import numpy as np

from bounds import ROUNDOFF, Result, Same, product, roundoff, wide
from memory import FLOATS, Array, round_to


class Call:
    """A call of one rank: arrays in the order of the function, and what is expected of outputs."""

    def __init__(self, function, struct=None):
        self.function, self.struct = function, struct
        self.leading, self.inputs, self.options, self.outputs, self.expected = [], [], {}, [], {}
        self.has_workspace = struct is not None
        self.in_place = None  # an output that is the very array of an input: their names

    def input(self, name, array):
        self.inputs.append((name, array))
        return array

    def output(self, name, array, result):
        self.outputs.append((name, array))
        if array is not None:
            self.expected[name] = result
        return array

    def arrays(self):
        """All arrays that there are, by their names."""
        for name, array in self.inputs + self.outputs:
            for k, each in enumerate(array if isinstance(array, list) else [array]):
                if each is not None:
                    yield (f"{name}[{k}]" if isinstance(array, list) else name), each, (name, array) in self.outputs


class Draw:
    """One call, drawn alike by all ranks: r is the ranks' common random.Random, g numpy's."""

    def __init__(self, r, g, ranks, rank, reduce_dtype="f32", step=(0, 0)):
        self.r, self.g, self.ranks, self.rank = r, g, ranks, rank
        self.reduce_dtype, self.step = reduce_dtype, step
        self.dtype = r.choice(["f32", "f32", "f64", "bf16", "bf16", "f16"])
        self.exact = r.random() < 0.4
        self.scale = r.choice([0.25, 1, 1, 3])
        self.big = r.random() < 0.04

    # Shapes.

    def size(self, least=0):
        r = self.r
        if self.big:
            return r.choice([32, 40, 64, 70])
        n = r.choice([1, 2, 3, 4, 5, 7, 8, 16, 17, 33]) if r.random() < 0.93 else r.choice([0, 0, 1])
        return max(n, least)

    def rows(self, least_dims=0):
        """The sizes in front of features."""
        r = self.r
        n = max(r.choice([0, 1, 1, 2, 2, 2, 3]), least_dims)
        return [r.choice([1, 2, 3, 4, 5, 7]) if r.random() < 0.93 else 0 for _ in range(n)]

    # Values.

    def numbers(self, shape, dtype=None, scale=None):
        dtype = dtype or self.dtype
        if self.exact:
            return self.g.integers(-2, 3, shape).astype(np.float64)
        return round_to(self.g.standard_normal(shape) * (self.scale if scale is None else scale), dtype)

    def floats(self, shape, dtype=None, scale=None):
        """An input, sometimes of values that fit a broadcast, or windows that overlap."""
        r, shape = self.r, tuple(shape)
        n = len(shape)
        way = r.random()
        if way < 0.12 and n and shape:
            d = r.randrange(n)
            small = self.numbers([1 if k == d else s for k, s in enumerate(shape)], dtype, scale)
            return Array(shape, dtype or self.dtype, np.broadcast_to(small, shape), constant=(d,))
        if way < 0.2 and n >= 2 and 0 not in shape:
            flat = self.numbers(list(shape[:-2]) + [shape[-2] + shape[-1]], dtype, scale)
            i, j = np.indices(shape[-2:])
            return Array(shape, dtype or self.dtype, flat[..., i + j], window=True)
        return Array(shape, dtype or self.dtype, self.numbers(shape, dtype, scale))

    def grad_dtype(self):
        return self.r.choice([self.dtype, "f32"]) if self.dtype in ("bf16", "f16") else self.dtype

    def part(self, values, dim, rank=None):
        """This rank's part of values along a dimension."""
        n = values.shape[dim] // self.ranks
        k = self.rank if rank is None else rank
        return np.take(values, range(k * n, (k + 1) * n), axis=dim)

    def part_of(self, array, dim):
        """This rank's part of an input; windows and equal values stay such."""
        values = self.part(array.values, dim)
        constant = tuple(d for d in array.constant if d != dim % len(array.shape))
        return Array(values.shape, array.dtype, values, constant=constant if constant == array.constant else (),
                     window=array.window)

    def sum(self, whole, error, magnitude=None, partial=None):
        """The error of a sum over ranks, given that of its products: partial holds the ranks' own sums."""
        if self.exact and not (self.reduce_dtype == "bf16" and self.dtype == "bf16"):
            return error
        extra = self.ranks * roundoff(self.dtype) * sum(np.abs(p) for p in partial)
        if self.reduce_dtype == "bf16" and self.dtype == "bf16" and self.ranks > 1:
            extra = extra + (1 + self.ranks) * ROUNDOFF["bf16"] * sum(np.abs(p) for p in partial)
        return error + extra

    def added(self, shape, dtype, accumulate):
        """Memory of a gradient: numbers to add to, or whatever lies there."""
        if not accumulate:
            return Array(shape, dtype), 0.0
        old = round_to(self.numbers(shape, dtype), dtype)
        return Array(shape, dtype, old), old

    def gradient(self, call, name, values, error, dtype, accumulate, wanted=True, passes=1):
        """An output that may be left out, and may be added to what is there, in so many passes."""
        values = np.asarray(values, np.float64)
        if not wanted:
            call.output(name, None, None)
            return
        array, old = self.added(values.shape, dtype, accumulate)
        if accumulate and not self.exact:
            error = error + passes * roundoff(dtype) * (np.abs(old) + np.abs(values))
        call.output(name, array, Result(old + values, error, dtype, self.exact))

    def rounds_parts(self):
        return self.reduce_dtype == "bf16" and self.dtype == "bf16" and self.ranks > 1


def flat(values):
    return values.reshape(-1, values.shape[-1]) if values.size else np.zeros((int(np.prod(values.shape[:-1])),
            values.shape[-1]))


def exact_sum(d):
    return d.exact and not d.rounds_parts()


def sequence(d, lead):
    """A dimension that ranks share, and lead with sizes that divide: for the whole array."""
    dim = d.r.randrange(len(lead))
    lead[dim] = lead[dim] * d.ranks
    return dim


def signed(d, dim, dims):
    return dim if d.r.random() < 0.5 else dim - dims


def column_linears(d):
    """Forward or backward, of one weight or of several."""
    r, several = d.r, d.r.random() < 0.35
    count = r.choice([1, 2, 3]) if several else 1
    backward = r.random() < 0.6
    gather = r.random() < 0.3
    parallel = not gather and r.random() < 0.4
    transposed, accumulate = r.random() < 0.4, r.random() < 0.4
    lead, features = d.rows(1 if parallel else 0), d.size()
    dim = sequence(d, lead) if parallel else 0
    call = Call("nxd_column_linear" + ("s" if several else "") + ("_backward" if backward else "_forward"),
                "nxd_column_linear_options_t")
    call.count = count if several else None
    call.options = dict(gather_output=int(gather), sequence_parallel=int(parallel),
                        sequence_dim=signed(d, dim, len(lead) + 1) if parallel else r.choice([0, 5]),
                        transposed_weight=int(transposed), accumulate_grads=int(accumulate))
    x = d.floats(lead + [features])
    call.input("x", d.part_of(x, dim) if parallel else x)
    outs = [d.size() * d.ranks for _ in range(count)]
    weights = [d.floats([features, n] if transposed else [n, features]) for n in outs]
    by_out = [w.values.T if transposed else w.values for w in weights]  # [out, in]
    mine = [d.part_of(w, 1 if transposed else 0) for w in weights]
    one = (lambda v: v) if several else (lambda v: v[0])
    call.input("weights" if several else "weight", one(mine))
    if not backward:
        _column_forward(d, call, x, by_out, lead, gather, one, several)
    else:
        _column_backward(d, call, x, by_out, mine, lead, dim if parallel else None, gather, accumulate, one, several)
    return call


def _column_forward(d, call, x, by_out, lead, gather, one, several):
    r = d.r
    biases = [d.floats([w.shape[0]]) if r.random() < 0.6 else None for w in by_out]
    keep = (lambda v: v) if gather else (lambda v: d.part(v, -1))
    given = [None if b is None else (b if gather else d.part_of(b, 0)) for b in biases]
    call.input("biases" if several else "bias", one(given))
    ys, results = [], []
    for w, b in zip(by_out, biases):
        value = flat(x.values) @ w.T
        error = product(flat(x.values), w.T, w.shape[1], d.dtype, d.exact)
        if b is not None:
            value = value + b.values
            error = error + (0 if d.exact else roundoff(d.dtype) * (np.abs(value) + np.abs(b.values)))
        value, error = (keep(v.reshape(lead + [w.shape[0]])) for v in (value, error))
        ys.append(Array(value.shape, d.dtype))
        results.append(Result(value, error, d.dtype, d.exact))
    call.output("ys" if several else "y", one(ys), one(results))


def _column_backward(d, call, x, by_out, mine, lead, dim, gather, accumulate, one, several):
    r = d.r
    dys = [d.floats(lead + [w.shape[0]]) for w in by_out]
    call.input("grad_ys" if several else "grad_y", one([dy if gather else d.part_of(dy, -1) for dy in dys]))
    want_x = r.random() < 0.7
    values, error, partial = 0.0, 0.0, [0.0] * d.ranks
    for w, dy in zip(by_out, dys):
        values = values + flat(dy.values) @ w
        error = error + product(flat(dy.values), w, w.shape[0] + len(by_out), d.dtype, d.exact)
        partial = [p + flat(d.part(dy.values, -1, k)) @ d.part(w, 0, k) for k, p in enumerate(partial)]
    error = d.sum(values, error, partial=partial)
    values, error = (np.broadcast_to(v, (flat(x.values)).shape).reshape(lead + [x.shape[-1]]) for v in (values, error))
    if dim is not None:
        values, error = d.part(values, dim), d.part(error, dim)
    if want_x:
        call.output("grad_x", Array(values.shape, d.dtype), Result(values, error, d.dtype, exact_sum(d)))
    else:
        call.output("grad_x", None, None)
    kind = d.grad_dtype()
    outs = {"grad_weight": [], "grad_bias": []}
    results = {"grad_weight": [], "grad_bias": []}
    for w, dy, shard in zip(by_out, dys, mine):
        own = d.part(dy.values, -1)
        value = flat(own).T @ flat(x.values)
        error = product(flat(own).T, flat(x.values), flat(own).shape[0], d.dtype, d.exact)
        if shard.shape != value.shape or call.options["transposed_weight"]:
            value, error = value.T, error.T
        _wanted(d, outs, results, "grad_weight", value, error, kind, accumulate)
        all_dy = flat(dy.values if gather else own)
        error = 0 if d.exact else (len(all_dy) + 4) * roundoff(d.dtype) * np.abs(all_dy).sum(0)
        _wanted(d, outs, results, "grad_bias", all_dy.sum(0), error, kind, accumulate)
    for name in outs:
        _output_list(call, name, outs[name], results[name], one, several, r)


def _wanted(d, outs, results, name, value, error, kind, accumulate):
    temporary = Call("")
    d.gradient(temporary, name, value, error, kind, accumulate, d.r.random() < 0.7)
    outs[name].append(temporary.outputs[0][1])
    results[name].append(temporary.expected.get(name))


def _output_list(call, name, arrays, results, one, several, r):
    if not several:
        return call.output(name, arrays[0], results[0])
    name = {"grad_weight": "grad_weights", "grad_bias": "grad_biases"}[name]
    if all(a is None for a in arrays) and r.random() < 0.5:
        return call.output(name, None, None)
    call.output(name, arrays, results)


def row_linear(d):
    r = d.r
    backward, parallel_in = r.random() < 0.6, r.random() < 0.7
    parallel = parallel_in and r.random() < 0.5
    transposed, accumulate = r.random() < 0.4, r.random() < 0.4
    lead = d.rows(1 if parallel else 0)
    features, out = d.size() * d.ranks, d.size()
    dim = sequence(d, lead) if parallel else 0
    call = Call("nxd_row_linear" + ("_backward" if backward else "_forward"), "nxd_row_linear_options_t")
    call.options = dict(input_is_parallel=r.choice([0, 1]) if parallel_in else 2, sequence_parallel=int(parallel),
                        sequence_dim=signed(d, dim, len(lead) + 1) if parallel else r.choice([0, 5]),
                        transposed_weight=int(transposed), accumulate_grads=int(accumulate))
    x = d.floats(lead + [features])
    weight = d.floats([features, out] if transposed else [out, features])
    w = weight.values.T if transposed else weight.values
    mine = d.part_of(weight, 0 if transposed else 1)
    call.input("x", d.part_of(x, -1) if parallel_in else x)
    call.input("weight", mine)
    if not backward:
        bias = call.input("bias", d.floats([out]) if r.random() < 0.6 else None)
        value = flat(x.values) @ w.T
        error = product(flat(x.values), w.T, features, d.dtype, d.exact)
        error = d.sum(value, error, partial=[flat(d.part(x.values, -1, k)) @ d.part(w, 1, k).T
                                             for k in range(d.ranks)])
        if bias is not None:
            value = value + bias.values
            error = error + (0 if d.exact else roundoff(d.dtype) * (np.abs(value) + np.abs(bias.values)))
        value, error = (np.broadcast_to(v, flat(value).shape).reshape(lead + [out]) for v in (value, error))
        if parallel:
            value, error = d.part(value, dim), d.part(error, dim)
        call.output("y", Array(value.shape, d.dtype), Result(value, error, d.dtype, exact_sum(d)))
        return call
    dy = d.floats(lead + [out])
    call.input("grad_y", d.part_of(dy, dim) if parallel else dy)
    value = (flat(dy.values) @ w).reshape(lead + [features])
    error = product(flat(dy.values), w, out, d.dtype, d.exact).reshape(lead + [features])
    if parallel_in:
        value, error = d.part(value, -1), d.part(error, -1)
    wants = r.random() < 0.7
    call.output("grad_x", Array(value.shape, d.dtype) if wants else None, Result(value, error, d.dtype, d.exact))
    own = flat(d.part(x.values, -1))
    value, error = flat(dy.values).T @ own, product(flat(dy.values).T, own, len(own), d.dtype, d.exact)
    if transposed:
        value, error = value.T, error.T
    kind = d.grad_dtype()
    d.gradient(call, "grad_weight", value, error, kind, accumulate, r.random() < 0.7)
    rows = flat(dy.values)
    error = 0 if d.exact else (len(rows) + 4) * roundoff(d.dtype) * np.abs(rows).sum(0)
    d.gradient(call, "grad_bias", rows.sum(0), error, kind, accumulate, r.random() < 0.7)
    return call


def ids(d, shape, count, besides=None):
    """Ids below count, some of them the one besides."""
    r = d.r
    values = d.g.integers(0, max(count, 1), shape)
    if r.random() < 0.3:
        values = np.minimum(values, d.g.integers(0, max(count, 1)))
    if besides is not None:
        values = np.where(d.g.random(shape) < 0.3, besides, values)
    shape = tuple(shape)
    if r.random() < 0.1 and shape:
        k = r.randrange(len(shape))
        values = np.broadcast_to(np.take(values, [0], k) if 0 not in shape else values, shape)
        return Array(shape, r.choice(["i32", "i64"]), values, constant=(k,))
    return Array(shape, r.choice(["i32", "i64"]), values)


def embedding(d):
    r = d.r
    backward, parallel = r.random() < 0.6, r.random() < 0.4
    lead = d.rows(1 if parallel else 0)
    dim = sequence(d, lead) if parallel else 0
    n, hidden = max(d.size(), 1), d.size()
    count = n * d.ranks
    given = r.choice([0, 0, r.randrange(1, count + 1)])
    known = given or count
    padding = r.choice([None, None, 0, r.randrange(known), known - 1])
    accumulate = r.random() < 0.5
    call = Call("nxd_vocab_parallel_embedding" + ("_backward" if backward else "_forward"),
                "nxd_vocab_parallel_embedding_options_t")
    call.options = dict(num_embeddings=given, padding_idx=padding if padding is not None else r.choice([0, 99]),
                        has_padding_idx=int(padding is not None), sequence_parallel=int(parallel),
                        sequence_dim=signed(d, dim, len(lead) + 1) if parallel else r.choice([0, -9]),
                        accumulate_grads=int(accumulate))
    index = call.input("ids", ids(d, lead, known, padding))
    if not backward:
        table = d.numbers([count, hidden])
        if not d.exact:
            table[known:] = np.nan  # never read
        own = d.part(table, 0)
        call.input("weight", Array(own.shape, d.dtype, own))
        value = table[index.values]
        value = d.part(value, dim) if parallel else value
        call.output("y", Array(value.shape, d.dtype), Same(value))
        return call
    dy = d.floats(lead + [hidden])
    call.input("grad_y", d.part_of(dy, dim) if parallel else dy)
    value, magnitude, terms = (np.zeros([count, k]) for k in (hidden, hidden, 1))
    used = index.values.reshape(-1)
    keep = used != padding if padding is not None else np.ones(used.shape, bool)
    np.add.at(value, used[keep], flat(dy.values)[keep])
    np.add.at(magnitude, used[keep], np.abs(flat(dy.values))[keep])
    np.add.at(terms, used[keep], 1)
    error = 0 * value if d.exact else (terms + 1) * roundoff(d.dtype) * magnitude
    kind = d.grad_dtype()
    d.gradient(call, "grad_weight", d.part(value, 0), d.part(error, 0), kind, accumulate)
    return call

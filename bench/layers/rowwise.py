"""Draws calls of norms, losses, dropout, region mappings and shards over buffers; values are PyTorch's in float64."""
import numpy as np
import torch

from bounds import ROUNDOFF, Result, Same, roundoff, wide
from buffers import Call, Draw, flat, ids, sequence, signed
from memory import Array, round_to
from passing import dropped


def norm(d):
    r = d.r
    layer, backward, parallel = r.random() < 0.5, r.random() < 0.6, r.random() < 0.4
    accumulate = r.random() < 0.4
    lead, n = d.rows(1 if parallel else 0), max(d.size(), 1)
    if parallel:
        lead[0] *= d.ranks
    eps = r.choice([0, 1e-5, 1e-3, 1.0, 1e-12 if d.dtype == "f64" else 1e-5])
    call = Call(f"nxd_{'layer' if layer else 'rms'}_norm_{'backward' if backward else 'forward'}",
                "nxd_normalization_options_t")
    call.options = dict(eps=eps, sequence_parallel=int(parallel), accumulate_grads=int(accumulate))
    eps = eps or 1e-5
    mine = (lambda v: d.part(v, 0)) if parallel else (lambda v: v)
    x = d.floats(lead + [n])
    if r.random() < 0.2 and not x.constant and not x.window:  # far from 0
        x.values = round_to(x.values + r.choice([8, -30, 100]), d.dtype)
    weight = d.floats([n]) if r.random() < 0.8 else None
    bias = d.floats([n]) if layer and r.random() < 0.7 else None
    call.input("x", d.part_of(x, 0) if parallel else x)
    call.input("weight", weight)
    u = roundoff(d.dtype)
    v = x.values
    mean = v.mean(-1, keepdims=True) if layer else np.zeros(lead + [1])
    off_mean = (n + 2) * u * np.abs(v).mean(-1, keepdims=True) if layer else 0 * mean
    centred = v - mean
    variance = (centred ** 2).mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(variance + eps)
    off = 0.5 * ((n + 10) * u + 2 * (off_mean ** 2 + off_mean * u * np.abs(v).max(-1, keepdims=True, initial=0)) /
            (variance + eps)) + 4 * u  # relative, of the inverse
    w = weight.values if weight is not None else np.ones(n)
    normed = centred * inverse
    off_normed = inverse * (off_mean + u * (np.abs(centred) + np.abs(mean) * 0)) + np.abs(normed) * (off + 2 * u)
    known = (np.concatenate([mean[None], inverse[None]])[..., 0] if layer else inverse[..., 0])
    off_known = (np.concatenate([off_mean[None], (inverse * off)[None]])[..., 0] if layer else (inverse * off)[..., 0])
    axis = 1 if layer else 0
    mine_known = (lambda s: d.part(s, axis)) if parallel else (lambda s: s)
    if not backward:
        if layer:
            call.input("bias", bias)
        b = bias.values if bias is not None else 0.0
        value = normed * w + b
        error = off_normed * np.abs(w) + 3 * u * (np.abs(normed * w) + np.abs(value))
        call.output("y", Array(mine(value).shape, d.dtype), Result(mine(value), mine(error), d.dtype))
        wanted = r.random() < 0.7
        call.output("statistics", Array(mine_known(known).shape, wide(d.dtype)) if wanted else None,
                    Result(mine_known(known), mine_known(off_known), wide(d.dtype)))
        return call
    return _norm_backward(d, call, x, weight, layer, parallel, accumulate, eps, mine, known, mine_known, normed, mean,
                          inverse, w)


def _norm_backward(d, call, x, weight, layer, parallel, accumulate, eps, mine, known, mine_known, normed, mean,
                   inverse, w):
    r, u, n = d.r, roundoff(d.dtype), x.shape[-1]
    given = round_to(known, wide(d.dtype))
    call.input("statistics", Array(mine_known(given).shape, wide(d.dtype), mine_known(given)))
    dy = d.floats(x.shape)
    call.input("grad_y", d.part_of(dy, 0) if parallel else dy)
    tx = torch.tensor(x.values, requires_grad=True)
    tw = torch.tensor(w, requires_grad=True)
    if layer:
        y = torch.nn.functional.layer_norm(tx, (n,), tw, torch.zeros(n, dtype=torch.float64), eps)
    else:
        y = tx / torch.sqrt((tx * tx).mean(-1, keepdim=True) + eps) * tw
    gx, gw = torch.autograd.grad(y, [tx, tw], torch.tensor(np.array(dy.values)))
    g = np.abs(dy.values * w)
    # The statistics are rounded once.
    off = np.abs(normed) * 6 * u + inverse * u * (2 * np.abs(mean) + np.abs(x.values - mean))
    size = np.abs(normed)
    c = (n + 12) * u
    error = inverse * (c * g + (c * g.mean(-1, keepdims=True) if layer else 0)
                       + off * (g * size).mean(-1, keepdims=True)
                       + size * (g * off).mean(-1, keepdims=True)
                       + 2 * c * size * (g * size).mean(-1, keepdims=True))
    wanted = r.random() < 0.7
    call.output("grad_x", Array(mine(error).shape, d.dtype) if wanted else None,
                Result(mine(gx.numpy()), mine(error), d.dtype))
    kind, exact = d.grad_dtype(), d.exact
    d.exact = False
    rows = flat(dy.values)
    error = ((len(rows) + 8) * u * np.abs(flat(dy.values) * flat(normed)) + np.abs(rows) * flat(off)).sum(0)
    d.gradient(call, "grad_weight", gw.numpy(), error, kind, accumulate, r.random() < 0.7)
    if layer:
        d.gradient(call, "grad_bias", rows.sum(0), (len(rows) + 4) * u * np.abs(rows).sum(0), kind, accumulate,
                   r.random() < 0.7)
    d.exact = exact
    return call


class Loss:
    """A drawn loss of logits [tokens, V], its value and gradient, and how far each may be off."""

    def __init__(self, d, lead, columns):
        r = d.r
        self.smoothing = r.choice([0, 0, 0, 0.1, 0.5, 1.0])
        self.kind = r.choice([0, 0, 1])
        self.reduction = r.choice([0, 1, 2])
        self.given_vocabulary = r.choice([0, 0, r.randrange(1, columns + 1)])
        self.vocabulary = self.given_vocabulary or columns
        has = r.random() < 0.6
        self.ignore = r.choice([-100, -1, 0, self.vocabulary - 1, 10 ** 9]) if has else -100
        self.options = dict(label_smoothing=self.smoothing, smoothing=self.kind, reduction=self.reduction,
                            vocab_size=self.given_vocabulary, ignore_index=self.ignore if has else r.choice([0, 1]),
                            has_ignore_index=int(has))
        self.labels = ids(d, lead, self.vocabulary, self.ignore if r.random() < 0.7 else None)
        self.columns = columns

    def compute(self, z, off_z, u, grad_loss):
        """z [tokens, columns] in float64, and how far each logit may be off already."""
        labels = self.labels.values.reshape(-1)
        valid = labels != self.ignore
        v = self.vocabulary
        t = torch.tensor(z[:, :v].copy(), requires_grad=True)
        s = self.smoothing if self.kind == 0 or v <= 1 else self.smoothing * v / (v - 1)
        target = torch.tensor(np.where(valid, labels, 0))
        logs = torch.log_softmax(t, -1)
        nll = -logs[torch.arange(len(labels)), target]
        losses = (1 - s) * nll + (s * -logs.mean(-1) if s else 0)
        losses = torch.where(torch.tensor(valid), losses, torch.zeros(()).double())
        divisor = max(int(valid.sum()), 1)
        loss = losses if self.reduction == 2 else losses.sum() / (divisor if self.reduction == 0 else 1)
        g = torch.tensor(grad_loss)
        gz, = torch.autograd.grad(loss, t, g.reshape(loss.shape))
        self.each, self.loss = losses.detach().numpy(), loss.detach().numpy()
        self.grad = np.zeros(z.shape)
        self.grad[:, :v] = gz.numpy()
        self._errors(z[:, :v], off_z[:, :v], u, np.asarray(grad_loss), valid, labels, s, divisor)

    def _errors(self, z, off_z, u, grad_loss, valid, labels, s, divisor):
        v = self.vocabulary
        tokens = len(labels)
        self.most = z.max(-1) if tokens else np.zeros(0)
        finite = np.where(np.isfinite(z), z, self.most[:, None] if tokens else 0)
        p = np.exp(z - self.most[:, None])
        total = p.sum(-1)
        p = p / total[:, None]
        off_p = u * (np.abs(finite - self.most[:, None]) + 16) + off_z + off_z.max(-1, initial=0)[:, None]
        self.log_sum = np.log(total)
        off_log = (p * off_p).sum(-1) + (v + 12) * u + 4 * u * np.abs(self.log_sum)
        self.off_most, self.off_log = off_z.max(-1, initial=0), off_log + off_z.max(-1, initial=0)
        label = np.where(valid, labels, 0)
        at = finite[np.arange(tokens), label]
        off_at = off_z[np.arange(tokens), label]
        one = abs(1 - s)
        off = (off_log + off_z.max(-1, initial=0) + one * off_at + abs(s) * (off_z.mean(-1) + (v + 4) * u *
                np.abs(finite).mean(-1)) + 8 * u * (np.abs(self.most) + np.abs(self.log_sum) + one * np.abs(at)
                + abs(s) * np.abs(finite).mean(-1)))
        off = np.where(valid, off, 0)
        self.off_each = off
        if self.reduction == 2:
            self.off_loss = off
        else:
            by = divisor if self.reduction == 0 else 1
            self.off_loss = (off.sum() + (tokens + 4) * u * np.abs(self.each).sum()) / by
        factor = np.where(valid, np.abs(grad_loss).reshape(-1) if self.reduction == 2 else np.abs(grad_loss), 0)
        factor = factor / (divisor if self.reduction == 0 else 1)
        hot = np.zeros(z.shape)
        hot[np.arange(tokens), label] = one
        off_grad = p * (off_p + self.off_log[:, None] + 8 * u) + 8 * u * (p + hot + abs(s) / v)
        self.off_grad = np.zeros((tokens, self.columns))
        self.off_grad[:, :v] = factor[:, None] * off_grad


def cross_entropy(d):
    r = d.r
    backward = r.random() < 0.5
    lead, n = d.rows(), max(d.size(), 1)
    columns = n * d.ranks
    loss = Loss(d, lead, columns)
    call = Call("nxd_parallel_cross_entropy_" + ("backward" if backward else "forward"),
                "nxd_parallel_cross_entropy_options_t")
    call.options = loss.options
    scale = r.choice([1, 1, 5, 30])
    z = d.floats(lead + [columns], scale=scale)
    values = np.array(z.values)
    if r.random() < 0.15 and not loss.smoothing and columns > 1 and not z.constant and not z.window:
        gone = d.g.random(values.shape) < 0.3
        label = np.where(loss.labels.values == loss.ignore, 0, loss.labels.values)
        np.put_along_axis(gone, label[..., None], False, -1)
        values = np.where(gone, -np.inf, values)
        z.values = values
    if loss.vocabulary < columns and not z.constant and not z.window:
        z.values = np.where(np.arange(columns) < loss.vocabulary, values, np.nan)  # never read
    call.input("logits", d.part_of(z, -1))
    call.input("labels", loss.labels)
    flat_z = flat(values)
    kind = wide(d.dtype)
    grad_shape = tuple(lead) if loss.reduction == 2 else ()
    grad_loss = round_to(d.g.standard_normal(grad_shape), kind) if r.random() < 0.7 else None
    loss.compute(flat_z, np.zeros(flat_z.shape), roundoff(d.dtype), grad_loss if grad_loss is not None else
            np.ones(grad_shape))
    statistics(d, call, loss, lead, kind, backward)
    if not backward:
        call.output("loss", Array(grad_shape, kind), Result(loss.loss.reshape(grad_shape),
                                                            np.reshape(loss.off_loss, grad_shape), kind))
        return call
    call.input("grad_loss", None if grad_loss is None else Array(grad_shape, kind, grad_loss))
    grad, off = (d.part(v.reshape(lead + [columns]), -1) for v in (loss.grad, loss.off_grad))
    result = Result(grad, off, d.dtype)
    result.bound = np.where(off == 0, 0, result.bound)  # of ignored tokens and padding
    call.output("grad_logits", Array(grad.shape, d.dtype), result)
    if r.random() < 0.3 and not z.constant and not z.window:
        call.in_place = ("logits", "grad_logits")
    return call


def statistics(d, call, loss, lead, kind, backward):
    values = np.stack([loss.most, loss.log_sum]).reshape([2] + lead)
    off = np.stack([loss.off_most, loss.off_log]).reshape([2] + lead)
    if backward:
        call.input("statistics", Array([2] + lead, kind, round_to(values, kind)))
    else:
        wanted = d.r.random() < 0.6
        call.output("statistics", Array([2] + lead, kind) if wanted else None, Result(values, off, kind))


def linear_cross_entropy(d):
    r = d.r
    backward, parallel = r.random() < 0.6, r.random() < 0.4
    transposed, accumulate = r.random() < 0.4, r.random() < 0.4
    lead = d.rows(1 if parallel else 0)
    dim = sequence(d, lead) if parallel else 0
    n, features = max(d.size(), 1), d.size()
    columns = n * d.ranks
    loss = Loss(d, lead, columns)
    call = Call("nxd_linear_cross_entropy_" + ("backward" if backward else "forward"),
                "nxd_linear_cross_entropy_options_t")
    call.options = dict(loss.options, sequence_parallel=int(parallel), transposed_weight=int(transposed),
                        sequence_dim=signed(d, dim, len(lead) + 1) if parallel else r.choice([0, 7]),
                        accumulate_grads=int(accumulate), block_tokens=r.choice([0, 0, 1, 2, 3, 100]))
    x = d.floats(lead + [features])
    weight = d.floats([features, columns] if transposed else [columns, features])
    bias = d.floats([columns]) if r.random() < 0.5 else None
    call.input("x", d.part_of(x, dim) if parallel else x)
    call.input("weight", d.part_of(weight, 1 if transposed else 0))
    call.input("bias", None if bias is None else d.part_of(bias, 0))
    call.input("labels", loss.labels)
    w = weight.values.T if transposed else weight.values
    b = bias.values if bias is not None else 0.0
    u, kind = roundoff(d.dtype), wide(d.dtype)
    rows = flat(x.values)
    z = rows @ w.T + b
    off_z = 0 * z if d.exact else (features + 6) * u * (np.abs(rows) @ np.abs(w.T) + np.abs(b))
    grad_shape = tuple(lead) if loss.reduction == 2 else ()
    grad_loss = round_to(d.g.standard_normal(grad_shape), kind) if r.random() < 0.7 else None
    loss.compute(z, off_z, u, grad_loss if grad_loss is not None else np.ones(grad_shape))
    statistics(d, call, loss, lead, kind, backward)
    if not backward:
        call.output("loss", Array(grad_shape, kind), Result(loss.loss.reshape(grad_shape),
                                                            np.reshape(loss.off_loss, grad_shape), kind))
        return call
    call.input("grad_loss", None if grad_loss is None else Array(grad_shape, kind, grad_loss))
    _head_gradients(d, call, loss, x, rows, w, lead, dim if parallel else None, transposed, accumulate)
    return call


def _head_gradients(d, call, loss, x, rows, w, lead, dim, transposed, accumulate):
    r, u = d.r, roundoff(d.dtype)
    tokens, columns = loss.grad.shape
    # Gradients of logits are rounded to the dtype of x, in which they are multiplied.
    off = loss.off_grad + (ROUNDOFF[d.dtype] * np.abs(loss.grad) + (2.0 ** -24 if d.dtype == "f16" else 0)
                           if d.dtype != wide(d.dtype) else 0)
    exact, d.exact = d.exact, False
    value = loss.grad @ w
    error = off @ np.abs(w) + (columns + 4) * u * (np.abs(loss.grad) @ np.abs(w))
    error = d.sum(value, error, partial=[d.part(loss.grad, 1, k) @ d.part(w, 0, k) for k in range(d.ranks)])
    value, error = (v.reshape(x.shape) for v in (value, np.broadcast_to(error, value.shape)))
    if dim is not None:
        value, error = d.part(value, dim), d.part(error, dim)
    wanted = r.random() < 0.7
    call.output("grad_x", Array(value.shape, d.dtype) if wanted else None, Result(value, error, d.dtype))
    kind = d.grad_dtype()
    mine, off_mine = d.part(loss.grad, 1), d.part(off, 1)
    value = mine.T @ rows
    error = off_mine.T @ np.abs(rows) + (tokens + 4) * u * (np.abs(mine.T) @ np.abs(rows))
    if transposed:
        value, error = value.T, error.T
    # Each block of tokens is added by itself.
    d.gradient(call, "grad_weight", value, error, kind, accumulate, r.random() < 0.7, tokens)
    error = d.part(loss.off_grad, 1).sum(0) + (tokens + 4) * u * np.abs(mine).sum(0)
    d.gradient(call, "grad_bias", mine.sum(0), error, kind, accumulate, r.random() < 0.7, tokens)
    d.exact = exact


MAPPINGS = [("copy", "sum"), ("sum", "copy"), ("split", "gather"), ("gather", "split"), ("gather", "scatter"),
            ("scatter", "gather")]


def mapping(d):
    r = d.r
    which, backward = r.randrange(6), r.random() < 0.5
    move = MAPPINGS[which][backward]
    call = Call("nxd_region_mapping_" + ("backward" if backward else "forward"))
    dtype = d.dtype if move in ("sum", "scatter") else r.choice([d.dtype, "i32", "i64", "u8", "i8", "i16", "bool"])
    lead = d.rows() + [d.size()]
    dim = r.randrange(len(lead))
    if move in ("split", "scatter"):
        lead[dim] *= d.ranks
    given = signed(d, dim, len(lead)) if move not in ("copy", "sum") else r.choice([0, 77, -5])
    call.leading = [which, given]
    float_like = dtype == d.dtype

    def one():
        if float_like:
            return d.floats(lead)
        return Array(lead, dtype, d.g.integers(0, 2 if dtype == "bool" else 100, lead))
    # Each rank has numbers of its own.
    parts = [one() for _ in range(d.ranks)]
    if move in ("copy", "split"):
        parts = parts[:1] * d.ranks
    own = parts[d.rank]
    call.input("grad_y" if backward else "x", own)
    if move == "copy":
        value = own.values
    elif move == "split":
        value = d.part(own.values, dim)
    elif move == "gather":
        value = np.concatenate([p.values for p in parts], dim)
    else:
        value = sum(p.values for p in parts)
        value = value if move == "sum" else d.part(value, dim)
    name = "grad_x" if backward else "y"
    if move in ("sum", "scatter"):
        size = sum(np.abs(p.values) for p in parts)
        size = size if move == "sum" else d.part(size, dim)
        call.output(name, Array(value.shape, dtype), Result(value, 0 if d.exact else d.ranks * roundoff(dtype) * size,
                                                            dtype, d.exact))
    else:
        call.output(name, Array(value.shape, dtype), Same(value))
    return call


def shard_rows(d):
    """How ranks share a weight: a way, its shape, the dimension, each rank's indices along it, options.
    -1 is padding."""
    r = d.r
    shape = [d.size() for _ in range(r.choice([1, 2, 2, 3]))]
    dim = r.randrange(len(shape))
    way = r.choice(["replicated", "even", "padded", "fused", "heads"])
    options = dict(has_dim=int(way != "replicated"), dim=signed(d, dim, len(shape)) if way != "replicated" else 0,
                   num_fused=0, num_heads=0, size=0)
    ranks = d.ranks
    fused = 1
    if way == "replicated":
        rows = [list(range(shape[dim]))] * ranks
    elif way == "heads":
        heads = r.choice([1, 2, 4, ranks])
        while heads < ranks and ranks % heads or heads > ranks and heads % ranks:
            heads += 1
        each = max(d.size(), 1)
        shape[dim] = heads * each
        share = max(heads // ranks, 1) * each
        copies = max(ranks // heads, 1)
        rows = [[(k // copies) * share + i for i in range(share)] for k in range(ranks)]
        options["num_heads"] = heads
    elif way == "fused":
        fused = r.choice([1, 2, 3])
        each = max(d.size(), 1)
        shape[dim] = fused * each * ranks
        rows = [[f * each * ranks + k * each + i for f in range(fused) for i in range(each)] for k in range(ranks)]
        options["num_fused"] = fused
    else:
        if way == "even":
            shape[dim] *= ranks
        each = -(-shape[dim] // ranks)
        rows = [[i if i < shape[dim] else -1 for i in range(k * each, (k + 1) * each)] for k in range(ranks)]
    return way, shape, dim, rows, options


def shard(d):
    """A part of a whole weight, or the whole from parts."""
    r = d.r
    gather = r.random() < 0.5
    way, shape, dim, rows, options = shard_rows(d)
    if gather and shape[dim] and (way == "padded" or r.random() < 0.3):
        options["size"] = shape[dim]
    elif not gather and (way == "padded" or r.random() < 0.3):
        options["size"] = shape[dim]
    if way == "replicated":
        options["size"] = 0
    dtype = r.choice([d.dtype, d.dtype, "i32", "i64", "u8", "i8", "i16", "bool"])
    if dtype == d.dtype:
        whole = d.floats(shape)
    else:
        whole = Array(shape, dtype, d.g.integers(0, 2 if dtype == "bool" else 100, shape))

    def of_rank(k):
        taken = np.take(whole.values, [max(i, 0) for i in rows[k]], dim)
        mask = np.array([i >= 0 for i in rows[k]]).reshape([-1 if m == dim else 1 for m in range(len(shape))])
        return np.where(mask, taken, 0) if shape[dim] else np.zeros(taken.shape)
    if not shape[dim] and way == "padded":
        options["size"] = 0
    own = of_rank(d.rank) if shape[dim] else np.zeros([0 if m == dim else s for m, s in enumerate(shape)])
    call = Call("nxd_shard_gather_full" if gather else "nxd_shard_set_full", "nxd_shard_options_t")
    call.has_workspace, call.options = False, options
    if gather:
        call.input("shard", Array(own.shape, dtype, own))
        call.output("full", Array(shape, dtype), Same(whole.values))
    else:
        call.input("full", whole)
        call.output("shard", Array(own.shape, dtype), Same(own))
    return call


def dropout(d):
    """Both passes; what is kept is learned from the undivided array."""
    r = d.r
    backward = r.random() < 0.5
    lead = d.rows() + ([d.size()] if r.random() < 0.8 else [])
    sharded = bool(lead) and r.random() < 0.6
    dim = r.randrange(len(lead)) if lead else 0
    if sharded:
        lead[dim] *= d.ranks
    transposed = len(lead) >= 2 and r.random() < 0.3
    p = r.choice([0, 0.1, 0.5, 0.9])
    has = r.random() < 0.5
    call = Call("nxd_dropout_" + ("backward" if backward else "forward"), "nxd_dropout_options_t")
    step, microbatch = (r.randrange(100), r.randrange(4)) if has else d.step
    call.options = dict(p=p, has_position=int(has), step=step if has else r.choice([0, -1]),
                        microbatch=microbatch if has else 0, has_shard_dim=int(sharded),
                        shard_dim=signed(d, dim, len(lead)) if sharded else r.choice([0, 50]),
                        transposed=int(transposed))
    call.leading = [f"layer.{r.randrange(3)}"]
    x = d.floats(lead)
    own = d.part_of(x, dim) if sharded else x
    call.input("grad_y" if backward else "x", own)
    name = "grad_x" if backward else "y"
    call.output(name, Array(own.shape, d.dtype), Kept(d, call, lead, transposed, x, own, dim if sharded else None, p,
                                                      step, microbatch))
    if r.random() < 0.3 and not x.constant and not x.window:
        call.in_place = ("grad_y" if backward else "x", name)
    return call


class Kept:
    """Elements are scaled, or zeroed, as those of the undivided array in f64."""

    def __init__(self, d, call, lead, transposed, x, own, dim, p, step, microbatch):
        self.d, self.name, self.x, self.own, self.dim, self.p = d, call.leading[0], x, own, dim, p
        self.transposed, self.position = transposed, (step, microbatch)
        self.shape = lead

    def prepare(self, context):
        """Asks for the undivided array of ones."""
        shape = list(self.shape)
        if self.transposed:
            shape[0], shape[1] = shape[1], shape[0]
        kept = dropped(context, self.name, self.p, shape, self.position)
        if self.transposed:
            kept = np.swapaxes(kept, 0, 1)
        kept = kept != 0
        if self.dim is not None:
            kept = self.d.part(kept, self.dim)
        factor = 1 / (1 - self.p)
        value = np.where(kept, self.own.values * factor, 0)
        self.result = Result(value, 3 * ROUNDOFF[self.d.dtype] * np.abs(value), self.d.dtype)
        self.result.bound = np.where(value == 0, 0, self.result.bound)

    def differs(self, got):
        return self.result.differs(got)

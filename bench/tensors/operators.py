"""Draws calls from a wide list of operators: all dtypes, promotions, comparisons, windows, statistics, losses."""
import numpy as np
import torch

from instructions import D, V
from program import NAME, Skip
from writes import has_overlap

ANY_UNARY = ["abs", "neg", "sign", "sgn", "positive", "square", "isnan", "isinf", "isfinite", "logical_not",
             "bitwise_not", "signbit", "ceil", "floor", "round", "trunc", "zeros_like", "ones_like", "sqrt", "exp",
             "sin", "tanh",
             "reciprocal", "sigmoid", "relu", "erf", "log1p", "cos", "expm1", "rsqrt", "log", "argmax", "argmin", "all",
             "any", "max", "min", "sum", "prod", "count_nonzero", "isposinf", "isneginf", "absolute"]
FLOAT_UNARY = ["log2", "log10", "exp2", "tan", "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh", "erfc",
               "erfinv",
               "silu", "gelu", "relu6", "hardswish", "hardsigmoid", "hardtanh", "mish", "log_sigmoid", "celu", "selu",
               "elu", "softplus", "leaky_relu", "deg2rad", "rad2deg", "nan_to_num", "frac", "mean", "logit", "lgamma",
               "sinc", "i0", "digamma", "amax", "amin", "aminmax", "msort"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
ANY_BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "remainder", "fmod", "pow", "atan2", "bitwise_and",
              "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor", "true_divide", "floor_divide",
              "fmax", "fmin", "hypot", "copysign", "xlogy", "heaviside", "rsub", "logaddexp"] + COMPARISONS
TENSOR_OVERLOAD = {"add", "sub", "mul", "div", "remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor", "rsub",
                   "true_divide", "copysign", "xlogy", *COMPARISONS}


def is_finite(t):
    return bool(torch.isfinite(t.detach().double()).all())


def beside(p, i):
    """A tensor of any dtype that goes with i: of its shape, broadcast, or of no dimensions."""
    t, r = p.vars[i], p.r
    fitting = []
    for j, o in p.vars.items():
        try:
            torch.broadcast_shapes(o.shape, t.shape)
            fitting.append(j)
        except RuntimeError:
            pass
    if r.random() < 0.6:
        return r.choice(fitting)
    shape = list(t.shape)
    if r.random() < 0.3:
        shape = []
    elif shape and r.random() < 0.4:
        shape[r.randrange(len(shape))] = 1
    return p.make(shape, r.choice([NAME[t.dtype], "f32", "i64", "bool", "u8", "f64", "bf16", "i32"]))


def any_unary(p):
    i = p.some()
    name = p.r.choice(ANY_UNARY + FLOAT_UNARY)
    if name in FLOAT_UNARY and not p.vars[i].is_floating_point():
        raise Skip
    if name == "log_sigmoid":
        return p.call("log_sigmoid", "", self=V(i))
    return p.call(name, "", self=V(i))


def any_binary(p):
    i = p.some()
    j = beside(p, i)
    if p.r.random() < 0.3:
        i, j = j, i
    a, b = p.vars[i], p.vars[j]
    name = p.r.choice(ANY_BINARY)
    whole = not a.is_floating_point() and not b.is_floating_point()
    if name in ("remainder", "fmod", "floor_divide", "pow") and whole and (bool((b <= 0).any())):
        raise Skip
    # Quotients by 0, and those of what is not finite, are left out.
    if name in ("remainder", "fmod", "floor_divide") and not (is_finite(a) and is_finite(b) and not (b == 0).any()):
        raise Skip
    if name == "pow" and p.r.random() < 0.3:
        return p.call("pow", "Scalar", self=p.r.choice([2, 0.5, 0, 1]), exponent=V(i))
    if name == "pow":
        return p.call("pow", "Tensor_Tensor", self=V(i), exponent=V(j))
    if name == "div" and p.r.random() < 0.5:
        if not (is_finite(a) and is_finite(b)) or (b == 0).any():
            raise Skip
        return p.call("div", "Tensor_mode", self=V(i), other=V(j), rounding_mode=p.r.choice(["floor", "trunc"]))
    if name == "heaviside":
        return p.call(name, "", self=V(i), values=V(j))
    extra = {"alpha": p.r.choice([1, 2])} if name in ("add", "sub", "rsub") and p.r.random() < 0.4 else {}
    overload = "Tensor" if name in TENSOR_OVERLOAD else ""
    return p.call(name, overload, self=V(i), other=V(j), **extra)


def any_scalar(p):
    r = p.r
    i = p.some()
    name = r.choice(["add", "sub", "mul", "div", "rsub", "remainder", "bitwise_and", "bitwise_or", "bitwise_xor",
                     "floor_divide", "clamp", "clamp_min", "clamp_max", "pow", "threshold", "nan_to_num", "isclose",
                     "clampt", "where", "wheres", "whereb", "lerp", "addcdiv", "full_like", "fill", "new_full",
                     "masked_fill", *COMPARISONS])
    v, t = V(i), p.vars[i]
    x = r.choice([2, 3, -1, 0, 1.5, -0.25])
    if name == "pow":
        return p.call("pow", "Tensor_Scalar", self=v, exponent=r.choice([0, 1, 2, 3, 0.5, -1, -2, 1.5]))
    if name in ("remainder", "floor_divide"):
        if not is_finite(t):
            raise Skip
        return p.call(name, "Scalar", self=v, other=r.choice([2, 3, -2, 1.5]))
    if name == "clamp":
        return p.call(name, "", self=v, min=r.choice([None, -1, 0.5]), max=r.choice([1, 0, 2.5]))
    if name in ("clamp_min", "clamp_max"):
        return p.call(name, "", self=v, **{name[6:]: x})
    if name == "clampt":
        return p.call("clamp", "Tensor", self=v, min=V(beside(p, i)), max=r.choice([None, V(beside(p, i))]))
    if name == "threshold":
        return p.call(name, "", self=v, threshold=0, value=1)
    if name == "nan_to_num":
        return p.call(name, "", self=v, nan=0.5, posinf=r.choice([None, 7.0]))
    if name == "isclose":
        return p.call(name, "", self=v, other=V(beside(p, i)), rtol=0.1, atol=0.1)
    if name in ("where", "wheres", "whereb"):
        m = V(p.call("gt", "Scalar", self=V(beside(p, i)), other=0)[0][1])
        if name == "where":
            return p.call("where", "self", condition=m, self=v, other=V(beside(p, i)))
        if name == "wheres":
            return p.call("where", "ScalarOther", condition=m, self=v, other=x)
        return p.call("where", "ScalarSelf", condition=m, self=x, other=v)
    if name == "masked_fill":
        m = V(p.call("gt", "Scalar", self=V(beside(p, i)), other=0)[0][1])
        if r.random() < 0.5:
            return p.call(name, "Scalar", self=v, mask=m, value=x)
        return p.call(name, "Tensor", self=v, mask=m, value=V(p.make([], NAME[t.dtype])))
    if name == "lerp":
        return p.call(name, "Scalar", self=v, end=V(beside(p, i)), weight=r.choice([0.25, 0.75, -1]))
    if name == "addcdiv":
        divisor = V(p.make(list(t.shape), NAME[t.dtype]))
        return p.call(name, "", self=v, tensor1=V(beside(p, i)), tensor2=divisor, value=0.5)
    if name == "full_like":
        return p.call(name, "", self=v, fill_value=x)
    if name == "fill":
        return p.call("fill", "Scalar", self=v, value=x)
    if name == "new_full":
        return p.call(name, "", self=v, size=p.shape(), fill_value=x)
    return p.call(name, "Scalar", self=v, other=x)


def any_reduce(p):
    """Reductions of any dtype, with several dimensions, in another dtype."""
    r = p.r
    i = p.some()
    t, v = p.vars[i], V(i)
    name = r.choice(["sum", "mean", "amax", "amin", "prod", "all", "any", "argmax", "argmin", "max", "min", "cumsum",
                     "cumprod", "logsumexp", "var", "std", "std_mean", "norm", "vector_norm", "median", "cummin",
                     "nanmean", "softmax", "log_softmax", "count", "sort", "argsort", "topk", "kthvalue", "renorm",
                     "aminmax", "nanmedian"])
    keep, dims = r.random() < 0.4, r.sample(range(t.dim()), r.randrange(0, t.dim() + 1))
    dims = [d - t.dim() if r.random() < 0.3 else d for d in dims]
    dtype = {"dtype": D(r.choice(["f32", "f64", "i64", "bf16"]))} if r.random() < 0.3 else {}
    if name in ("sum", "mean"):
        return p.call(name, "dim_IntList" if name == "sum" else "dim", self=v, dim=dims, keepdim=keep, **dtype)
    if name == "logsumexp" and not dims:
        raise Skip  # torch 1.13 rejects one element
    if name in ("amax", "amin", "logsumexp"):
        return p.call(name, "", self=v, dim=dims, keepdim=keep)
    if name in ("var", "std", "std_mean"):
        n = int(np.prod([t.shape[d] for d in dims])) if dims else t.numel()
        if n < 2:
            raise Skip
        return p.call(name, "correction", self=v, dim=dims, correction=r.choice([0, 1]), keepdim=keep)
    if name in ("norm", "vector_norm"):
        kinds = [0, 1, 2, 3, float("inf"), -float("inf")]
        if name == "norm":
            return p.call("norm", "ScalarOpt_dim", self=v, p=r.choice(kinds), dim=dims, keepdim=keep)
        return p.call("linalg_vector_norm", "", self=v, ord=r.choice(kinds), dim=dims or None, keepdim=keep)
    d = p.dim(t)
    if name in ("prod", "cumsum", "cumprod", "softmax", "log_softmax"):
        overload = {"prod": "dim_int", "softmax": "int", "log_softmax": "int"}.get(name, "")
        return p.call(name, overload, self=v, dim=d, **dtype, **({"keepdim": keep} if name == "prod" else {}))
    if name in ("all", "any", "max", "min", "median", "nanmedian"):
        if name in ("max", "min", "median", "nanmedian") and has_ties(t, d):
            raise Skip
        return p.call(name, "dim", self=v, dim=d, keepdim=keep)
    if name in ("argmax", "argmin"):
        return p.call(name, "", self=v, dim=r.choice([None, d]), keepdim=keep)
    if name == "cummin":
        return p.call(name, "", self=v, dim=d)
    if name == "nanmean":
        return p.call(name, "", self=v, dim=[d], keepdim=keep)
    if name == "count":
        return p.call("count_nonzero", "dim_IntList", self=v, dim=dims)
    if name == "XX":
        return p.call("dx", self=v, dx=0.5, dim=d)
    if name in ("sort", "argsort"):
        return p.call(name, "stable", self=v, stable=True, dim=d, descending=r.random() < 0.5)
    if name == "topk":
        if has_ties(t, d):
            raise Skip
        return p.call("topk", "", self=v, k=r.randrange(0, t.shape[d] + 1), dim=d, largest=r.random() < 0.5,
                      sorted=True)
    if name == "kthvalue":
        if has_ties(t, d) or t.shape[d] == 0:
            raise Skip
        return p.call("kthvalue", "", self=v, k=r.randrange(1, t.shape[d] + 1), dim=d, keepdim=keep)
    if name == "renorm":
        if not t.is_floating_point():
            raise Skip
        return p.call("renorm", "", self=v, p=2, dim=d, maxnorm=1.0)
    return p.call("aminmax", "", self=v, dim=d, keepdim=keep)


def has_ties(t, d):
    """True if which element is chosen is nobody's."""
    if t.dim() == 0 or t.numel() == 0:
        return False
    s = t.detach().double()
    if not torch.isfinite(s).all():
        return True
    s = s.sort(d).values
    return bool((s.diff(dim=d) == 0).any())


def narrow_convolution(p, dt, nd, groups):
    """The weight may be larger than the image without its padding; with many channels kernels take them in blocks."""
    r = p.r
    size, kernel = [r.choice([1, 2, 3]) for _ in range(nd)], [r.choice([1, 3, 5]) for _ in range(nd)]
    dilation = [r.choice([1, 1, 2]) for _ in range(nd)]
    padding = [d * (k // 2) for d, k in zip(dilation, kernel)]
    channels, out = groups * r.choice([1, 8, 16]), groups * r.choice([1, 8, 16])
    x = p.make([r.choice([1, 2]), channels] + size, dt)
    w, b = V(p.make([out, channels // groups] + kernel, dt)), r.choice([None, V(p.make([out], dt))])
    return p.call(f"conv{nd}d", "", input=V(x), weight=w, bias=b, stride=[r.choice([1, 2]) for _ in range(nd)],
                  padding=padding, dilation=dilation, groups=groups)


def spatial(p):
    """Convolutions, windows, enlargements: of images and lines that are made for them."""
    r = p.r
    dt = r.choice([d for d in p.dtypes if d in ("f32", "f64", "bf16")] or ["f32"])
    nd = r.choice([1, 2])
    groups = r.choice([1, 1, 2])
    channels = groups * r.choice([1, 2])
    size = [r.choice([3, 4, 5, 6]) for _ in range(nd)]
    x = p.make([r.choice([1, 2])] + [channels] + size, dt)
    v = V(x)
    if r.random() < 0.3:  # another layout in memory
        y = p.make([p.vars[x].shape[0]] + size + [channels], dt)
        v = V(p.call("permute", "", self=V(y), dims=[0, nd + 1] + list(range(1, nd + 1)))[0][1])
    name = r.choice(["conv", "conv", "narrow_conv", "conv_transpose", "max_pool", "avg_pool", "adaptive", "nearest",
                     "linear", "pad", "batch_norm", "batch_norm", "instance", "group", "pixel", "fold"])
    if name == "narrow_conv":
        return narrow_convolution(p, dt, nd, groups)
    kernel = [r.choice([1, 2, 3]) for _ in range(nd)]
    stride, dilation = [r.choice([1, 2]) for _ in range(nd)], [r.choice([1, 1, 2]) for _ in range(nd)]
    padding = [r.choice([0, 1]) for _ in range(nd)]
    if name in ("conv", "conv_transpose"):
        out = groups * r.choice([1, 2])
        shape = [out, channels // groups] if name == "conv" else [channels, out // groups]
        w, b = V(p.make(shape + kernel, dt)), r.choice([None, V(p.make([out], dt))])
        if name == "conv":
            return p.call(f"conv{nd}d", "", input=v, weight=w, bias=b, stride=stride, padding=padding,
                          dilation=dilation, groups=groups)
        return p.call(f"conv_transpose{nd}d", "" if nd == 1 else "input", input=v, weight=w, bias=b, stride=stride,
                      padding=padding, output_padding=[0] * nd, groups=groups, dilation=dilation)
    if name == "max_pool":
        return p.call(f"max_pool{nd}d", "", self=v, kernel_size=[2] * nd, stride=stride, padding=padding,
                      ceil_mode=r.random() < 0.3)
    if name == "avg_pool":
        return p.call(f"avg_pool{nd}d", "", self=v, kernel_size=[2] * nd, stride=stride, padding=padding,
                      ceil_mode=r.random() < 0.3, count_include_pad=r.random() < 0.5)
    if name == "adaptive":
        return p.call(f"adaptive_avg_pool{nd}d", "", self=v, output_size=[r.choice([1, 2])] * nd)
    if name == "nearest":
        return p.call(f"upsample_nearest{nd}d", "", self=v, output_size=[2 * n - 1 for n in size])
    if name == "linear":
        return p.call("upsample_linear1d" if nd == 1 else "upsample_bilinear2d", "", self=v,
                      output_size=[2 * n - 1 for n in size], align_corners=r.random() < 0.5)
    if name == "pad":
        kind = r.choice(["reflection", "replication", "constant"])
        pad = [r.choice([0, 1, 2, -1] if kind == "constant" else [0, 1, 2]) for _ in range(2 * nd)]
        if kind == "constant":
            return p.call("constant_pad_nd", "", self=v, pad=pad, value=r.choice([0, 1.5]))
        return p.call(f"{kind}_pad{nd}d", "", self=v, padding=pad)
    if name in ("batch_norm", "instance"):
        mean, var = p.make([channels], dt), p.call("abs", "", self=V(p.make([channels], dt)))[0][1]
        p.call("add_", "Scalar", self=V(var), other=1)
        if p.vars[mean].requires_grad or p.vars[var].requires_grad:
            raise Skip
        w = r.choice([None, V(p.make([channels], dt))])
        b = None if w is None else V(p.make([channels], dt))
        use = r.random() < 0.6
        running = dict(running_mean=V(mean), running_var=V(var)) if r.random() < 0.8 or not use else dict(
            running_mean=None, running_var=None)
        if name == "batch_norm":
            return p.call("batch_norm", "", input=v, weight=w, bias=b, **running, training=use, momentum=0.25, eps=0.5,
                          cudnn_enabled=False)
        return p.call("instance_norm", "", input=v, weight=w, bias=b, **running, use_input_stats=use, momentum=0.25,
                      eps=0.5, cudnn_enabled=False)
    if name == "group":
        w = r.choice([None, V(p.make([channels], dt))])
        return p.call("group_norm", "", input=v, num_groups=groups, weight=w,
                      bias=None if w is None else V(p.make([channels], dt)), eps=0.5)
    if name == "pixel" and nd == 2:
        z = p.make([1, 4, 2, 3], dt)
        return p.call("pixel_shuffle", "", self=V(z), upscale_factor=2)
    if nd == 2:
        return p.call("im2col", "", self=v, kernel_size=[2, 2], dilation=[1, 1], padding=[1, 0], stride=[1, 2])
    raise Skip


def places(p):
    """Elements by several indices, by masks, by signs; rows put and taken."""
    r = p.r
    i = p.some(lambda t: t.dim() >= 1 and t.numel() > 0)
    t, v = p.vars[i], V(i)

    def ids(shape, bound, negative=True):
        a = np.array(p.g.integers(-bound if negative else 0, bound, shape), dtype=np.int64)
        j = p.new(torch.tensor(a))
        p.code.append(("data", j, a, "i64"))
        return V(j)
    name = r.choice(["index", "index", "index_put", "index_put", "take_along", "put", "select_scatter", "slice_scatter",
                     "diagonal_scatter", "one_hot", "bucketize", "searchsorted", "scatter_reduce", "rot90", "tile",
                     "roll", "cat", "gather", "hstack", "nonzero", "index_mask", "diag_embed", "diag", "index_select",
                     "block_diag", "cross"])
    d = p.dim(t)
    n = t.shape[d]
    if name == "index":
        count = r.choice([1, 2]) if t.dim() > 1 else 1
        shape, first = r.choice([[2], [3], [2, 2], []]), r.randrange(t.dim() - count + 1)
        other = r.choice([shape, [1]])
        given = [ids(shape if k == 0 else other, t.shape[first + k]) for k in range(count)]
        return p.call("index", "Tensor", self=v, indices=[None] * first + given)
    if name == "index_put":
        src = p.make([2] + list(t.shape[1:]), NAME[t.dtype])
        at = ids([2], t.shape[0])
        accumulate = r.random() < 0.6
        if not accumulate and len(set(int(k) % t.shape[0] for k in p.vars[at.i])) < 2:
            raise Skip
        where = r.choice(["index_put", "index_put_"])
        if where == "index_put_" and (t.stride(0) == 0 or 0 in [s for s, m in zip(t.stride(), t.shape) if m > 1]):
            raise Skip
        return p.call(where, "", self=v, indices=[at], values=V(src), accumulate=accumulate)
    if name == "take_along":
        shape = list(t.shape)
        shape[d] = 2
        return p.call("take_along_dim", "", self=v, indices=ids(shape, n, False), dim=d)
    if name == "put":
        return p.call("put", "", self=v, index=ids([2], t.numel()), source=V(p.make([2], NAME[t.dtype])),
                      accumulate=True)
    if name == "select_scatter":
        shape = [m for k, m in enumerate(t.shape) if k != d % t.dim()]
        return p.call(name, "", self=v, src=V(p.make(shape, NAME[t.dtype])), dim=d, index=r.randrange(-n, n))
    if name == "slice_scatter":
        start, step = r.randrange(n), r.choice([1, 2])
        shape = list(t.shape)
        shape[d] = len(range(start, n, step))
        return p.call(name, "", self=v, src=V(p.make(shape, NAME[t.dtype])), dim=d, start=start, end=n, step=step)
    if name == "diagonal_scatter":
        if t.dim() < 2:
            raise Skip
        shape = list(t.detach().diagonal(0, 0, 1).shape)
        return p.call(name, "", self=v, src=V(p.make(shape, NAME[t.dtype])), offset=0, dim1=0, dim2=1)
    if name == "one_hot":
        return p.call("one_hot", "", self=ids([2, 3], 4, False), num_classes=r.choice([4, 6]))
    if name in ("bucketize", "searchsorted"):
        a = np.array([-1, -0.5, 0, 1, 1, 2], dtype=np.float32)
        bounds = V(p.new(torch.from_numpy(a.copy())))
        p.code.append(("data", bounds.i, a, "f32"))
        if name == "bucketize":
            return p.call("bucketize", "Tensor", self=v, boundaries=bounds, right=r.random() < 0.5)
        return p.call("searchsorted", "Tensor", sorted_sequence=bounds, self=v, right=r.random() < 0.5)
    if name == "scatter_reduce":
        shape = list(t.shape)
        kind = r.choice(["sum", "mean", "amax", "amin", "prod"])
        return p.call("scatter_reduce", "two", self=v, dim=d, index=ids(shape, n, False),
                      src=V(p.make(shape, NAME[t.dtype])), reduce=kind, include_self=r.random() < 0.5)
    if name == "rot90":
        if t.dim() < 2:
            raise Skip
        return p.call("rot90", "", self=v, k=r.choice([1, 2, 3, -1]), dims=r.sample(range(t.dim()), 2))
    if name == "tile":
        return p.call("tile", "", self=v, dims=[r.choice([1, 2]) for _ in range(r.choice([1, t.dim(), t.dim() + 1]))])
    if name == "roll":
        dims = r.sample(range(t.dim()), r.randrange(0, t.dim() + 1))
        return p.call("roll", "", self=v, shifts=[r.choice([1, -2, 3]) for _ in dims] or [1], dims=dims)
    if name == "cat":
        others = [j for j, o in p.vars.items() if o.dim() == t.dim()
                  and all(o.shape[k] == t.shape[k] for k in range(t.dim()) if k != d % t.dim())]
        return p.call("cat", "", tensors=[v] + [V(r.choice(others)) for _ in range(r.choice([1, 2]))], dim=d)
    if name == "gather":
        shape = [r.randrange(1, m + 1) for m in t.shape]
        shape[d] = r.choice([1, 3])
        return p.call("gather", "", self=v, dim=d, index=ids(shape, n, False))
    if name == "hstack":
        return p.call(r.choice(["hstack", "vstack", "dstack"]), "", tensors=[v, v])
    if name in ("nonzero", "index_mask"):
        m = V(p.call("gt", "Scalar", self=v, other=0)[0][1])
        return p.call("nonzero", "", self=m) if name == "nonzero" else p.call("index", "Tensor", self=v, indices=[m])
    if name == "diag_embed":
        return p.call(name, "", self=v, offset=r.choice([0, 1, -1]))
    if name == "diag":
        if t.dim() > 2:
            raise Skip
        return p.call(name, "", self=v, diagonal=r.choice([0, 1]))
    if name == "index_select":
        return p.call(name, "", self=v, dim=d, index=ids(r.choice([[2], []]), n, False))
    if name == "block_diag":
        if t.dim() > 2:
            raise Skip
        return p.call(name, "", tensors=[v, V(p.make([2, 1], NAME[t.dtype]))])
    if n != 3:
        raise Skip
    return p.call("linalg_cross", "", self=v, other=V(p.make(list(t.shape), NAME[t.dtype])), dim=d)


def losses(p):
    r = p.r
    dt = r.choice([d for d in p.dtypes if d in ("f32", "f64", "bf16")] or ["f32"])
    rows, classes = r.choice([1, 2, 4]), r.choice([1, 2, 3, 5])
    lead = r.choice([[], [], [2], [2, 2]])
    x = V(p.make([rows, classes] + lead, dt))
    a = p.g.integers(0, classes, [rows] + lead)
    ignored = r.choice([-100, -100, 0])
    a[p.g.random(a.shape) < 0.3] = ignored
    j = p.new(torch.tensor(a.astype(np.int64)))
    p.code.append(("data", j, a.astype(np.int64), "i64"))
    weight = r.choice([None, V(p.call("abs", "", self=V(p.make([classes], dt)))[0][1])])
    kind = r.choice(["cross", "cross", "nll", "probabilities", "soft_margin", "l1", "huber", "poisson", "hinge", "bce",
                     "margin"])
    reduction = r.choice([0, 1, 2])
    if kind == "cross":
        return p.call("cross_entropy_loss", "", self=x, target=V(j), weight=weight, reduction=reduction,
                      ignore_index=ignored, label_smoothing=r.choice([0.0, 0.25]))
    if kind == "nll":
        return p.call("nll_loss_nd", "", self=x, target=V(j), weight=weight, reduction=reduction, ignore_index=ignored)
    y = V(p.make([rows, classes] + lead, dt))
    if kind == "probabilities":
        return p.call("cross_entropy_loss", "", self=x, target=y, weight=weight, reduction=reduction,
                      ignore_index=-100, label_smoothing=r.choice([0.0, 0.25]))
    if kind == "soft_margin":
        return p.call("soft_margin_loss", "", self=x, target=y, reduction=reduction)
    if kind == "l1":
        return p.call("l1_loss", "", self=x, target=y, reduction=reduction)
    if kind == "huber":
        return p.call("huber_loss", "", self=x, target=y, reduction=reduction, delta=r.choice([1.0, 0.5]))
    if kind == "poisson":
        return p.call("poisson_nll_loss", "", input=x, target=y, log_input=True, full=False, eps=1e-8,
                      reduction=reduction)
    if kind == "hinge":
        return p.call("hinge_embedding_loss", "", self=x, target=y, margin=1.0, reduction=reduction)
    if kind == "bce":
        s = V(p.call("sigmoid", "", self=x)[0][1])
        z = V(p.call("sigmoid", "", self=y)[0][1])
        return p.call("binary_cross_entropy", "", self=s, target=z, weight=None, reduction=reduction)
    return p.call("margin_ranking_loss", "", input1=x, input2=y, target=y, margin=0.5, reduction=reduction)


def made(p):
    """Tensors that are made from nothing. They lie on the CPU, so the recorded device has none."""
    if p.device != "cpu":
        raise Skip
    r = p.r
    dtype = {"dtype": D(r.choice(["f32", "i64", "f64", "bf16"]))} if r.random() < 0.6 else {}
    name = r.choice(["arange", "arange2", "arange3", "linspace", "eye", "zeros", "full"])
    if name == "arange":
        return p.call("arange", "", end=r.choice([0, 3, 4.5]), **dtype)
    if name == "arange2":
        return p.call("arange", "start", start=r.choice([1, -2, 0.5]), end=4, **dtype)
    if name == "arange3":
        return p.call("arange", "start_step", start=0, end=5, step=r.choice([1, 2, 1.5]), **dtype)
    if name == "linspace":
        return p.call("linspace", "", start=-1, end=1, steps=r.choice([1, 5]), **dtype)
    if name == "eye":
        return p.call("eye", "m", n=2, m=3, **dtype)
    if name == "zeros":
        return p.call("zeros", "", size=p.shape(), **dtype)
    return p.call("full", "", size=p.shape(), fill_value=r.choice([1, 0.5]), **dtype)


def gives(a, b, shape):
    try:
        return torch.broadcast_shapes(a.shape, b.shape) == shape
    except RuntimeError:
        return False


def any_write(p):
    """Operators that write, of any dtypes."""
    r = p.r
    i = p.some(lambda t: not has_overlap(t))
    t, v = p.vars[i], V(i)
    name = r.choice(["add_", "sub_", "mul_", "div_", "copy_", "bitwise_and_", "bitwise_or_", "bitwise_xor_",
                     "logical_and_", "logical_or_", "logical_not_", "abs_", "sign_", "floor_", "round_", "sqrt_", "eq_",
                     "lt_", "ge_", "pow_", "clamp_min_", "clamp_", "triu_", "fill_diagonal_", "addcdiv_", "lerp_",
                     "out", "masked_fill_", "cumprod_", "erf_", "detach_", "bitwise_not_", "rsqrt_", "trunc_",
                     "leaky_relu_", "nan_to_num_", "addmv_"])
    tensors = {"add_", "sub_", "mul_", "div_", "bitwise_and_", "bitwise_or_", "bitwise_xor_", "eq_", "lt_", "ge_"}
    if name in tensors and r.random() < 0.7:
        return p.call(name, "Tensor", self=v, other=V(beside(p, i)))
    if name in tensors:
        return p.call(name, "Scalar", self=v, other=r.choice([1, 2, 0.5]))
    if name == "copy_":
        return p.call(name, "", self=v, src=V(beside(p, i)))
    if name in ("logical_and_", "logical_or_"):
        return p.call(name, "", self=v, other=V(beside(p, i)))
    if name in ("logical_not_", "abs_", "sign_", "floor_", "round_", "sqrt_", "erf_", "bitwise_not_", "rsqrt_",
                "trunc_", "leaky_relu_", "nan_to_num_"):
        return p.call(name, "", self=v)
    if name == "pow_":
        return p.call(name, "Scalar", self=v, exponent=r.choice([2, 3]))
    if name == "clamp_min_":
        return p.call(name, "", self=v, min=0)
    if name == "clamp_":
        return p.call(name, "Tensor", self=v, min=V(beside(p, i)), max=V(beside(p, i)))
    if name == "triu_":
        if t.dim() < 2:
            raise Skip
        return p.call(name, "", self=v, diagonal=r.choice([0, -1]))
    if name == "fill_diagonal_":
        if t.dim() != 2 or p.device != "cpu":  # strides over a view are rejected there
            raise Skip
        return p.call(name, "", self=v, fill_value=2, wrap=False)
    if name == "addcdiv_":
        other = p.make(list(t.shape), NAME[t.dtype])
        return p.call(name, "", self=v, tensor1=V(beside(p, i)), tensor2=V(other), value=1)
    if name == "lerp_":
        return p.call(name, "Tensor", self=v, end=V(beside(p, i)), weight=V(beside(p, i)))
    if name == "out":
        op = r.choice(["add", "mul", "div", "eq", "logical_and", "maximum", "pow", "sub"])
        a, b = beside(p, i), beside(p, i)
        if p.device != "cpu" and not gives(p.vars[a], p.vars[b], t.shape):
            raise Skip  # views take no other shape there
        key = {"pow": "exponent"}.get(op, "other")
        overload = {"eq": "Tensor_out", "pow": "Tensor_Tensor_out"}.get(op, "out")
        return p.call(op, overload, self=V(a), out=v, **{key: V(b)})
    if name == "masked_fill_":
        m = p.call("gt", "Scalar", self=V(beside(p, i)), other=0)[0][1]
        return p.call(name, "Scalar", self=v, mask=V(m), value=r.choice([1, 0.5]))
    if name == "cumprod_":
        return p.call(name, "", self=v, dim=p.dim(t))
    if name == "detach_":
        if t._is_view() or t.is_leaf:
            raise Skip
        return p.call(name, "", self=v)
    if t.dim() != 1 or not t.is_floating_point():
        raise Skip
    dt = NAME[t.dtype]
    return p.call("addmv_", "", self=v, mat=V(p.make([t.shape[0], 2], dt)), vec=V(p.make([2], dt)), beta=2, alpha=0.5)


def attention(p):
    """Products as in attention, over views of one projection."""
    r = p.r
    dt = r.choice([d for d in p.dtypes if d in ("f32", "f64", "bf16")] or ["f32"])
    b, s, h, d = r.choice([1, 2]), r.choice([1, 2, 3, 4]), r.choice([1, 2]), r.choice([2, 4])
    x = V(p.make([b, s, 3 * h * d], dt))
    parts = p.call("split", "Tensor", self=x, split_size=h * d, dim=-1)
    heads = []
    for _, j in parts:
        y = V(p.call("view", "", self=V(j), size=[b, s, h, d])[0][1])
        heads.append(V(p.call("transpose", "int", self=y, dim0=1, dim1=2)[0][1]))
    k = V(p.call("transpose", "int", self=heads[1], dim0=-1, dim1=-2)[0][1])
    scores = V(p.call("matmul", "", self=heads[0], other=k)[0][1])
    scores = V(p.call("div", "Scalar", self=scores, other=d ** 0.5)[0][1])
    if r.random() < 0.6:
        ones = V(p.call("ones_like", "", self=scores)[0][1])
        mask = V(p.call("eq", "Scalar", self=V(p.call("tril", "", self=ones)[0][1]), other=0)[0][1])
        scores = V(p.call("masked_fill", "Scalar", self=scores, mask=mask, value=r.choice([float("-inf"), -1e4]))[0][1])
    weights = V(p.call("softmax", "int", self=scores, dim=-1)[0][1])
    out = V(p.call("matmul", "", self=weights, other=heads[2])[0][1])
    out = V(p.call("transpose", "int", self=out, dim0=1, dim1=2)[0][1])
    return p.call("reshape", "", self=out, shape=[b, s, h * d]) if p.device == "cpu" else p.call(
        "contiguous", "", self=out)

"""Draws calls at the edges: tensors without dimensions or elements, dimensions and indices that are not there, NaN and
infinities, ties, whole numbers, masks, places by strides, results of other sizes."""
import numpy as np
import torch

from instructions import D, V
from program import FLOATS, NAME, Skip

WHOLE = ["i32", "i64", "u8", "i8", "i16", "bool"]
NAN, INF = float("nan"), float("inf")
# Operators of a tensor and one dimension, by the form in which they take it, with what else they take.
IN_LISTS = [("sum", "dim_IntList", {}), ("mean", "dim", {}), ("amax", "", {}), ("amin", "", {}), ("logsumexp", "", {}),
            ("std", "correction", {"correction": 0}), ("var_mean", "correction", {"correction": 0}),
            ("linalg_vector_norm", "", {"ord": 2}), ("nansum", "", {})]
ALONE = [("prod", "dim_int", {}), ("cumsum", "", {}), ("cumprod", "", {}), ("cummax", "", {}), ("cummin", "", {}),
         ("logcumsumexp", "", {}), ("max", "dim", {}), ("min", "dim", {}), ("any", "dim", {}), ("all", "dim", {}),
         ("argmax", "", {}), ("argmin", "", {}), ("softmax", "int", {}), ("log_softmax", "int", {}), ("sort", "", {}),
         ("argsort", "", {}), ("median", "dim", {}), ("nanmedian", "dim", {}), ("mode", "", {}),
         ("kthvalue", "", {"k": 1}), ("topk", "", {"k": 1}), ("aminmax", "", {}), ("count_nonzero", "", {}),
         ("unbind", "int", {}), ("squeeze", "dim", {}), ("unsqueeze", "", {}), ("select", "int", {"index": 0}),
         ("narrow", "", {"start": 0, "length": 1}), ("diff", "", {}), ("glu", "", {}),
         ("renorm", "", {"p": 2, "maxnorm": 1.0}), ("repeat_interleave", "self_int", {"repeats": 2}),
         ("chunk", "", {"chunks": 2}), ("split", "Tensor", {"split_size": 1})]
BY_DIM = ([("dim", True, *row) for row in IN_LISTS] + [("dim", False, *row) for row in ALONE]
          + [("dims", True, "flip", "", {}), ("dimension", False, "unfold", "", {"size": 1, "step": 1})])


def by_dim(p, i, dim):
    key, in_list, name, overload, more = p.r.choice(BY_DIM)
    op = getattr(getattr(torch.ops.aten, name), overload or "default")
    keeps = any(argument.name == "keepdim" for argument in op._schema.arguments)
    keep = {"keepdim": True} if keeps and p.r.random() < 0.3 else {}
    return p.call(name, overload, self=V(i), **{key: [dim] if in_list else dim}, **more, **keep)


def some_dtype(p):
    return p.r.choice(FLOATS + WHOLE)


def zero_dims(p):
    """Tensors without dimensions have the dimensions 0 and -1."""
    i = p.make([], some_dtype(p))
    return by_dim(p, i, p.r.choice([0, -1, 0, -1, 1, -2]))


def bad_dims(p):
    """Dimensions that are there and those beside them."""
    i = p.some()
    n = p.vars[i].dim()
    return by_dim(p, i, p.r.choice([-n - 1, n, p.r.randrange(-n - 1, n + 1)]))


def empties(p):
    shape = p.r.choice([[0], [0, 3], [2, 0], [0, 0], [1, 0, 2], [3, 2, 0]])
    i = p.make(shape, some_dtype(p))
    if p.r.random() < 0.6:
        return by_dim(p, i, p.r.randrange(-len(shape), len(shape)))
    name = p.r.choice(["max", "min", "sum", "mean", "prod", "argmax", "argmin", "all", "any", "median", "nanmedian",
                       "nonzero", "isnan", "neg", "t", "cat", "sort", "add", "matmul", "norm", "std", "var", "amax",
                       "aminmax", "trace", "ravel", "count_nonzero", "squeeze"])
    if name == "cat":
        return p.call("cat", "", tensors=[V(i), V(p.some())], dim=p.r.choice([0, -1, 1]))
    if name == "add":
        return p.call("add", "Tensor", self=V(i), other=V(p.some()))
    if name == "matmul":
        return p.call("matmul", "", self=V(i), other=V(p.some()))
    if name == "norm":
        return p.call("norm", "Scalar", self=V(i), p=p.r.choice([1, 2, INF]))
    if name in ("std", "var"):
        return p.call(name, "", self=V(i), unbiased=p.r.random() < 0.5)
    return p.call(name, "", self=V(i))


def special(p, shape=None):
    """A tensor with NaN, infinities, zeros of both signs and elements that are equal."""
    shape = shape if shape is not None else p.r.choice([[3], [5], [2, 4], [3, 3], [2, 3, 2], [1], []])
    dtype = p.r.choice(["f32", "f32", "f64", "bf16", "f16"])
    kind = p.r.choice([[NAN, 1, 2, -1], [INF, -INF, 0, 1], [NAN, INF, -INF, 0, -0.0, 1], [0, -0.0, 1, 1],
                       [1, 1, 2, 2]])
    a = np.array(p.g.choice(np.array(kind), shape), dtype=np.float64)
    a = a.astype({"f32": np.float32, "f64": np.float64, "bf16": np.float32, "f16": np.float16}[dtype]).reshape(shape)
    t = torch.tensor(a).to({"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16,
                            "f16": torch.float16}[dtype])
    i = p.new(t)
    p.code.append(("data", i, a, dtype))
    if p.autograd and p.r.random() < 0.4:
        t.requires_grad_(True)
        p.code.append(("requires", i, True))
    return i


def specials(p):
    r = p.r
    i = special(p)
    t, v = p.vars[i], V(i)
    x = r.choice([NAN, INF, -INF, 0, 1, -1, 0.5])
    name = r.choice(["dim", "dim", "dim", "unary", "unary", "clamp", "clampt", "binary", "binary", "compare", "fill",
                     "masked", "nan_to_num", "where", "full", "isclose", "pow", "lerp", "scatter_reduce", "norm",
                     "relu", "window"])
    if name == "dim":
        return by_dim(p, i, r.randrange(-t.dim(), t.dim()) if t.dim() else 0)
    if name == "unary":
        return p.call(r.choice(["max", "min", "argmax", "argmin", "sum", "mean", "median", "nanmedian", "sign", "sgn",
                                "relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "abs", "isnan",
                                "isposinf", "isneginf", "isinf", "isfinite", "logical_not", "any", "all", "msort",
                                "floor", "round", "trunc", "frac", "reciprocal", "sigmoid", "tanh", "softplus",
                                "log_sigmoid", "elu", "selu", "celu", "silu", "mish", "leaky_relu", "hardshrink",
                                "softshrink", "count_nonzero", "nonzero", "aminmax", "prod", "erf", "exp", "log1p",
                                "sqrt", "rsqrt", "atan", "expm1", "nansum", "logit", "square", "neg"]), "", self=v)
    if name == "clamp":
        return p.call("clamp", "", self=v, min=r.choice([None, x]), max=r.choice([0, 1, NAN, INF]))
    if name == "clampt":
        return p.call("clamp", "Tensor", self=v, min=V(special(p, list(t.shape))),
                      max=r.choice([None, V(special(p, list(t.shape)))]))
    if name == "binary":
        op = r.choice(["maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "add", "mul", "sub", "div",
                       "logaddexp", "xlogy", "heaviside", "nextafter", "logical_xor", "max", "min"])
        overload = {"xlogy": "Tensor", "add": "Tensor", "mul": "Tensor", "sub": "Tensor",
                    "div": "Tensor", "max": "other", "min": "other"}.get(op, "")
        key = "values" if op == "heaviside" else "other"
        return p.call(op, overload, self=v, **{key: V(special(p, list(t.shape)))})
    if name == "compare":
        return p.call(r.choice(["eq", "ne", "lt", "le", "gt", "ge"]), "Scalar", self=v, other=x)
    if name == "fill":
        return p.call("fill_", "Scalar", self=v, value=x)
    if name == "masked":
        m = V(p.call("gt", "Scalar", self=v, other=0)[0][1])
        return p.call("masked_fill", "Scalar", self=v, mask=m, value=x)
    if name == "nan_to_num":
        return p.call("nan_to_num", "", self=v, nan=r.choice([None, 0.5]), posinf=r.choice([None, 7.0]),
                      neginf=r.choice([None, -3.0]))
    if name == "where":
        m = V(p.call("isnan", "", self=v)[0][1])
        return p.call("where", "self", condition=m, self=v, other=V(special(p, list(t.shape))))
    if name == "full":
        return p.call("full_like", "", self=v, fill_value=x)
    if name == "isclose":
        return p.call("isclose", "", self=v, other=V(special(p, list(t.shape))), rtol=0.1, atol=0.1,
                      equal_nan=r.random() < 0.5)
    if name == "pow":
        return p.call("pow", "Tensor_Scalar", self=v, exponent=r.choice([0, 1, 2, -1, 0.5, INF, NAN]))
    if name == "lerp":
        return p.call("lerp", "Scalar", self=v, end=V(special(p, list(t.shape))), weight=r.choice([0, 1, 0.5]))
    if name == "norm":
        return p.call("norm", "Scalar", self=v, p=r.choice([0, 1, 2, INF, -INF]))
    if name == "relu":
        return p.call(r.choice(["relu_", "hardtanh_"]), "", self=v)
    if name == "window" and t.dim() == 2:
        w = V(p.call("unsqueeze", "", self=v, dim=0)[0][1])
        return p.call("max_pool1d", "", self=w, kernel_size=[2], stride=[1])
    if name == "scatter_reduce" and t.dim() > 0:
        index = whole_numbers(p, list(t.shape), 0, t.shape[0])
        return p.call("scatter_reduce", "two", self=v, dim=0, index=index, src=V(special(p, list(t.shape))),
                      reduce=r.choice(["amax", "amin", "sum", "mean"]), include_self=r.random() < 0.5)
    raise Skip


def _skip():
    raise Skip


def whole_numbers(p, shape, least, bound):
    a = np.array(p.g.integers(least, bound, shape), dtype=np.int64)
    j = p.new(torch.tensor(a))
    p.code.append(("data", j, a, "i64"))
    return V(j)


def wholes(p):
    """Whole numbers and booleans, with other dtypes beside them."""
    r = p.r
    i = p.make(None, r.choice(WHOLE))
    t, v = p.vars[i], V(i)
    name = r.choice(["dim", "dim", "unary", "binary", "binary", "scalar", "scalar", "shift", "write", "write", "sum",
                     "mm", "where", "cast", "index", "gcd", "clamp", "cat", "unique"])
    other = V(p.make(r.choice([list(t.shape), [], [1]]), r.choice(WHOLE + ["f32", "f64", "bf16"])))
    if name == "dim":
        return by_dim(p, i, r.randrange(-t.dim(), t.dim()) if t.dim() else 0)
    if name == "unary":
        return p.call(r.choice(["sum", "prod", "max", "min", "argmax", "any", "all", "neg", "abs", "sign", "sgn",
                                "bitwise_not", "logical_not", "mean", "exp", "sqrt", "sigmoid", "floor", "ceil",
                                "round", "trunc", "relu", "square", "reciprocal", "tanh", "erf", "signbit", "isnan",
                                "positive", "frac", "std", "angle", "real", "trace", "nonzero", "deg2rad",
                                "count_nonzero", "median", "aminmax", "softplus", "gelu", "silu", "hardtanh", "relu6",
                                "logit", "i0", "log2"]), "", self=v)
    if name == "binary":
        op = r.choice(["add", "sub", "mul", "div", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor",
                       "logical_and", "logical_or", "eq", "lt", "ge", "atan2", "fmax", "hypot", "true_divide", "rsub",
                       "copysign", "xlogy", "logaddexp", "max", "heaviside"])
        overload = {"maximum": "", "minimum": "", "logical_and": "", "logical_or": "", "atan2": "", "fmax": "",
                    "hypot": "", "logaddexp": "", "max": "other", "heaviside": ""}.get(op, "Tensor")
        return p.call(op, overload, self=v, **{"values" if op == "heaviside" else "other": other})
    if name == "scalar":
        op = r.choice(["add", "sub", "mul", "div", "rsub", "eq", "gt", "bitwise_and", "bitwise_xor", "remainder",
                       "floor_divide", "fmod", "pow", "clamp_min", "clamp_max", "masked_fill", "fill_", "add_", "mul_"])
        x = r.choice([2, 3, -1, 1.5, 0.25])
        if op in ("remainder", "floor_divide", "fmod"):
            x = r.choice([2, 3, -2, 1.5])
        if op == "pow":
            return p.call("pow", "Tensor_Scalar", self=v, exponent=r.choice([0, 1, 2, 0.5, -1]))
        if op in ("clamp_min", "clamp_max"):
            return p.call(op, "", self=v, **{op[6:]: x})
        if op == "masked_fill":
            return p.call(op, "Scalar", self=v, mask=V(p.make(list(t.shape), "bool")), value=x)
        return p.call(op, "Scalar", self=v, **{"value" if op == "fill_" else "other": x})
    if name == "shift":
        return p.call(r.choice(["__lshift__", "__rshift__", "bitwise_left_shift", "bitwise_right_shift"]), "Tensor",
                      self=v, other=V(p.make([], "i64")))
    if name == "write":
        op = r.choice(["add_", "sub_", "mul_", "div_", "bitwise_and_", "bitwise_or_", "eq_", "lt_", "copy_",
                       "logical_and_", "floor_divide_", "remainder_"])
        if op == "copy_":
            return p.call(op, "", self=v, src=other)
        if op in ("floor_divide_", "remainder_"):
            return p.call(op, "Scalar", self=v, other=r.choice([2, 3, 1.5]))
        return p.call(op, "" if op == "logical_and_" else "Tensor", self=v, other=other)
    if name == "sum":
        return p.call("sum", "", self=v, dtype=D(r.choice(["i32", "u8", "f32", "bool", "bf16", "i64"])))
    if name == "mm" and t.dim() == 2:
        return p.call("matmul", "", self=v, other=V(p.make([t.shape[1], 2], NAME[t.dtype])))
    if name == "where":
        condition = V(p.make(list(t.shape), r.choice(["bool", "u8"])))
        return p.call("where", "self", condition=condition, self=v, other=other)
    if name == "cast":
        return p.call("to", "dtype", self=v, dtype=D(r.choice(WHOLE + FLOATS)))
    if name == "index" and t.dim() > 0 and t.shape[0] > 0:
        return p.call("index", "Tensor", self=v, indices=[V(p.make([t.shape[0]], r.choice(["bool", "u8"])))])
    if name == "gcd":
        return p.call(r.choice(["gcd", "lcm"]), "", self=v, other=V(p.make(list(t.shape), NAME[t.dtype])))
    if name == "clamp":
        return p.call("clamp", "", self=v, min=r.choice([None, 0, 0.5]), max=r.choice([2, 1.5, 3]))
    if name == "cat":
        return p.call("cat", "", tensors=[v, V(p.make(list(t.shape), r.choice(WHOLE + FLOATS)))], dim=0)
    if name == "unique" and t.dtype != torch.bool:
        return p.call("_unique2", "", self=v, sorted=True, return_inverse=True, return_counts=True)
    raise Skip


def outside(p):
    """Indices some of which are not there. A replay tells when the graph runs, and the program ends."""
    r = p.r
    i = p.some(lambda t: t.dim() >= 1 and t.numel() > 0)
    t, v = p.vars[i], V(i)
    d = r.randrange(-t.dim(), t.dim())
    n = t.shape[d]
    k = r.choice([n, n + 3, -n - 1, -1])
    a = np.array([0, k], dtype=np.int64)
    j = p.new(torch.tensor(a))
    p.code.append(("data", j, a, "i64"))
    name = r.choice(["index_select", "index", "take", "embedding", "gather", "scatter", "index_add", "index_fill",
                     "index_copy", "one_hot", "select", "narrow", "index_put_", "cross_entropy", "put", "scatter_add",
                     "select_scatter", "take_along_dim", "nll"])
    dtype = NAME[t.dtype]
    rows = list(t.shape)
    rows[d] = 2
    if name == "index_select":
        return p.call(name, "", self=v, dim=d, index=V(j))
    if name == "index":
        return p.call(name, "Tensor", self=v, indices=[None] * (d % t.dim()) + [V(j)])
    if name == "take":
        return p.call(name, "", self=v, index=V(j))
    if name == "embedding":
        return p.call(name, "", weight=v, indices=V(j)) if t.dim() == 2 and t.is_floating_point() else _skip()
    if name in ("gather", "take_along_dim") and t.dim() == 1:
        return p.call(name, "", self=v, dim=d, **{"index" if name == "gather" else "indices": V(j)})
    if name in ("scatter", "scatter_add") and t.dim() == 1:
        return p.call(name, "src" if name == "scatter" else "", self=v, dim=d, index=V(j), src=V(p.make([2], dtype)))
    if name in ("index_add", "index_copy"):
        return p.call(name, "", self=v, dim=d, index=V(j), source=V(p.make(rows, dtype)))
    if name == "index_fill":
        return p.call(name, "int_Scalar", self=v, dim=d, index=V(j), value=1)
    if name == "one_hot":
        return p.call(name, "", self=V(j), num_classes=2)
    if name == "select":
        return p.call(name, "int", self=v, dim=d, index=k)
    if name == "select_scatter":
        shape = [m for e, m in enumerate(t.shape) if e != d % t.dim()]
        return p.call(name, "", self=v, src=V(p.make(shape, dtype)), dim=d, index=k)
    if name == "narrow":
        return p.call(name, "", self=v, dim=d, start=r.choice([0, n, -1, n + 1, -n - 1]),
                      length=r.choice([0, 1, n, n + 1]))
    if name == "index_put_" and t.is_leaf and not t.requires_grad and not t._is_view():
        return p.call(name, "", self=v, indices=[V(j)], values=V(p.make([2] + list(t.shape[1:]), dtype)),
                      accumulate=r.random() < 0.5)
    if name == "put":
        return p.call(name, "", self=v, index=V(j), source=V(p.make([2], dtype)))
    if name in ("nll", "cross_entropy") and t.dim() == 2 and t.shape[0] == 2 and t.is_floating_point():
        return p.call("nll_loss" if name == "nll" else "cross_entropy_loss", "", self=v, target=V(j))
    raise Skip


def strided(p):
    """Places by strides, of a tensor that is no view: parts, windows, repeated elements."""
    r = p.r
    i = p.make() if p.device != "cpu" else p.some(lambda t: t._base is None and t.is_contiguous() and t.numel() > 0)
    size = [r.choice([0, 1, 2, 3]) for _ in range(r.choice([0, 1, 2, 2, 3]))]
    stride = [r.choice([0, 1, 1, 2, 3]) for _ in size]
    offset = r.choice([None, 0, 1, 2])
    view = p.call("as_strided", "", self=V(i), size=size, stride=stride, storage_offset=offset)
    if p.device == "cpu":
        return view
    # The recorded device has no places under a tensor that is written in another order, or several times at once.
    p.call("clone", "", self=V(view[0][1]))
    del p.vars[view[0][1]]
    p.code.append(("drop", view[0][1]))
    return view


def duplicates(p):
    """Several writes to one place; kernels make them in the indices' order."""
    r = p.r
    dtype = r.choice(["f32", "f64", "i64", "bf16", "i32", "bool"])
    n, m, d = r.choice([1, 2, 3]), r.choice([2, 4]), r.choice([0, 1, -1])
    i = p.make([n, 3], dtype)
    t, v = p.vars[i], V(i)
    shape = [n, 3]
    shape[d] = m
    index = whole_numbers(p, shape, 0, [n, 3][d])
    line = whole_numbers(p, [m], 0, [n, 3][d])
    src = V(p.make(shape, dtype))
    name = r.choice(["scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_put", "put",
                     "scatterv", "scatterr", "gather", "index_reduce", "index_fill"])
    if name == "scatter":
        return p.call(name, "src", self=v, dim=d, index=index, src=src)
    if name == "scatterv":
        return p.call("scatter", "value", self=v, dim=d, index=index, value=r.choice([1, 0]))
    if name == "scatterr":
        return p.call("scatter", "reduce", self=v, dim=d, index=index, src=src, reduce=r.choice(["add", "multiply"]))
    if name == "scatter_add":
        return p.call(name, "", self=v, dim=d, index=index, src=src)
    if name == "scatter_reduce":
        return p.call(name, "two", self=v, dim=d, index=index, src=src, include_self=r.random() < 0.5,
                      reduce=r.choice(["sum", "prod", "mean", "amax", "amin"]))
    if name == "index_add":
        return p.call(name, "", self=v, dim=d, index=line, source=src, alpha=r.choice([1, 2]))
    if name == "index_copy":
        return p.call(name, "", self=v, dim=d, index=line, source=src)
    if name == "index_fill":
        return p.call(name, "int_Scalar", self=v, dim=d, index=line, value=1)
    if name == "index_reduce":
        return p.call(name, "", self=v, dim=d, index=line, source=src,
                      reduce=r.choice(["prod", "amax", "amin", "mean"]), include_self=r.random() < 0.5)
    if name == "index_put":
        return p.call(name, "", self=v, indices=[line] if d == 0 else [None, line], values=src,
                      accumulate=r.random() < 0.7)
    if name == "put":
        return p.call(name, "", self=v, index=whole_numbers(p, [m], 0, 3 * n), source=V(p.make([m], dtype)),
                      accumulate=r.random() < 0.7)
    return p.call(name, "", self=v, dim=d, index=index)


def masks(p):
    r = p.r
    i = p.some()
    t, v = p.vars[i], V(i)
    shape = r.choice([list(t.shape), [], [1] * t.dim(), list(t.shape[1:]), [2] + list(t.shape)])
    m = V(p.make(shape, r.choice(["bool", "bool", "bool", "u8", "i64"])))
    name = r.choice(["masked_fill", "masked_fillt", "masked_select", "masked_scatter", "where", "index", "masked_fill_",
                     "wheres", "nonzero", "index_put", "masked_scatter_"])
    if name in ("masked_fill", "masked_fill_"):
        return p.call(name, "Scalar", self=v, mask=m, value=r.choice([1, 0, -1.5, INF]))
    if name == "masked_fillt":
        value = V(p.make(r.choice([[], [], [1]]), some_dtype(p)))
        if p.vars[value.i].requires_grad and not t.is_floating_point():
            raise Skip  # torch fails by an assertion of its own
        return p.call("masked_fill", "Tensor", self=v, mask=m, value=value)
    if name == "masked_select":
        return p.call(name, "", self=v, mask=m)
    if name in ("masked_scatter", "masked_scatter_"):
        return p.call(name, "", self=v, mask=m, source=V(p.make([max(t.numel() * 2, 1)], NAME[t.dtype])))
    if name == "where":
        return p.call(name, "self", condition=m, self=v, other=V(p.make(list(t.shape), some_dtype(p))))
    if name == "wheres":
        return p.call("where", "ScalarOther", condition=m, self=v, other=r.choice([1, 0.5]))
    if name == "nonzero":
        return p.call(name, "", self=m)
    if name == "index":
        return p.call(name, "Tensor", self=v, indices=[m])
    return p.call(name, "", self=v, indices=[m], values=V(p.make([], NAME[t.dtype])), accumulate=r.random() < 0.3)


def results(p):
    """Tensors that are given for results, mostly of other sizes or dtypes than these have. Views keep their sizes."""
    r = p.r
    i = p.some()
    t, v = p.vars[i], V(i)
    name, overload, args = r.choice([
        ("exp", "out", {}), ("abs", "out", {}), ("neg", "out", {}), ("sum", "IntList_out", {"dim": [0]}),
        ("add", "out", {"other": v}), ("maximum", "out", {"other": v}), ("mul", "out", {"other": v}),
        ("cumsum", "out", {"dim": 0}), ("amax", "out", {"dim": [0]}), ("logical_not", "out", {}),
        ("eq", "Scalar_out", {"other": 1}), ("clamp", "out", {"min": 0, "max": 2}), ("tril", "out", {}),
        ("pow", "Tensor_Scalar_out", {"exponent": 2}), ("argmax", "out", {"dim": 0}), ("nonzero", "out", {}),
        ("max", "out", {"other": v}), ("sigmoid", "out", {}), ("prod", "int_out", {"dim": 0}),
        ("mean", "out", {"dim": [0]}), ("all", "out", {"dim": 0}), ("isposinf", "out", {}), ("sgn", "out", {}),
        ("index_select", "out", {"dim": 0}), ("cat", "out", {})])
    shape = r.choice([[0], [], [3], list(t.shape), [2, 2], list(t.shape) + [1]])
    dtype = r.choice([NAME[t.dtype]] * 3 + ["bool", "i64", "f32", "f64"])
    autograd, p.autograd = p.autograd, False
    out = V(p.make(shape, dtype))
    p.autograd = autograd
    if r.random() < 0.15 and p.device == "cpu":
        out = V(p.call("alias", "", self=out)[0][1])
    if name == "index_select":
        if t.dim() == 0 or t.shape[0] == 0:
            raise Skip
        args = {"dim": 0, "index": whole_numbers(p, [2], 0, t.shape[0])}
    given = {"tensors": [v, v], "dim": 0} if name == "cat" else {"self": v, **args}
    try:
        return p.call(name, overload, **given, out=out)
    except Skip:  # torch may have given the result its size before it has failed
        del p.vars[out.i]
        p.code.append(("drop", out.i))
        raise

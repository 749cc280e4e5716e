"""Draws calls of operators that give new tensors: views, functions, reductions, products."""

import torch

from instructions import D, V
from program import NAME, Skip


def views(p):
    r = p.r
    i = p.some()
    t = p.vars[i]
    v = V(i)
    which = r.choice(["slice", "slice", "select", "transpose", "transpose", "permute", "expand", "reshape", "view",
            "unsqueeze",
                      "squeeze", "squeezedim", "narrow", "diagonal", "unfold", "split", "chunk", "unbind", "t",
                              "flatten",
                      "contiguous", "clone", "movedim", "as_strided", "expand_as", "alias", "unflatten",
                              "splitsizes", "detach"])
    if which == "slice":
        d = p.dim(t)
        n = t.shape[d]
        p.call("slice", "Tensor", self=v, dim=d, start=r.choice([0, 0, 1, -2, n]), end=r.choice([n, n, n + 3, -1,
                1]), step=r.choice([1, 1, 2, 3]))
    elif which == "select":
        d = p.dim(t)
        if t.shape[d] == 0:
            raise Skip
        p.call("select", "int", self=v, dim=d, index=r.choice([0, -1, r.randrange(t.shape[d])]))
    elif which == "transpose":
        p.call("transpose", "int", self=v, dim0=p.dim(t), dim1=p.dim(t))
    elif which == "permute":
        dims = list(range(t.dim()))
        r.shuffle(dims)
        p.call("permute", "", self=v, dims=dims)
    elif which == "expand":
        size = [r.choice([s, -1]) if s != 1 else r.choice([1, 2, 3]) for s in t.shape]
        if r.random() < 0.3:
            size = [r.choice([1, 2])] + size
        p.call("expand", "", self=v, size=size)
    elif which in ("reshape", "view"):
        shape = list(t.shape)
        if len(shape) > 1 and r.random() < 0.5:
            k = r.randrange(len(shape) - 1)
            shape = shape[:k] + [shape[k] * shape[k + 1]] + shape[k + 2:]
        elif shape and r.random() < 0.5:
            shape = [-1]
        else:
            shape = shape + [1]
        if which == "view":
            p.call("view", "", self=v, size=shape)
        else:
            p.call("reshape", "", self=v, shape=shape)
    elif which == "unsqueeze":
        p.call("unsqueeze", "", self=v, dim=r.randrange(-t.dim() - 1, t.dim() + 1))
    elif which == "squeeze":
        p.call("squeeze", "", self=v)
    elif which == "squeezedim":
        p.call("squeeze", "dim", self=v, dim=p.dim(t))
    elif which == "narrow":
        d = p.dim(t)
        start = r.randrange(0, t.shape[d] + 1)
        p.call("narrow", "", self=v, dim=d, start=start, length=r.randrange(0, t.shape[d] - start + 1))
    elif which == "diagonal":
        if t.dim() < 2:
            raise Skip
        a, b = r.sample(range(t.dim()), 2)
        p.call("diagonal", "", self=v, offset=r.choice([0, 0, 1, -1]), dim1=a, dim2=b)
    elif which == "unfold":
        d = p.dim(t)
        if t.shape[d] < 1:
            raise Skip
        p.call("unfold", "", self=v, dimension=d, size=r.randrange(1, t.shape[d] + 1), step=r.choice([1, 2]))
    elif which == "split":
        d = p.dim(t)
        if t.shape[d] == 0 or t.shape[d] > 5:
            raise Skip
        p.call("split", "Tensor", self=v, split_size=r.choice([1, 2, 3]), dim=d)
    elif which == "splitsizes":
        d = p.dim(t)
        k = r.randrange(0, t.shape[d] + 1)
        p.call("split_with_sizes", "", self=v, split_sizes=[k, t.shape[d] - k], dim=d)
    elif which == "chunk":
        d = p.dim(t)
        p.call("chunk", "", self=v, chunks=r.choice([1, 2, 3]), dim=d)
    elif which == "unbind":
        d = p.dim(t)
        if not 0 < t.shape[d] < 4:
            raise Skip
        p.call("unbind", "int", self=v, dim=d)
    elif which == "t":
        if t.dim() > 2:
            raise Skip
        p.call("t", "", self=v)
    elif which == "flatten":
        if t.dim() == 0:
            raise Skip
        a = r.randrange(t.dim())
        p.call("flatten", "using_ints", self=v, start_dim=a, end_dim=r.randrange(a, t.dim()))
    elif which == "contiguous":
        p.call("contiguous", "", self=v)
    elif which == "clone":
        p.call("clone", "", self=v)
    elif which == "movedim":
        p.call("movedim", "int", self=v, source=p.dim(t), destination=p.dim(t))
    elif which == "as_strided":
        if p.device != "cpu" or t.numel() == 0 or t.dim() < 1:
            raise Skip
        p.call("as_strided", "", self=v, size=list(reversed(t.shape)), stride=list(reversed(t.stride())),
                storage_offset=t.storage_offset())
    elif which == "expand_as":
        o = p.some(lambda o: o.dim() >= t.dim())
        p.call("expand_as", "", self=v, other=V(o))
    elif which == "alias":
        p.call("alias", "", self=v)
    elif which == "unflatten":
        d = p.dim(t)
        if t.shape[d] == 0:
            raise Skip
        k = r.choice([k for k in range(1, t.shape[d] + 1) if t.shape[d] % k == 0])
        p.call("view", "", self=v, size=list(t.shape[:d % t.dim()]) + [k, t.shape[d] // k] +
                list(t.shape[d % t.dim() + 1:]))
    elif which == "detach":
        i2 = p.new(t.detach())
        p.code.append(("detach", i2, i))


UNARY = ["relu", "tanh", "sigmoid", "abs", "neg", "silu", "square", "sin", "cos", "exp", "floor", "round", "sign",
        "erf", "hardswish",
         "hardsigmoid", "mish", "log_sigmoid", "softplus", "leaky_relu", "elu", "selu", "celu", "gelu", "gelu_tanh",
                 "hardtanh", "threshold", "relu6",
         "expm1", "atan", "trunc", "frac", "hardshrink", "softshrink", "logical_not", "isnan"]


def unary(p):
    i = p.float_var()
    v = V(i)
    name = p.r.choice(UNARY)
    if name == "gelu_tanh":
        p.call("gelu", "", self=v, approximate="tanh")
    elif name == "threshold":
        p.call("threshold", "", self=v, threshold=0.5, value=0.25)
    else:
        p.call(name, "", self=v)


def scalar(p):
    i = p.some()
    v = V(i)
    f = p.vars[i].is_floating_point()
    x = p.r.choice([2, -1, 3] + ([0.5, 1.25, -0.75] if f else []))
    name = p.r.choice(["add", "sub", "mul", "rsub", "div", "pow", "clamp", "eq", "gt", "le", "remainder", "fmod"])
    if name in ("remainder", "fmod") and p.vars[i].dtype in (torch.bfloat16, torch.float16):
        raise Skip  # what is rounded to a neighbour has another remainder
    if name == "pow":
        p.call("pow", "Tensor_Scalar", self=v, exponent=p.r.choice([2, 3, 1, 0]))
    elif name == "clamp":
        p.call("clamp", "", self=v, min=-1, max=p.r.choice([None, 1]))
    elif name in ("add", "sub", "rsub"):
        p.call(name, "Scalar", self=v, other=x, alpha=p.r.choice([1, 1, 2]))
    else:
        p.call(name, "Scalar", self=v, other=x)


def binary(p):
    i = p.some()
    j = p.like(i)
    a, b = (V(i), V(j)) if p.r.random() < 0.7 else (V(j), V(i))
    name = p.r.choice(["add", "add", "sub", "mul", "mul", "maximum", "minimum", "lt", "ge", "eq", "ne", "div",
            "atan2", "hypot", "max"])
    if name in ("add", "sub"):
        p.call(name, "Tensor", self=a, other=b, alpha=p.r.choice([1, 1, 1, 2]))
    elif name in ("maximum", "minimum", "atan2", "hypot"):
        p.call(name, "", self=a, other=b)
    elif name == "max":
        p.call(name, "other", self=a, other=b)
    elif name == "div":
        # by something that is never 0
        p.call("abs", "", self=b)
        out = p.call("add", "Scalar", self=V(p.code[-1][4][0][1]), other=1)
        p.call("div", "Tensor", self=a, other=V(out[0][1]))
    else:
        p.call(name, "Tensor", self=a, other=b)


def ternary(p):
    i = p.float_var()
    j, k = p.like(i), p.like(i)
    name = p.r.choice(["addcmul", "lerp", "lerps", "where"])
    if name == "addcmul":
        p.call("addcmul", "", self=V(i), tensor1=V(j), tensor2=V(k), value=p.r.choice([1, 0.5]))
    elif name == "lerp":
        p.call("lerp", "Tensor", self=V(i), end=V(j), weight=V(k))
    elif name == "lerps":
        p.call("lerp", "Scalar", self=V(i), end=V(j), weight=p.r.choice([0.25, 0.75]))
    else:
        m = p.call("gt", "Scalar", self=V(k), other=0)
        p.call("where", "self", condition=V(m[0][1]), self=V(i), other=V(j))


def reduce(p):
    r = p.r
    i = p.float_var()
    t, v = p.vars[i], V(i)
    name = r.choice(["sum", "sumdim", "sumdim", "mean", "meandim", "amax", "amin", "maxdim", "softmax",
            "log_softmax", "logsumexp", "cumsum",
                     "cumprod", "prod", "var", "norm", "argmax", "sort", "topk", "flip", "roll", "tril", "triu",
                             "any", "all", "max", "std", "nansum",
                     "logcumsumexp", "cummax", "kthvalue", "var_mean", "diff", "count_nonzero", "trace",
                             "sumdtype"])
    keep = r.random() < 0.4
    if name in ("sum", "mean", "max", "trace"):
        p.call(name, "", self=v)
    elif name == "sumdtype":
        p.call("sum", "", self=v, dtype=D(r.choice(["f32", "f64"])))
    elif name in ("sumdim", "meandim"):
        dims = r.sample(range(t.dim()), r.randrange(0, t.dim() + 1)) or [0]
        p.call(name[:-3], "dim_IntList" if name == "sumdim" else "dim", self=v, dim=dims, keepdim=keep)
    elif name in ("amax", "amin"):
        p.call(name, "", self=v, dim=[p.dim(t)], keepdim=keep)
    elif name == "maxdim":
        p.call("max", "dim", self=v, dim=p.dim(t), keepdim=keep)
    elif name in ("softmax", "log_softmax"):
        p.call(name, "int", self=v, dim=p.dim(t) if t.dim() else 0)
    elif name == "logsumexp":
        p.call(name, "", self=v, dim=[p.dim(t)], keepdim=keep)
    elif name in ("cumsum", "cumprod", "logcumsumexp", "cummax"):
        p.call(name, "", self=v, dim=p.dim(t))
    elif name == "prod":
        p.call(name, "dim_int", self=v, dim=p.dim(t), keepdim=keep)
    elif name in ("var", "std", "var_mean"):
        d = p.dim(t)
        if t.shape[d] < 2:
            raise Skip
        p.call(name, "correction", self=v, dim=[d], correction=r.choice([0, 1]), keepdim=keep)
    elif name == "norm":
        p.call("norm", "ScalarOpt_dim", self=v, p=r.choice([1, 2]), dim=[p.dim(t)], keepdim=keep)
    elif name == "argmax":
        p.call("argmax", "", self=v, dim=p.dim(t), keepdim=keep)
    elif name == "sort":
        p.call("sort", "stable", self=v, stable=True, dim=p.dim(t), descending=keep)
    elif name == "topk":
        d = p.dim(t)
        p.call("amax", "", self=v, dim=[d], keepdim=keep)
    elif name == "kthvalue":
        d = p.dim(t)
        if t.shape[d] < 1:
            raise Skip
        p.call("sort", "stable", self=v, stable=True, dim=d, descending=not keep)
    elif name == "flip":
        p.call("flip", "", self=v, dims=[p.dim(t)])
    elif name == "roll":
        p.call("roll", "", self=v, shifts=[r.choice([1, -1, 2])], dims=[p.dim(t)])
    elif name in ("tril", "triu"):
        if t.dim() < 2:
            raise Skip
        p.call(name, "", self=v, diagonal=r.choice([0, 1, -1]))
    elif name in ("any", "all"):
        p.call(name, "dim", self=v, dim=p.dim(t), keepdim=keep)
    elif name == "nansum":
        p.call("nansum", "", self=v, dim=[p.dim(t)])
    elif name == "diff":
        p.call("diff", "", self=v, n=1, dim=p.dim(t))
    elif name == "count_nonzero":
        p.call("count_nonzero", "", self=v, dim=p.dim(t))


def product(p):
    r = p.r
    name = r.choice(["mm", "mm", "bmm", "matmul", "matmul", "addmm", "linear", "baddbmm", "mv", "dot", "outer",
            "addmv", "addbmm", "einsum", "tensordot", "inner"])
    if name in ("mm", "addmm", "linear", "outer", "einsum", "tensordot"):
        i = p.some(lambda t: t.is_floating_point() and t.dim() == 2)
    elif name in ("bmm", "baddbmm", "addbmm"):
        i = p.some(lambda t: t.is_floating_point() and t.dim() == 3)
    elif name in ("mv", "addmv"):
        i = p.some(lambda t: t.is_floating_point() and t.dim() == 2)
    elif name == "dot":
        i = p.some(lambda t: t.is_floating_point() and t.dim() == 1)
    else:
        i = p.some(lambda t: t.is_floating_point() and t.dim() >= 1)
    t = p.vars[i]
    dtype = NAME[t.dtype]

    def operand(shape):
        """A tensor of this shape: one there is, or a new one, maybe a view of another layout."""
        found = [j for j, o in p.vars.items() if list(o.shape) == list(shape) and o.dtype == t.dtype]
        if found and r.random() < 0.6:
            return r.choice(found)
        way = r.choice(["new", "transposed", "sliced", "expanded"])
        if way == "transposed" and len(shape) >= 2:
            j = p.make(list(shape[:-2]) + [shape[-1], shape[-2]], dtype)
            return p.call("transpose", "int", self=V(j), dim0=-1, dim1=-2)[0][1]
        if way == "sliced" and len(shape) >= 1:
            j = p.make(list(shape[:-1]) + [shape[-1] * 2], dtype)
            return p.call("slice", "Tensor", self=V(j), dim=len(shape) - 1, start=0, end=2 * shape[-1], step=2)[0][1]
        if way == "expanded" and len(shape) >= 1:
            k = r.randrange(len(shape))
            j = p.make([1 if m == k else s for m, s in enumerate(shape)], dtype)
            return p.call("expand", "", self=V(j), size=list(shape))[0][1]
        return p.make(list(shape), dtype)
    n = r.choice([0, 1, 2, 3, 5] if r.random() < 0.3 else [1, 2, 3, 4])
    v = V(i)
    if name == "mm":
        p.call("mm", "", self=v, mat2=V(operand([t.shape[1], n])))
    elif name == "bmm":
        p.call("bmm", "", self=v, mat2=V(operand([t.shape[0], t.shape[2], n])))
    elif name == "matmul":
        shape = [t.shape[-1], n] if r.random() < 0.6 else [t.shape[-1]]
        if t.dim() > 2 and r.random() < 0.3:
            shape = list(t.shape[:-2]) + [t.shape[-1], n]
        a, b = v, V(operand(shape))
        p.call("matmul", "", self=a, other=b)
    elif name == "addmm":
        m = V(operand([t.shape[1], n]))
        s = V(operand(r.choice([[t.shape[0], n], [n], [1, n], [t.shape[0], 1]])))
        p.call("addmm", "", self=s, mat1=v, mat2=m, beta=r.choice([1, 1, 0, 0.5]), alpha=r.choice([1, 1, 2]))
    elif name == "linear":
        w = V(operand([n, t.shape[1]]))
        p.call("linear", "", input=v, weight=w, bias=r.choice([None, V(operand([n]))]))
    elif name == "baddbmm":
        m = V(operand([t.shape[0], t.shape[2], n]))
        s = V(operand(r.choice([[t.shape[0], t.shape[1], n], [t.shape[1], n], [n], [1, 1, n]])))
        p.call("baddbmm", "", self=s, batch1=v, batch2=m, beta=r.choice([1, 0, 0.5]) if dtype in ("f32",
                "f64") else 1, alpha=r.choice([1, 2]))
    elif name == "addbmm":
        m = V(operand([t.shape[0], t.shape[2], n]))
        s = V(operand([t.shape[1], n]))
        p.call("addbmm", "", self=s, batch1=v, batch2=m, beta=r.choice([1, 0]), alpha=1)
    elif name == "mv":
        p.call("mv", "", self=v, vec=V(operand([t.shape[1]])))
    elif name == "addmv":
        p.call("addmv", "", self=V(operand([t.shape[0]])), mat=v, vec=V(operand([t.shape[1]])), beta=1,
                alpha=r.choice([1, 2]))
    elif name == "dot":
        p.call("dot", "", self=v, tensor=V(operand([t.shape[0]])))
    elif name == "outer":
        a = p.some(lambda o: o.dim() == 1 and o.dtype == t.dtype)
        p.call("outer", "", self=V(a), vec2=V(operand([n])))
    elif name == "einsum":
        p.call("einsum", "", equation=r.choice(["ij,jk->ik", "ij,jk->ki"]), tensors=[v, V(operand([t.shape[1], n]))])
    elif name == "tensordot":
        p.call("tensordot", "", self=v, other=V(operand([t.shape[0], n])), dims_self=[0], dims_other=[0])
    elif name == "inner":
        p.call("inner", "", self=v, other=V(operand([n, t.shape[-1]])))

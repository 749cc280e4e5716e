"""Draws calls of operators that read by indices, of norms and losses, and of those that write."""
import numpy as np
import torch

from instructions import V
from program import NAME, Skip


def indexing(p):
    r = p.r
    i = p.float_var(1)
    t, v = p.vars[i], V(i)
    d = p.dim(t)
    n = t.shape[d]
    if n == 0:
        raise Skip

    def ids(shape, bound, unique=False):
        if bound == 0:
            raise Skip
        a = p.g.permutation(bound)[:shape[0]] if unique else p.g.integers(0, bound, shape)
        j = p.new(torch.tensor(np.array(a, dtype=np.int64)))
        p.code.append(("data", j, np.array(a, dtype=np.int64), "i64"))
        return j
    name = r.choice(["gather", "index_select", "index", "scatter", "scatter_add", "index_add", "masked_fill", "cat",
            "stack", "repeat", "pad",
                     "embedding", "take", "index_copy", "index_fill", "masked_select_sum", "scatter_value",
                             "index_put", "masked_scatter", "repeat_interleave", "indexmask"])
    if name == "gather":
        shape = list(t.shape)
        shape[d] = r.choice([1, 2, 3])
        p.call("gather", "", self=v, dim=d, index=V(ids(shape, n)))
    elif name == "index_select":
        p.call("index_select", "", self=v, dim=d, index=V(ids([r.choice([0, 1, 3])], n)))
    elif name == "index":
        p.call("index", "Tensor", self=v, indices=[V(ids([r.choice([1, 3])], t.shape[0]))] if t.shape[0] else _skip())
    elif name in ("scatter", "scatter_add"):
        shape = list(t.shape)
        shape[d] = min(n, 2)
        ix = V(ids(shape, n)) if name == "scatter_add" else None
        if name == "scatter":
            # each place once, as the order of several is nobody's
            a = np.zeros(shape, dtype=np.int64)
            a[:] = np.expand_dims(p.g.permutation(n)[:shape[d]], tuple(k for k in range(t.dim()) if k != d % t.dim()))
            j = p.new(torch.from_numpy(a.copy()))
            p.code.append(("data", j, a, "i64"))
            ix = V(j)
        p.call(name, "src" if name == "scatter" else "", self=v, dim=d, index=ix, src=V(p.make(shape, NAME[t.dtype])))
    elif name == "scatter_value":
        shape = list(t.shape)
        shape[d] = 1
        p.call("scatter", "value", self=v, dim=d, index=V(ids(shape, n)), value=1.5)
    elif name == "index_add":
        shape = list(t.shape)
        shape[d] = 3
        p.call("index_add", "", self=v, dim=d, index=V(ids([3], n)), source=V(p.make(shape, NAME[t.dtype])),
                alpha=r.choice([1, 2]))
    elif name == "index_copy":
        shape = list(t.shape)
        shape[d] = 1
        p.call("index_copy", "", self=v, dim=d, index=V(ids([1], n)), source=V(p.make(shape, NAME[t.dtype])))
    elif name == "index_fill":
        p.call("index_fill", "int_Scalar", self=v, dim=d, index=V(ids([1], n)), value=-1.5)
    elif name == "masked_fill":
        m = p.call("gt", "Scalar", self=v, other=0)
        p.call("masked_fill", "Scalar", self=v, mask=V(m[0][1]), value=r.choice([0, -1.5]))
    elif name == "masked_scatter":
        m = p.call("gt", "Scalar", self=v, other=0)
        p.call("masked_scatter", "", self=v, mask=V(m[0][1]), source=V(p.make(list(t.shape), NAME[t.dtype])))
    elif name == "masked_select_sum":
        m = p.call("gt", "Scalar", self=v, other=0)
        p.call("masked_select", "", self=v, mask=V(m[0][1]))
    elif name == "indexmask":
        m = p.call("gt", "Scalar", self=v, other=0)
        p.call("index", "Tensor", self=v, indices=[V(m[0][1])])
    elif name == "cat":
        others = [j for j, o in p.vars.items() if o.dim() == t.dim() and o.is_floating_point()
                  and all(o.shape[k] == t.shape[k] for k in range(t.dim()) if k != d % t.dim())]
        p.call("cat", "", tensors=[v] + [V(r.choice(others)) for _ in range(r.choice([0, 1, 2]))], dim=d)
    elif name == "stack":
        others = [j for j, o in p.vars.items() if o.shape == t.shape and o.dtype == t.dtype]
        p.call("stack", "", tensors=[v] + [V(r.choice(others))], dim=d)
    elif name == "repeat":
        p.call("repeat", "", self=v, repeats=[r.choice([1, 2])] * r.choice([0, 1]) + [r.choice([1,
                2]) for _ in t.shape])
    elif name == "repeat_interleave":
        p.call("repeat_interleave", "self_int", self=v, repeats=2, dim=d)
    elif name == "pad":
        p.call("constant_pad_nd", "", self=v, pad=[r.choice([0, 1, -1]), r.choice([0, 1, 2])], value=r.choice([0,
                0.5]))
    elif name == "embedding":
        if t.dim() != 2 or t.shape[0] == 0:
            raise Skip
        p.call("embedding", "", weight=v, indices=V(ids([r.choice([1, 4])], t.shape[0])), padding_idx=r.choice([-1,
                -1, 0]))
    elif name == "take":
        p.call("take", "", self=v, index=V(ids([3], t.numel())) if t.numel() else _skip())
    elif name == "index_put":
        src = p.make([2] + list(t.shape[1:]), NAME[t.dtype])
        p.call("index_put", "", self=v, indices=[V(ids([2], t.shape[0]))], values=V(src), accumulate=True)


def _skip():
    raise Skip


def norms(p):
    r = p.r
    i = p.float_var(1)
    t, v = p.vars[i], V(i)
    name = r.choice(["layer_norm", "mse", "conv1d", "group_norm", "avg_pool1d", "max_pool1d", "nll", "cross_entropy",
            "smooth_l1", "bce", "glu", "conv2d", "batch_norm",
                     "cosine", "kl", "dropout0", "pixel", "upsample", "prelu"])
    dt = NAME[t.dtype]
    if name == "layer_norm":
        n = t.shape[-1]
        if n < 2:
            raise Skip
        w = r.choice([None, V(p.make([n], dt))])
        p.call("layer_norm", "", input=v, normalized_shape=[n], weight=w, bias=None if w is None else V(p.make([n],
                dt)), eps=0.5)
    elif name == "mse":
        p.call("mse_loss", "", self=v, target=V(p.like(i, False)), reduction=r.choice([0, 1, 2]))
    elif name == "smooth_l1":
        p.call("smooth_l1_loss", "", self=v, target=V(p.like(i, False)), reduction=r.choice([0, 1, 2]), beta=1.0)
    elif name == "bce":
        p.call("binary_cross_entropy_with_logits", "", self=v, target=V(p.like(i, False)), reduction=r.choice([0, 1]))
    elif name == "conv1d":
        if t.dim() != 3 or 0 in t.shape:
            raise Skip
        p.call("conv1d", "", input=v, weight=V(p.make([2, t.shape[1], min(2, t.shape[2])], dt)), bias=None,
                stride=[1], padding=[r.choice([0, 1])])
    elif name == "conv2d":
        if t.dim() != 4 or 0 in t.shape:
            raise Skip
        p.call("conv2d", "", input=v, weight=V(p.make([2, t.shape[1], 1, min(2, t.shape[3])], dt)),
                bias=V(p.make([2], dt)), stride=[1, r.choice([1, 2])], padding=[r.choice([0, 1]), 0])
    elif name == "group_norm":
        if t.dim() < 3 or 0 in t.shape or t.numel() // t.shape[0] < 4:
            raise Skip
        p.call("group_norm", "", input=v, num_groups=1, eps=0.5)
    elif name == "batch_norm":
        if t.dim() not in (2, 3, 4) or 0 in t.shape or t.numel() // t.shape[1] < 3 or dt not in ("f32", "f64"):
            raise Skip
        p.call("batch_norm", "", input=v, weight=V(p.make([t.shape[1]], dt)), bias=None, running_mean=None,
                running_var=None, training=True, momentum=0.1, eps=0.5, cudnn_enabled=False)
    elif name == "avg_pool1d":
        if t.dim() != 3 or 0 in t.shape or t.shape[2] < 2:
            raise Skip
        p.call("avg_pool1d", "", self=v, kernel_size=[2], stride=[1])
    elif name == "max_pool1d":
        if t.dim() != 4 or 0 in t.shape or t.shape[3] < 2:
            raise Skip
        p.call("max_pool2d", "", self=v, kernel_size=[1, 2], stride=[1, 1])
    elif name in ("nll", "cross_entropy"):
        if t.dim() != 2 or 0 in t.shape:
            raise Skip
        a = p.g.integers(0, t.shape[1], [t.shape[0]])
        a[p.g.random(a.shape) < 0.2] = -100
        j = p.new(torch.tensor(a.astype(np.int64)))
        p.code.append(("data", j, a.astype(np.int64), "i64"))
        if name == "nll":
            p.call("nll_loss", "", self=v, target=V(j), reduction=r.choice([0, 2]))
        else:
            p.call("cross_entropy_loss", "", self=v, target=V(j), reduction=r.choice([0, 2]),
                    label_smoothing=r.choice([0.0, 0.25]))
    elif name == "glu":
        d = p.dim(t)
        p.call("glu", "", self=v, dim=d)
    elif name == "cosine":
        p.call("cosine_similarity", "", x1=v, x2=V(p.like(i, False)), dim=p.dim(t), eps=0.5)
    elif name == "kl":
        p.call("kl_div", "", self=v, target=V(p.like(i, False)), reduction=r.choice([0, 2]), log_target=True)
    elif name == "dropout0":
        p.call("dropout", "", input=v, p=r.choice([0.0, 0.5]), train=False)
    elif name == "prelu":
        p.call("prelu", "", self=v, weight=V(p.make([1], dt)))
    elif name == "upsample":
        if t.dim() != 3 or 0 in t.shape:
            raise Skip
        p.call("upsample_nearest1d", "vec", input=v, output_size=[t.shape[2] * 2], scale_factors=None)


# torch does not reject these where elements of an expanded tensor share a place, nor any write to windows that overlap.
# Their order of writes says what stays there, and the recorded device has no such places.
UNCHECKED = ("tril_", "baddbmm_", "index_put_", "index_fill_", "masked_fill_")


def inplace(p):
    r = p.r
    i = p.some()
    t, v = p.vars[i], V(i)
    f = t.is_floating_point()
    name = r.choice(["add_", "mul_", "sub_", "copy_", "copy_", "zero_", "fill_", "adds_", "muls_", "masked_fill_",
            "clamp_", "neg_", "relu_", "sigmoid_", "tanh_",
                     "addcmul_", "lerp_", "index_add_", "index_fill_", "scatter_", "index_put_", "cumsum_", "tril_",
                             "t_", "transpose_", "squeeze_", "unsqueeze_",
                     "out", "mmout", "addmm_", "copy_from", "fill_tensor", "div_", "exp_", "square_", "index_copy_",
                             "scatter_add_", "masked_scatter_", "baddbmm_", "gelu_", "silu_", "hardtanh_",
                             "sort_out", "resize_", "set_data"])
    if p.device != "cpu" and has_overlap(t) and (name in UNCHECKED or not is_expanded(t)):
        raise Skip
    if name in ("add_", "mul_", "sub_"):
        p.call(name, "Tensor", self=v, other=V(p.like(i)))
    elif name == "copy_":
        j = p.like(i)
        p.call("copy_", "", self=v, src=V(j))
    elif name == "zero_":
        p.call("zero_", "", self=v)
    elif name == "fill_":
        p.call("fill_", "Scalar", self=v, value=r.choice([1, 2]) if not f else r.choice([0.5, -1.25]))
    elif name == "fill_tensor":
        j = p.some(lambda o: o.dim() == 0 and o.dtype != torch.bool)
        p.call("fill_", "Tensor", self=v, value=V(j))
    elif name == "adds_":
        p.call("add_", "Scalar", self=v, other=1 if not f else 0.25)
    elif name == "muls_":
        p.call("mul_", "Scalar", self=v, other=2 if not f else 0.5)
    elif name == "div_":
        p.call("div_", "Scalar", self=v, other=2)
    elif name == "masked_fill_":
        m = p.call("gt", "Scalar", self=V(p.like(i)), other=0)
        p.call("masked_fill_", "Scalar", self=v, mask=V(m[0][1]), value=1)
    elif name == "masked_scatter_":
        if not f:
            raise Skip
        m = p.call("gt", "Scalar", self=V(p.like(i)), other=0)
        p.call("masked_scatter_", "", self=v, mask=V(m[0][1]), source=V(p.make(list(t.shape), NAME[t.dtype])))
    elif name == "clamp_":
        p.call("clamp_", "", self=v, min=-1, max=1)
    elif name in ("neg_", "relu_", "sigmoid_", "tanh_", "exp_", "square_", "gelu_", "silu_", "hardtanh_"):
        if not f:
            raise Skip
        p.call(name, "", self=v)
    elif name == "addcmul_":
        p.call(name, "", self=v, tensor1=V(p.like(i)), tensor2=V(p.like(i)), value=r.choice([1, 2]))
    elif name == "lerp_":
        p.call(name, "Scalar", self=v, end=V(p.like(i)), weight=0.25)
    elif name in ("index_add_", "index_copy_"):
        d = p.dim(t)
        if t.shape[d] == 0 or not f:
            raise Skip
        a = np.array([r.randrange(t.shape[d])], dtype=np.int64)
        j = p.new(torch.from_numpy(a.copy()))
        p.code.append(("data", j, a, "i64"))
        shape = list(t.shape)
        shape[d] = 1
        p.call(name, "", self=v, dim=d, index=V(j), source=V(p.make(shape, NAME[t.dtype])))
    elif name == "index_fill_":
        d = p.dim(t)
        if t.shape[d] == 0:
            raise Skip
        a = np.array([r.randrange(t.shape[d])], dtype=np.int64)
        j = p.new(torch.from_numpy(a.copy()))
        p.code.append(("data", j, a, "i64"))
        p.call(name, "int_Scalar", self=v, dim=d, index=V(j), value=1)
    elif name in ("scatter_", "scatter_add_"):
        d = p.dim(t)
        if 0 in t.shape or not f:
            raise Skip
        shape = list(t.shape)
        shape[d] = 1
        a = p.g.integers(0, t.shape[d], shape)
        j = p.new(torch.tensor(a.astype(np.int64)))
        p.code.append(("data", j, a.astype(np.int64), "i64"))
        p.call(name, "src" if name == "scatter_" else "", self=v, dim=d, index=V(j), src=V(p.make(shape,
                NAME[t.dtype])))
    elif name == "index_put_":
        if t.dim() < 1 or t.shape[0] == 0 or not f:
            raise Skip
        a = np.array([r.randrange(t.shape[0])], dtype=np.int64)
        j = p.new(torch.from_numpy(a.copy()))
        p.code.append(("data", j, a, "i64"))
        p.call("index_put_", "", self=v, indices=[V(j)], values=V(p.make([1] + list(t.shape[1:]), NAME[t.dtype])),
                accumulate=r.random() < 0.5)
    elif name == "cumsum_":
        p.call(name, "", self=v, dim=p.dim(t))
    elif name == "tril_":
        if t.dim() < 2:
            raise Skip
        p.call(name, "", self=v, diagonal=r.choice([0, 1]))
    elif name == "t_":
        if t.dim() > 2:
            raise Skip
        p.call(name, "", self=v)
    elif name == "transpose_":
        p.call(name, "", self=v, dim0=p.dim(t), dim1=p.dim(t))
    elif name == "squeeze_":
        p.call(name, "dim", self=v, dim=p.dim(t))
    elif name == "unsqueeze_":
        p.call(name, "", self=v, dim=r.randrange(0, t.dim() + 1))
    elif name == "out":
        a, b = p.like(i), p.like(i)
        shape = torch.broadcast_shapes(p.vars[a].shape, p.vars[b].shape)
        if shape != t.shape:
            raise Skip
        op = r.choice(["add", "mul", "sub"])
        p.call(op, "out", self=V(a), other=V(b), out=v)
    elif name == "mmout":
        if t.dim() != 2 or not f:
            raise Skip
        k = r.choice([1, 2, 3])
        p.call("mm", "out", self=V(p.make([t.shape[0], k], NAME[t.dtype])), mat2=V(p.make([k, t.shape[1]],
                NAME[t.dtype])), out=v)
    elif name == "addmm_":
        if t.dim() != 2 or not f:
            raise Skip
        k = r.choice([1, 2, 3])
        p.call("addmm_", "", self=v, mat1=V(p.make([t.shape[0], k], NAME[t.dtype])), mat2=V(p.make([k, t.shape[1]],
                NAME[t.dtype])), beta=r.choice([1, 0, 2]), alpha=1)
    elif name == "baddbmm_":
        if t.dim() != 3 or not f:
            raise Skip
        k = r.choice([1, 2, 3])
        p.call("baddbmm_", "", self=v, batch1=V(p.make([t.shape[0], t.shape[1], k], NAME[t.dtype])),
                batch2=V(p.make([t.shape[0], k, t.shape[2]], NAME[t.dtype])), beta=r.choice([1, 0, 2]), alpha=1)
    elif name == "copy_from":
        if is_expanded(t) or has_overlap(t):
            raise Skip
        a = p.numbers(list(t.shape), NAME[t.dtype])
        with torch.no_grad():
            t.detach().copy_(torch.tensor(np.array(a)).to(t.dtype).reshape(t.shape))
        p.code.append(("copy_from", i, a))
    elif name == "resize_":
        raise Skip
    else:
        raise Skip


def is_expanded(t):
    return any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape))


def has_overlap(t):
    """True if two elements may have one place."""
    dims = sorted((s, n) for s, n in zip(t.stride(), t.shape) if n > 1)
    reach = 0
    for s, n in dims:
        if s <= reach:
            return True
        reach += s * (n - 1)
    return False

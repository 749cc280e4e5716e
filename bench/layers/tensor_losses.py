"""Losses over tensors whose vocabulary is split over ranks."""
import numpy as np
import torch

import nxd
from simulate import copy_to, gather
from tensor_calls import sequence_of


def label_values(p, shape, classes):
    ignore = p.r.choice([None, None, -1, 0, classes - 1])
    labels = torch.from_numpy(np.asarray(p.g.integers(0, classes, shape)))
    some = torch.from_numpy(np.asarray(p.g.random(shape))) < 0.3
    labels = torch.where(some, torch.full_like(labels, -100 if ignore is None else ignore), labels)
    options = dict(label_smoothing=p.r.choice([0.0, 0.0, 0.1, 1.0]), smoothing=p.r.choice([0, 0, 1]),
                   reduction=p.r.choice([0, 1, 2]), has_ignore_index=int(ignore is not None), ignore_index=ignore or 0)
    return labels, options, -100 if ignore is None else ignore


def loss_of(z, labels, options, ignore, wide=lambda x: x):
    """z [.., V] -> the loss of the whole vocabulary."""
    classes = z.shape[-1]
    s = options["label_smoothing"]
    if options["smoothing"] == 1 and classes > 1:
        s = s * classes / (classes - 1)
    z = wide(z - z.max(-1, keepdim=True).values.detach())
    logs = z - torch.log(wide(torch.exp(z).sum(-1, keepdim=True)))
    valid = labels != ignore
    nll = -logs.gather(-1, torch.where(valid, labels, torch.zeros_like(labels))[..., None])[..., 0]
    each = torch.where(valid, (1 - s) * nll - s * logs.mean(-1), torch.zeros(()).double())
    if options["reduction"] == 2:
        return each
    return each.sum() / (max(int(valid.sum()), 1) if options["reduction"] == 0 else 1)


class SplitLoss(torch.autograd.Function):
    """The loss of each rank is that of all ranks' logits; its gradient is by its own ones."""

    @staticmethod
    def forward(ctx, labels, options, ignore, wide, *zs):
        ctx.options, ctx.ignore, ctx.wide = options, ignore, wide
        ctx.save_for_backward(labels, *zs)
        loss = loss_of(torch.cat(zs, -1), labels, options, ignore, wide)
        return tuple(loss.clone() for _ in zs)

    @staticmethod
    def backward(ctx, *gs):
        labels, *zs = ctx.saved_tensors
        out = []
        for k, g in enumerate(gs):
            with torch.enable_grad():
                whole = torch.cat([z.detach() for z in zs], -1).requires_grad_()
                loss = loss_of(whole, labels, ctx.options, ctx.ignore, ctx.wide)
            grad, = torch.autograd.grad(loss, whole, g)
            n = zs[0].shape[-1]
            out.append(grad[..., k * n:(k + 1) * n])
        return (None, None, None, None, *out)


def cross_entropy(p):
    v = p.pick(lambda v: len(v.shape) >= 1 and v.shape[-1] > 0 and not v.uneven)
    if v is None:
        return
    labels, options, ignore = label_values(p, v.shape[:-1], v.shape[-1] * p.ranks)
    out = nxd.parallel_cross_entropy(p.context, v.tensor, p.tensor(labels, "i64"), **options)

    def simulate(zs):
        return list(SplitLoss.apply(labels, options, ignore, p.simulator.rounding(), *zs))
    simulated = p.simulator.run(simulate, v.simulated)
    made = p.add(out, simulated, True, "cross_entropy", p.name(v), labels.tolist(), options)
    made.is_loss = True


def linear_cross_entropy(p):
    parallel = p.r.random() < 0.4
    v = p.pick(lambda v: len(v.shape) >= (2 if parallel else 1) and v.shape[-1] > 0 and (parallel or v.same) and
               not v.uneven)
    if v is None:
        return
    dim = sequence_of(p, v) if parallel else -1
    n = p.r.choice([1, 2, 3, 5])
    lead = v.shape[:-1]
    if parallel:
        lead[dim] *= p.ranks
    weight = p.pick(lambda u: u.shape == [n, v.shape[-1]]) or p.leaf([n, v.shape[-1]], False)
    labels, options, ignore = label_values(p, lead, n * p.ranks)
    out = nxd.linear_cross_entropy(p.context, v.tensor, weight.tensor, p.tensor(labels, "i64"), dim, **options)

    def simulate(xs, ws):
        xs = gather(xs, dim, True) if parallel else copy_to(xs)
        return list(SplitLoss.apply(labels, options, ignore, p.simulator.rounding(),
                                    *[p.simulator.affine(x, w, None) for x, w in zip(xs, ws)]))
    made = p.add(out, p.simulator.run(simulate, v.simulated, weight.simulated), True, "linear_cross_entropy", p.name(v),
                 p.name(weight), dim, labels.tolist(), options)
    made.is_loss = True

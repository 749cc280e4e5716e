"""Tensors of all ranks in one process, in float64 by PyTorch, with the moves between ranks as the header words them.

Beside the exact values there are copies in which each operator's result, and each gradient, is off by as much as the
dtype may round it (Monte Carlo arithmetic, Parker 1997): how far they drift is how far the library may be off."""
import torch

COPIES = 3
ROUNDOFF = {"f64": 2.0 ** -53, "f32": 2.0 ** -24, "bf16": 2.0 ** -8, "cast": 2.0 ** -8}
WIDE = {"f64": 2.0 ** -53, "f32": 2.0 ** -24, "bf16": 2.0 ** -24, "cast": 2.0 ** -24}


class Noise(torch.autograd.Function):
    """Each element is off by its own roundoff, and by that of a sum."""

    @staticmethod
    def forward(ctx, x, dtype, generator):
        ctx.dtype, ctx.generator = dtype, generator
        return Noise.off(x, dtype, generator)

    @staticmethod
    def off(x, dtype, generator):
        if x.numel() == 0:
            return x.clone()
        finite = torch.where(torch.isfinite(x), x, torch.zeros(()).double())
        size = 2 * ROUNDOFF[dtype] * finite.abs() + 8 * WIDE[dtype] * finite.abs().max()
        return x + size * (2 * torch.rand(x.shape, generator=generator, dtype=torch.float64) - 1)

    @staticmethod
    def backward(ctx, g):
        return Noise.off(g, ctx.dtype, ctx.generator), None, None


class Product(torch.autograd.Function):
    """a @ b, whose sums of products are off by their magnitudes, as are the gradients."""

    @staticmethod
    def forward(ctx, a, b, dtype, generator):
        ctx.save_for_backward(a, b)
        ctx.dtype, ctx.generator = dtype, generator
        return Product.off(a, b, dtype, generator)

    @staticmethod
    def off(a, b, dtype, generator):
        y = a @ b
        # Automatic casts round the operands.
        size = (a.shape[-1] + 4) * WIDE[dtype] + (2 * ROUNDOFF[dtype] if dtype == "cast" else 0)
        size = size * (a.abs() @ b.abs()) + 2 * ROUNDOFF[dtype] * y.abs()
        return y + size * (2 * torch.rand(y.shape, generator=generator, dtype=torch.float64) - 1)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return (Product.off(g, b.transpose(-1, -2), ctx.dtype, ctx.generator),
                Product.off(a.transpose(-1, -2), g, ctx.dtype, ctx.generator), None, None)


class CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *xs):
        return tuple(x.clone() for x in xs)

    @staticmethod
    def backward(ctx, *gs):
        return tuple(sum(gs) for _ in gs)


class ReduceFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *xs):
        return tuple(sum(xs) for _ in xs)

    @staticmethod
    def backward(ctx, *gs):
        return gs


def part(x, dim, rank, ranks):
    n = x.shape[dim] // ranks
    return x.narrow(dim, rank * n, n)


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dim, *xs):
        ctx.dim = dim
        return tuple(part(x, dim, k, len(xs)).clone() for k, x in enumerate(xs))

    @staticmethod
    def backward(ctx, *gs):
        return (None, *(torch.cat(gs, ctx.dim) for _ in gs))


class Gather(torch.autograd.Function):
    """summed: what follows is split over ranks."""

    @staticmethod
    def forward(ctx, dim, summed, *xs):
        ctx.dim, ctx.summed = dim, summed
        return tuple(torch.cat(xs, dim) for _ in xs)

    @staticmethod
    def backward(ctx, *gs):
        whole = [sum(gs) for _ in gs] if ctx.summed else gs
        return (None, None, *(part(g, ctx.dim, k, len(gs)).clone() for k, g in enumerate(whole)))


class ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dim, *xs):
        ctx.dim = dim
        total = sum(xs)
        return tuple(part(total, dim, k, len(xs)).clone() for k in range(len(xs)))

    @staticmethod
    def backward(ctx, *gs):
        return (None, *(torch.cat(gs, ctx.dim) for _ in gs))


def copy_to(xs):
    return list(CopyTo.apply(*xs))


def reduce_from(xs):
    return list(ReduceFrom.apply(*xs))


def scatter(xs, dim):
    return list(Scatter.apply(dim, *xs))


def gather(xs, dim, summed):
    return list(Gather.apply(dim, summed, *xs))


def reduce_scatter(xs, dim):
    return list(ReduceScatter.apply(dim, *xs))


class Simulated:
    """A tensor on all ranks: copies[c][rank]; the first copy is exact."""

    def __init__(self, copies):
        self.copies = copies


class Simulator:
    def __init__(self, ranks, dtype, seed):
        self.ranks, self.dtype = ranks, dtype
        self.generator = torch.Generator().manual_seed(seed)
        self.leaves, self.copy = [], 0

    def off(self, x):
        """x, which the library rounds inside of an operator; for use inside of run()."""
        return Noise.apply(x, self.dtype, self.generator) if self.copy else x

    def product(self, a, b):
        """a @ b, of as many dimensions."""
        return Product.apply(a, b, self.dtype, self.generator) if self.copy else a @ b

    def affine(self, x, w, b):
        """x w^T + b."""
        rows = x.reshape(-1, x.shape[-1]) if x.numel() else x.new_zeros(x.shape[:-1].numel(), x.shape[-1])
        y = self.product(rows, w.T).reshape(*x.shape[:-1], w.shape[0])
        return y if b is None else self.off(y) + b

    def sum(self, x):
        """Over the first dimension."""
        rows = x.reshape(x.shape[0], -1) if x.numel() else x.new_zeros(x.shape[0], x.shape[1:].numel())
        return self.product(x.new_ones(1, x.shape[0]), rows).reshape(x.shape[1:])

    def softmax(self, x, dim):
        """Its gradient is a difference, which rounding leaves where it should be 0."""
        e = self.wide(torch.exp(x - x.max(dim, keepdim=True).values.detach()))
        return e / self.wide(e.sum(dim, keepdim=True))

    def rounding(self):
        """wide() of the copy that runs, for a backward pass."""
        dtype = "f64" if self.dtype == "f64" else "f32"
        return (lambda x: Noise.apply(x, dtype, self.generator)) if self.copy else (lambda x: x)

    def wide(self, x):
        """x, as it is rounded where sums are formed."""
        return Noise.apply(x, "f64" if self.dtype == "f64" else "f32", self.generator) if self.copy else x

    def leaf(self, values, requires_grad):
        """values: one float64 tensor for each rank."""
        made = Simulated([[v.clone().requires_grad_(requires_grad) for v in values] for _ in range(1 + COPIES)])
        if requires_grad:
            self.leaves.append(made)
        return made

    def run(self, function, *inputs, noise=True, dtype=None):
        """function(lists of the ranks' tensors) -> list, or a tuple of lists."""
        outs = []
        for c in range(1 + COPIES):
            self.copy = c
            out = function(*[x.copies[c] if isinstance(x, Simulated) else x for x in inputs])
            several = out if isinstance(out, tuple) else (out,)
            if noise and c:
                several = tuple([Noise.apply(x, dtype or self.dtype, self.generator) if x.is_floating_point() else x
                                 for x in each] for each in several)
            outs.append(several)
        made = tuple(Simulated([outs[c][k] for c in range(1 + COPIES)]) for k in range(len(outs[0])))
        return made if len(made) > 1 else made[0]

    def gradients(self, outputs, grads, retain=True):
        """Gradients of all leaves, by their identities: Simulated."""
        found = []
        for c in range(1 + COPIES):
            flat = [x for leaf in self.leaves for x in leaf.copies[c]]
            # One tensor may be an output twice, and a leaf is one by way of an operator.
            tensors = [x * 1 for out in outputs for x in out.copies[c]]
            given = [g for each in grads for g in each]
            keep = [(t, g) for t, g in zip(tensors, given) if t.requires_grad]
            got = torch.autograd.grad([t for t, _ in keep], flat, [g for _, g in keep], retain_graph=retain,
                                      allow_unused=True)
            found.append(got)
        made = {}
        for k, leaf in enumerate(self.leaves):
            made[id(leaf)] = Simulated([[found[c][k * self.ranks + r] for r in range(self.ranks)]
                                        for c in range(1 + COPIES)])
        return made


def allowance(copies, rank, dtype):
    """How far this rank's tensor may be from the exact one."""
    exact = copies[0][rank]
    if exact.numel() == 0:
        return 0.0
    # Autograd leaves a gradient of zeros out of some copies.
    others = [torch.zeros_like(exact) if copy[rank] is None else copy[rank] for copy in copies[1:]]
    drift = max((other - exact).abs().max().item() for other in others)
    return 6 * drift + 4 * (2 * ROUNDOFF[dtype] + 8 * WIDE[dtype]) * exact.abs().max().item() + 1e-300

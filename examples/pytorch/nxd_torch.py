"""libnxd_core for PyTorch's tensors: tensor-parallel linear layers as differentiable functions, and AdamW
whose state is divided over the ranks, with gradients that are reduced during the backward pass. Works
with any torch: the library needs none of its own, and shares memory with torch alone.
"""

import math

import torch

import nxd.core as nxd


def _call(name, context, *tensors):
    # The library reads and writes their memory. A tensor of one rank that has none, such as a sparse
    # one, makes the call fail on all.
    getattr(nxd, name)(context, *(None if t is None else t.detach() for t in tensors))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, kind, context, x, weight, bias):
        x = x.contiguous()
        ctx.kind, ctx.context = kind, context
        ctx.save_for_backward(x, weight, bias)
        y = x.new_empty(*x.shape[:-1], weight.shape[0])
        _call(f"{kind}_linear_forward", context, x, weight, bias, y)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        x, weight, bias = ctx.saved_tensors
        # Gradients that nobody asks for are not made; the one of x is a sum over ranks.
        grads = [torch.empty_like(t) if wanted else None
                 for t, wanted in zip((x, weight, bias), ctx.needs_input_grad[2:])]
        _call(f"{ctx.kind}_linear_backward", ctx.context, x, weight, grad_y.contiguous(), *grads)
        return (None, None, *grads)


def column_linear(context, x, weight, bias):
    """weight and bias have the rows that make this rank's features of the result."""
    return _Linear.apply("column", context, x, weight, bias)


def row_linear(context, x, weight, bias):
    """weight has the columns that read this rank's features of x. The result is the sum over ranks."""
    return _Linear.apply("row", context, x, weight, bias)


class Zero1:
    """AdamW over named parameters, on data-parallel ranks that divide its state.

    A hook of each parameter binds the gradient, wherever torch has put it, and says that it is
    complete: buckets travel while the backward pass goes on. zero_grad may set gradients to None.
    [collective: the data-parallel group, to create and at each step]
    """

    def __init__(self, context, named_parameters, bucket_bytes=0, **options):
        self.parameters = dict(named_parameters)
        values = {name: p.detach() for name, p in self.parameters.items()}
        # The first binding of gradients that do not exist yet; zeros take no memory until written.
        sums = {name: torch.zeros_like(value) for name, value in values.items()}
        self.ddp = nxd.Ddp.over_arrays(context, values, sums, zero_stage=1,
                                       bucket_bytes=bucket_bytes)
        self.optimizer = nxd.AdamW(self.ddp, **options)
        self._marked = set()
        self._failure = None
        self._kept = []
        for name, parameter in self.parameters.items():
            # The node that accumulates into .grad; its hook runs once the gradient is there.
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            node.register_hook(self._hook(name, parameter))
            self._kept.append(node)

    def _hook(self, name, parameter):
        def ready(*_):
            try:
                self.ddp.rebind(name, grad=parameter.grad)
            except Exception as error:
                # The backward pass goes on, which peers may share; step() raises it on all ranks.
                self._failure = self._failure or error
                return
            self.ddp.mark_ready(name)
            self._marked.add(name)
        return ready

    def _bind_unmarked(self):
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        for name in self.parameters.keys() - self._marked:
            # Other ranks may have used it: their sum needs a place here.
            parameter = self.parameters[name]
            parameter.grad = torch.zeros_like(parameter)
            self.ddp.rebind(name, grad=parameter.grad)
            self.ddp.mark_unused(name)

    def step(self, **options):
        """Where a gradient of one rank cannot be bound, such as a sparse one, the step fails on all.
        The gradients of that step are lost: zero_grad and another backward pass make new ones."""
        try:
            self._bind_unmarked()
        except Exception:
            # The peers are in the step, or come to it. One with a factor that no rank takes fails on
            # all of them; it uses the gradients bound last, which the ddp keeps.
            try:
                self.optimizer.step(scale=math.nan)
            except nxd.NxdError:
                pass
            raise
        finally:
            self._marked.clear()
        return self.optimizer.step(**options)

    def zero_grad(self):
        for parameter in self.parameters.values():
            parameter.grad = None

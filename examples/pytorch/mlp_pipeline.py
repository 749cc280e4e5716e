"""The classifier of mlp.py as two stages of a pipeline, one on each rank: torch computes them, and libnxd
runs the schedule and carries activations and their gradients. Losses are those of mlp.py.

    nxdrun -n 2 python3 mlp_pipeline.py
"""

import sys
from pathlib import Path

import torch

import nxd.core as nxd

sys.path.append(str(Path(__file__).parent.parent))
import mlp_problem as problem  # noqa: E402
from mlp import Mlp, loss_of  # noqa: E402

MICROBATCHES = 4
ROWS = problem.SAMPLES // MICROBATCHES


class Stage:
    """One layer. The graph of a microbatch is kept from its forward task to its backward task."""

    def __init__(self, first):
        self.first = first
        model = Mlp()
        self.weight, self.bias = (model.w1, model.b1) if first else (model.w2, model.b2)
        self.x, self.labels = (torch.from_numpy(a) for a in problem.samples())
        self.graphs = {}

    def forward(self, call, inputs, outputs):
        rows = slice(call.microbatch * ROWS, (call.microbatch + 1) * ROWS)
        if self.first:
            h = torch.tanh(torch.nn.functional.linear(self.x[rows], self.weight, self.bias))
            outputs[0][:] = h.detach().numpy()
            self.graphs[call.microbatch] = None, h
            return None
        # A copy: torch has no tensors over memory that may only be read, as the library's here.
        h = torch.tensor(inputs[0], requires_grad=True)
        z = torch.nn.functional.linear(h, self.weight, self.bias)
        # The microbatch's share of the mean over all samples.
        loss = loss_of(z, self.labels[rows].long()) * MICROBATCHES
        self.graphs[call.microbatch] = h, loss
        return loss.item()

    def backward(self, call, inputs, grad_outputs, grad_inputs):
        h, result = self.graphs.pop(call.microbatch)
        if self.first:
            result.backward(torch.tensor(grad_outputs[0]))
        else:
            (result * call.loss_weight).backward()
            grad_inputs[0][:] = h.grad.numpy()


def train(ctx):
    first = ctx.rank == 0
    stage = Stage(first)
    optimizer = torch.optim.AdamW([stage.weight, stage.bias], lr=problem.RATE, weight_decay=0.01)
    hidden = [nxd.Value("h", (ROWS, problem.HIDDEN))]
    pipeline = nxd.CallbackPipeline(
        ctx, stage, [[] if first else hidden], [hidden if first else []],
        num_microbatches=MICROBATCHES, broadcast_and_average_loss=True)
    for i in range(problem.STEPS):
        optimizer.zero_grad()
        loss = pipeline.run()
        optimizer.step()
        ctx.master_print(f"step {i} loss {loss:.6f}")


if __name__ == "__main__":
    with nxd.Context() as context:
        context.init_model_parallel(pipeline_parallel_size=2)
        train(context)

"""A pipeline whose stages are Python: a network of tanh layers over numpy arrays with its own
backward pass, cut over the ranks there are. libnxd runs the schedule and carries the values; plain
SGD follows each step. No libtorch is loaded. Losses are the same to the last digit for every number
of ranks, chunks and every schedule.

    nxdrun -n 2 python3 pipeline_stages.py --schedule zero-bubble
"""

import argparse

import numpy as np
import nxd.core as nxd

LAYERS, WIDTH, ROWS, MICROBATCHES, STEPS, RATE = 8, 24, 16, 8, 30, 0.5


class Layers:
    """This rank's layers: h = h + tanh(w h + b), eight times over all stages; mean squared error.
    Backward computes its values anew from the inputs, which libnxd keeps."""

    def __init__(self, stages):
        i = np.arange(WIDTH * WIDTH).reshape(WIDTH, WIDTH)
        self.stages, self.step = stages, 0
        self.w = [(0.1 * np.sin(1.7 * i + 5.3 * layer)).astype("f4") for layer in range(LAYERS)]
        self.b = [np.zeros(WIDTH, "f4") for _ in range(LAYERS)]
        self.zero_grad()

    def zero_grad(self):
        self.dw = [np.zeros_like(w) for w in self.w]
        self.db = [np.zeros_like(b) for b in self.b]

    def mine(self, call):
        return range(call.stage * LAYERS // self.stages, (call.stage + 1) * LAYERS // self.stages)

    def data(self, call):
        """Waves, and what is to be made of them; every stage can read them."""
        sample = (self.step % 4 * MICROBATCHES + call.microbatch) * ROWS + np.arange(ROWS)[:, None]
        i = np.arange(WIDTH)
        x = np.sin(0.11 * (sample + 1) * (i % 5 + 1) + i).astype("f4")
        return x, np.float32(0.5) * x * np.roll(x, -1, 1)

    def rows(self, call, inputs):
        """The rows before each layer, and after the last."""
        rows = [self.data(call)[0] if call.stage == 0 else inputs[0]]
        for layer in self.mine(call):
            rows.append(rows[-1] + np.tanh(rows[-1] @ self.w[layer].T + self.b[layer]))
        return rows

    def forward(self, call, inputs, outputs):
        y = self.rows(call, inputs)[-1]
        if call.stage + 1 < self.stages:
            outputs[0][:] = y
            return None
        return float(np.square((y - self.data(call)[1]).astype("f8")).mean())

    def go_back(self, call, inputs, grad_outputs, weights):
        rows = self.rows(call, inputs)
        if call.stage + 1 < self.stages:
            d = grad_outputs[0]
        else:
            scale = np.float32(call.loss_weight * 2 / (ROWS * WIDTH))
            d = scale * (rows[-1] - self.data(call)[1])
        for k, layer in reversed(list(enumerate(self.mine(call)))):
            dz = d * (1 - np.square(rows[k + 1] - rows[k]))
            if weights:
                self.dw[layer] += dz.T @ rows[k]
                self.db[layer] += dz.sum(0)
            d = d + dz @ self.w[layer]
        return d

    def backward(self, call, inputs, grad_outputs, grad_inputs):
        d = self.go_back(call, inputs, grad_outputs, True)
        if call.stage > 0:
            grad_inputs[0][:] = d

    def backward_input(self, call, inputs, grad_outputs, grad_inputs):
        d = self.go_back(call, inputs, grad_outputs, False)
        if call.stage > 0:
            grad_inputs[0][:] = d

    def backward_weight(self, call, inputs, grad_outputs):
        self.go_back(call, inputs, grad_outputs, True)

    def update(self):
        for value, grad in zip(self.w + self.b, self.dw + self.db):
            value -= np.float32(RATE) * grad
        self.zero_grad()
        self.step += 1


def main():
    arguments = argparse.ArgumentParser(description="A pipeline whose stages are Python.")
    arguments.add_argument("--schedule", default="default",
                           choices=["default", "1f1b", "interleaved", "gpipe", "zero-bubble"])
    arguments.add_argument("--chunks", type=int, default=1)
    a = arguments.parse_args()
    with nxd.Context() as ctx:
        ctx.init_model_parallel(pipeline_parallel_size=ctx.size)
        stages = ctx.size * a.chunks
        layers = Layers(stages)
        value = nxd.Value("h", (ROWS, WIDTH))
        mine = [chunk * ctx.size + ctx.rank for chunk in range(a.chunks)]
        pipeline = nxd.CallbackPipeline(
            ctx, layers, [[value] if s > 0 else [] for s in mine],
            [[value] if s + 1 < stages else [] for s in mine], num_microbatches=MICROBATCHES,
            schedule=a.schedule.replace("-", "_"), broadcast_and_average_loss=True)
        for step in range(STEPS):
            loss = pipeline.run()
            layers.update()
            ctx.master_print(f"step {step} loss {loss:.17g}")


if __name__ == "__main__":
    main()

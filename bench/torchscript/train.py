"""Trains the modules that draw.py wrote, over the ranks that nxdrun started, and compares losses and parameters with
PyTorch's. Which modules are recomputed, where a pipeline is cut, and so on, follows from the seed.
usage: train.py DIRECTORY [--recomputed | --data-parallel | --pipeline]"""
import json
import pathlib
import random
import sys

import batches
import numpy

import nxd

# Shares of a loss, and of a parameter's largest element.
LOSSES, PARAMETERS = 5e-4, 4e-3


class Training:
    def __init__(self, context, root, seed, form):
        self.context, self.seed = context, seed
        self.sizes = json.loads((root / f"{seed}.json").read_text())
        self.model = self.root = nxd.TorchScript(context, str(root / f"{seed}.pt"))
        self.pipeline = self.ddp = None
        r, blocks = random.Random(seed), [f"blocks.{k}" for k in range(len(self.sizes["blocks"]))]
        if form == "--recomputed":
            self.model.checkpoint([name for name in blocks if name == blocks[0] or r.random() < 0.6])
        if form == "--pipeline":
            self.pipeline = nxd.ModulePipeline(
                self.model, self.joined(0), num_microbatches=batches.UNITS, loss="MICROBATCHES",
                pipeline_cuts=[r.choice(blocks[:-1])], broadcast_and_average_loss=1,
                schedule=r.choice(["1F1B", "GPIPE", "ZERO_BUBBLE"]))
            self.root = self.pipeline.local_module
        if form in ("--pipeline", "--data-parallel"):
            self.ddp = nxd.Ddp.over_module(self.root, zero_stage=r.choice([0, 1]), bucket_bytes=r.choice([0, 512]))
        if self.pipeline:
            self.pipeline.set_ddp(self.ddp)
        self.optimizer = nxd.Sgd(self.ddp or self.root, learning_rate=batches.RATE, momentum=batches.MOMENTUM)
        share = batches.UNITS // context.parallel_size("DATA")
        first = context.parallel_rank("DATA") * share
        self.units = range(first, first + share)

    def joined(self, step):
        units = [batches.of(self.seed, step, unit, self.sizes) for unit in range(batches.UNITS)]
        return [nxd.tensor(numpy.concatenate(part)) for part in zip(*units)]

    def step(self, step):
        """The losses of this rank's microbatches; of a pipeline, their mean."""
        self.root.train(True)
        self.root.zero_grad()
        losses = []
        if self.pipeline:
            losses.append(self.pipeline.train(*self.joined(step)))
        for unit in [] if self.pipeline else self.units:
            if self.ddp:
                self.ddp.set_sync(unit == self.units[-1])
            ids, labels = batches.of(self.seed, step, unit, self.sizes)
            loss = self.model(nxd.tensor(ids), nxd.tensor(labels))
            (loss / batches.UNITS).backward()
            losses.append(loss.item())
        self.optimizer.step()
        return losses

    def differences(self, wanted):
        expected = wanted["losses"].reshape(batches.STEPS, batches.UNITS)
        expected = expected.mean(1, keepdims=True) if self.pipeline else expected[:, list(self.units)]
        losses = numpy.array([self.step(step) for step in range(batches.STEPS)])
        found = []
        if not (numpy.abs(losses - expected) <= LOSSES * expected).all():
            found.append(f"losses {losses.tolist()}, expected {expected.tolist()}")
        for parameter in self.root.parameters():
            value = wanted["p:" + parameter.name] if "p:" + parameter.name in wanted else None
            if value is None:  # a parameter with two names
                continue
            off = numpy.abs(parameter.gather_full().numpy() - value).max()
            if not off <= PARAMETERS * max(0.1, numpy.abs(value).max()):
                found.append(f"{parameter.name} is off by {off:.1e} of {numpy.abs(value).max():.1e}")
        return found


def main():
    root, form = pathlib.Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    bad, seeds = 0, sorted(int(path.stem) for path in root.glob("*.npz"))
    for seed in seeds:
        with nxd.Context(seed=1, timeout_ms=60000) as context:
            is_first = context.rank == 0
            context.init_model_parallel(pipeline_parallel_size=context.size if form == "--pipeline" else 1)
            training = Training(context, root, seed, form)
            found = training.differences(numpy.load(root / f"{seed}.npz"))
            blocks = training.sizes["blocks"]
            del training
        bad += bool(found)
        if found:
            print(f"{seed} of {blocks}: {'; '.join(found[:3])}")
    if is_first:
        print(f"{len(seeds) - bad} of {len(seeds)} modules train as PyTorch trains them{', ' * bool(form)}{form[2:]}")
    raise SystemExit(bool(bad))


main()

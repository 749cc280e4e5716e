"""Trains the modules that draw.py wrote, over the ranks that nxdrun started, and compares losses and parameters with
PyTorch's. Which modules are recomputed, where a pipeline is cut, and so on, follows from the seed.
usage: train.py DIRECTORY [--recomputed | --data-parallel | --pipeline] [--recorded]
    --recorded: on device xla, where a step is one graph from the third on, and nothing falls back"""
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
    def __init__(self, context, root, seed, form, device):
        self.context, self.seed, self.device = context, seed, device
        self.sizes = json.loads((root / f"{seed}.json").read_text())
        self.model = self.root = nxd.TorchScript(context, str(root / f"{seed}.pt"))
        self.model.move_to(device)
        self.pipeline = self.ddp = None
        r, blocks = random.Random(seed), [f"blocks.{k}" for k in range(len(self.sizes["blocks"]))]
        if form == "--recomputed":
            self.model.checkpoint([name for name in blocks if name == blocks[0] or r.random() < 0.6])
        if form == "--pipeline":
            self.pipeline = nxd.ModulePipeline(
                self.model, self.joined(0), num_microbatches=batches.UNITS, loss="MICROBATCHES",
                pipeline_cuts=[r.choice(self.sizes["cuts"])], broadcast_and_average_loss=1,
                schedule=r.choice(["1F1B", "GPIPE", "ZERO_BUBBLE"]))
            self.root = self.pipeline.local_module
        if form in ("--pipeline", "--data-parallel"):
            self.ddp = nxd.Ddp.over_module(self.root, zero_stage=r.choice([0, 1]), bucket_bytes=r.choice([0, 512]))
        if self.pipeline:
            self.pipeline.set_ddp(self.ddp)
        self.optimizer = nxd.Sgd(self.ddp or self.root, learning_rate=batches.RATE, momentum=batches.MOMENTUM)
        # A pass that is repeated, and a part of the batches, give other running statistics.
        self.has_their_buffers = form not in ("--recomputed", "--data-parallel")
        share = batches.UNITS // context.parallel_size("DATA")
        first = context.parallel_rank("DATA") * share
        self.units = range(first, first + share)

    def joined(self, step):
        units = [batches.of(self.seed, step, unit, self.sizes) for unit in range(batches.UNITS)]
        return [self.placed(numpy.concatenate(part)) for part in zip(*units)]

    def placed(self, array):
        return nxd.tensor(array).to_device(self.device)

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
            loss = self.model(self.placed(ids), self.placed(labels))
            (loss / batches.UNITS).backward()
            losses.append(loss if self.device == "XLA" else loss.item())
        self.optimizer.step()
        nxd.mark_step()
        return [each if isinstance(each, float) else each.item() for each in losses]

    def steps(self):
        """The losses of all steps, and what was not as it should be on the device."""
        losses, counts, found = [], [nxd.device_metrics()], []
        for step in range(batches.STEPS):
            losses.append(self.step(step))
            counts.append(nxd.device_metrics())
        executions, compiles = (getattr(counts[-1], name) - getattr(counts[-2], name)
                                for name in ("executions", "compiles"))
        if counts[-1].fallbacks > counts[0].fallbacks:
            found.append("fallbacks: " + ", ".join(
                line[9:] for line in nxd.device_report().splitlines() if line.startswith("fallback ")))
        if self.device == "XLA" and (compiles or not self.pipeline and executions != 1):
            found.append(f"the last step ran {executions} graphs, and compiled {compiles}")
        return numpy.array(losses), found

    def differences(self, wanted):
        expected = wanted["losses"].reshape(batches.STEPS, batches.UNITS)
        expected = expected.mean(1, keepdims=True) if self.pipeline else expected[:, list(self.units)]
        losses, found = self.steps()
        if not (numpy.abs(losses - expected) <= LOSSES * expected).all():
            found.append(f"losses {losses.tolist()}, expected {expected.tolist()}")
        values = {"p:" + parameter.name: parameter.gather_full() for parameter in self.root.parameters()}
        if self.has_their_buffers:
            values.update(("b:" + name, value) for name, value in self.root.buffers().items())
        for name, value in values.items():
            if name not in wanted:  # a parameter with two names
                continue
            off = numpy.abs(value.to_device("CPU").numpy() - wanted[name]).max()
            largest = numpy.abs(wanted[name]).max()
            if not off <= PARAMETERS * max(0.1, largest):
                found.append(f"{name[2:]} is off by {off:.1e} of {largest:.1e}")
        return found


def main():
    device = "XLA" if "--recorded" in sys.argv else "CPU"
    words = [word for word in sys.argv[1:] if word != "--recorded"]
    root, form = pathlib.Path(words[0]), words[1] if len(words) > 1 else ""
    bad, seeds = 0, sorted(int(path.stem) for path in root.glob("*.npz"))
    for seed in seeds:
        with nxd.Context(seed=1, timeout_ms=60000) as context:
            is_first = context.rank == 0
            context.init_model_parallel(pipeline_parallel_size=context.size if form == "--pipeline" else 1)
            training = Training(context, root, seed, form, device)
            found = training.differences(numpy.load(root / f"{seed}.npz"))
            blocks = training.sizes["blocks"]
            del training
        bad += bool(found)
        if found:
            print(f"{seed} of {blocks}: {'; '.join(found[:3])}")
    if is_first:
        print(f"{len(seeds) - bad} of {len(seeds)} modules train as PyTorch trains them"
              f"{', ' * bool(form)}{form[2:]}{', recorded' * (device == 'XLA')}")
    raise SystemExit(bool(bad))


main()

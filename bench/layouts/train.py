"""Trains what draw.py draws, as its layout divides it over the ranks that nxdrun started, or whole on one rank; the
losses, norms and last parameters of each seed go to a file.
usage: train.py DIRECTORY WORLD COUNT [FIRST_SEED] [--whole] [--recorded]
    --recorded: on device xla"""
import contextlib
import json
import pathlib
import sys

import draw
import numpy

import nxd


UNITS_OF_RUN = 1000  # at most


def unit_of(case, step, unit):
    """A microbatch: ids, labels, and what else the model takes."""
    r = numpy.random.default_rng([case["seed"], step, unit])
    config, shape = json.loads(case["config"]), (case["rows"], case["length"])
    ids = r.integers(0, config["vocab_size"], shape)
    labels, mask = ids.copy(), numpy.ones(shape, numpy.int64)
    if case["padded"]:
        for row in range(shape[0]):
            mask[row, shape[1] - int(r.integers(0, shape[1] - 2)):] = 0
        labels[mask == 0] = -100
    if case["silent"] and config["model_type"] != "bert" and unit % UNITS_OF_RUN and r.random() < 0.4:
        labels[:] = -100
    given = [ids, labels, mask if case["padded"] else None]
    if config["model_type"] == "bert":
        return given + [r.integers(0, 2, shape), r.integers(0, 2, shape[0])]
    return given if case["padded"] else given[:2]


def tensors(arrays, device):
    return [None if array is None else nxd.tensor(array).to_device(device) for array in arrays]


class Run:
    """A model and its optimizer in a layout, or whole on one rank."""

    def __init__(self, context, case, layout, whole, device):
        self.context, self.case, self.layout, self.whole, self.device = context, case, layout, whole, device
        self.config = json.loads(case["config"])
        self.is_bert = self.config["model_type"] == "bert"
        self.microbatches = case["units"] // layout["dp"]
        with nxd.deferred_init(not whole and layout["deferred"]):
            self.model = nxd.Model(context, case["config"], dtype=case["dtype"], device=device,
                                   sequence_parallel=int(not whole and layout["sequence_parallel"]))
        for parameter in self.model.parameters():
            if case["frozen"] and case["frozen"] in parameter.name:
                parameter.set_trainable(False)
        self.pipeline, self.ddp, self.root = None, None, self.model
        if not whole:
            self.divide()
        self.make_optimizer(self.ddp or self.root)

    def divide(self):
        layout = self.layout
        if layout["recomputed"]:
            self.model.checkpoint()
        if layout["pp"] > 1:
            self.pipeline = nxd.ModulePipeline(
                self.model, self.joined(0), num_microbatches=self.microbatches,
                virtual_size=layout["chunks"], schedule=layout["schedule"], partition=layout["partition"],
                loss="MICROBATCHES" if self.is_bert else "TOKENS", broadcast_and_average_loss=1)
            self.root = self.pipeline.local_module
        if layout["ddp"]:
            self.ddp = nxd.Ddp.over_module(
                self.root, zero_stage=layout["zero"], bucket_bytes=layout["bucket_bytes"],
                overlap=layout["overlap"],
                fp32_grads=int(self.case["dtype"] == "BF16" and layout["fp32_grads"]))
            if self.pipeline:
                self.pipeline.set_ddp(self.ddp)

    def make_optimizer(self, over):
        case = self.case
        rates = {"learning_rate": 1e-2, "weight_decay": case["weight_decay"]}
        if case["optimizer"] == "adamw":
            self.optimizer = nxd.AdamW(over, eps=1e-4, **rates)
        else:
            self.optimizer = nxd.Sgd(over, momentum=case["momentum"], nesterov=int(case["momentum"] > 0), **rates)
        if case["grouped"]:
            norms = {"gpt2": "*ln_*", "bert": "*LayerNorm*"}.get(self.config["model_type"], "*norm*")
            self.optimizer.add_group([norms], {"weight_decay": 0.0, "learning_rate": 2e-2})
        if case["warmup"]:
            self.optimizer.set_lr_schedule(kind="COSINE", warmup_steps=2, total_steps=8, final_factor=0.1)

    def own_units(self, step, run):
        """The microbatches of this rank's copy of the data, with their numbers in it; of all copies if whole."""
        copies = range(self.layout["dp"]) if self.whole else [self.context.parallel_rank("DATA")]
        first = run * UNITS_OF_RUN
        return [(m, unit_of(self.case, step, first + copy * self.microbatches + m))
                for copy in copies for m in range(self.microbatches)]

    def joined(self, step, run=0):
        parts = zip(*(unit for _, unit in self.own_units(step, run)))
        return tensors((None if each[0] is None else numpy.concatenate(each) for each in parts), self.device)

    def pass_by_microbatches(self, step, run=0, trains=True):
        units = [(m, tensors(unit, self.device)) for m, unit in self.own_units(step, run)]
        weights = ([1 / self.case["units"]] * len(units) if self.is_bert else
                   nxd.loss_weights(self.context, [given[1] for _, given in units]))
        losses = []
        for k, ((m, given), weight) in enumerate(zip(units, weights)):
            self.context.set_step(step, m)
            if self.ddp and trains:
                self.ddp.set_sync(self.is_last(run) and k + 1 == len(units))
            losses.append(self.model(*given))
            if trains:
                (losses[-1] * weight).backward()
        return losses, weights

    def mean_of(self, losses, weights):
        total = numpy.array([sum(loss.item() * weight for loss, weight in zip(losses, weights))])
        if not self.whole:
            self.context.data_group.all_reduce(total)
        return total[0]

    def is_last(self, run):
        return run + 1 == self.case["runs"]

    def rest(self, step):
        """Some parameters have no gradients in the second step and the third."""
        case = self.case
        for parameter in self.root.parameters() if case["resting"] and step in (1, 3) else ():
            if case["resting"] in parameter.name and not (case["frozen"] and case["frozen"] in parameter.name):
                parameter.set_trainable(step == 3)

    def train_run(self, step, run):
        with nxd.autocast() if self.case["autocast"] else contextlib.nullcontext():
            if not self.pipeline:
                return self.mean_of(*self.pass_by_microbatches(step, run))
            if self.ddp:
                self.ddp.set_sync(self.is_last(run))
            self.context.set_step(step, 0)
            return self.pipeline.train(*self.joined(step, run))

    def step(self, step):
        self.rest(step)
        self.context.set_step(step, 0)
        self.root.train(True)
        self.root.zero_grad()
        loss = sum(self.train_run(step, run) for run in range(self.case["runs"]))
        self.context.set_step(step, 0)
        # A pipeline's mean of its microbatches is one of each copy's.
        scale = 1 / self.layout["dp"] if self.pipeline and self.is_bert else 1.0
        report = self.optimizer.step(scale=scale / self.case["runs"], max_norm=self.case["max_norm"])
        nxd.mark_step()
        return loss, report.norm

    def evaluate(self, step):
        """The loss of a step's microbatches, without dropout."""
        self.context.set_step(step, 0)
        self.root.train(False)
        if self.pipeline:
            return self.pipeline.evaluate(*self.joined(step))[0]
        with nxd.no_grad():
            return self.mean_of(*self.pass_by_microbatches(step, trains=False))

    def state(self):
        state = nxd.TrainingState(self.context)
        state.add_module("model", self.root)
        state.add_optimizer("optimizer", self.optimizer)
        return state

    def parameters(self):
        return {p.name: p.gather_full().to("F64").numpy().copy() for p in self.root.parameters()}


@contextlib.contextmanager
def laid_out(context, layout, whole):
    sizes = {} if whole else {"tensor_parallel_size": layout["tp"], "pipeline_parallel_size": layout["pp"]}
    context.init_model_parallel(**sizes)
    yield
    context.destroy_model_parallel()


def train(context, case, whole, device, directory):
    losses, norms, place = [], [], str(directory / "state")
    for part, layout in zip(range(len(case["parts"])), case["layouts"]):
        first = sum(case["parts"][:part])
        with laid_out(context, layout, whole):
            run = Run(context, case, layout, whole, device)
            if part:
                assert run.state().load_newest(place + ("-whole" if whole else "")) == first
            for step in range(first, first + case["parts"][part]):
                loss, norm = run.step(step)
                losses.append(loss)
                norms.append(norm)
            if part + 1 < len(case["parts"]):
                run.state().save(place + ("-whole" if whole else ""), first + case["parts"][part])
            losses.append(run.evaluate(100 + part))
            parameters = run.parameters()
            first_of = [context.parallel_rank(axis) for axis in ("TENSOR", "DATA", "PIPELINE")]
            del run
    if first_of[:2] == [0, 0]:
        name = "whole" if whole else f"stage{first_of[2]}"
        numpy.savez(directory / f"{name}.npz", losses=losses, norms=norms,
                    **{"p:" + key: value for key, value in parameters.items()})


def main():
    whole, device = "--whole" in sys.argv, "XLA" if "--recorded" in sys.argv else "CPU"
    root, world, count, *rest = [word for word in sys.argv[1:] if not word.startswith("--")]
    first = int(rest[0]) if rest else 0
    for seed in range(first, first + int(count)):
        case = draw.draw(seed, int(world))
        directory = pathlib.Path(root) / f"{world}-{seed}"
        with nxd.Context(seed=seed, timeout_ms=60000) as context:
            if context.rank == 0:
                directory.mkdir(parents=True, exist_ok=True)
                (directory.parent / "last").write_text(str(seed))
            context.world.barrier()
            try:
                train(context, case, whole, device, directory)
            except nxd.NxdError as error:
                print(f"{world}-{seed}: rank {context.rank}{' whole' if whole else ''}: "
                      f"{type(error).__name__}: {error}", flush=True)
                raise


main()

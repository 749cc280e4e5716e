"""The events of a drawn program: the same calls on a pipeline and on its reference, and what they give compared."""
import random

import numpy

import nxd
from batches import ADAMW_EPS


class Difference(Exception):
    pass


def host(tensor):
    return tensor.detach().to("cpu").numpy()


class Program:
    """One pipeline, its optimizer, and the reference. A subclass makes the model and the reference, and says how the model
    is cut: refer(), load(), options(), tolerance, and places where cuts() or recomputed() is used."""

    num_outputs = 2
    device = "CPU"
    reference = None

    def __init__(self, context, layout, plan, path):
        self.context, self.plan, self.path, self.layout = context, plan, str(path), layout
        self.steps, self.ddp, self.random = 0, None, random.Random(plan["model"])
        self.take_place()
        self.reference = self.refer()
        self.model = self.load()
        self.make()

    def take_place(self):
        self.copy = self.context.parallel_rank("DATA")
        self.is_last = self.context.parallel_rank("PIPELINE") == self.layout["ranks"] - 1

    def make(self):
        plan = self.plan
        self.model.train(True)
        example = {"rows": 1, "length": 3, "seed": 0, "ignored": "none"}
        self.pipeline = nxd.ModulePipeline(
            self.model, self.placed(example), num_microbatches=plan["microbatches"], loss=plan["loss"],
            broadcast_and_average_loss=plan["shares_loss"], keep_outputs=plan["keep_outputs"], **self.options())
        self.local = self.pipeline.local_module
        if plan["recompute"]:
            self.model.checkpoint(self.recomputed())
        self.reduce = "SUM" if plan["loss"] == "TOKENS" else "AVG"
        if plan["zero"] is not None:
            self.ddp = nxd.Ddp.over_module(self.local, zero_stage=plan["zero"], bucket_bytes=plan["bucket"],
                                           reduce=self.reduce)
            self.pipeline.set_ddp(self.ddp)
        # The optimizer has these.
        self.trained = [name for name, trainable in self.reference.trainable() if trainable]
        over = self.local if self.ddp is None else self.ddp
        self.optimizer = (nxd.Sgd(over, learning_rate=0.05, momentum=0.9) if plan["optimizer"] == "sgd" else
                          nxd.AdamW(over, learning_rate=0.01, eps=ADAMW_EPS, weight_decay=0.1))

    def cuts(self):
        """Options of a pipeline that is cut behind drawn places."""
        plan, ranks = self.plan, self.layout["ranks"]
        chunks = min(plan["chunks"], len(self.places) // ranks)
        cuts = sorted(self.random.sample(range(len(self.places)), ranks * chunks - 1))
        return {"pipeline_cuts": [self.places[k] for k in cuts], "virtual_size": chunks,
                "schedule": plan["schedule"] if chunks == plan["chunks"] else "GPIPE"}

    def recomputed(self):
        blocks = self.places[1:]
        some = [name for name in blocks if self.random.random() < 0.5]
        return {"some": some or blocks[:1], "all": blocks, "ends": ["embedding", "head", *some]}[self.plan["recompute"]]

    def placed(self, event):
        return [None if array is None else nxd.tensor(array).to_device(self.device)
                for array in self.reference.batch(event, self.copy)]

    def close(self):
        self.optimizer.close()
        if self.ddp is not None:
            self.ddp.close()
        self.pipeline.close()

    def end(self):
        self.close()

    def compare(self, what, got, want):
        got, want = numpy.asarray(got, dtype=numpy.float64), numpy.asarray(want, dtype=numpy.float64)
        if got.shape != want.shape:
            raise Difference(f"{what} has the shape {got.shape} for {want.shape}")
        scale = max(numpy.abs(want).max(initial=0), 1e-2)
        off = numpy.abs(got - want).max(initial=0)
        if not off <= self.tolerance * scale:
            raise Difference(f"{what} differs by {off:.3g} of {scale:.3g}")

    def compare_loss(self, got, want):
        if self.plan["shares_loss"]:
            self.compare("loss", got, want)

    def train(self, event, runs=1):
        # Random bits follow from the step, which the optimizers of all programs raise.
        self.context.set_step(self.steps)
        self.reference.set_step(self.steps)
        self.steps += 1
        self.local.zero_grad()
        for k in range(runs if self.ddp is None else 1):
            event = dict(event, seed=event["seed"] + 1, rows=1 + (event["rows"] + k) % 3,
                         length=2 + (event["length"] + k) % 3)
            self.compare_loss(self.pipeline.train(*self.placed(event)), self.reference.run(event, True)[0])
        report = self.optimizer.step(max_norm=event["max_norm"], data_parallel_reduce=self.reduce)
        self.compare("norm", report.norm, self.reference.step(event["max_norm"]))
        nxd.mark_step()

    def accumulate(self, event):
        self.train(event, 3)

    def evaluate(self, event):
        outputs = min(event["seed"] % 3, self.num_outputs)
        loss, given = self.pipeline.evaluate(*self.placed(event), num_outputs=outputs)
        expected, states = self.reference.run(event, False)
        self.compare_loss(loss, expected)
        if outputs == 2 and self.is_last:
            self.compare("outputs", host(given[1]), states[self.copy])

    def freeze(self, event):
        name, frozen = random.Random(event["seed"]).choice(self.trained), event["seed"] % 2
        if self.ddp is None:
            self.model.parameter(name).set_trainable(not frozen)
            self.reference.freeze(name, frozen)

    def reload(self, _):
        self.save()
        self.close()
        self.restore()

    def save(self):
        self.local.save_safetensors(self.path + ".weights")
        self.optimizer.save(self.path + ".state")

    def restore(self):
        """The model anew, and on from the files, perhaps in another layout."""
        self.take_place()
        self.context.world.barrier()
        self.model = self.load()
        self.model.load_safetensors(self.path + ".weights")
        self.reference.reload()
        for name, trainable in self.reference.trainable():
            self.model.parameter(name).set_trainable(trainable)
        self.make()
        self.optimizer.load(self.path + ".state")
        self.context.world.barrier()

    def reject(self, event):
        """A batch that is none, on the ranks of one stage, fails the runs of all ranks, and changes nothing. Other
        data-parallel copies hear of it where they count tokens."""
        if self.layout["copies"] > 1 and self.plan["loss"] != "TOKENS":
            return
        inputs = self.placed(event)
        places = self.layout["copies"] * self.layout["ranks"]
        if self.copy * self.layout["ranks"] + self.context.parallel_rank("PIPELINE") == event["seed"] % places:
            inputs[0] = nxd.tensor(numpy.zeros((0, 1), dtype=numpy.int64)).to_device(self.device)
        try:
            self.pipeline.train(*inputs)
        except nxd.errors.NxdError:
            return
        raise Difference("a batch without rows passes")

    def compare_state(self):
        for parameter in self.local.parameters():
            self.compare(parameter.name, host(parameter.gather_full()), self.reference.value(parameter.name))
        for name, value in self.local.buffers().items():
            self.compare(name, host(value), self.reference.buffer(name, self.copy))

"""Runs drawn programs of pipelines on this job's ranks, and compares losses, outputs, norms, parameters and buffers with
PyTorch's in one process.
usage: nxdrun -n RANKS train.py DIRECTORY COUNT FIRST [--f32]     The seed under way is written to DIRECTORY/last."""
import os
import pathlib
import random
import sys

import numpy
import torch

import model
import nxd
from draw import draw
from reference import Reference, batch


class Difference(Exception):
    pass


class Program:
    """One pipeline, its optimizer, and the reference."""

    def __init__(self, context, layout, plan, path, dtype):
        self.context, self.plan, self.path, self.layout = context, plan, str(path), layout
        self.tolerance = 1e-3 if dtype is torch.float32 else 1e-6
        if dtype is torch.float32:  # AdamW makes steps of the rounding of gradients that are 0
            plan["optimizer"] = "sgd"
        self.copy, self.ddp, self.random = context.parallel_rank("DATA"), None, random.Random(plan["model"])
        self.is_last = context.parallel_rank("PIPELINE") == layout["ranks"] - 1
        if context.rank == 0:
            torch.jit.script(model.make(plan["model"], dtype, plan["frozen"])).save(self.path)
        context.world.barrier()
        self.reference = Reference(plan, self.path, layout["copies"])
        self.blocks = [f"blocks.{k}" for k in range(len(list(self.reference.copies[0].blocks.children())))]
        self.model = nxd.TorchScript(context, self.path)
        self.make()

    def make(self):
        plan, r = self.plan, self.random
        self.model.train(True)
        places = ["embedding", *self.blocks]
        ranks = self.layout["ranks"]
        chunks = min(plan["chunks"], len(places) // ranks)
        cuts = sorted(r.sample(range(len(places)), ranks * chunks - 1))
        example = {"rows": 1, "length": 3, "seed": 0, "ignored": "none"}
        self.pipeline = nxd.ModulePipeline(
            self.model, self.placed(example), num_microbatches=plan["microbatches"],
            virtual_size=chunks, loss=plan["loss"], num_outputs=2,
            schedule=plan["schedule"] if chunks == plan["chunks"] else "GPIPE",
            has_labels_input=1, labels_input=1, labels_shifted=1, pipeline_cuts=[places[k] for k in cuts],
            broadcast_and_average_loss=plan["shares_loss"], keep_outputs=plan["keep_outputs"])
        self.local = self.pipeline.local_module
        if plan["recompute"]:
            some = [name for name in self.blocks if r.random() < 0.5]
            self.model.checkpoint({"some": some or self.blocks[:1], "all": self.blocks,
                                   "ends": ["embedding", "head", *some]}[plan["recompute"]])
        self.reduce = "SUM" if plan["loss"] == "TOKENS" else "AVG"
        if plan["zero"] is not None:
            self.ddp = nxd.Ddp.over_module(self.local, zero_stage=plan["zero"], bucket_bytes=plan["bucket"],
                                           reduce=self.reduce)
            self.pipeline.set_ddp(self.ddp)
        # The optimizer has these.
        self.trained = [name for name, each in self.reference.parameters.items() if each[0].requires_grad]
        over = self.local if self.ddp is None else self.ddp
        self.optimizer = (nxd.Sgd(over, learning_rate=0.05, momentum=0.9) if plan["optimizer"] == "sgd" else
                          nxd.AdamW(over, learning_rate=0.01, weight_decay=0.1))

    def placed(self, event):
        return [nxd.tensor(array) for array in batch(self.plan, event, self.copy)]

    def close(self):
        self.optimizer.close()
        if self.ddp is not None:
            self.ddp.close()
        self.pipeline.close()

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
        self.local.zero_grad()
        for k in range(runs if self.ddp is None else 1):
            event = dict(event, seed=event["seed"] + 1, rows=1 + (event["rows"] + k) % 3,
                         length=2 + (event["length"] + k) % 3)
            self.compare_loss(self.pipeline.train(*self.placed(event)), self.reference.run(event, True)[0])
        report = self.optimizer.step(max_norm=event["max_norm"], data_parallel_reduce=self.reduce)
        norm = self.reference.step(self.reference.gradients(), event["max_norm"])
        self.compare("norm", report.norm, norm)

    def accumulate(self, event):
        self.train(event, 3)

    def evaluate(self, event):
        outputs = event["seed"] % 3
        loss, given = self.pipeline.evaluate(*self.placed(event), num_outputs=outputs)
        expected, logits = self.reference.run(event, False)
        self.compare_loss(loss, expected)
        if outputs == 2 and self.is_last:
            self.compare("logits", given[1].numpy(), logits[self.copy])

    def freeze(self, event):
        name, frozen = random.Random(event["seed"]).choice(self.trained), event["seed"] % 2
        if self.ddp is None:
            self.model.parameter(name).set_trainable(not frozen)
            self.reference.freeze(name, frozen)

    def reload(self, _):
        weights, state = self.path + ".weights", self.path + ".state"
        self.local.save_safetensors(weights)
        self.optimizer.save(state)
        self.context.world.barrier()
        self.close()
        self.model = nxd.TorchScript(self.context, self.path)
        self.model.load_safetensors(weights)
        self.reference.reload()
        for name, each in self.reference.parameters.items():
            self.model.parameter(name).set_trainable(each[0].requires_grad)
        self.make()
        self.optimizer.load(state)
        self.context.world.barrier()

    def reject(self, event):
        """A rank's batch that is none fails the runs of all ranks, and changes nothing. Other data-parallel copies hear of it
        where they count tokens."""
        if self.layout["copies"] > 1 and self.plan["loss"] != "TOKENS":
            return
        inputs = self.placed(event)
        if self.context.rank == event["seed"] % self.context.size:
            inputs[0] = nxd.tensor(numpy.zeros((0, 1), dtype=numpy.int64))
        try:
            self.pipeline.train(*inputs)
        except nxd.errors.NxdError:
            return
        raise Difference("a batch without rows passes")

    def compare_state(self):
        for parameter in self.local.parameters():
            expected = self.reference.parameters[parameter.name][0]
            self.compare(parameter.name, parameter.gather_full().detach().numpy(), expected.detach().numpy())
        buffers = self.reference.copies[self.copy].state_dict()
        for name, value in self.local.buffers().items():
            self.compare(name, value.numpy(), buffers[name].numpy())


def main():
    directory, count, first = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    dtype = torch.float32 if "--f32" in sys.argv else torch.float64
    for seed in range(first, first + count):
        with nxd.Context(seed=1, timeout_ms=60000) as context:
            if context.rank == 0:
                (directory / "last").write_text(str(seed))
            layout, where = draw(seed, context.size), "making the pipelines"
            context.init_model_parallel(pipeline_parallel_size=layout["ranks"])
            try:
                programs = [Program(context, layout, plan, directory / f"{seed}-{k}.pt", dtype)
                            for k, plan in enumerate(layout["pipelines"])]
                for number, event in enumerate(layout["events"]):
                    program = programs[event["pipeline"]]
                    where = f"event {number}, {event}, of {program.plan}"
                    getattr(program, event["what"])(event)
                    program.compare_state()
            except (Difference, nxd.errors.NxdError) as error:
                print(f"FAILED: program {seed}, rank {context.rank} of {context.size}: {error}\n  in {where}", flush=True)
                os._exit(1)
            for program in programs:
                program.close()
            programs = program = None
            ranks = context.size, context.rank
    if ranks[1] == 0:
        print(f"{count} programs of pipelines on {ranks[0]} ranks agree with PyTorch's{', F32' * (dtype == torch.float32)}")


main()

"""Pipelines over models of the library's own layers, and over the built-in ones, beside the same model on one rank."""
import json

import numpy

import nxd
from layers import Layered
from program import Program
from solo import Solo

def no_more(plan, event, rank):
    return []


class OwnProgram(Program):
    tolerances = {"F64": 1e-6, "F32": 1e-3}

    def __init__(self, context, layout, plan, path, dtype):
        self.dtype, self.tolerance = dtype, self.tolerances[dtype]
        super().__init__(context, layout, plan, path)

    def end(self):
        super().end()
        self.reference.close()


class LayeredProgram(OwnProgram):
    """Modules of layers. Ranks divide the lengths of sequences."""

    def refer(self):
        solo = Solo(self.plan, self.layout["copies"], lambda context: self.made(context, "CPU"), False, no_more)
        solo.length_factor = self.context.size  # of this layout, or of a later one
        self.places = solo.model.places
        names = [each.name for each in solo.model.parameters()]
        self.frozen = self.random.sample(names, self.plan["frozen"])
        self.freeze_some(solo.model)
        solo.make_optimizer()
        return solo

    def take_place(self):
        super().take_place()
        if self.reference is not None:
            self.reference.copies = self.layout["copies"]

    def freeze_some(self, model):
        for name in self.frozen:
            model.parameter(name).set_trainable(False)

    def made(self, context, device):
        return Layered(context, self.plan["model"], self.dtype, device)

    def load(self):
        model = self.made(self.context, "CPU" if self.plan["moved"] else self.device)
        self.freeze_some(model)
        pads = self.layout["tensor"] * self.random.choice([1, 1, 2])
        if self.plan["moved"] == 2:
            model.move_to(self.device)
        model.pad_heads(pads)
        if self.plan["moved"] == 1:
            model.move_to(self.device)
        return model

    def options(self):
        return {"num_outputs": 2, "has_labels_input": 1, "labels_input": 1, "labels_shifted": 1, **self.cuts()}


class ModelProgram(OwnProgram):
    """Models of configurations."""

    num_outputs = 1

    def refer(self):
        self.is_bert = self.plan["config"]["model_type"] == "bert"
        return Solo(self.plan, self.layout["copies"], lambda context: self.made(context, "CPU"), not self.is_bert,
                    self.more if self.is_bert else no_more)

    @staticmethod
    def more(plan, event, rank):
        g, rows = numpy.random.default_rng([event["seed"], rank, 1]), event["rows"] * plan["microbatches"]
        return [None, g.integers(0, 2, (rows, event["length"])), g.integers(0, 2, rows)]

    def made(self, context, device, **options):
        return nxd.Model(context, json.dumps(self.plan["config"]), dtype=self.dtype, device=device, **options)

    def load(self):
        with nxd.deferred_init(self.plan["deferred"]):
            model = self.made(self.context, self.device, sequence_parallel=self.plan["sequence_parallel"])
        return model

    def recomputed(self):
        return None

    def options(self):
        return {"virtual_size": self.plan["chunks"], "schedule": self.plan["schedule"],
                "partition": self.plan["partition"]}

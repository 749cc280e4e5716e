"""Pipelines over modules of TorchScript files, beside the same file in PyTorch."""
import torch

import model
import nxd
from program import Program
from reference import Reference


class ScriptedProgram(Program):
    def __init__(self, context, layout, plan, path, dtype):
        self.dtype = getattr(torch, {"F64": "float64", "F32": "float32"}[dtype])
        self.tolerance = 1e-3 if dtype == "F32" else 1e-6
        super().__init__(context, layout, plan, path)

    def refer(self):
        if self.context.rank == 0:
            torch.jit.script(model.make(self.plan["model"], self.dtype, self.plan["frozen"])).save(self.path)
        self.context.world.barrier()
        reference = Reference(self.plan, self.path, self.layout["copies"])
        self.places = ["embedding", *(f"blocks.{k}" for k in range(len(list(reference.copies[0].blocks.children()))))]
        return reference

    def load(self):
        module = nxd.TorchScript(self.context, self.path)
        module.move_to(self.device)
        return module

    def options(self):
        return {"num_outputs": 2, "has_labels_input": 1, "labels_input": 1, "labels_shifted": 1, **self.cuts()}

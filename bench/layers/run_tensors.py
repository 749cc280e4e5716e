"""Runs drawn programs of layers over tensors on this job's ranks, and compares values and gradients with a simulation.
usage: nxdrun -n RANKS run_tensors.py DIRECTORY COUNT FIRST     The seed under way is written to DIRECTORY/last.
NXD_TEST_DEVICE=xla: on the recorded device.
"""
import contextlib
import random

import numpy as np

import nxd
from run_programs import run_programs
from tensor_calls import (attention, column, dropout, embedding, linear, mlp, norm, plain, qkv, region, rotary, row)
from tensor_checks import bad, differentiate, overwrite, taped, untracked
from tensor_losses import cross_entropy, linear_cross_entropy
from tensor_program import Program

KINDS = [column] * 4 + [row] * 4 + [linear] + [norm] * 3 + [embedding] * 2 + [attention] * 3 + [qkv] * 2 + [mlp] * 2 + \
    [rotary] * 2 + [dropout] + [region] * 4 + [cross_entropy] * 2 + [linear_cross_entropy] * 2 + [plain] * 8 + \
    [overwrite] * 2 + [untracked] * 2 + [bad] * 2 + [taped] * 2


def program(context, seed):
    r = random.Random(seed * 31 + context.size)
    tensor = r.choice([t for t in range(1, context.size + 1) if context.size % t == 0])
    if context.model_parallel:
        context.destroy_model_parallel()
    context.init_model_parallel(tensor_parallel_size=tensor)
    context.plain_kernels = r.random() < 0.15
    p = Program(context, seed)
    for _ in range(r.choice([1, 2, 3])):
        p.leaf(p.r.choice(p.shapes), p.r.random() < 0.7)
    try:
        for _ in range(r.choice([2, 4, 8, 12])):
            kind = p.r.choice(KINDS)
            before = len(p.variables)
            with nxd.autocast() if p.casts else contextlib.nullcontext():
                kind(p)
            for v in p.variables[before:]:
                p.compare(f"{p.name(v)} = {kind.__name__}", v.tensor, v.simulated)
            if agree_on(context, p.wrong):
                return p
        if p.r.random() < 0.3:
            differentiate(p, True)
        if not agree_on(context, p.wrong):
            differentiate(p, False)
    except nxd.InvalidState as error:
        if not p.overwritten:
            p.say("is rejected:", error)
    except nxd.NxdError as error:
        p.say("is rejected:", error)
    agree_on(context, p.wrong)
    return p


def agree_on(context, wrong):
    """True if a rank has found something."""
    found = np.array([len(wrong)], np.float32)
    context.world.all_reduce(found)
    return bool(found[0])


def differences(context, seed):
    p = program(context, seed)
    how = ", cast" * p.casts + ", plain" * bool(context.plain_kernels)
    return [f"{p.ranks} tensor-parallel, {p.dtype}{how}: {each}\n    " + "\n    ".join(p.log) for each in p.wrong[:2]]


run_programs("tensors", differences)

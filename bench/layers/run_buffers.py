"""Runs drawn calls of layers over buffers on this job's ranks, and compares outputs with the whole layer's.
usage: nxdrun -n RANKS run_buffers.py DIRECTORY COUNT FIRST     The seed under way is written to DIRECTORY/last.
"""
import os
import random

import numpy as np

import bad_calls
import buffers
import rowwise
import nxd.core as nxd
from memory import Array, beside, lay_together
from passing import arguments, error, options
from run_programs import run_programs
from nxd.raw import core, ffi

KINDS = [buffers.column_linears] * 4 + [buffers.row_linear] * 3 + [buffers.embedding] * 2 + [rowwise.norm] * 3 + \
    [rowwise.cross_entropy] * 3 + [rowwise.linear_cross_entropy] * 3 + [rowwise.mapping, rowwise.shard, rowwise.dropout]


class Rank:
    """This rank, which lays the arrays of a call, makes it, and tells what is wrong."""

    def __init__(self, context):
        self.context = context
        self.wrong, self.verbose = [], bool(os.environ.get("VERBOSE"))

    def say(self, call, *words):
        self.wrong.append(f"{call.function} {describe(call)}: " + " ".join(str(w) for w in words))

    def lay(self, call, r):
        plain = r.random() < 0.15
        arrays = list(call.arrays())
        for name, array, written in arrays:
            array.lay(r, written, plain)
        if len(arrays) > 1 and not call.in_place and r.random() < 0.3:
            (_, one, written), (_, other, other_written) = r.sample(arrays, 2)
            lay_together(r, one, other, written, other_written)
        for _, array, _ in arrays:
            array.before = array.block.copy()
        if call.in_place:
            source, target = dict(call.inputs)[call.in_place[0]], dict(call.outputs)[call.in_place[1]]
            source.lay(r, True, plain)
            for field in ("tensor", "block", "before", "first", "strides", "explicit"):
                setattr(target, field, getattr(source, field))
        call.workspace = None
        call.struct_c = ffi.NULL
        if call.struct and (any(call.options.values()) or r.random() < 0.8):
            call.struct_c = options(call.struct, call.options)
        if call.has_workspace and call.struct_c != ffi.NULL and r.random() < 0.4:
            self.add_workspace(call, r)

    def add_workspace(self, call, r, less=0):
        size = ffi.new("size_t*")
        status = getattr(core, call.function + "_get_workspace")(*arguments(self.context, call), size)
        if status:
            return self.say(call, "get_workspace gives", error())
        n = max(size[0] - less, 0)
        call.workspace = np.frombuffer(bytearray(r.randbytes(n + 96)), np.uint8).copy()
        call.start = 32 + r.choice([0, 1, 7])
        call.struct_c.workspace = ffi.cast("void*", call.workspace.ctypes.data + call.start)
        call.struct_c.workspace_bytes = n
        call.room = call.workspace.copy()

    def run(self, call):
        return getattr(core, call.function)(*arguments(self.context, call))

    def check(self, call):
        for name in beside(list(call.arrays())):
            self.say(call, f"memory was written beside the outputs, in the block of {name}")
        for name, array in call.outputs:
            for k, each in enumerate(array if isinstance(array, list) else [array]):
                if each is None:
                    continue
                result = call.expected[name]
                found = (result[k] if isinstance(array, list) else result).differs(each.read())
                if found:
                    self.say(call, name, found)
        self.check_workspace(call)

    def check_workspace(self, call):
        if call.workspace is None:
            return
        end = call.start + call.struct_c.workspace_bytes
        if not (np.array_equal(call.workspace[:call.start], call.room[:call.start]) and
                np.array_equal(call.workspace[end:], call.room[end:])):
            self.say(call, "memory beside the workspace was written")


def describe(call):
    arrays = ", ".join(f"{name} {array}" for name, array, _ in call.arrays())
    return f"({arrays}; {call.leading or ''} {call.options}{' workspace' if call.workspace is not None else ''}" + \
        (f" in place {call.in_place}" if call.in_place else "") + ")"


def program(context, seed):
    """Some calls in one layout; what is wrong on this rank."""
    r = random.Random(seed * 7919 + context.size)
    tensor = r.choice([t for t in range(1, context.size + 1) if context.size % t == 0])
    reduce_dtype = r.choice(["f32", "f32", "bf16"])
    if context.model_parallel:
        context.destroy_model_parallel()
    context.init_model_parallel(tensor_parallel_size=tensor, reduce_dtype=reduce_dtype)
    context.plain_kernels = r.random() < 0.1
    mine = Rank(context)
    place = random.Random(seed * 104729 + context.rank * 31 + context.size)
    for k in range(r.choice([4, 8, 12])):
        step = (r.randrange(5), r.randrange(3))
        context.set_step(*step)
        d = buffers.Draw(r, np.random.default_rng([seed, context.size, k]), tensor, context.parallel_rank("tensor"),
                         reduce_dtype, step)
        call = r.choice(KINDS)(d)
        mine.lay(call, place)
        if bad_calls.spoil(mine, call, r, place, tensor, context):
            bad_calls.check(mine, call)
        else:
            for result in call.expected.values():
                if isinstance(result, rowwise.Kept):
                    result.prepare(context)
            if mine.run(call):
                mine.say(call, "is rejected:", error())
            else:
                mine.check(call)
        wrong = np.array([len(mine.wrong)], np.float32)
        context.world.all_reduce(wrong)
        if wrong[0]:
            break
    return mine.wrong


run_programs("buffers", lambda context, seed: program(context, seed)[:3])

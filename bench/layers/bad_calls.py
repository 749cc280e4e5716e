"""Spoils a drawn call on one rank, or on all of them, and sees that every rank of the group rejects it and that no
output has changed."""
import numpy as np

from passing import arguments, options
from nxd.enums import Status
from nxd.raw import core, ffi

def spoil(rank, call, r, place, tensor, context):
    """Maybe makes the call a bad one; r draws alike on all ranks. Tells whether it is bad on this rank's group."""
    if r.random() > 0.22 or call.in_place:
        return False
    victim = r.choice([None] + list(range(tensor)))
    seed = r.randrange(1 << 30)
    local = core_is_local(call)
    mine = context.parallel_rank("tensor")
    way = ways(call, r, seed, tensor)
    if way is None:
        return False
    if victim is None and way.needs_one:
        victim = way.needs_one - 1 if way.needs_one > 1 else 0
    if victim is not None and local and mine != victim:
        return False
    if victim is None or mine == victim:
        way.apply(rank, call, place)
    call.bad = way.text, None if victim is None else context.parallel_source_rank("tensor") + victim
    return True


def core_is_local(call):
    return call.function == "nxd_shard_set_full"


class Way:
    def __init__(self, text, apply, needs_one=0):
        self.text, self.apply, self.needs_one = text, apply, needs_one


def named(call):
    return {name: array for name, array, _ in call.arrays()}


def ways(call, r, seed, tensor):
    """One way to spoil the call that its arrays and options leave; None: another one was drawn."""
    arrays = list(call.arrays())
    name, array, _ = arrays[r.randrange(len(arrays))]
    kind = r.choice(sorted(OF_ARRAY) + ["place", "overlap", "option", "options", "value", "workspace"])
    choice = r.random()
    if kind in OF_ARRAY:
        possible, text, change = OF_ARRAY[kind]
        if not possible(call, name, array):
            return None
        return Way(f"{name}: {text}", lambda rank, call, place: change(named(call)[name], choice))
    if kind == "place":
        return two_in_one_place(call, choice)
    if kind == "overlap":
        return overlapping(call, choice, seed)
    if kind == "workspace":
        return Way("a workspace that is too small", small_workspace) if call.has_workspace else None
    if kind == "value":
        return bad_value(call, choice, seed)
    return bad_option(call, r) if kind == "option" else other_option(call, r, tensor)


# Changes of one array, which are the same whatever its place is.

def another_size(array, choice):
    if not array.shape:
        array.tensor.ndim, array.shape_c[0] = 1, 1
        array.tensor.shape, array.tensor.strides = array.shape_c, ffi.NULL
        return
    d = int(choice * len(array.shape))
    array.shape_c[d] += 1 if array.shape[d] == 0 or choice < 0.5 else -1


def another_dtype(array, choice):
    t = array.tensor.dtype
    t.code, t.bits = (5, 64) if choice < 0.5 else (0, 16)
    t.lanes = 1 if choice < 0.7 else 2


def far_strides(array, choice):
    array.tensor.strides = array.strides_c
    d = [k for k, n in enumerate(array.shape) if n > 1][0]
    array.strides_c[d] = (1 << 62) if choice < 0.5 else -(1 << 63)


def dimensions(array, choice):
    array.tensor.ndim = -1 if choice < 0.5 else 65


def no_data(array, choice):
    array.tensor.data = ffi.NULL


def negative(array, choice):
    array.shape_c[0] = -3


def unaligned(array, choice):
    array.tensor.byte_offset += 1


def elsewhere(array, choice):
    array.tensor.device.device_type = 2


def has_elements(call, name, array):
    return 0 not in array.shape


OF_ARRAY = {
    "size": (lambda call, name, array: sized(call, name, array), "another shape", another_size),
    "dims": (lambda *_: True, "bad dimensions", dimensions),
    "negative": (lambda call, name, array: bool(array.shape), "a negative size", negative),
    "dtype": (lambda call, name, array: array.dtype != "i16", "a dtype that is none", another_dtype),
    "device": (lambda *_: True, "another device", elsewhere),
    "null": (has_elements, "no data", no_data),
    "unaligned": (lambda call, name, array: 0 not in array.shape and array.block.itemsize > 1, "unaligned", unaligned),
    "strides": (lambda call, name, array: 0 not in array.shape and max(array.shape, default=0) > 1,
                "strides beyond memory", far_strides)}


# Changes of an output's place.

def outputs_of(call):
    return [name for name, _, written in call.arrays() if written]


def two_in_one_place(call, choice):
    outs = outputs_of(call)
    if not outs:
        return None
    out = outs[int(choice * len(outs))]
    wide = [k for k, n in enumerate(named(call)[out].shape) if n > 1]
    if not wide or 0 in named(call)[out].shape:
        return None

    def apply(rank, call, place):
        array = named(call)[out]
        array.tensor.strides = array.strides_c
        for k, s in enumerate(array.strides):
            array.strides_c[k] = s
        array.strides_c[wide[0]] = 0
    return Way(f"{out}: two elements in one place", apply)


def overlapping(call, choice, seed):
    outs, arrays = outputs_of(call), named(call)
    if not outs or call.function.startswith("nxd_dropout"):
        return None
    out, other = outs[int(choice * len(outs))], sorted(arrays)[seed % len(arrays)]
    empty = 0 in arrays[out].shape or 0 in arrays[other].shape
    good = out == other or (out, other) == ("grad_logits", "logits")
    if empty or good or arrays[out].block.itemsize < arrays[other].block.itemsize:
        return None

    def apply(rank, call, place):
        mine, theirs = named(call)[out].tensor, named(call)[other].tensor
        # The first elements have one place.
        mine.data, mine.byte_offset = ffi.cast("char*", theirs.data) + theirs.byte_offset, 0
    return Way(f"{out} over {other}", apply)


def sized(call, name, array):
    """True if another size of a dimension makes the call a bad one."""
    if call.function.startswith("nxd_shard") or "embedding" in call.function and name in ("weight", "grad_weight"):
        return False
    return not (len(array.shape) > 1 and 0 in array.shape)


def small_workspace(rank, call, place):
    if call.struct_c == ffi.NULL:
        call.struct_c = options(call.struct, call.options)
    call.struct_c.workspace, call.struct_c.workspace_bytes = ffi.NULL, 0
    size = ffi.new("size_t*")
    getattr(core, call.function + "_get_workspace")(*arguments(rank.context, call), size)
    call.workspace = None
    if size[0] == 0:
        call.struct_c.workspace, call.struct_c.workspace_bytes = ffi.NULL, 1 << 63
        return
    rank.add_workspace(call, place, less=1)


def bad_value(call, choice, seed):
    """An id, or a label, that is none; on one rank another one than on the others."""
    arrays = named(call)
    name = next((n for n in ("ids", "labels") if n in arrays), None)
    if name is None or 0 in arrays[name].shape:
        return None

    def apply(rank, call, place):
        array = named(call)[name]
        first = array._elements(array.block)
        where = np.unravel_index(seed % first.size, first.shape) if first.shape else ()
        first[where] = -7 if choice < 0.5 else 2 ** 31 - 1
        array.before = array.block.copy()
    return Way(f"{name} out of range", apply)


FLAGS = ("gather_output", "sequence_parallel", "transposed_weight", "accumulate_grads", "has_padding_idx",
         "has_ignore_index", "has_position", "has_shard_dim", "transposed", "has_dim")
BAD = {"label_smoothing": [-0.1, 1.5, float("nan")], "smoothing": [-1, 2], "reduction": [-1, 3],
       "vocab_size": [-1, 10 ** 9], "num_embeddings": [-1, 10 ** 9],
       "eps": [-1e-5, float("nan"), float("inf")], "p": [-0.1, 1.0, float("nan")],
       "block_tokens": [-1], "input_is_parallel": [3, -1], "reserved": [1], "num_fused": [-1], "num_heads": [-1]}


def set_option(name, value):
    def apply(rank, call, place):
        if call.struct_c == ffi.NULL:
                call.struct_c = options(call.struct, call.options)
        setattr(call.struct_c, name, value)
    return apply


def bad_option(call, r):
    if not call.struct:
        return None
    fields = dict(ffi.typeof(call.struct).fields)
    names = [n for n in fields if n in FLAGS or n in BAD]
    if "sequence_dim" in call.options and call.options["sequence_parallel"]:
        names.append("sequence_dim")
    if call.options.get("has_shard_dim"):
        names.append("shard_dim")
    if call.options.get("has_padding_idx"):
        names.append("padding_idx")
    if call.options.get("has_position"):
        names += ["step", "microbatch"]
    name = r.choice(names)
    value = r.choice([2, -1]) if name in FLAGS else r.choice(BAD[name]) if name in BAD else \
        -1 if name in ("padding_idx", "step", "microbatch") else 90
    return Way(f"{name} = {value}", set_option(name, value))


def other_option(call, r, tensor):
    """A good option, which the other ranks have not got."""
    if tensor < 2 or not call.struct or core_is_local(call):
        return None
    names = {"label_smoothing": lambda v: 0.25 if v != 0.25 else 0.5, "smoothing": lambda v: 1 - v,
             "reduction": lambda v: (v + 1) % 2 if v < 2 else None,
             "eps": lambda v: 0.25, "p": lambda v: 0.25, "accumulate_grads": lambda v: 1 - v,
             "vocab_size": None, "step": None}
    name = r.choice([n for n in names if n in call.options] or [None])
    if name is None or names[name] is None:
        return None
    value = names[name](call.options[name])
    if value is None:
        return None
    return Way(f"{name} = {value} on one rank", set_option(name, value), needs_one=1)


def check(rank, call):
    text, victim = call.bad
    status = rank.run(call)
    if status != int(Status.INVALID_ARGUMENT):
        rank.say(call, f"with {text} on rank {victim}: gives {status}", status and ffi.string(core.nxd_last_error()))
        return
    message = ffi.string(core.nxd_last_error()).decode()
    if victim not in (None, rank.context.rank) and f"rank {victim}" not in message:
        rank.say(call, f"with {text} on rank {victim}: the message names another: {message}")
    for name, array, written in call.arrays():
        if not array.is_untouched():
            rank.say(call, f"with {text} on rank {victim}: {name} was written")
    if rank.verbose:
        print(f"{call.function}: {text} on {victim}: {message}", flush=True)

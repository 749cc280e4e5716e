"""Parts that train_lm, finetune_hf and pretrain_bert share: options, corpora, draws, a pass."""

import argparse
import contextlib
import itertools
from pathlib import Path

import numpy as np
import nxd


def read_options(description, defaults, texts=(), flags=(), idle=(), **choices):
    """Options of a command line: numbers and texts with defaults, texts and flags that may be left
    out, and choices, of which the first is taken unless another is named. One of them is lr. idle:
    pairs of groups of names; an option of the first group has no effect beside one of the
    second."""
    parser = argparse.ArgumentParser(description=description, argument_default=argparse.SUPPRESS)
    unset = {**defaults, **dict.fromkeys(texts), **dict.fromkeys(flags, False),
             **{name: next(iter(known)) for name, known in choices.items()}}
    for name, default in defaults.items():
        parser.add_argument("--" + name, type=type(default))
    for name in texts:
        parser.add_argument("--" + name)
    for name in flags:
        parser.add_argument("--" + name, action="store_true")
    for name, known in choices.items():
        parser.add_argument("--" + name, choices=known)
    given = {name.replace("_", "-"): value for name, value in vars(parser.parse_args()).items()}
    for names, others in idle:
        for name, other in itertools.product(names, others):
            if name in given and other in given:
                parser.error(f"--{name} has no effect beside --{other}")
    options = argparse.Namespace(
        **{name.replace("-", "_"): value for name, value in {**unset, **given}.items()})
    # The library takes a rate of 0 for its own default.
    if not options.lr > 0:
        parser.error(f"--lr: expected a rate above 0, got {options.lr}")
    return options


def read_ids(path, dtype):
    """The numbers of a file as ids, such as "u1" of a text or "<u2" of a tokenizer."""
    return np.fromfile(path, dtype).astype("i8")


def read_text(path=None):
    """The bytes of a file, or of the licence texts that Debian installs, in order of names."""
    licences = Path("/usr/share/common-licenses")
    files = [path] if path else sorted(
        file for file in licences.iterdir() if file.is_file() and not file.is_symlink())
    return np.concatenate([read_ids(file, "u1") for file in files])


def random_bits(seed, draw):
    """The draw-th value of a stream: the finaliser of SplitMix64 (Steele et al. 2014)."""
    mask = 2**64 - 1
    z = ((seed + 1) * 0xD1B54A32D192ED03 + (draw + 1) * 0x9E3779B97F4A7C15) & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


def random_windows(ids, seed, step, copies, batch, length):
    """A batch of random windows; copies of the model, a group, take different ones."""
    first = (step * copies.size + copies.rank) * batch
    starts = [random_bits(seed, first + row) % (len(ids) - length) for row in range(batch)]
    return np.stack([ids[at:at + length] for at in starts])


def make_directory(ctx, path):
    """By rank 0, with its parents. Before a training: no result of one is lost to a bad path."""
    if ctx.rank == 0:
        Path(path).mkdir(parents=True, exist_ok=True)


def launch(ranks):
    """Starts this program once for each rank and waits. False in a process that is a rank, by a
    launcher too, or the only one."""
    if ranks == 1:
        return False
    try:
        job = nxd.spawn(num_processes=ranks)
    except nxd.InvalidState:  # this process is a rank already
        return False
    with job:
        job.wait()
    return True


def autocast(dtype):
    """Automatic casts to a dtype; none with None."""
    return nxd.autocast(dtype) if dtype else contextlib.nullcontext()


def forward_backward(model, copies, *inputs, cast=None):
    """Adds to the gradients; the loss is the mean over all copies."""
    with autocast(cast):
        loss = model(*inputs)
    loss.backward()
    return copies.all_reduce(np.array([loss.item()]), op="avg")[0]

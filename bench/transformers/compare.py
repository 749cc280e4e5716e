"""Compares libnxd with what vary.py has written, over the ranks that nxdrun started, tensor parallel: loss,
logits and all gradients of each model.
usage: compare.py DIRECTORY [--sequence-parallel]"""
import json
import pathlib
import sys

import numpy

import nxd

INPUTS = ["input_ids", "labels", "attention_mask", "token_type_ids", "next_sentence_label"]
# Shares of the largest element; a gradient that is zero but for rounding has no share.
LOGITS, GRADIENTS, NOTHING = 2e-5, 1e-4, 3e-6


def arguments_of(inputs, without=()):
    given = [nxd.tensor(inputs[name]) if name in inputs and name not in without else None for name in INPUTS]
    while given[-1] is None:
        given.pop()
    return given


def differences(context, model, directory):
    inputs, expected = numpy.load(directory / "inputs.npz"), numpy.load(directory / "expected.npz")
    is_bert = json.loads((directory / "config.json").read_text())["model_type"] == "bert"
    model.train(True)
    loss = model(*arguments_of(inputs))
    loss.backward()
    nxd.finish_grads(model)
    found = []
    if not abs(loss.item() - expected["loss"]) <= LOGITS * max(1, abs(expected["loss"])):
        found.append(f"loss {loss.item()}, expected {expected['loss']}")
    with nxd.no_grad():
        given = model(*arguments_of(inputs, ("labels", "next_sentence_label")), num_outputs=2 if is_bert else 1)
        logits = nxd.gather_from_tensor_region(context, given[0] if is_bert else given).numpy()
    wanted = expected["logits"]
    seen = inputs["attention_mask"] != 0 if "attention_mask" in inputs else numpy.ones(wanted.shape[:2], bool)
    off = numpy.abs(logits[..., :wanted.shape[-1]] - wanted)[seen].max() / numpy.abs(wanted[seen]).max()
    if not off <= LOGITS:
        found.append(f"logits are off by {off:.1e} of the largest")
    for parameter in model.parameters():
        gradient, name = parameter.gather_full_grad(), "gradient:" + parameter.name
        if name not in expected and name == "gradient:cls.predictions.bias":
            name = "gradient:cls.predictions.decoder.bias"
        if gradient is None or name not in expected:
            found.append(f"{name}: {'libnxd' if gradient is None else 'transformers'} has none")
            continue
        off = numpy.abs(gradient.numpy() - expected[name]).max()
        if not off <= GRADIENTS * numpy.abs(expected[name]).max() + NOTHING:
            found.append(f"{name}: off by {off:.1e}, of {numpy.abs(expected[name]).max():.1e}")
    return found


def main():
    root, sequence_parallel = pathlib.Path(sys.argv[1]), "--sequence-parallel" in sys.argv
    directories, bad = sorted(root.iterdir(), key=lambda each: int(each.name)), 0
    with nxd.Context(seed=1) as context:
        context.init_model_parallel(tensor_parallel_size=context.size)
        for directory in directories:
            model = nxd.Model.from_pretrained(context, str(directory), sequence_parallel=int(sequence_parallel))
            found = differences(context, model, directory)
            bad += bool(found)
            if found and context.rank == 0:
                print(f"{directory.name}: {'; '.join(found[:3])}: {(directory / 'config.json').read_text()}")
        if context.rank == 0:
            print(f"{len(directories) - bad} of {len(directories)} random configurations agree, "
                  f"{context.size} rank{'s' if context.size > 1 else ''}"
                  f"{', sequence parallel' if sequence_parallel else ''}")
    if bad:
        raise SystemExit(1)


main()

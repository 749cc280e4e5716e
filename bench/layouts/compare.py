"""Compares what train.py wrote of a run that was divided among ranks with the same run on one.
usage: compare.py DIRECTORY"""
import json
import pathlib
import sys

import draw
import numpy

# Shares of losses and norms, and of the largest element of a parameter. AdamW moves an element as far for a
# gradient that is rounding alone as for another.
TOLERANCE = {"F32": (2e-5, 2e-3), "F64": (1e-10, 1e-8), "BF16": (3e-2, 1.0)}


def differences(directory, case):
    names = sorted(directory.glob("*.npz"))
    whole = [numpy.load(path) for path in names if path.stem == "whole"]
    stages = [numpy.load(path) for path in names if path.stem != "whole"]
    if not whole or not stages:
        return [f"{'the whole run' if stages else 'the divided run'} has failed"]
    of_losses, of_parameters = TOLERANCE["BF16" if case["autocast"] else case["dtype"]]
    found, whole = [], whole[0]
    for stage in stages:
        for kind, tolerance in (("losses", of_losses), ("norms", 10 * of_losses)):
            off = numpy.abs(stage[kind] - whole[kind]) / numpy.maximum(1e-3, numpy.abs(whole[kind]))
            if not (off <= tolerance).all():
                found.append(f"{kind} {stage[kind].tolist()}, expected {whole[kind].tolist()}")
        for name in stage.files:
            if not name.startswith("p:"):
                continue
            off = numpy.abs(stage[name] - whole[name]).max() if stage[name].shape == whole[name].shape else numpy.inf
            if not off <= of_parameters * max(0.05, numpy.abs(whole[name]).max()):
                found.append(f"{name[2:]} is off by {off:.1e} of {numpy.abs(whole[name]).max():.1e}")
    missing = {name for name in whole.files} - {name for stage in stages for name in stage.files}
    return found + [f"no rank has {name}" for name in sorted(missing)]


def main():
    bad, count = 0, 0
    for directory in sorted(pathlib.Path(sys.argv[1]).glob("*-*")):
        world, seed = map(int, directory.name.split("-"))
        case = draw.draw(seed, world)
        found = differences(directory, case)
        count += 1
        if found:
            bad += 1
            print(f"{directory.name}: {'; '.join(found[:3])}\n    {json.dumps(case)}")
    print(f"{count - bad} of {count} runs train the same model, divided and whole")
    raise SystemExit(bool(bad))


main()

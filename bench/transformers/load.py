"""Loads directories with Hugging Face's transformers: no key may be missing, unexpected or of another shape, and
the logits of fixed ids must be those of DIRECTORY/nxd_logits.npy, or of the one that --logits names.
usage: load.py [--logits FILE] DIRECTORY"""
import argparse
import json
import pathlib

import numpy
import torch
import transformers

BATCH, LENGTH = 2, 12
TOLERANCE = 1e-4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--logits")
    parser.add_argument("directory", type=pathlib.Path)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    config = json.loads((arguments.directory / "config.json").read_text())
    kind = getattr(transformers, config["architectures"][0])
    model, report = kind.from_pretrained(arguments.directory, output_loading_info=True)
    for part in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[part]:
            raise SystemExit(f"{arguments.directory}: {part}: {sorted(report[part])}")
    vocabulary = config["vocab_size"]
    ids = torch.arange(BATCH * LENGTH).reshape(BATCH, LENGTH) * 7 % vocabulary
    with torch.no_grad():
        given = model.eval()(input_ids=ids)
    logits = (given.prediction_logits if config["model_type"] == "bert" else given.logits).float().numpy()
    expected = numpy.load(arguments.logits or arguments.directory / "nxd_logits.npy")
    error = numpy.abs(logits - expected).max() / numpy.abs(expected).max()
    print(f"{config['model_type']}: all keys, logits differ by {error:.1e} of the largest")
    if logits.shape != expected.shape or not error <= TOLERANCE:
        raise SystemExit(f"{arguments.directory}: expected logits within {TOLERANCE} of libnxd's, got {error:.1e}")


main()

"""Trains the model of a Hugging Face directory for a step and writes it, with libnxd, over the ranks that
nxdrun started: FROM's model to OUT, and the logits of fixed ids to OUT/nxd_logits.npy."""
import json
import pathlib
import shutil
import sys

import numpy

import nxd

BATCH, LENGTH = 2, 12


def ids_for(vocabulary):
    return numpy.arange(BATCH * LENGTH, dtype=numpy.int64).reshape(BATCH, LENGTH) * 7 % vocabulary


def main(source, out):
    config = json.loads((source / "config.json").read_text())
    vocabulary = config["vocab_size"]
    with nxd.Context(seed=1) as context:
        context.init_model_parallel(tensor_parallel_size=context.size)
        model = nxd.Model.from_pretrained(context, str(source))
        ids = nxd.tensor(ids_for(vocabulary))
        is_bert = config["model_type"] == "bert"
        extra = (None, None, nxd.tensor(numpy.array([0, 1], dtype=numpy.int64))) if is_bert else ()
        model.train(True)
        model(ids, ids, *extra).backward()
        nxd.Sgd(model, learning_rate=0.05).step()
        model.train(False)
        if context.rank == 0:
            out.mkdir()
            shutil.copy(source / "config.json", out)
        context.world.barrier()
        model.save_safetensors(str(out / "model.safetensors"))
        with nxd.no_grad():
            logits = nxd.gather_from_tensor_region(context, model(ids)).numpy()
        if context.rank == 0:
            numpy.save(out / "nxd_logits.npy", logits[..., :vocabulary])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))

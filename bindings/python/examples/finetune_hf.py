"""Fine-tunes a model of a Hugging Face directory and writes one that Hugging Face's libraries load:
weights under their names, and config.json, tokenizer and other files as they were, but no
directories and no names with a dot in front. It is examples/c/finetune_hf.c in Python, with the
same losses.

    python3 finetune_hf.py --model gpt2/ --ids corpus.u16 --out gpt2-tuned/ --tp 2

The ids are those of the model's own tokenizer, as 16-bit numbers, the least byte first. With --text
the bytes of a file are the ids. More ranks than --tp, as of a launcher, train data-parallel copies.
"""

import shutil
import sys
from pathlib import Path

import nxd
from common import forward_backward, launch, make_directory, random_windows, read_ids, read_options

# Endings of weights, of any program's, and of indices of them: each would be the old ones.
WEIGHTS = (".safetensors", ".index.json", ".bin", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx",
           ".onnx_data", ".ot", ".pt", ".pth", ".tflite")


def train(ctx, a, model, corpus):
    copies = ctx.parallel_group("data")
    adamw = nxd.AdamW(model, learning_rate=a.lr)
    for step in range(a.steps):
        ids = nxd.tensor(random_windows(corpus, 1, step, copies, a.batch, a.seq))
        loss = forward_backward(model, copies, ids, ids)  # the model shifts its labels itself
        adamw.step(max_norm=1.0, data_parallel_reduce="avg")
        model.zero_grad()
        ctx.master_print(f"step {step + 1}/{a.steps}  loss {loss:.6f}")


def write_directory(ctx, model, source, out):
    model.save_safetensors(out / "model.safetensors")  # written by rank 0, whole
    if ctx.rank == 0:
        for file in source.iterdir():
            if file.is_file() and file.name[0] != "." and not file.name.endswith(WEIGHTS):
                shutil.copyfile(file, out / file.name)
    ctx.master_print(f"wrote {out}")


def main():
    a = read_options("Fine-tunes a model of a Hugging Face directory. --out gets the weights, and "
                     "copies of the other files of --model, but no directories and no names with "
                     "a dot in front.",
                     {"tp": 1, "dp": 1, "steps": 20, "batch": 4, "seq": 32, "lr": 1e-4},
                     ("model", "out", "ids", "text"), idle=((("text",), ("ids",)),))
    if not (a.model and a.out and (a.ids or a.text)):
        sys.exit("finetune_hf: expected --model DIR --out DIR and --ids FILE or --text FILE")
    if launch(a.tp * a.dp):
        return
    corpus = read_ids(a.ids, "<u2") if a.ids else read_ids(a.text, "u1")
    if len(corpus) <= a.seq:
        sys.exit(f"finetune_hf: expected more than {a.seq} ids, got {len(corpus)}")
    with nxd.Context() as ctx:
        ctx.init_model_parallel(tensor_parallel_size=a.tp)
        make_directory(ctx, a.out)
        model = nxd.Model.from_pretrained(ctx, a.model)
        train(ctx, a, model, corpus)
        write_directory(ctx, model, Path(a.model), Path(a.out))


if __name__ == "__main__":
    main()

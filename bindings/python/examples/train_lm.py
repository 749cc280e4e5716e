"""Trains a small Llama on text, byte by byte, with tensor, sequence, pipeline and data parallelism:
examples/c/train_lm.c in Python, with the same losses to the last digit. It starts one process
per rank itself; under torchrun or nxdrun it joins the ranks that are there.

    python3 train_lm.py --tp 2 --text my.txt --out results
"""

import argparse
import contextlib
import json
import os
import struct
import sys
import time
from pathlib import Path

import numpy as np
import nxd

MASK = 2**64 - 1
# dtype of the parameters, how those of bf16 are updated, automatic casts
PRECISIONS = {"f32": ("f32", "master", None), "bf16": ("bf16", "master", None),
              "bf16-stochastic": ("bf16", "stochastic", None),
              "bf16-nearest": ("bf16", "nearest", None), "autocast": ("f32", "master", "bf16")}


def read_arguments():
    parser = argparse.ArgumentParser(description="Trains a small Llama on text.")
    for name, default in (("tp", 2), ("pp", 1), ("microbatches", 1), ("steps", 240), ("layers", 4),
                          ("heads", 8), ("kv-heads", 4), ("hidden", 256), ("intermediate", 704),
                          ("seq", 256), ("batch", 8), ("seed", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--dtype", choices=PRECISIONS, default="f32")
    parser.add_argument("--sequence-parallel", action="store_true")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--save", help="writes the model here, as safetensors")
    return parser.parse_args()


def read_text(path):
    """A file, or the licence texts that Debian installs, in order of their names."""
    licences = Path("/usr/share/common-licenses")
    files = [path] if path else sorted(
        file for file in licences.iterdir() if file.is_file() and not file.is_symlink())
    return np.frombuffer(b"".join(file.read_bytes() for file in files), np.uint8)


def random_bits(seed, draw):
    """The draw-th value of a stream: the finaliser of SplitMix64 (Steele et al. 2014)."""
    z = ((seed + 1) * 0xD1B54A32D192ED03 + (draw + 1) * 0x9E3779B97F4A7C15) & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def make_config(a):
    return json.dumps({
        "model_type": "llama", "hidden_size": a.hidden, "num_hidden_layers": a.layers,
        "num_attention_heads": a.heads, "num_key_value_heads": a.kv_heads,
        "intermediate_size": a.intermediate, "vocab_size": 256, "rms_norm_eps": 1e-5,
        "max_position_embeddings": a.seq, "initializer_range": 0.02})


class Trainer:
    """Everything of one rank."""

    def __init__(self, ctx, a, text):
        ctx.init_model_parallel(tensor_parallel_size=a.tp, pipeline_parallel_size=a.pp)
        self.a, self.text, self.data_group = a, text, ctx.parallel_group("data")
        dtype, update, self.cast = PRECISIONS[a.dtype]
        cut = a.pp > 1 or a.microbatches > 1
        self.model = nxd.Model(ctx, make_config(a), dtype=dtype, device="meta" if cut else "cpu",
                               sequence_parallel=a.sequence_parallel)
        self.pipeline, self.trained = None, self.model
        if cut:
            example = nxd.zeros((a.batch, a.seq), "i64", "meta")
            self.pipeline = nxd.ModulePipeline(
                self.model, [example, example], num_microbatches=a.microbatches,
                partition="cost", broadcast_and_average_loss=True)
            self.trained = self.pipeline.local_module
        self.adamw = nxd.AdamW(self.trained, learning_rate=a.lr, beta2=0.95, weight_decay=0.1,
                               bf16_update=update)
        self.adamw.set_lr_schedule(kind="cosine", warmup_steps=a.steps // 20 + 1,
                                total_steps=a.steps + 1, final_factor=0.1)

    def batch(self, step):
        """Ids of random windows; copies of the model take different ones."""
        a, copies, copy = self.a, self.data_group.size, self.data_group.rank
        first = (step * copies + copy) * a.batch
        starts = [random_bits(a.seed, first + row) % (len(self.text) - a.seq)
                  for row in range(a.batch)]
        return nxd.tensor(np.stack([self.text[at:at + a.seq] for at in starts]).astype("i8"))

    def step(self, step):
        """The loss over all copies."""
        ids = self.batch(step)
        self.trained.zero_grad()
        with nxd.autocast(self.cast) if self.cast else contextlib.nullcontext():
            if self.pipeline:
                loss = self.pipeline.train(ids, ids)
            else:
                output = self.model(ids, ids)  # the model shifts its labels itself
        if not self.pipeline:
            output.backward()
            loss = self.data_group.all_reduce(np.array([output.item()]), op="avg")[0]
        # A pipeline has divided by the tokens of all copies.
        self.adamw.step(max_norm=1.0, data_parallel_reduce="sum" if self.pipeline else "avg")
        return loss


def train(ctx, a, text):
    trainer = Trainer(ctx, a, text)
    every, losses, start = max(a.steps // 20, 1), [], time.monotonic()
    for step in range(a.steps):
        # As the file has them: f32.
        losses.append(struct.unpack("f", struct.pack("f", trainer.step(step)))[0])
        if step == 0 or (step + 1) % every == 0 or step + 1 == a.steps:
            rate = (step + 1) * a.batch * a.seq * trainer.data_group.size
            ctx.master_print(f"step {step + 1:4}/{a.steps}  loss {losses[-1]:6.3f}  "
                             f"{rate / (time.monotonic() - start):7.0f} tokens/s")
    if ctx.rank == 0:
        a.out.mkdir(exist_ok=True)
        lines = [f"{i + 1},{loss:.6f}\n" for i, loss in enumerate(losses)]
        (a.out / "loss.csv").write_text("step,loss\n" + "".join(lines))
    if a.save:
        trainer.trained.save_safetensors(a.save)


def main():
    a = read_arguments()
    if "RANK" not in os.environ and a.tp * a.pp > 1:
        with nxd.spawn(num_processes=a.tp * a.pp) as job:
            job.wait()
        return 0
    text = read_text(a.text)
    if len(text) <= a.seq:
        sys.exit(f"train_lm: expected a text of more than {a.seq} bytes, got {len(text)}")
    with nxd.Context(seed=a.seed, timeout_ms=120000) as ctx:
        train(ctx, a, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

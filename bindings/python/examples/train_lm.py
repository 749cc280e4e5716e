"""Trains a language model on token ids, or on text byte by byte, with tensor, sequence, pipeline
and data parallelism: examples/c/train_lm.c in Python, with its options and its losses to the last
digit. It starts one process per rank itself; under torchrun, nxdrun, mpirun or srun it joins the
ranks that are there, and more ranks than --tp times --pp train data-parallel copies.

    python3 train_lm.py --tp 2 --text my.txt --out results
    python3 train_lm.py --tp 1 --pp 2 --dp 2 --microbatches 4 --zero1
    python3 train_lm.py --data corpus.u16 --config config.json --save-every 100 --keep 3 --resume

The model is a small Llama of the sizes given, that of a configuration (--config), or one of a
Hugging Face directory, with its weights (--weights).
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import nxd
from common import autocast, forward_backward, launch, make_directory, random_bits, random_windows, \
    read_options, read_text

# dtype of the parameters, how those of bf16 are updated, automatic casts
PRECISIONS = {"f32": ("f32", "master", None), "bf16": ("bf16", "master", None),
              "bf16-stochastic": ("bf16", "stochastic", None),
              "bf16-nearest": ("bf16", "nearest", None), "autocast": ("f32", "master", "bf16")}
DEFAULTS = {
    "tp": 2, "pp": 1, "dp": 1, "virtual": 1, "microbatches": 1, "hidden": 256, "layers": 4,
    "heads": 8, "kv-heads": 4, "intermediate": 704, "seq": 256, "batch": 8, "steps": 240,
    "stop-at": 0, "lr": 2e-3, "seed": 1, "sample": 400, "out": "out", "save-every": 0, "keep": 3}
SIZES = ("hidden", "layers", "heads", "kv-heads", "intermediate")


def make_config(a):
    """A Hugging Face configuration: a file's, or one made of the sizes given."""
    if a.config or a.weights:
        return Path(a.config or Path(a.weights, "config.json")).read_text()
    return json.dumps({
        "model_type": "llama", "hidden_size": a.hidden, "num_hidden_layers": a.layers,
        "num_attention_heads": a.heads, "num_key_value_heads": a.kv_heads,
        "intermediate_size": a.intermediate, "vocab_size": 256, "rms_norm_eps": 1e-5,
        "max_position_embeddings": a.seq, "initializer_range": 0.02})


class Trainer:
    """Everything of one rank."""

    def __init__(self, ctx, a, text):
        ctx.init_model_parallel(tensor_parallel_size=a.tp, pipeline_parallel_size=a.pp)
        self.a, self.text, self.copies = a, text, ctx.parallel_group("data")
        self.data = nxd.DataLoader(ctx, [a.data], a.batch, a.seq) if a.data else None
        dtype, update, self.cast = PRECISIONS[a.dtype]
        cut = a.pp > 1 or a.microbatches > 1
        self.model = nxd.Model(ctx, make_config(a), dtype=dtype, device="meta" if cut else "cpu",
                               sequence_parallel=a.sequence_parallel)
        self.pipeline = self.cut() if cut else None
        self.trained = self.pipeline.local_module if cut else self.model
        # A pipeline has divided by the tokens of all copies.
        self.reduce = "sum" if cut else "avg"
        if a.weights:
            self.trained.load_safetensors(a.weights)
        self.adamw = nxd.AdamW(self.data_parallel() if a.zero1 else self.trained,
                               learning_rate=a.lr, beta2=0.95, weight_decay=0.1, bf16_update=update)
        self.set_rates()

    def set_rates(self):
        """A checkpoint that the run goes on from has those of the run that saved it: the options
        count."""
        self.adamw.set_lr_schedule(kind="cosine", warmup_steps=self.a.steps // 20 + 1,
                                   total_steps=self.a.steps + 1, final_factor=0.1)
        self.adamw.learning_rate = self.a.lr

    def cut(self):
        """The model's stages of this rank, whose weights are made here."""
        a = self.a
        example = nxd.zeros((a.batch, a.seq), "i64", "meta")
        return nxd.ModulePipeline(
            self.model, [example, example], num_microbatches=a.microbatches,
            virtual_size=a.virtual, partition="cost", broadcast_and_average_loss=True)

    def data_parallel(self):
        """Shares the optimizer's state out over the copies."""
        ddp = nxd.Ddp.over_module(self.trained, zero_stage=1, reduce=self.reduce)
        if self.pipeline:
            self.pipeline.set_ddp(ddp)
        return ddp

    def batch(self, step):
        a = self.a
        if not self.data:
            return random_windows(self.text, a.seed, step, self.copies, a.batch, a.seq)
        ids = np.empty((a.batch, a.seq), "i8")
        self.data.next(ids)
        return ids

    def step(self, step):
        """The loss over all copies."""
        ids = nxd.tensor(self.batch(step))
        self.trained.zero_grad()
        if self.pipeline:
            with autocast(self.cast):
                loss = self.pipeline.train(ids, ids)
        else:  # the model shifts its labels itself
            loss = forward_backward(self.model, self.copies, ids, ids, cast=self.cast)
        self.adamw.step(max_norm=1.0, data_parallel_reduce=self.reduce)
        return np.float32(loss)


class Checkpoints:
    """Saves a run while it goes on: its state, and beside it the losses so far."""

    def __init__(self, ctx, trainer, directory, keep):
        self.ctx, self.directory, self.keep = ctx, directory, keep
        self.state, self.saving = nxd.TrainingState(ctx), None
        self.state.add_module("model", trainer.trained)
        self.state.add_optimizer("optimizer", trainer.adamw)
        if trainer.data:
            self.state.add_data_loader("data", trainer.data)

    def save(self, losses):
        self.wait()
        self.saving = nxd.Checkpoint.create(self.ctx, self.directory, len(losses))
        self.state.snapshot(self.saving)
        if self.ctx.rank == 0:
            np.array(losses).tofile(self.saving.path("losses.f32"))
        self.saving.publish_async(self.keep)

    def wait(self):
        if self.saving:
            self.saving.wait()
            self.saving.close()

    def resume(self, max_steps):
        """Goes on from the newest complete one; gives the losses until then."""
        newest = nxd.Checkpoint.open_newest(self.ctx, self.directory)
        if newest is None:
            return []
        with newest:
            if newest.step > max_steps:
                sys.exit(f"train_lm: the checkpoint is of step {newest.step}, and the run is to "
                         f"have {max_steps}")
            self.state.restore(newest)
            return list(np.fromfile(newest.path("losses.f32"), "f4"))


def train(ctx, a, trainer):
    """The losses of all steps."""
    checkpoints = Checkpoints(ctx, trainer, Path(a.out, "checkpoints"), a.keep)
    losses = checkpoints.resume(a.steps) if a.resume else []
    if a.resume:
        trainer.set_rates()
        ctx.master_print(f"going on after step {len(losses)}")
    first, every, start = len(losses), max(a.steps // 20, 1), time.monotonic()
    for step in range(first, min(a.stop_at or a.steps, a.steps)):
        losses.append(trainer.step(step))
        if a.save_every and (step + 1) % a.save_every == 0:
            checkpoints.save(losses)
        if step == 0 or (step + 1) % every == 0 or step + 1 == a.steps:
            tokens = (step + 1 - first) * a.batch * a.seq * trainer.copies.size
            ctx.master_print(f"step {step + 1:4}/{a.steps}  loss {losses[-1]:6.3f}  "
                             f"{tokens / (time.monotonic() - start):7.0f} tokens/s")
    checkpoints.wait()
    return losses


def sample(ctx, model, a, prompt):
    """Text of the model's own: all ranks draw the same byte behind those that it sees."""
    text = list(prompt)
    with nxd.no_grad():
        for n in range(len(text), len(text) + a.sample):
            seen = text[-a.seq:]
            # Tokens after them are padding, which a causal model does not see.
            ids = np.zeros((1, a.seq), "i8")
            ids[0, :len(seen)] = seen
            row = nxd.ops.index_select(model(nxd.tensor(ids)), 1, nxd.tensor([len(seen) - 1]))
            logits = nxd.gather_from_tensor_region(ctx, row).to("f32").numpy().ravel()
            sums = np.exp((logits - logits.max()).astype("f8") / 0.7).cumsum()
            u = (random_bits(a.seed ^ 0x5A17, n) >> 11) * 2.0**-53
            text.append(min(int(np.searchsorted(sums, u * sums[-1], "right")), 255))
    return "".join(chr(c) if c == 10 or 32 <= c <= 126 else "." for c in text)


def finish(ctx, a, trainer, losses):
    if ctx.rank == 0:
        lines = [f"{i + 1},{loss:.6f}\n" for i, loss in enumerate(losses)]
        Path(a.out, "loss.csv").write_text("step,loss\n" + "".join(lines))
    if a.save:
        trainer.trained.save_safetensors(a.save)
    # Generation needs the whole model, and one that knows bytes.
    if a.sample and a.pp == 1 and not a.weights and not a.data:
        trainer.model.train(False)  # without dropout
        written = sample(ctx, trainer.model, a, b"This License")
        trainer.model.train()
        ctx.master_print("the model writes:\n" + written)


def main():
    a = read_options("Trains a language model.", DEFAULTS,
                     ("config", "weights", "text", "data", "save"),
                     ("zero1", "sequence-parallel", "resume"),
                     ((("text",), ("data",)), (SIZES, ("config", "weights"))), dtype=PRECISIONS)
    if a.virtual > 1 and a.pp == 1 and a.microbatches == 1:
        sys.exit("train_lm: --virtual has no effect without --pp or --microbatches")
    if launch(a.tp * a.pp * a.dp):
        return
    text = None if a.data else read_text(a.text)
    if text is not None and len(text) <= a.seq:
        sys.exit(f"train_lm: expected a text of more than {a.seq} bytes, got {len(text)}")
    with nxd.Context(seed=a.seed, timeout_ms=120000) as ctx:
        make_directory(ctx, a.out)
        if a.save:
            make_directory(ctx, Path(a.save).parent)
        trainer = Trainer(ctx, a, text)
        finish(ctx, a, trainer, train(ctx, a, trainer))


if __name__ == "__main__":
    main()

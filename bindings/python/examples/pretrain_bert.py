"""Pre-trains a BERT on masked words and next sentences (Devlin et al. 2019), tensor- and
data-parallel, with the optimizer's state split over the copies (--zero1). It is
examples/c/pretrain_bert.c in Python, with the same rows and losses.

    python3 pretrain_bert.py --tp 2 --dp 2 --zero1 --text my.txt --out bert
    python3 pretrain_bert.py --data corpus.u16 --vocab 30522 --config config.json \\
        --cls 101 --sep 102 --mask 103

A row is [CLS] first [SEP] second [SEP]. In half of the rows the second part goes on where the
first one ends, in the others it is from anywhere; the model tells which. It also guesses 15 % of
the words: of these 80 % are hidden by [MASK], 10 % are other words, 10 % stay as they are.

The words are the bytes of a text, or with --data 16-bit ids of a tokenizer, the least byte first.
The three special ids follow the words where they are not given. A batch of --batch rows is shared
by all copies. --out gets what Hugging Face's BertForPreTraining loads: config.json and
model.safetensors.
"""

import json
import sys
from itertools import count
from pathlib import Path

import numpy as np
import nxd
from common import forward_backward, launch, make_directory, random_bits, read_ids, read_options, \
    read_text

SPECIALS = 3  # of a row: [CLS] and two [SEP]
DTYPES = {"f32": ("f32", None), "bf16": ("bf16", None), "autocast": ("f32", "bf16")}
DEFAULTS = {"tp": 1, "dp": 1, "steps": 300, "warmup": -1, "batch": 16, "seq": 64, "hidden": 128,
            "layers": 2, "heads": 4, "intermediate": 512, "vocab": -1, "cls": -1, "sep": -1,
            "mask": -1, "lr": 1e-3, "seed": 1}


def read_arguments():
    a = read_options("Pre-trains a BERT.", DEFAULTS, ("text", "data", "config", "out"),
                     ("zero1", "sequence-parallel"), dtype=DTYPES)
    if a.text and a.data:
        sys.exit("pretrain_bert: expected --text or --data, got both")
    if a.data and a.vocab < 0:  # ids of words would serve as [CLS] and others
        sys.exit("pretrain_bert: expected --vocab with --data")
    if a.vocab < 0:
        a.vocab = 256  # bytes
    for index, name in enumerate(("cls", "sep", "mask")):
        if getattr(a, name) < 0:
            setattr(a, name, a.vocab + index)
    if a.warmup < 0:
        a.warmup = a.steps // 20 + 1
    return a


def make_config(a):
    """A Hugging Face configuration: a file's, or one made of the sizes given."""
    if a.config:
        return Path(a.config).read_text()
    return json.dumps({
        "model_type": "bert", "architectures": ["BertForPreTraining"], "hidden_size": a.hidden,
        "num_hidden_layers": a.layers, "num_attention_heads": a.heads,
        "intermediate_size": a.intermediate, "vocab_size": a.vocab + SPECIALS,
        "max_position_embeddings": a.seq, "type_vocab_size": 2, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02,
        "layer_norm_eps": 1e-12, "pad_token_id": None})


def make_pair(a, words, draw):
    """Both parts of a row; 0 where the second one follows the first, 1 where it does not."""
    room = a.seq - SPECIALS
    first = 1 + draw(room - 1)
    second = room - first
    at, is_other = draw(len(words) - room + 1), draw(2)
    begin = draw(len(words) - second + 1) if is_other else at + first
    ids = np.concatenate([[a.cls], words[at:at + first], [a.sep], words[begin:begin + second],
                          [a.sep]])
    return ids, (np.arange(a.seq) > 1 + first).astype("i8"), is_other


def hide_words(a, ids, types, draw):
    """Hides words, and gives them as labels. Each row has as many, so that the mean over copies of
    their mean losses is the mean over all hidden words."""
    labels, hidden = np.full(a.seq, -100), 0
    while hidden < (a.seq * 15 + 99) // 100:
        at = 1 + draw(a.seq - 2)
        is_separator = types[at] != types[at + 1]
        if labels[at] != -100 or is_separator:
            continue
        labels[at] = ids[at]
        kind = draw(10)
        if kind < 8:
            ids[at] = a.mask
        elif kind == 8:
            ids[at] = draw(a.vocab)
        hidden += 1
    return labels


def make_row(a, words, row):
    """The draws hang on the row's number in all of the training alone: any number of copies sees
    the same rows."""
    draws = count(row << 32)  # far more than a row needs

    def draw(below):
        return random_bits(a.seed, next(draws)) % below

    ids, types, is_other = make_pair(a, words, draw)
    return ids, hide_words(a, ids, types, draw), types, is_other


def make_batch(a, words, step, copies):
    """The model's inputs. Every row is full: there is no attention mask."""
    rows = a.batch // copies.size
    first = step * a.batch + copies.rank * rows
    ids, labels, types, is_other = (
        nxd.tensor(np.array(part, "i8"))
        for part in zip(*(make_row(a, words, first + i) for i in range(rows))))
    return ids, labels, None, types, is_other


def train(ctx, a, model, words):
    copies = ctx.parallel_group("data")
    if a.batch % copies.size:
        sys.exit(f"pretrain_bert: --batch: expected a multiple of the {copies.size} copies, got "
                 f"{a.batch}")
    over = nxd.Ddp.over_module(model, zero_stage=1, reduce="avg") if a.zero1 else model
    adamw = nxd.AdamW(over, learning_rate=a.lr, weight_decay=0.01)
    adamw.set_lr_schedule(kind="linear", warmup_steps=a.warmup, total_steps=a.warmup + a.steps)
    every = max(a.steps // 20, 1)
    for step in range(a.steps):
        model.zero_grad()
        loss = forward_backward(model, copies, *make_batch(a, words, step, copies),
                                cast=DTYPES[a.dtype][1])
        adamw.step(max_norm=1.0, data_parallel_reduce="avg")
        if step == 0 or (step + 1) % every == 0:
            ctx.master_print(f"step {step + 1}/{a.steps}  loss {loss:.6f}")
    shared = f" (ZeRO-1 over {copies.size} copies)" if a.zero1 else ""
    ctx.master_print(f"rank 0 keeps {adamw.state_bytes} bytes of the optimizer's state{shared}")


def main():
    a = read_arguments()
    if launch(a.tp * a.dp):
        return
    words = read_ids(a.data, "<u2") if a.data else read_text(a.text)
    if len(words) < 2 * a.seq:
        sys.exit(f"pretrain_bert: expected at least {2 * a.seq} words, got {len(words)}")
    config = make_config(a)
    with nxd.Context(seed=a.seed) as ctx:
        ctx.init_model_parallel(tensor_parallel_size=a.tp)
        if a.out:
            make_directory(ctx, a.out)
        model = nxd.Model(ctx, config, dtype=DTYPES[a.dtype][0],
                          sequence_parallel=a.sequence_parallel)
        train(ctx, a, model, words)
        if a.out:
            out = Path(a.out)
            if ctx.rank == 0:
                (out / "config.json").write_text(config)
            model.save_safetensors(out / "model.safetensors")  # written by rank 0, whole
            ctx.master_print(f"wrote {out}")


if __name__ == "__main__":
    main()

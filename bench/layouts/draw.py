"""Draws a training run by a seed: a model, how its work is divided among ranks, and how it is trained."""
import json
import math
import random

ACTIVATIONS = ["gelu_new", "gelu", "relu", "silu"]


def sizes(r, layout):
    heads = r.choice([count for count in (2, 3, 4, 5, 6, 8) if count >= layout["tp"]])
    layers = r.choice([1, 2, 3, 4])
    return {"num_hidden_layers": max(layers, layout["pp"] * layout["chunks"]), "num_attention_heads": heads,
            "vocab_size": r.choice([32, 61, 96]), "initializer_range": 0.1,
            "tie_word_embeddings": r.random() < 0.5}


def stretched(r):
    """Rotary positions of sequences longer than the model's."""
    kind = r.choice(["default", "linear", "dynamic", "yarn", "llama3"])
    fields = {"rope_type": kind, "factor": r.choice([2.0, 4.0])}
    if kind == "llama3":
        fields.update(low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8)
    return {"max_position_embeddings": 8, "rope_scaling": fields}


def llama(r, layout):
    fields = sizes(r, layout)
    heads = fields["num_attention_heads"]
    fields.update(
        model_type=r.choice(["llama", "mistral", "qwen2", "qwen3"]), hidden_size=heads * 8,
        intermediate_size=r.choice([10, 13, 16, 32]), max_position_embeddings=64, rms_norm_eps=1e-5,
        num_key_value_heads=r.choice([k for k in range(1, heads + 1) if heads % k == 0]),
        rope_theta=10000.0)
    if fields["model_type"] == "llama":
        fields.update(attention_bias=r.random() < 0.4, mlp_bias=r.random() < 0.4)
    if fields["model_type"] == "mistral":
        fields["sliding_window"] = r.choice([None, 5])
    if "qwen" in fields["model_type"] and r.random() < 0.4:
        fields.update(use_sliding_window=True, sliding_window=r.choice([2, 4]), max_window_layers=r.choice([0, 1]))
    if r.random() < 0.3:
        fields["pad_token_id"] = r.choice([0, -1, 5])
    if r.random() < 0.5:
        fields.update(stretched(r))
    return fields


def gpt2(r, layout):
    fields = sizes(r, layout)
    heads, layers = fields.pop("num_attention_heads"), fields.pop("num_hidden_layers")
    drops = r.choice([0.0, 0.0, 0.1])
    fields.update(model_type="gpt2", n_head=heads, n_layer=layers, n_embd=heads * 8, n_positions=64,
                  n_inner=r.choice([12, 17, 20, 40]), activation_function=r.choice(ACTIVATIONS),
                  embd_pdrop=drops, attn_pdrop=drops, resid_pdrop=drops)
    return fields


def gpt_neox(r, layout):
    fields = sizes(r, layout)
    fields.update(model_type="gpt_neox", hidden_size=fields["num_attention_heads"] * 8,
                  intermediate_size=r.choice([12, 17, 20, 40]), max_position_embeddings=64,
                  use_parallel_residual=r.random() < 0.5, rotary_pct=0.5, hidden_act=r.choice(ACTIVATIONS))
    drops = r.choice([0.0, 0.0, 0.1])
    fields.update(attention_dropout=drops, hidden_dropout=drops)
    if r.random() < 0.5:
        fields.update(stretched(r))
    return fields


def bert(r, layout):
    fields = sizes(r, layout)
    drops = r.choice([0.0, 0.0, 0.1])
    fields.update(model_type="bert", architectures=["BertForPreTraining"], type_vocab_size=2,
                  hidden_size=fields["num_attention_heads"] * 8, max_position_embeddings=64,
                  intermediate_size=r.choice([12, 17, 20, 40]), hidden_act=r.choice(ACTIVATIONS),
                  hidden_dropout_prob=drops, attention_probs_dropout_prob=drops)
    return fields


def layout_of(r, world):
    parts = [(tp, pp, world // tp // pp) for tp in range(1, world + 1) for pp in range(1, world + 1)
             if world % (tp * pp) == 0]
    tp, pp, dp = r.choice(parts)
    chunks = r.choice([1, 1, 2]) if pp > 1 else 1
    schedules = ["INTERLEAVED"] if chunks > 1 else ["1F1B", "GPIPE", "ZERO_BUBBLE", "DEFAULT"]
    return {"tp": tp, "pp": pp, "dp": dp, "chunks": chunks, "schedule": r.choice(schedules),
            "partition": r.choice(["EVEN", "COST"]), "sequence_parallel": tp > 1 and r.random() < 0.5,
            "ddp": r.random() < (0.8 if dp > 1 else 0.2), "zero": r.choice([0, 1]),
            "bucket_bytes": r.choice([0, 256, 4096]), "overlap": r.choice(["ON", "OFF"]),
            "deferred": pp > 1 and r.random() < 0.3, "recomputed": r.random() < 0.3, "fp32_grads": r.random() < 0.5}


def fits(config, layout):
    """True for a layout in which a model that was made for another has something for each rank."""
    heads, features, layers = (config.get(name) or config[of_gpt2] for name, of_gpt2 in (
        ("num_attention_heads", "n_head"), ("intermediate_size", "n_inner"), ("num_hidden_layers", "n_layer")))
    return min(heads, features) >= layout["tp"] and layers >= layout["pp"] * layout["chunks"]


def draw(seed, world):
    """A run. Where it is saved, its second part goes on in another layout of as many ranks."""
    r = random.Random(seed * 1000 + world)
    layout = layout_of(r, world)
    config = r.choice([llama, llama, gpt2, gpt_neox, bert])(r, layout)
    drops = any(config.get(name) for name in ("resid_pdrop", "hidden_dropout", "hidden_dropout_prob"))
    later = [other for other in (layout_of(r, world) for _ in range(20))
             if fits(config, other) and (other["dp"] == layout["dp"] or not drops)]
    layouts = [layout, r.choice(later) if later else layout]
    # Microbatches of a step over all copies of the data; interleaved schedules want multiples of the stages.
    units = math.lcm(*(each["dp"] * each["pp"] for each in layouts)) * r.choice([1, 1, 2])
    return {"seed": seed, "config": json.dumps(config), "layouts": layouts, "units": units,
            "dtype": r.choice(["F32"] * 6 + ["F64"] * 2 + ["BF16"] * 2),
            "autocast": r.random() < 0.2, "frozen": r.choice(["", "", "embed", "wte", "0.", "bias"]),
            "rows": r.choice([1, 2]), "length": r.choice([6, 9, 16]), "padded": r.random() < 0.5,
            "optimizer": r.choice(["adamw", "adamw", "sgd"]), "momentum": r.choice([0.0, 0.9]),
            "weight_decay": r.choice([0.0, 0.1]), "max_norm": r.choice([0.0, 0.5]),
            "grouped": r.random() < 0.5, "warmup": r.random() < 0.5,
            # Microbatches without labels, runs whose gradients are added up, parameters that rest for two steps.
            "silent": r.random() < 0.3, "runs": r.choice([1, 1, 2]),
            "resting": r.choice(["", "", "layers.0.", "layer.0.", "h.0.", "norm", "bias"]),
            "parts": r.choice([[4], [2, 2]])}

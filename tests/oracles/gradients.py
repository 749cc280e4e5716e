#!/usr/bin/python3
"""Records every element of the models' gradients, and their training in double precision.

    python3 gradients.py llama_tiny gpt2_tiny ...        (torch and numpy)

The models are written out here with torch's basic operators, in f64, from config.json and
model.safetensors alone; torch differentiates them. Each is first held against what Hugging Face's
transformers gave (expected.json): its losses in f64 over 20 steps of AdamW, its logits and the norm
of each gradient. Then it writes, beside expected.json,

    gradients.npy    all gradients at the initial weights, one parameter after the other in the
                     order of their names' bytes, computed in f64 and rounded to f32
    fp64.json        in f64: each gradient's norm, 20 losses, the loss after them, all 21 norms,
                     and the trained parameters' norms

Hugging Face's Llama and the forms of it round their rotary angles, norms and losses to f32 also in
an f64 model, so that they agree to f32's last digits only, and so does its GPT-NeoX; its GPT-2 does not, and agrees to f64's."""
import json
import math
import pathlib
import struct
import sys

import numpy
import torch

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 20


def read_safetensors(path):
    """The tensors of a file of f32, as f64."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32"
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        array = numpy.frombuffer(data[begin:end], "<f4").reshape(entry["shape"])
        tensors[name] = torch.tensor(array.astype("f8"), requires_grad=True)
    return tensors


def attend_all(q, k, v, keep):
    """Attention of [batch, heads, length, dim] over all keys that a mask [batch, length] keeps."""
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
    return torch.softmax(scores.masked_fill(keep[:, None, None] == 0, -math.inf), -1) @ v


def attend(q, k, v, window=None):
    """Causal attention of [batch, heads, length, dim], over the last keys of a window."""
    length, dim = q.shape[-2:]
    ones = torch.ones(length, length, dtype=torch.bool)
    hidden = ones.triu(1) | ones.tril(-(window or length))
    scores = (q @ k.transpose(2, 3) / math.sqrt(dim)).masked_fill(hidden, -math.inf)
    return torch.softmax(scores, -1) @ v


def loss_of(logits, labels):
    """The mean over labels that count; each token is predicted from those before it."""
    logp = torch.log_softmax(logits[:, :-1], -1)
    wanted = labels[:, 1:]
    counts = wanted != -100
    taken = logp.gather(2, wanted.clamp(min=0)[..., None])[..., 0]
    return -(taken * counts).sum() / counts.sum()


def mean_loss(logits, labels):
    """The mean over labels that count, each of its own place."""
    counts = labels != -100
    taken = torch.log_softmax(logits, -1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return -(taken * counts).sum() / counts.sum()


def window_of(config, layer):
    """Keys that a query of the layer sees at most; None: all."""
    if config["model_type"] == "mistral":
        return config["sliding_window"]
    if config["model_type"] == "llama" or not config["use_sliding_window"]:
        return None
    return config["sliding_window"] if layer >= config["max_window_layers"] else None


def llama(config, w, batch):
    """Also a Mistral, Qwen2 or Qwen3: by its configuration, and by the weights that there are."""
    ids = batch["input_ids"]
    batch, length = ids.shape
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    eps = config["rms_norm_eps"]
    theta = config["rope_parameters"]["rope_theta"]
    frequencies = theta ** -(torch.arange(0, dim, 2).double() / dim)
    angles = torch.arange(length).double()[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()

    def norm(x, weight):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight

    def turn(x):
        a, b = x[..., :dim // 2], x[..., dim // 2:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def heads(x, name):
        y = x @ w[name + "_proj.weight"].T
        if name + "_proj.bias" in w:
            y = y + w[name + "_proj.bias"]
        y = y.view(batch, length, -1, dim)
        if name + "_norm.weight" in w:
            y = norm(y, w[name + "_norm.weight"])
        return y.transpose(1, 2)

    x = w["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        def layer(name, prefix=f"model.layers.{i}."):
            return w[prefix + name + ".weight"]
        h = norm(x, layer("input_layernorm"))
        q, k, v = (heads(h, f"model.layers.{i}.self_attn.{name}") for name in "qkv")
        share = config["num_attention_heads"] // config["num_key_value_heads"]
        mixed = attend(turn(q), turn(k).repeat_interleave(share, 1), v.repeat_interleave(share, 1),
                       window_of(config, i))
        x = x + mixed.transpose(1, 2).reshape(batch, length, -1) @ layer("self_attn.o_proj").T
        if config.get("attention_bias"):
            x = x + w[f"model.layers.{i}.self_attn.o_proj.bias"]
        h = norm(x, layer("post_attention_layernorm"))
        gate = h @ layer("mlp.gate_proj").T
        x = x + (gate * torch.sigmoid(gate) * (h @ layer("mlp.up_proj").T)) @ layer("mlp.down_proj").T
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return norm(x, w["model.norm.weight"]) @ head.T


def gpt2(config, w, batch):
    ids = batch["input_ids"]
    batch, length = ids.shape
    eps, count = config["layer_norm_epsilon"], config["n_head"]

    def norm(x, name):
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
        return centred * scale * w[name + ".weight"] + w[name + ".bias"]

    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:length]
    for i in range(config["n_layer"]):
        layer = f"transformer.h.{i}."
        qkv = linear(norm(x, layer + "ln_1"), layer + "attn.c_attn").chunk(3, -1)
        q, k, v = (t.view(batch, length, count, -1).transpose(1, 2) for t in qkv)
        x = x + linear(attend(q, k, v).transpose(1, 2).reshape(batch, length, -1),
                       layer + "attn.c_proj")
        h = linear(norm(x, layer + "ln_2"), layer + "mlp.c_fc")
        h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h ** 3)))
        x = x + linear(h, layer + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T


def gpt_neox(config, w, batch):
    ids = batch["input_ids"]
    batch, length = ids.shape
    eps, count = config["layer_norm_eps"], config["num_attention_heads"]
    dim = config["hidden_size"] // count
    rope = config.get("rope_parameters") or {"rope_theta": config["rotary_emb_base"],
                                             "partial_rotary_factor": config["rotary_pct"]}
    turning = int(dim * rope["partial_rotary_factor"])
    frequencies = rope["rope_theta"] ** -(torch.arange(0, turning, 2).double() / turning)
    angles = torch.arange(length).double()[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()

    def norm(x, name):
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
        return centred * scale * w[name + ".weight"] + w[name + ".bias"]

    def linear(x, name):
        y = x @ w[name + ".weight"].T
        return y + w[name + ".bias"] if name + ".bias" in w else y

    def turn(x):
        a, b = x[..., :turning // 2], x[..., turning // 2:turning]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., turning:]], -1)

    def attention(x, name):
        qkv = linear(x, name + "query_key_value").view(batch, length, count, 3, dim)
        q, k, v = (qkv[..., i, :].transpose(1, 2) for i in range(3))
        mixed = attend(turn(q), turn(k), v)
        return linear(mixed.transpose(1, 2).reshape(batch, length, -1), name + "dense")

    def mlp(x, name):
        h = linear(x, name + "dense_h_to_4h")
        if config["hidden_act"] == "gelu":
            h = 0.5 * h * (1 + torch.erf(h / math.sqrt(2)))
        else:
            h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h ** 3)))
        return linear(h, name + "dense_4h_to_h")

    x = w["gpt_neox.embed_in.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        layer = f"gpt_neox.layers.{i}."
        between = x + attention(norm(x, layer + "input_layernorm"), layer + "attention.")
        read = x if config["use_parallel_residual"] else between
        x = between + mlp(norm(read, layer + "post_attention_layernorm"), layer + "mlp.")
    head = w.get("embed_out.weight", w["gpt_neox.embed_in.weight"])
    return norm(x, "gpt_neox.final_layer_norm") @ head.T


def bert(config, w, batch):
    """Logits of the tokens and of the next sentence."""
    ids, types = batch["input_ids"], batch["token_type_ids"]
    rows, length = ids.shape
    eps, count = config["layer_norm_eps"], config["num_attention_heads"]

    def norm(x, name):
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
        return centred * scale * w[name + ".weight"] + w[name + ".bias"]

    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def activate(h):
        if config["hidden_act"] == "gelu":
            return 0.5 * h * (1 + torch.erf(h / math.sqrt(2)))
        return 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h ** 3)))

    def table(name):
        return w[f"bert.embeddings.{name}_embeddings.weight"]

    words = torch.nn.functional.embedding(ids, table("word"), padding_idx=config["pad_token_id"])
    x = norm(words + table("position")[:length] + table("token_type")[types],
             "bert.embeddings.LayerNorm")
    for i in range(config["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{i}."
        q, k, v = (linear(x, layer + "attention.self." + name).view(rows, length, count, -1)
                   .transpose(1, 2) for name in ("query", "key", "value"))
        mixed = attend_all(q, k, v, batch["attention_mask"])
        x = norm(x + linear(mixed.transpose(1, 2).reshape(rows, length, -1),
                            layer + "attention.output.dense"), layer + "attention.output.LayerNorm")
        h = activate(linear(x, layer + "intermediate.dense"))
        x = norm(x + linear(h, layer + "output.dense"), layer + "output.LayerNorm")
    h = norm(activate(linear(x, "cls.predictions.transform.dense")),
             "cls.predictions.transform.LayerNorm")
    pooled = torch.tanh(linear(x[:, 0], "bert.pooler.dense"))
    return (h @ table("word").T + w["cls.predictions.bias"], linear(pooled, "cls.seq_relationship"))


def loss_and_logits(model, config, weights, batch):
    out = model(config, weights, batch)
    if model is not bert:
        return loss_of(out, batch["labels"]), out
    return mean_loss(out[0], batch["labels"]) + mean_loss(out[1], batch["next_sentence_label"]), out[0]


def train(directory, model, config, batch):
    """Logits and gradients of the first step, the losses and norms of 20 steps and after them, and
    the parameters' norms then."""
    batch = {name: torch.tensor(values) for name, values in batch.items()}
    weights = read_safetensors(directory / "model.safetensors")
    optimizer = torch.optim.AdamW(weights.values(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1)
    losses, totals, first, logits = [], [], None, None
    for step in range(STEPS + 1):
        final = {name: math.sqrt((p.detach() ** 2).sum().item()) for name, p in weights.items()}
        optimizer.zero_grad()
        loss, out = loss_and_logits(model, config, weights, batch)
        losses.append(loss.item())
        loss.backward()
        totals.append(math.sqrt(sum((p.grad ** 2).sum().item() for p in weights.values())))
        if step == 0:
            first = {name: p.grad.clone() for name, p in weights.items()}
            logits = out.detach().numpy()
        optimizer.step()
    return logits, first, losses, totals, final


def agree(what, got, want, bound):
    worst = numpy.max(numpy.abs(numpy.array(got) - want) / numpy.maximum(1, numpy.abs(want)))
    print(f"{what}: {worst:.2e}, allowed {bound:g}")
    assert worst <= bound, what


def record(name, model, loss_bound):
    directory = HERE / name
    config = json.loads((directory / "config.json").read_text())
    expected = json.loads((directory / "expected.json").read_text())
    logits, first, losses, totals, final = train(directory, model, config, expected["batch"])
    wanted = expected["loss_traj_fp64"] + [expected["loss_after_20_fp64"]]
    agree(name + ": losses in f64", losses, numpy.array(wanted), loss_bound)
    agree(name + ": logits in f32", logits, numpy.load(directory / "logits.npy"), 1e-6)
    names = sorted(first, key=str.encode)
    assert names == sorted(expected["grad_norms"], key=str.encode)
    norms = {n: math.sqrt((first[n] ** 2).sum().item()) for n in names}
    # Softmax does not see a bias of keys that nothing turns: its gradient is rounding alone.
    real = [n for n in names if not n.endswith(".key.bias")]
    ratios = [norms[n] / expected["grad_norms"][n] for n in real]
    agree(name + ": norms of gradients in f32", ratios, numpy.ones(len(real)), 1e-6)

    joined = numpy.concatenate([first[n].numpy().ravel() for n in names])
    numpy.save(directory / "gradients.npy", joined.astype("<f4"))
    exact = {"grad_norms": norms, "loss_traj": losses[:STEPS], "loss_after_20": losses[STEPS],
             "grad_norm_traj": totals, "final_param_norms": {n: final[n] for n in names}}
    (directory / "fp64.json").write_text(json.dumps(exact, indent=1) + "\n")


torch.set_num_threads(1)
for model_name in sys.argv[1:]:
    if model_name.startswith("gpt2"):
        record(model_name, gpt2, 1e-13)
    elif model_name.startswith("gpt_neox"):
        record(model_name, gpt_neox, 5e-7)
    elif model_name.startswith("bert"):
        record(model_name, bert, 1e-12)
    else:
        record(model_name, llama, 5e-7)

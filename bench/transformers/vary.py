"""Writes models of random configurations with transformers: the fields of each family that libnxd reads, in
values that are not their defaults. Beside each lie its inputs (inputs.npz) and what it gives for them
(expected.npz): loss, logits, and the gradient of each parameter under its name in the file.
usage: vary.py DIRECTORY COUNT [FIRST_SEED]"""
import pathlib
import random
import sys

import numpy
import torch
import transformers

ACTIVATIONS = ["gelu_new", "gelu", "relu", "silu", "gelu_pytorch_tanh", "gelu_fast"]
# transformers loads and saves these under another name than its module has.
SAVED_NAMES = {"gpt_neox": {"lm_head.weight": "embed_out.weight"}}


def rope(r):
    kind = r.choice(["default", "linear", "dynamic", "yarn", "llama3"])
    fields = {"rope_type": kind, "rope_theta": r.choice([10000.0, 500000.0, 100.0])}
    if kind in ("linear", "dynamic", "yarn"):
        fields["factor"] = r.choice([1.5, 2.0, 4.0])
    if kind == "yarn":
        fields["original_max_position_embeddings"] = 16
        for some in ({"attention_factor": 1.3}, {"beta_fast": 16.0, "beta_slow": 2.0},
                     {"mscale": 0.8, "mscale_all_dim": 1.1}, {"truncate": False}):
            fields.update(some if r.random() < 0.3 else {})
    if kind == "llama3":
        fields.update(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                      original_max_position_embeddings=16)
    return fields


def common(r):
    return {"num_hidden_layers": r.choice([1, 2, 3]), "vocab_size": r.choice([33, 64, 101]),
            "initializer_range": 0.2, "tie_word_embeddings": r.random() < 0.5, "bos_token_id": None,
            "eos_token_id": None, "num_attention_heads": r.choice([2, 4, 6])}


def llama(r, family):
    fields = common(r)
    heads, width = fields["num_attention_heads"], r.choice([8, 10, 16])
    has_own_width = family != "qwen2" and r.random() < 0.5
    fields.update(
        hidden_size=r.choice([24, 48]) if has_own_width else heads * width,
        num_key_value_heads=r.choice([k for k in (1, 2, 3, heads) if heads % k == 0]),
        intermediate_size=r.choice([20, 64, 77]), max_position_embeddings=r.choice([16, 32, 64]),
        rms_norm_eps=r.choice([1e-5, 1e-6, 1e-3]), hidden_act=r.choice(["silu", *ACTIVATIONS]),
        pad_token_id=r.choice([None, 0, fields["vocab_size"] - 1]), rope_parameters=rope(r))
    if family != "qwen2":
        fields["head_dim"] = width
    if family in ("llama", "qwen3"):
        fields["attention_bias"] = r.random() < 0.4
    if family == "llama":
        fields["mlp_bias"] = r.random() < 0.4
    if family == "mistral":
        fields["sliding_window"] = r.choice([None, 3, 8, 100])
    if family.startswith("qwen"):
        fields.update(use_sliding_window=r.random() < 0.6, sliding_window=r.choice([3, 8]),
                      max_window_layers=r.choice([0, 1, 2]))
        if fields["use_sliding_window"] and r.random() < 0.3:
            fields["layer_types"] = [r.choice(["full_attention", "sliding_attention"])
                                     for _ in range(fields["num_hidden_layers"])]
    return fields


def gpt2(r):
    fields = common(r)
    fields.update(
        hidden_size=fields["num_attention_heads"] * r.choice([8, 10]), n_inner=r.choice([None, 50]),
        max_position_embeddings=64, activation_function=r.choice(ACTIVATIONS),
        layer_norm_epsilon=r.choice([1e-5, 1e-3]), scale_attn_weights=r.random() < 0.7,
        scale_attn_by_inverse_layer_idx=r.random() < 0.4, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)
    return fields


def gpt_neox(r):
    fields, share = common(r), r.choice([0.25, 0.5, 1.0])
    fields.update(
        hidden_size=fields["num_attention_heads"] * r.choice([8, 16]), intermediate_size=r.choice([50, 64]),
        max_position_embeddings=r.choice([16, 64]), layer_norm_eps=r.choice([1e-5, 1e-3]),
        use_parallel_residual=r.random() < 0.6, attention_bias=r.random() < 0.6,
        hidden_act=r.choice(ACTIVATIONS), rotary_pct=share, attention_dropout=0.0, hidden_dropout=0.0,
        rope_parameters={**rope(r), "partial_rotary_factor": share})
    return fields


def bert(r):
    fields = common(r)
    fields.update(
        hidden_size=fields["num_attention_heads"] * r.choice([8, 10]), intermediate_size=r.choice([50, 64]),
        max_position_embeddings=64, type_vocab_size=r.choice([1, 2, 4]),
        layer_norm_eps=r.choice([1e-12, 1e-3]), hidden_act=r.choice(ACTIVATIONS),
        pad_token_id=r.choice([None, 0, 3]), attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0)
    return fields


FAMILIES = {
    "llama": ("Llama", "ForCausalLM", lambda r: llama(r, "llama")),
    "mistral": ("Mistral", "ForCausalLM", lambda r: llama(r, "mistral")),
    "qwen2": ("Qwen2", "ForCausalLM", lambda r: llama(r, "qwen2")),
    "qwen3": ("Qwen3", "ForCausalLM", lambda r: llama(r, "qwen3")),
    "gpt2": ("GPT2", "LMHeadModel", gpt2),
    "gpt_neox": ("GPTNeoX", "ForCausalLM", gpt_neox),
    "bert": ("Bert", "ForPreTraining", bert),
}


def inputs_for(r, family, config):
    """A batch; some with padding, on the right or, but for a Bert, on the left. Nothing is predicted from or for
    a place that is hidden: what a query that sees no key gives is each library's own."""
    batch, length = r.choice([1, 2, 3]), r.choice([5, 16, 17, 40])
    ids, mask = torch.randint(0, config.vocab_size, (batch, length)), torch.ones(batch, length, dtype=torch.long)
    inputs = {"input_ids": ids}
    if r.random() < 0.5:
        left = family != "bert" and r.random() < 0.4
        for row in mask:
            hidden = r.randrange(0, length - 2)
            row[:hidden] = 0 if left else 1
            row[length - hidden:] = 1 if left else 0
        inputs["attention_mask"] = mask
    is_first = (mask.cumsum(1) == 1) & (mask == 1)
    labels = torch.where((torch.rand(batch, length) < 0.2) | (mask == 0) | is_first, -100, ids)
    last = int(mask[0].nonzero()[-1])
    labels[0, last] = ids[0, last]  # one at least
    inputs["labels"] = labels
    if family == "bert":
        inputs["token_type_ids"] = torch.randint(0, config.type_vocab_size, (batch, length))
        inputs["next_sentence_label"] = torch.randint(0, 2, (batch,))
    return inputs


def write(directory, seed):
    r = random.Random(seed)
    torch.manual_seed(seed)
    family = r.choice(list(FAMILIES))
    name, kind, fields_of = FAMILIES[family]
    config = getattr(transformers, name + "Config")(**fields_of(r))
    config._attn_implementation = r.choice(["eager", "sdpa"])
    model = getattr(transformers, name + kind)(config).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    inputs = inputs_for(r, family, config)
    given = model(**inputs)
    given.loss.backward()
    model.save_pretrained(directory)
    names = SAVED_NAMES.get(family, {})
    gradients = {"gradient:" + names.get(key, key): value.grad.numpy()
                 for key, value in model.named_parameters() if value.grad is not None}
    logits = given.prediction_logits if family == "bert" else given.logits
    numpy.savez(directory / "inputs.npz", **{key: value.numpy() for key, value in inputs.items()})
    numpy.savez(directory / "expected.npz", loss=given.loss.item(), logits=logits.detach().numpy(), **gradients)


def main():
    directory, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for seed in range(first, first + count):
        write(directory / str(seed), seed)


main()

"""Records models from Hugging Face's transformers, with torch and transformers:

    python3 record.py gpt2_tiny qwen2_tiny ...

gradients.py, run afterwards, adds what is in double precision."""
import copy
import json
import os
import pathlib
import sys

import numpy
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 20


def gpt2_tiny():
    torch.manual_seed(11)
    config = transformers.GPT2Config(
        vocab_size=251, n_positions=48, n_embd=64, n_layer=3, n_head=4, bos_token_id=250,
        eos_token_id=250, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "ln_" in name or name.endswith("bias"):
                p.add_(0.1 * torch.randn_like(p))
            elif "c_attn" in name or "mlp" in name:
                p.mul_(4)  # scores and activations away from their linear range
    return model


def llama_form(seed, form, **fields):
    """A small Mistral, Qwen2 or Qwen3, whose norms and biases are away from 1 and 0."""
    torch.manual_seed(seed)
    config = getattr(transformers, form + "Config")(
        vocab_size=64, hidden_size=32, intermediate_size=40, num_attention_heads=4,
        max_position_embeddings=128, initializer_range=0.1, **fields)
    model = getattr(transformers, form + "ForCausalLM")(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                p.add_(0.1 * torch.randn_like(p))
    return model


def qwen2_tiny():
    return llama_form(12, "Qwen2", num_hidden_layers=2, num_key_value_heads=2,
                      tie_word_embeddings=True, use_sliding_window=True, sliding_window=9,
                      max_window_layers=1)


def qwen3_tiny():
    return llama_form(13, "Qwen3", num_hidden_layers=2, num_key_value_heads=2, head_dim=12)


def mistral_tiny():
    return llama_form(14, "Mistral", num_hidden_layers=2, num_key_value_heads=1, head_dim=8,
                      sliding_window=7)


def gpt_neox_serial_tiny():
    """No parallel residual and no biases of attention; half of each head turns."""
    torch.manual_seed(15)
    config = transformers.GPTNeoXConfig(
        vocab_size=67, hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=112, hidden_act="gelu_fast", rotary_pct=0.5, rotary_emb_base=5000,
        max_position_embeddings=64, initializer_range=0.08, use_parallel_residual=False,
        attention_bias=False, tie_word_embeddings=True)
    model = transformers.GPTNeoXForCausalLM(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                p.add_(0.1 * torch.randn_like(p))
    return model


def make_batch(vocabulary):
    ids = torch.randint(0, vocabulary, (2, 32))
    labels = ids.clone()
    labels[0, 5:9] = -100
    labels[1, 28:] = -100
    return ids, labels


def train(model, ids, labels):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(ids, labels=labels).loss
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    with torch.no_grad():
        return losses, model(ids, labels=labels).loss.item()


def norms(named):
    return {name: tensor.double().norm().item() for name, tensor in named}


def record(make_model):
    directory = HERE / make_model.__name__
    model = make_model()
    model.save_pretrained(directory, safe_serialization=True)
    os.remove(directory / "generation_config.json")
    ids, labels = make_batch(model.config.vocab_size)
    out = model(ids, labels=labels)
    out.loss.backward()
    numpy.save(directory / "logits.npy", out.logits.detach().numpy())
    gradients = norms((n, p.grad) for n, p in model.named_parameters())
    expected = {"torch": torch.__version__, "transformers": transformers.__version__,
                "batch": {"input_ids": ids.tolist(), "labels": labels.tolist()},
                "loss": out.loss.item(), "grad_norms": gradients,
                "grad_norm_total": sum(n * n for n in gradients.values()) ** 0.5}
    model.zero_grad()
    wide = copy.deepcopy(model).double()
    expected["loss_traj"], expected["loss_after_20"] = train(model, ids, labels)
    expected["final_param_norms"] = norms(model.named_parameters())
    expected["loss_traj_fp64"], expected["loss_after_20_fp64"] = train(wide, ids, labels)
    with open(directory / "expected.json", "w", encoding="utf-8") as file:
        json.dump(expected, file, indent=1)
        file.write("\n")


torch.set_num_threads(1)
MODELS = (gpt2_tiny, qwen2_tiny, qwen3_tiny, mistral_tiny, gpt_neox_serial_tiny)
for model_name in sys.argv[1:]:
    record({f.__name__: f for f in MODELS}[model_name])

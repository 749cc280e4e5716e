"""Records models from Hugging Face's transformers, with torch and transformers:

    python3 record.py gpt2_tiny qwen2_tiny ...

gradients.py, run afterwards, adds what is in double precision."""
import copy
import json
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


def qwen3_uneven_tiny():
    """Six heads with three key heads, 45 features of the MLP and 61 tokens: four ranks divide none."""
    torch.manual_seed(17)
    config = transformers.Qwen3Config(
        vocab_size=61, hidden_size=32, intermediate_size=45, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=3, head_dim=10, max_position_embeddings=128,
        initializer_range=0.1, attention_bias=True)
    model = transformers.Qwen3ForCausalLM(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                p.add_(0.1 * torch.randn_like(p))
    return model


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


def bert_pad_tiny():
    """Padding tokens among the rest, and a sentence pair without a label."""
    torch.manual_seed(16)
    config = transformers.BertConfig(
        vocab_size=67, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=112, hidden_act="gelu_new", max_position_embeddings=40,
        type_vocab_size=3, pad_token_id=5, initializer_range=0.08, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0)
    model = transformers.BertForPreTraining(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "Norm" in name or name.endswith("bias"):
                p.add_(0.1 * torch.randn_like(p))
        model.bert.embeddings.word_embeddings.weight[5] = 0.1 * torch.randn(48)
    return model


def make_batch(config):
    ids = torch.randint(0, config.vocab_size, (2, 32))
    labels = ids.clone()
    if config.model_type != "bert":
        labels[0, 5:9] = -100
        labels[1, 28:] = -100
        return {"input_ids": ids, "labels": labels}
    labels[torch.rand(2, 32) > 0.3] = -100
    ids[0, 3:6] = ids[1, 25:] = config.pad_token_id
    keep = torch.ones_like(ids)
    keep[1, 25:] = 0
    types = torch.randint(0, config.type_vocab_size, (2, 32))
    return {"input_ids": ids, "labels": labels, "attention_mask": keep, "token_type_ids": types,
            "next_sentence_label": torch.tensor([-100, 1])}


def logits_of(out):
    return out.logits if "logits" in out else out.prediction_logits


def train(model, batch):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    with torch.no_grad():
        return losses, model(**batch).loss.item()


def norms(named):
    return {name: tensor.double().norm().item() for name, tensor in named}


def record(make_model):
    directory = HERE / make_model.__name__
    model = make_model()
    model.save_pretrained(directory, safe_serialization=True)
    (directory / "generation_config.json").unlink(missing_ok=True)
    batch = make_batch(model.config)
    out = model(**batch)
    out.loss.backward()
    numpy.save(directory / "logits.npy", logits_of(out).detach().numpy())
    gradients = norms((n, p.grad) for n, p in model.named_parameters())
    expected = {"torch": torch.__version__, "transformers": transformers.__version__,
                "batch": {name: values.tolist() for name, values in batch.items()},
                "loss": out.loss.item(), "grad_norms": gradients,
                "grad_norm_total": sum(n * n for n in gradients.values()) ** 0.5}
    model.zero_grad()
    wide = copy.deepcopy(model).double()
    expected["loss_traj"], expected["loss_after_20"] = train(model, batch)
    expected["final_param_norms"] = norms(model.named_parameters())
    expected["loss_traj_fp64"], expected["loss_after_20_fp64"] = train(wide, batch)
    with open(directory / "expected.json", "w", encoding="utf-8") as file:
        json.dump(expected, file, indent=1)
        file.write("\n")


torch.set_num_threads(1)
MODELS = (gpt2_tiny, qwen2_tiny, qwen3_tiny, qwen3_uneven_tiny, mistral_tiny, gpt_neox_serial_tiny,
          bert_pad_tiny)
for model_name in sys.argv[1:]:
    record({f.__name__: f for f in MODELS}[model_name])

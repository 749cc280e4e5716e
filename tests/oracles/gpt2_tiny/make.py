"""Records gpt2_tiny from Hugging Face's transformers: python3 make.py, with torch and transformers."""
import copy
import json
import os
import pathlib

import numpy
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 20


def make_model():
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


def make_batch():
    ids = torch.randint(0, 251, (2, 32))
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


def main():
    torch.set_num_threads(1)
    model = make_model()
    model.save_pretrained(HERE, safe_serialization=True)
    os.remove(HERE / "generation_config.json")
    ids, labels = make_batch()
    out = model(ids, labels=labels)
    out.loss.backward()
    numpy.save(HERE / "logits.npy", out.logits.detach().numpy())
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
    with open(HERE / "expected.json", "w", encoding="utf-8") as file:
        json.dump(expected, file, indent=1)
        file.write("\n")


main()

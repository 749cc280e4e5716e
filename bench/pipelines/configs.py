"""Small configurations of the built-in models, drawn for a layout that divides them."""

ACTIVATIONS = ["gelu_new", "gelu", "relu", "silu"]


def draw_config(r, layout):
    family = r.choice(["llama", "mistral", "qwen2", "qwen3", "gpt2", "gpt_neox", "bert"])
    heads, layers = layout["tensor"] * r.choice([1, 2]), layout["ranks"] * layout["chunks"] + r.choice([0, 1, 2])
    features, drops = layout["tensor"] * r.choice([10, 12]), r.choice([0.0, 0.0, 0.1])
    fields = {"model_type": family, "vocab_size": r.choice([12, 31]), "initializer_range": 0.1,
              "tie_word_embeddings": r.random() < 0.5}
    if family == "gpt2":
        return {**fields, "n_head": heads, "n_layer": layers, "n_embd": heads * 8, "n_positions": 16, "n_inner": features,
                "activation_function": r.choice(ACTIVATIONS), "embd_pdrop": drops, "attn_pdrop": drops,
                "resid_pdrop": drops}
    fields.update(num_attention_heads=heads, num_hidden_layers=layers, hidden_size=heads * 8, intermediate_size=features,
                  max_position_embeddings=16)
    if family == "gpt_neox":
        return {**fields, "use_parallel_residual": r.random() < 0.5, "rotary_pct": 0.5, "hidden_act": r.choice(ACTIVATIONS)}
    if family == "bert":
        return {**fields, "architectures": ["BertForPreTraining"], "type_vocab_size": 2, "hidden_act": r.choice(ACTIVATIONS),
                "hidden_dropout_prob": drops, "attention_probs_dropout_prob": drops}
    return {**fields, "rms_norm_eps": 1e-5, "rope_theta": 100.0,
            "num_key_value_heads": r.choice([k for k in range(1, heads + 1) if heads % k == 0]),
            **({"sliding_window": r.choice([None, 2])} if family == "mistral" else {})}

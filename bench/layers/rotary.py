"""Rotary embeddings as Hugging Face's transformers compute them."""
import math

import torch


def frequencies(o, head_dim, sequence):
    """Radians per position, and the factor on cosines and sines."""
    d = o.get("rotary_dim") or head_dim
    base, factor = o.get("theta") or 10000.0, o.get("factor") or 1.0
    original = o.get("original_max_position_embeddings") or 0
    kind = o.get("type", 0)
    scaling = 1.0
    if kind == 2 and sequence > original:
        base = base * ((factor * sequence / original) - (factor - 1)) ** (d / (d - 2))
    inverse = [base ** (-2 * i / d) for i in range(d // 2)]
    if kind == 1:
        inverse = [f / factor for f in inverse]
    if kind == 4:
        low, high = o.get("low_freq_factor") or 1.0, o.get("high_freq_factor") or 4.0
        out = []
        for f in inverse:
            wave = 2 * math.pi / f
            if wave > original / low:
                out.append(f / factor)
            elif wave < original / high:
                out.append(f)
            else:
                smooth = (original / wave - low) / (high - low)
                out.append((1 - smooth) * f / factor + smooth * f)
        inverse = out
    if kind == 3:
        fast, slow = o.get("beta_fast") or 32.0, o.get("beta_slow") or 1.0

        def dim_of(turns):
            return d * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
        low, high = max(math.floor(dim_of(fast)), 0), min(math.ceil(dim_of(slow)), d - 1)
        if low == high:
            high += 0.001
        out = []
        for i, f in enumerate(inverse):
            ramp = min(max((i - low) / (high - low), 0), 1)
            out.append(f / factor * ramp + f * (1 - ramp))
        inverse = out
        scaling = o.get("attention_factor") or (0.1 * math.log(factor) + 1 if factor > 1 else 1.0)
    return torch.tensor(inverse, dtype=torch.float64), scaling


def rotate(x, o, dim):
    """x [.., head_dim] with the positions along dim."""
    inverse, scaling = frequencies(o, x.shape[-1], x.shape[dim])
    d = 2 * len(inverse)
    angles = torch.arange(x.shape[dim], dtype=torch.float64)[:, None] * inverse
    angles = torch.cat([angles, angles], -1)
    shape = [1] * x.dim()
    shape[dim], shape[-1] = x.shape[dim], d
    cos, sin = (scaling * f(angles).reshape(shape) for f in (torch.cos, torch.sin))
    turned, rest = x[..., :d], x[..., d:]
    half = torch.cat([-turned[..., d // 2:], turned[..., :d // 2]], -1)
    return torch.cat([turned * cos + half * sin, rest], -1)

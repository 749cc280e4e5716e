"""The loop on one process: whole parameters, and the update rules of torch.optim."""
import math

import numpy as np
import torch


def numbers(*key, shape):
    """Multiples of 1/8 that few sums round, the same on every rank that asks for the key."""
    g = np.random.default_rng([abs(hash_of(k)) for k in key])
    return torch.from_numpy(np.asarray(g.integers(-10, 11, shape) / 8.0, dtype=np.float64)).reshape(shape)


def hash_of(k):
    if isinstance(k, int):
        return k
    out = 7
    for ch in str(k):
        out = (out * 131 + ord(ch)) % (1 << 31)
    return out



def rows_of(p, tp, rank):
    """Indices along the split dimension; -1 is padding. None: the whole parameter."""
    if p["place"] in ("replicated", "partial"):
        return None
    n = p["shape"][p["dim"]]
    if p["place"] == "sharded":
        k = n // tp
        return list(range(rank * k, (rank + 1) * k))
    if p["place"] == "padded":
        k = -(-n // tp)
        return [i if i < n else -1 for i in range(rank * k, (rank + 1) * k)]
    if p["place"] == "fused":
        f = p["num_fused"]
        each = n // f
        k = -(-each // tp)
        out = []
        for b in range(f):
            out += [b * each + i if i < each else -1 for i in range(rank * k, (rank + 1) * k)]
        return out
    h = p["num_heads"]
    each = n // h
    if h >= tp:
        k = h // tp
        return list(range(rank * k * each, (rank + 1) * k * each))
    head = rank * h // tp
    return list(range(head * each, (head + 1) * each))


def part(whole, p, tp, rank):
    rows = rows_of(p, tp, rank)
    if rows is None:
        return whole.clone()
    d = p["dim"]
    out = torch.zeros([len(rows) if k == d else s for k, s in enumerate(whole.shape)], dtype=whole.dtype)
    for at, row in enumerate(rows):
        if row >= 0:
            out.select(d, at).copy_(whole.select(d, row))
    return out




class Reference:
    """One process with whole parameters."""

    def __init__(self, c, values):
        self.c = c
        self.value = {n: v.clone() for n, v in values.items()}        # in the parameter's dtype
        self.master = {}
        self.state = {n: {} for n in values}
        self.hyper = [self.defaults()]
        self.group = {n: 0 for n in values}
        self.schedule = None
        self.updates = 0
        self.count = {n: 0 for n in values}

    def defaults(self):
        o = dict(self.c["options"])
        h = {"learning_rate": o.get("learning_rate") or 1e-3, "weight_decay": o.get("weight_decay", 0.0)}
        if self.c["optimizer"] == "sgd":
            h.update(momentum=o["momentum"], dampening=o["dampening"], nesterov=o["nesterov"])
        elif self.c["optimizer"].startswith("adamw"):
            h.update(beta1=o["beta1"] or 0.9, beta2=o["beta2"] or 0.999, eps=o["eps"] or 1e-8)
        return h

    def factor(self, s=None):
        s = self.updates if s is None else s
        k = self.schedule
        if k is None:
            return 1.0
        if s < k["warmup_steps"]:
            return (s + 1) / k["warmup_steps"]
        if k["kind"] == "constant":
            return 1.0
        x = min(1.0, (s - k["warmup_steps"]) / (k["total_steps"] - k["warmup_steps"]))
        f = k["final_factor"]
        return 1 - (1 - f) * x if k["kind"] == "linear" else f + (1 - f) * (1 + math.cos(math.pi * x)) / 2

    def update(self, name, grad, factor):
        """grad: whole, finished but for the factor."""
        v = self.value[name]
        work = torch.float64 if v.dtype is torch.float64 else torch.float32
        if v.dtype is torch.bfloat16 and self.c["bf16_update"] == "master":
            p = self.master.setdefault(name, v.float()).clone()
        else:
            p = v.to(work)
        h = self.hyper[self.group[name]]
        lr = h["learning_rate"] * self.factor()
        g = grad.to(work) * torch.tensor(factor, dtype=work)
        st = self.state[name]
        self.count[name] += 1
        t = self.count[name]
        kind = self.c["optimizer"]
        if kind == "sgd":
            opt = torch.optim.SGD([torch.nn.Parameter(p)], lr=lr, momentum=h["momentum"], dampening=h["dampening"],
                    weight_decay=h["weight_decay"], nesterov=bool(h["nesterov"]))
            q = opt.param_groups[0]["params"][0]
            q.grad = g
            if "momentum" in st:
                opt.state[q]["momentum_buffer"] = st["momentum"]
            opt.step()
            if h["momentum"]:
                st["momentum"] = opt.state[q]["momentum_buffer"].clone()
            p = q.detach()
        elif kind == "adamw":
            opt = torch.optim.AdamW([torch.nn.Parameter(p)], lr=lr, betas=(h["beta1"], h["beta2"]), eps=h["eps"],
                    weight_decay=h["weight_decay"])
            q = opt.param_groups[0]["params"][0]
            q.grad = g
            if "exp_avg" in st:
                opt.state[q].update(step=torch.tensor(float(t - 1)), exp_avg=st["exp_avg"],
                        exp_avg_sq=st["exp_avg_sq"])
            opt.step()
            st["exp_avg"], st["exp_avg_sq"] = opt.state[q]["exp_avg"].clone(), opt.state[q]["exp_avg_sq"].clone()
            p = q.detach()
        elif kind == "adamw_nxd":
            m = st.setdefault("exp_avg", torch.zeros_like(p))
            s = st.setdefault("exp_avg_sq", torch.zeros_like(p))
            m.mul_(h["beta1"]).add_(g, alpha=1 - h["beta1"])
            s.mul_(h["beta2"]).addcmul_(g, g, value=1 - h["beta2"])
            step = lr * math.sqrt(1 - h["beta2"] ** t) / (1 - h["beta1"] ** t)
            p = p.addcdiv(m, s.sqrt().add_(h["eps"]), value=-step)
            if h["weight_decay"]:
                p = p.add(p, alpha=-lr * h["weight_decay"])
        else:
            p, st_new = rule(p, g, [st.setdefault(f"state{k}",
                    torch.zeros_like(p)) for k in range(self.c["options"]["num_states"])], lr, h["weight_decay"], t)
            for k, x in enumerate(st_new):
                st[f"state{k}"] = x
        if v.dtype is torch.bfloat16 and self.c["bf16_update"] == "master":
            self.master[name] = p.clone()
        self.value[name] = p.to(v.dtype)


def rule(p, g, states, lr, wd, t):
    """A rule of one's own, element by element."""
    g = g + wd * p
    out = []
    if states:
        a = states[0] * 0.5 + g
        out.append(a)
        g = a
    if len(states) > 1:
        b = states[1] + 1.0 / t
        out.append(b)
        g = g * b
    return p - lr * g, out

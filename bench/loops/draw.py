"""Draws a training loop by a seed: parameters, how ranks hold them, an optimizer, steps, and what comes in between."""
import random

INF = float("inf")


def draw(seed, world, modules=False):
    """A loop for so many ranks; over modules alone, if that is asked for."""
    r = random.Random(seed * 131 + world)
    tp = r.choice([t for t in (1, 2) if world % t == 0])
    dp = world // tp
    kind = r.choice(["module", "ddp"] if modules else ["buffers", "buffers", "module", "ddp", "ddp"])
    zero = r.choice([0, 1]) if kind != "module" else 0
    c = {"seed": seed, "tp": tp, "dp": dp, "kind": kind, "zero": zero}
    c["dtypes"] = r.choice([["f32"], ["f32"], ["f64"], ["bf16"], ["f32", "f64"], ["f32", "bf16"], ["f32", "f64",
            "bf16"]])
    c["reduce"] = r.choice(["sum", "avg"])
    c["bucket"] = r.choice([0, 1, 64, 256, 4096])
    c["overlap"] = r.choice(["on", "off"])
    c["broadcast"] = r.choice(["on", "on", "off"])
    c["fp32_grads"] = int(r.random() < 0.5)
    c["optimizer"] = r.choice(["adamw", "adamw", "adamw_nxd", "sgd", "sgd", "custom"])
    c["bf16_update"] = r.choice(["master", "master", "nearest"] +
            (["stochastic"] if c["optimizer"] != "custom" else []))
    if c["optimizer"] == "sgd":
        mom = r.choice([0.0, 0.9, 0.5])
        nest = int(mom > 0 and r.random() < 0.4)
        c["options"] = {"learning_rate": r.choice([0.0, 0.1, 0.01]), "momentum": mom,
                "dampening": 0.0 if nest or mom == 0 else r.choice([0.0, 0.3]),
                        "weight_decay": r.choice([0.0, 0.1]), "nesterov": nest}
    elif c["optimizer"] == "custom":
        c["options"] = {"learning_rate": r.choice([0.0, 0.1]), "weight_decay": r.choice([0.0, 0.1]),
                "num_states": r.choice([0, 1, 2])}
    else:
        c["options"] = {"learning_rate": r.choice([0.0, 0.1, 0.01]), "beta1": r.choice([0.0, 0.9, 0.5]),
                "beta2": r.choice([0.0, 0.999, 0.9]),
                        "eps": r.choice([0.0, 1e-8, 1e-3]), "weight_decay": r.choice([0.0, 0.1])}
    # parameters
    params = []
    for k in range(r.choice([1, 2, 3, 5, 8])):
        nd = r.choice([0, 1, 1, 2, 2, 3])
        shape = [r.choice([1, 2, 3, 4, 5, 7, 16, 33] if r.random() < 0.9 else [0]) for _ in range(nd)]
        dtype = r.choice(c["dtypes"])
        place, extra = "replicated", {}
        if tp > 1:
            place = r.choice(["replicated", "sharded", "sharded", "partial"])
            if kind == "buffers" and nd and r.random() < 0.35:
                place = r.choice(["padded", "fused", "heads"])
            if place == "sharded" and nd == 0:
                place = "partial"
            if place in ("padded", "fused", "heads", "sharded"):
                d = r.randrange(nd)
                extra["dim"] = d
                if place == "sharded":
                    shape[d] = tp * r.choice([1, 2, 3])
                elif place == "padded":
                    shape[d] = r.choice([1, 3, 5, 7])
                elif place == "fused":
                    extra["num_fused"] = r.choice([2, 3])
                    shape[d] = r.choice([2, 4]) * extra["num_fused"]
                else:
                    extra["num_heads"] = r.choice([1, 2, 4])
                    shape[d] = extra["num_heads"] * r.choice([1, 2, 3])
                    extra["partial"] = r.random() < 0.5
        params.append({"name": r.choice(["w", "layers.w", "b.bias", "norm.weight"]).replace(".",
                "." if kind == "buffers" else "_") + str(k), "shape": shape, "dtype": dtype,
                       "place": place, **extra, "perm": None})
    if kind == "buffers":
        for p in params:
            if len(p["shape"]) > 1 and r.random() < 0.3:
                perm = list(range(len(p["shape"])))
                r.shuffle(perm)
                p["perm"] = perm
            p["grad_f32"] = p["dtype"] == "bf16" and r.random() < 0.5
    c["params"] = params
    names = [p["name"] for p in params]
    groups = []
    for _ in range(r.choice([0, 0, 1, 2])):
        groups.append(draw_group(r, c, names))
    c["groups"] = groups
    c["schedule"] = draw_schedule(r) if r.random() < 0.4 else None
    frozen = set(n for n in names if r.random() < 0.15) if kind != "buffers" else set()
    if len(frozen) == len(names):
        frozen = set()
    c["frozen"] = sorted(frozen)
    # groups need a match among the optimizer's parameters
    c["groups"] = [g for g in groups if all(any(match(pat,
            n) for n in names if n not in frozen) for pat in g["patterns"])]
    steps = []
    for k in range(r.choice([2, 3, 5, 7])):
        s = {"events": [], "micro": r.choice([1, 1, 2, 3]), "scale": r.choice([0, 0, 0, 3, 10]),
                "max_norm": r.choice([0, 0, 0.5, 5.0]),
             "norm_type": r.choice([0, 0, 2.0, 1.0, INF]), "bad": None, "update": False, "magnitude": 0}
        if r.random() < 0.12:
            s["bad"] = (r.choice(["inf", "nan"]), r.randrange(dp), r.randrange(len(params)))
        if r.random() < 0.06:
            s["magnitude"] = r.choice([90, -60])
        if zero == 0 and r.random() < 0.25:
            s["update"] = True
        for _ in range(r.choice([0, 0, 0, 1, 1, 2])):
            e = r.choice(["lr", "hyper", "group", "reload", "reload", "freeze", "overwrite", "rebind",
                    "schedule", "reject"])
            if e == "lr":
                s["events"].append(("lr", r.choice([0.05, 0.2, 0.0])))
            elif e == "hyper":
                which = {"sgd": ["weight_decay", "learning_rate"] +
                        (["momentum"] if c["options"].get("momentum") and not c["options"]["nesterov"] else []),
                         "custom": ["weight_decay", "learning_rate"]}.get(c["optimizer"], ["weight_decay", "beta1",
                                 "beta2", "eps", "learning_rate"])
                w = r.choice(which)
                v = {"weight_decay": [0.0, 0.2], "learning_rate": [0.03], "momentum": [0.3, 0.7], "beta1": [0.8],
                        "beta2": [0.95], "eps": [1e-4]}[w]
                s["events"].append(("hyper", w, r.choice(v), r.choice([-1, 0])))
            elif e == "group":
                g = draw_group(r, c, [n for n in names if n not in frozen])
                if all(any(match(pat, n) for n in names if n not in frozen) for pat in g["patterns"]):
                    s["events"].append(("group", g))
            elif e == "reload" and c["optimizer"] != "":
                s["events"].append(("reload", r.choice([0, 1]) if kind != "module" else 0, r.choice([0, 1, 128])))
            elif e == "freeze" and kind != "buffers":
                s["events"].append(("freeze", r.choice(names), r.random() < 0.5))
            elif e == "overwrite":
                s["events"].append(("overwrite", r.choice(names)))
            elif e == "rebind" and kind == "buffers":
                s["events"].append(("rebind", r.choice(names), r.choice(["param", "grad", "both"])))
            elif e == "schedule":
                s["events"].append(("schedule", draw_schedule(r)))
            elif e == "reject":
                s["events"].append(("reject", r.choice(["norm_type", "max_norm", "scale"])))
        # use: per parameter, on which dp ranks it takes part: "all", "none", or a set
        use = []
        for p in params:
            x = r.random()
            if x < 0.75 or kind == "module" and x < 0.9:
                use.append(list(range(dp)))
            elif x < 0.88 or kind == "module":
                use.append([])
            else:
                use.append([d for d in range(dp) if r.random() < 0.5])
        s["use"] = use
        s["mark"] = r.choice(["all", "some", "none"])
        s["order"] = r.randrange(1000)
        s["sync_all"] = s["micro"] == 1
        steps.append(s)
    c["steps"] = steps
    return c


def draw_group(r, c, names):
    pats = r.choice([["*"], ["*bias*"], [r.choice(names)] if names else ["*"], ["?" + "*"], ["*w*"]])
    which = {"sgd": ["weight_decay", "learning_rate"], "custom": ["weight_decay",
            "learning_rate"]}.get(c["optimizer"], ["weight_decay", "beta1", "beta2", "eps", "learning_rate"])
    values = {}
    for w in r.sample(which, r.choice([0, 1, 2])):
        values[w] = {"weight_decay": 0.05, "learning_rate": 0.02, "beta1": 0.7, "beta2": 0.8, "eps": 1e-2}[w]
    return {"patterns": pats, "values": values}


def draw_schedule(r):
    kind = r.choice(["constant", "linear", "cosine"])
    warm = r.choice([0, 1, 3])
    return {"kind": kind, "warmup_steps": warm, "total_steps": warm + r.choice([1, 2,
            5]) if kind != "constant" else 0, "final_factor": r.choice([0.0, 0.1, 0.5])}


def match(pattern, name):
    """* any characters, ? one."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(match(pattern[1:], name[k:]) for k in range(len(name) + 1))
    return bool(name) and (pattern[0] == "?" or pattern[0] == name[0]) and match(pattern[1:], name[1:])

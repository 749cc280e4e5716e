"""Runs drawn loops on this job's ranks, and compares each step with one process that has whole parameters.
usage: nxdrun -n RANKS train.py DIRECTORY COUNT FIRST     The seed under way is written to DIRECTORY/last.
"""
import json
import os
import pathlib
import random
import struct
import sys

import numpy as np
import torch

import nxd
from draw import INF, draw, match
from reference import Reference, hash_of, numbers, part, rows_of, rule

DT = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}
DEVICE = os.environ.get("NXD_TEST_DEVICE", "cpu")
KINDS = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16}


class Run:
    """One loop on this rank."""

    def __init__(self, ctx, c, directory):
        self.ctx, self.c, self.dir = ctx, c, directory
        self.rank = ctx.rank
        self.tp = ctx.parallel_rank("tensor")
        self.dp = ctx.parallel_rank("data")
        self.wrong = []
        self.by_name = {p["name"]: p for p in c["params"]}
        self.names = [p["name"] for p in c["params"]]
        self.trained = [n for n in self.names if n not in c["frozen"]]
        self.frozen, self.made_groups = set(), []

    def say(self, *words):
        self.wrong.append(" ".join(str(w) for w in words))

    def compare(self, what, got, want, tol):
        """got is what this rank has, want its part of the reference."""
        if got.dtype != want.dtype or got.shape != want.shape:
            return self.say(what, "is", got.dtype, list(got.shape), "for", want.dtype, list(want.shape))
        a, b = got.double(), want.double()
        if a.numel() == 0:
            return
        if torch.isnan(a).any() or torch.isinf(a).any():
            if torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)):
                return
            return self.say(what, "not finite", a.flatten()[:8].tolist(), "for", b.flatten()[:8].tolist())
        scale = max(b.abs().max().item(), 1e-30)
        err = (a - b).abs().max().item()
        if err > tol * scale:
            k = (a - b).abs().flatten().argmax().item()
            self.say(what,
                    f"differs by {err:.3g} of {scale:.3g}: element {k} is {a.flatten()[k].item():.9g} for "
                    f"{b.flatten()[k].item():.9g}")

    def tolerance(self, dtype):
        return {torch.float32: 3e-6 * 4, torch.float64: 1e-12, torch.bfloat16: 2 ** -8}[dtype]

    def close(self):
        self.opt.close()
        if self.ddp:
            self.ddp.close()

    def start(self):
        c = self.c
        values = {}
        for p in c["params"]:
            values[p["name"]] = numbers(c["seed"], p["name"], "value", shape=p["shape"]).to(DT[p["dtype"]])
        self.ref = Reference(c, values)
        if c["kind"] == "buffers":
            self.params, self.grads = {}, {}
            for p in c["params"]:
                mine = part(values[p["name"]], p, c["tp"], self.tp)
                if c["broadcast"] == "on" and self.dp > 0:
                    mine = mine * 0 + 3
                self.params[p["name"]] = self.laid(mine, p)
                gd = torch.float32 if p["grad_f32"] else mine.dtype
                self.grads[p["name"]] = self.laid(torch.zeros_like(mine, dtype=gd), p)
        else:
            self.root = Model(self.ctx, self)
            for p in c["params"]:
                options = {"dtype": p["dtype"]}
                if p["place"] == "sharded":
                    options.update(has_shard_dim=1, shard_dim=p["dim"])
                if p["place"] == "partial":
                    options.update(sequence_parallel=1)
                q = self.root.add_parameter(p["name"], p["shape"], **options)
                whole = values[p["name"]]
                q.set_full(tensor(whole.float() if whole.dtype is torch.bfloat16 else whole))
                self.root.handles[p["name"]] = q
                if p["name"] in c["frozen"]:
                    q.set_trainable(False)
            if DEVICE != "cpu":
                self.root.move_to(DEVICE)
        self.make(c["zero"], c["bucket"])
        for g in c["groups"]:
            self.add_group(g)
        if c["schedule"]:
            self.opt.set_lr_schedule(**c["schedule"])
            self.ref.schedule = c["schedule"]

    def laid(self, t, p):
        """The same values in another order of dimensions."""
        if p["perm"] is None:
            return t.clone().contiguous()
        inverse = [p["perm"].index(k) for k in range(t.dim())]
        return t.permute(p["perm"]).contiguous().permute(inverse)

    def make(self, zero, bucket):
        c = self.c
        self.zero = zero
        self.ddp = None
        if c["kind"] != "module":
            o = {"bucket_bytes": bucket, "reduce": c["reduce"], "zero_stage": zero, "overlap": c["overlap"],
                    "broadcast": c["broadcast"]}
            if c["kind"] == "buffers":
                self.ddp = nxd.Ddp.over_arrays(self.ctx, self.params, self.grads, **o)
                self.place()
            else:
                self.ddp = nxd.Ddp.over_module(self.root, fp32_grads=c["fp32_grads"], **o)
        over = self.ddp or self.root
        o = dict(c["options"], bf16_update=c["bf16_update"])
        if c["optimizer"] == "sgd":
            self.opt = nxd.Sgd(over, **o)
        elif c["optimizer"] == "custom":
            self.opt = nxd.CustomOptimizer(over, self.rule, **o)
        else:
            self.opt = nxd.AdamW(over, formula="nxd" if c["optimizer"] == "adamw_nxd" else "torch", **o)

    def place(self):
        c = self.c
        if c["tp"] == 1:
            return
        simple = all(p["place"] in ("replicated", "sharded", "partial") for p in c["params"])
        if simple and c["seed"] % 2:
            whole = {"replicated": nxd.Placement.REPLICATED, "partial": nxd.Placement.PARTIAL_GRAD}
            self.ddp.set_placements({p["name"]: p["dim"] if p["place"] == "sharded" else whole[p["place"]]
                                     for p in c["params"]})
            return
        shards, partial = {}, []
        for p in c["params"]:
            if p["place"] in ("replicated", "partial"):
                shards[p["name"]] = None
            else:
                shards[p["name"]] = {"dim": p["dim"], "size": p["shape"][p["dim"]]}
                for k in ("num_fused", "num_heads"):
                    if k in p:
                        shards[p["name"]][k] = p[k]
            if p["place"] == "partial" or p.get("partial"):
                partial.append(p["name"])
        self.ddp.set_shards(shards, partial)

    def rule(self, u):
        def t(a, dtype=None):
            a = np.asarray(a)
            if a.dtype.kind == "V":  # bf16
                return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
            return torch.from_numpy(a)
        p = t(u.param)
        work = torch.float64 if p.dtype is torch.float64 else torch.float32
        g = t(np.array(u.grad)).to(work) * torch.tensor(u.grad_scale, dtype=work)
        states = [t(s) for s in u.states]
        wide = [s.to(work) for s in states]
        new, st = rule(p.to(work), g, wide, u.learning_rate, u.weight_decay, u.step)
        p.copy_(new.to(p.dtype))
        for s, x in zip(states, st):
            s.copy_(x.to(s.dtype))
        self.spans.append((u.parameter, u.begin, p.numel(), u.step))

    def add_group(self, g):
        self.opt.add_group(g["patterns"], g["values"])
        self.ref.hyper.append(dict(self.ref.hyper[0], **g["values"]))
        for n in self.trained:
            if any(match(pat, n) for pat in g["patterns"]):
                self.ref.group[n] = len(self.ref.hyper) - 1
        self.made_groups.append(g)

    def event(self, e):
        c, ref = self.c, self.ref
        if e[0] == "lr":
            self.opt.learning_rate = e[1]
            for h in ref.hyper:
                h["learning_rate"] = e[1]
        elif e[0] == "hyper":
            self.opt.set_hyperparameter(e[1], e[2], e[3])
            for k, h in enumerate(ref.hyper):
                if e[3] in (-1, k):
                    h[e[1]] = e[2]
        elif e[0] == "group":
            self.add_group(e[1])
        elif e[0] == "schedule":
            self.opt.set_lr_schedule(**e[1])
            ref.schedule = e[1]
        elif e[0] == "reload":
            path = f"{self.dir}/state.{c['seed']}"
            self.opt.save(path)
            self.ctx.world.barrier()
            self.check_file(path)
            self.opt.close()
            if self.ddp:
                self.ddp.close()
            if c["kind"] == "buffers":
                for n in self.names:
                    self.grads[n].fill_(1.0)
            else:
                self.root.zero_grad()
            if c["kind"] != "buffers":
                # the optimizer is of the parameters that it was of
                for n in self.names:
                    self.root.handles[n].set_trainable(n in self.trained)
            self.make(e[1] if c["kind"] != "module" else 0, e[2])
            if c["kind"] != "buffers":
                for n in self.names:
                    self.root.handles[n].set_trainable(n not in self.frozen)
            for g in self.made_groups:
                self.opt.add_group(g["patterns"], {})
            self.opt.load(path)
            self.ctx.world.barrier()
        elif e[0] == "freeze":
            n, on = e[1], e[2]
            if n in c["frozen"]:
                return
            self.root.handles[n].set_trainable(on)
            (self.frozen.discard if on else self.frozen.add)(n)
        elif e[0] == "overwrite":
            n = e[1]
            p = self.by_name[n]
            whole = numbers(c["seed"], n, "other", len(ref.value), shape=p["shape"]).to(DT[p["dtype"]]) * 2
            ref.value[n] = whole.clone()
            ref.master.pop(n, None)
            if c["kind"] == "buffers":
                self.params[n].copy_(part(whole, p, c["tp"], self.tp))
                self.ddp.mark_reloaded()
                # every master is read anew
                ref.master.clear()
            else:
                self.root.handles[n].set_full(tensor(whole.float() if whole.dtype is torch.bfloat16 else whole))
        elif e[0] == "rebind":
            n = e[1]
            args = {}
            if e[2] in ("param", "both"):
                self.params[n] = self.laid(self.params[n], self.by_name[n])
                args["param"] = self.params[n]
                ref.master.pop(n, None)
            if e[2] in ("grad", "both"):
                self.grads[n] = self.laid(self.grads[n], self.by_name[n])
                args["grad"] = self.grads[n]
            self.ddp.rebind(n, **args)
        elif e[0] == "reject":
            bad = {"norm_type": {"max_norm": 1.0, "norm_type": 3.0}, "max_norm": {"max_norm": -1.0},
                    "scale": {"scale": INF}}[e[1]]
            try:
                self.opt.step(**bad)
            except nxd.InvalidArgument:
                return
            self.say("no rejection of", bad)

    def check_file(self, path):
        """The saved state has whole arrays that equal the reference's."""
        with open(path, "rb") as f:
            n, = struct.unpack("<Q", f.read(8))
            head = json.loads(f.read(n))
            body = f.read()
        head.pop("__metadata__", None)
        seen = set()
        for key, info in head.items():
            name, what = key.rsplit(".", 1)
            a, b = info["data_offsets"]
            d = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16}.get(info["dtype"])
            if d is None or name not in self.ref.value:
                self.say("file has", key, info["dtype"])
                continue
            t = torch.frombuffer(bytearray(body[a:b]),
                    dtype=d).reshape(info["shape"]) if b > a else torch.zeros(info["shape"], dtype=d)
            if what == "master":
                want = self.ref.master.get(name, self.ref.value[name].float())
            else:
                want = self.ref.state[name].get(what)
                if want is None:
                    want = torch.zeros(self.by_name[name]["shape"], dtype=d)
            self.compare(f"file's {key}", t, want.reshape(self.by_name[name]["shape"]),
                    2e-2 if self.by_name[name]["dtype"] == "bf16" else 1e-5 if d is not torch.float64 else 1e-12)
            seen.add(key)
        for n in self.trained:
            for what in self.ref.state[n]:
                if self.ref.value[n].numel() and f"{n}.{what}" not in head:
                    self.say("file lacks", f"{n}.{what}")

    def gradient(self, k, s, m, d, t, p):
        """The gradient that one backward pass gives: whole, or of a tensor-parallel rank where these have parts."""
        key = (self.c["seed"], k, m, d, p["name"])
        if p["place"] == "partial" or p.get("partial"):
            key += (t,)
        g = numbers(*key, shape=p["shape"])
        if s["magnitude"]:
            g = g * 2.0 ** s["magnitude"]
        if s["scale"]:
            g = g * 2.0 ** s["scale"]
        return g

    def step(self, k, s):
        c, ref = self.c, self.ref
        self.spans = []
        for e in s["events"]:
            self.event(e)
        used = {}
        for p, on in zip(c["params"], s["use"]):
            n = p["name"]
            on = list(on)
            if n in c["frozen"] or n in self.frozen:
                on = []
            used[n] = on
        bad = s["bad"]
        # gradients that the reference finishes
        total = {}
        for p in c["params"]:
            n = p["name"]
            if not used[n]:
                continue
            whole = torch.zeros(p["shape"], dtype=torch.float64)
            for d in used[n]:
                for m in range(s["micro"]):
                    ts = range(c["tp"]) if p["place"] == "partial" or p.get("partial") else [0]
                    for t in ts:
                        g = self.gradient(k, s, m, d, t, p)
                        if p.get("partial"):
                            # ranks that hold the same heads have parts of the gradient
                            rows = rows_of(p, c["tp"], t)
                            keep = torch.zeros(p["shape"], dtype=torch.float64)
                            for row in rows:
                                keep.select(p["dim"], row).copy_(g.select(p["dim"], row))
                            g = keep
                        whole += g
            if c["reduce"] == "avg":
                whole /= c["dp"]
            if bad and bad[0] and c["params"][bad[2]]["name"] == n and bad[1] in used[n] and whole.numel():
                whole.view(-1)[0] = float(bad[0])
            total[n] = whole
        # this rank's
        self.fill(k, s, used, bad)
        options = {}
        if s["scale"]:
            options["scale"] = 2.0 ** -s["scale"]
        if s["max_norm"]:
            options["max_norm"] = s["max_norm"]
        if s["norm_type"]:
            options["norm_type"] = s["norm_type"]
        if c["kind"] == "module":
            options["data_parallel_reduce"] = c["reduce"]
        scale = options.get("scale", 1.0)
        finite = all(torch.isfinite(g).all() for g in total.values())
        parts = [(self.rounded(n, g).double() * scale).abs() for n, g in total.items()]
        flat = torch.cat([x.reshape(-1) for x in parts]) if parts else torch.zeros(0, dtype=torch.float64)
        nt = s["norm_type"] or 2.0
        norm = float("nan")
        if flat.numel() == 0:
            norm = 0.0
        elif nt == INF:
            norm = flat.max().item()
        else:
            norm = flat.norm(nt).item()
        clip = min(1.0, s["max_norm"] / (norm + 1e-6)) if s["max_norm"] else 1.0
        rate = ref.hyper[0]["learning_rate"] * ref.factor()
        if abs(self.opt.learning_rate - rate) > 1e-9 * max(rate, 1e-9):
            self.say(f"step {k}: learning_rate {self.opt.learning_rate} for {rate}")
        skipped = not finite
        report = None
        if s["update"] and self.zero == 0:
            try:
                got = self.ddp.finish(**options) if self.ddp else nxd.finish_grads(self.root, **options)
                if skipped:
                    self.say(f"step {k}: finish gave {got} for gradients that are not finite")
                if not skipped and abs(got - norm) > 1e-6 * max(norm, 1e-30):
                    self.say(f"step {k}: finish gave norm {got} for {norm}")
                if not skipped:
                    self.check_grads(k, total, used, scale * clip)
                    self.opt.update()
            except nxd.InvalidState as e:
                if not skipped or "norm of the gradients is" not in str(e):
                    raise
        else:
            report = self.opt.step(**options)
            if bool(report.skipped) != skipped:
                self.say(f"step {k}: skipped {report.skipped} for {skipped}, norm {report.norm}")
            if not skipped and abs(report.norm - norm) > 1e-6 * max(norm, 1e-30):
                self.say(f"step {k}: norm {report.norm} for {norm}")
            if abs(report.learning_rate - rate) > 1e-9 * max(rate, 1e-9) and not skipped:
                self.say(f"step {k}: reported rate {report.learning_rate} for {rate}")
            if not skipped and self.zero == 0:
                self.check_grads(k, total, used, 1.0, loose=True)
        if not skipped:
            for n, g in total.items():
                if n in self.trained:
                    ref.update(n, (self.rounded(n, g) * (scale * clip)).to(self.rounded(n, g).dtype),
                            1.0) if report is None else ref.update(n, self.rounded(n, g), scale * clip)
            ref.updates += 1
        if report is not None and report.updates != ref.updates:
            self.say(f"step {k}: updates {report.updates} for {ref.updates}")
        self.check_params(k)
        if self.c["optimizer"] == "custom" and not skipped:
            self.check_spans(k, total)
        if c["kind"] != "buffers":
            self.root.zero_grad()

    def rounded(self, n, g):
        """A gradient in the dtype that it is reduced in."""
        p = self.by_name[n]
        if p["dtype"] != "bf16":
            return g.to(DT[p["dtype"]])
        wide = p.get("grad_f32") or self.c["kind"] == "ddp" and self.c["fp32_grads"]
        return g.float() if wide else g.to(torch.bfloat16)

    def fill(self, k, s, used, bad):
        c = self.c
        mine = {}
        for p in c["params"]:
            n = p["name"]
            mine[n] = [part(self.gradient(k, s, m, self.dp, self.tp, p), p, c["tp"],
                    self.tp) for m in range(s["micro"])] if self.dp in used[n] else None
            if mine[n] and bad and c["params"][bad[2]]["name"] == n and bad[1] == self.dp and mine[n][0].numel():
                rows = rows_of(p, c["tp"], self.tp)
                if rows is None or 0 in rows:
                    mine[n][0].view(-1)[0] = float(bad[0])
        if c["kind"] != "buffers":
            for m in range(s["micro"]):
                if self.ddp:
                    self.ddp.set_sync(m == s["micro"] - 1)
                inputs = []
                self.root.use = [n for n in self.names if mine[n] is not None]
                self.root.weights = [tensor(mine[n][m].to(DT[self.by_name[n]["dtype"]])) for n in self.root.use]
                if not self.root.use:
                    continue
                # the result is differentiable where a parameter is
                out = self.root(tensor(torch.zeros(1)))
                outs = list(out) if isinstance(out, tuple) else [out]
                nxd.backward([out])
            return
        order = [n for n in self.names]
        random.Random(s["order"] * 10 + self.rank).shuffle(order)
        for m in range(s["micro"]):
            last = m == s["micro"] - 1
            self.ddp.set_sync(last)
            for n in order:
                g = self.grads[n]
                if mine[n] is None:
                    if m == 0:
                        g.fill_(7.0)      # of no concern
                    if last:
                        self.ddp.mark_unused(n)
                    continue
                if m == 0:
                    g.zero_()
                g.add_(mine[n][m].to(g.dtype))
                if last and (s["mark"] == "all" or s["mark"] == "some" and random.Random(s["order"] +
                        hash_of(n)).random() < 0.5):
                    self.ddp.mark_ready(n)

    def check_grads(self, k, total, used, factor, loose=False):
        c = self.c
        for n, g in total.items():
            p = self.by_name[n]
            want = part(self.rounded(n, g), p, c["tp"], self.tp)
            want = (want.double() * factor).to(want.dtype)
            if c["kind"] == "buffers":
                got = self.grads[n]
                self.compare(f"step {k}: grad of {n}", got.clone(), want.to(got.dtype), self.tolerance(want.dtype))
            else:
                t = self.root.handles[n].grad
                if t is None:
                    if g.numel() == 0:
                        continue
                    self.say(f"step {k}: no grad of {n}")
                    continue
                got = from_nxd(t)
                self.compare(f"step {k}: grad of {n}", got, want.to(got.dtype), self.tolerance(want.dtype))

    def check_params(self, k):
        c = self.c
        for p in c["params"]:
            n = p["name"]
            want = part(self.ref.value[n], p, c["tp"], self.tp)
            got = self.params[n].clone() if c["kind"] == "buffers" else from_nxd(self.root.handles[n].tensor)
            tol = self.tolerance(want.dtype) * (1 if want.dtype is torch.bfloat16 else 3)
            if want.dtype is torch.bfloat16 and c["bf16_update"] != "master" and c["tp"] > 1:
                tol *= 1 + k
            if want.dtype is torch.bfloat16 and c["bf16_update"] == "stochastic":
                tol *= 2 + 2 * k
            if c["kind"] == "buffers":
                rows = rows_of(p, c["tp"], self.tp)
                # padding is nobody's
                if rows is not None and -1 in rows:
                    keep = [a for a, row in enumerate(rows) if row >= 0]
                    got, want = got.index_select(p["dim"], torch.tensor(keep,
                            dtype=torch.long)), want.index_select(p["dim"], torch.tensor(keep, dtype=torch.long))
            self.compare(f"step {k}: {n}", got, want, tol)
            if want.dtype is torch.bfloat16 and c["bf16_update"] != "master" and n in self.trained:
                self.adopt(n)

    def adopt(self, n):
        """The reference goes on from what nxd rounded to."""
        c, p = self.c, self.by_name[n]
        got = self.params[n].clone() if c["kind"] == "buffers" else from_nxd(self.root.handles[n].tensor)
        if c["tp"] == 1 or p["place"] in ("replicated", "partial"):
            self.ref.value[n] = got.contiguous()

    def check_spans(self, k, total):
        for n, begin, count, step in self.spans:
            if step != self.ref.count[n]:
                self.say(f"step {k}: update of {n} says step {step} for {self.ref.count[n]}")
            if n not in total:
                self.say(f"step {k}: update of {n}, which has no gradient")


class Model(nxd.Module):
    def __init__(self, ctx, run):
        super().__init__(ctx)
        self.handles, self.use, self.weights = {}, [], []

    def forward(self, x):
        total = None
        for n, w in zip(self.use, self.weights):
            t = nxd.ops.sum(self.handles[n].tensor * w)
            t = t.to("f64")
            total = t if total is None else total + t
        return total


def tensor(t):
    t = t.contiguous()
    if t.dtype is torch.bfloat16:
        return nxd.tensor(t.view(torch.int16).numpy().view(np.uint16), "bf16").to_device(DEVICE)
    return nxd.tensor(t.numpy()).to_device(DEVICE)


def from_nxd(t):
    kind = {"F32": np.float32, "F64": np.float64, "BF16": np.int16}[t.dtype.name]
    a = np.frombuffer(t.detach().tobytes(), kind).reshape(t.shape).copy()
    out = torch.from_numpy(np.atleast_1d(a)).reshape(t.shape)
    return out.view(torch.bfloat16) if t.dtype.name == "BF16" else out


def differences(context, seed, directory):
    """Tells how a loop differs on this rank; ranks end it together."""
    drawn = draw(seed, context.size, DEVICE != "cpu")
    if context.model_parallel:
        context.destroy_model_parallel()
    context.init_model_parallel(tensor_parallel_size=drawn["tp"])
    run = Run(context, drawn, directory)
    run.start()
    for k, step in enumerate(drawn["steps"]):
        run.step(k, step)
        wrong = np.array([len(run.wrong)], np.float32)
        context.world.all_reduce(wrong)
        if wrong[0]:
            break
    run.close()
    return [f"{drawn['kind']}, tp {drawn['tp']}, dp {drawn['dp']}, zero {drawn['zero']}, {drawn['optimizer']}: {each}"
            for each in run.wrong]


def main():
    directory, count, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    bad = 0
    with nxd.Context(timeout_ms=30000) as context:
        for seed in range(first, first + count):
            if context.rank == 0:
                pathlib.Path(directory, "last").write_text(str(seed))
            found = differences(context, seed, directory)
            bad += bool(found)
            for each in found[:4]:
                print(f"FAILED: loop {seed} of {context.size} ranks, rank {context.rank}: {each}", flush=True)
        if context.rank == 0:
            print(f"{count} loops on {context.size} ranks, {bad} differ", flush=True)
    sys.exit(bad > 0)


main()

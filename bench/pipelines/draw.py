"""Draws programs by a seed: pipelines over a layout's ranks, and the runs, steps and changes that are made with them."""
import random

from configs import draw_config


def draw_schedule(r, ranks):
    chunks = r.choice([1, 1, 2] if ranks > 1 else [1, 2, 3])
    kind = r.choice(["1F1B", "GPIPE", "ZERO_BUBBLE"] if chunks == 1 else ["INTERLEAVED", "GPIPE"])
    microbatches = ranks * r.choice([1, 2]) if kind == "INTERLEAVED" else r.choice([1, 2, 3, 4, 5, 7])
    return {"chunks": chunks, "schedule": kind, "microbatches": microbatches}


def draw_pipeline(r, ranks):
    return {**draw_schedule(r, ranks), "model": r.randrange(10**6), "loss": r.choice(["TOKENS", "MICROBATCHES"]),
            "recompute": r.choice([None, "some", "all", "ends"]), "zero": r.choice([None, None, 0, 1]),
            "optimizer": r.choice(["sgd", "adamw"]), "keep_outputs": int(r.random() < 0.2),
            "bucket": r.choice([0, 64, 1024]), "frozen": r.choice([0, 0, 2]), "shares_loss": int(r.random() < 0.8)}


def draw_event(r, pipelines):
    return {"pipeline": r.randrange(pipelines), "seed": r.randrange(10**6),
            "what": r.choice(["train", "train", "train", "train", "evaluate", "evaluate", "reload", "freeze", "reject",
                              "accumulate"]),
            "rows": r.choice([1, 2, 3]), "length": r.choice([1, 3, 4]), "max_norm": r.choice([0.0, 0.0, 0.5, 5.0]),
            "ignored": r.choice(["none", "some", "microbatch", "all"])}


def draw_events(r, pipelines):
    return [draw_event(r, len(pipelines)) for _ in range(r.choice([3, 5, 8]))]


def draw(seed, world):
    r = random.Random(seed * 977 + world)
    ranks = r.choice([p for p in (2, 3, 4, 1) if world % p == 0])
    pipelines = [draw_pipeline(r, ranks) for _ in range(r.choice([1, 1, 2]))]
    return {"ranks": ranks, "tensor": 1, "copies": world // ranks, "pipelines": pipelines,
            "events": draw_events(r, pipelines)}


def draw_own(r, layout):
    """A pipeline over a model of the library's layers."""
    plan = {**draw_pipeline(r, layout["ranks"]), "kind": r.choice(["layers", "layers", "model"]),
            "moved": r.choice([0, 1, 2]), "deferred": r.random() < 0.3, "partition": r.choice(["EVEN", "COST"]),
            "sequence_parallel": int(layout["tensor"] > 1 and r.random() < 0.4)}
    if plan["kind"] == "model":
        plan.update(config=draw_config(r, {**layout, "chunks": plan["chunks"]}), keep_outputs=0)
        if plan["config"]["model_type"] == "bert":
            plan["loss"] = "MICROBATCHES"
    return plan


def draw_layout(r, world):
    tensor, ranks = r.choice([(t, p) for t in range(1, world + 1) for p in range(1, world + 1) if world % (t * p) == 0])
    return {"ranks": ranks, "tensor": tensor, "copies": world // ranks // tensor}


def draw_divided(seed, world):
    """The same with stages that are tensor-parallel, too. Programs over layers may go on in another layout."""
    r = random.Random(seed * 983 + world)
    layout = draw_layout(r, world)
    pipelines = [draw_own(r, layout) for _ in range(r.choice([1, 1, 2]))]
    events = draw_events(r, pipelines)
    if all(plan["kind"] == "layers" for plan in pipelines) and r.random() < 0.6:
        other = draw_layout(r, world)
        schedules = [draw_schedule(r, other["ranks"]) for _ in pipelines]
        events.insert(r.randrange(1, len(events)), {"what": "relayout", "layout": other, "schedules": schedules})
    return {**layout, "pipelines": pipelines, "events": events}

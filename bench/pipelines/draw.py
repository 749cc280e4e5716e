"""Draws programs by a seed: pipelines over a layout's ranks, and the runs, steps and changes that are made with them."""
import random


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


def draw(seed, world):
    r = random.Random(seed * 977 + world)
    ranks = r.choice([p for p in (2, 3, 4, 1) if world % p == 0])
    pipelines = [draw_pipeline(r, ranks) for _ in range(r.choice([1, 1, 2]))]
    events = [draw_event(r, len(pipelines)) for _ in range(r.choice([3, 5, 8]))]
    return {"ranks": ranks, "copies": world // ranks, "pipelines": pipelines, "events": events}

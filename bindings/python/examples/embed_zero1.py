"""ZeRO-1 inside a program that has its own model: a two-layer network, its backward pass and its
arrays are numpy's, and libnxd reduces the gradients while the backward pass goes on, keeps the
optimizer's state divided over the ranks and updates the weights in place. No libtorch is loaded.

    nxdrun -n 2 python3 embed_zero1.py
    python3 embed_zero1.py                    (one rank)
"""

import numpy as np
import nxd.core as nxd

FEATURES, HIDDEN, CLASSES, SAMPLES, STEPS = 12, 32, 4, 64, 40


def samples():
    """Class c is where a wave of the features is in its c-th quarter."""
    index, i = np.arange(1, SAMPLES + 1)[:, None], np.arange(FEATURES)
    x = np.sin(0.7 * index * (i + 1) + 0.2 * i)
    place = 0.5 + 0.5 * np.sin((x * np.cos(1.1 * i)).sum(1))
    return x.astype("f4"), np.minimum((place * CLASSES).astype(int), CLASSES - 1)


def make_weights():
    """Only rank 0's count: the others get them from it. In the order of use."""
    w1 = 0.3 * np.sin(1.7 * np.arange(HIDDEN * FEATURES)).reshape(HIDDEN, FEATURES)
    w2 = 0.3 * np.cos(2.3 * np.arange(CLASSES * HIDDEN)).reshape(CLASSES, HIDDEN)
    return {"w1": w1.astype("f4"), "b1": np.zeros(HIDDEN, "f4"),
            "w2": w2.astype("f4"), "b2": np.zeros(CLASSES, "f4")}


def train_step(ddp, adamw, weights, grads, x, labels):
    """Loss of this rank's samples, and the norm of all gradients."""
    h = np.tanh(x @ weights["w1"].T + weights["b1"])
    z = h @ weights["w2"].T + weights["b2"]
    z -= z.max(1, keepdims=True)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    rows = np.arange(len(x))
    loss = -np.log(p[rows, labels]).sum() / SAMPLES

    p[rows, labels] -= 1
    dz = p / SAMPLES
    np.copyto(grads["b2"], dz.sum(0))
    np.copyto(grads["w2"], dz.T @ h)
    ddp.mark_ready("b2")
    ddp.mark_ready("w2")  # its bucket may travel during what follows
    ds = dz @ weights["w2"] * (1 - h * h)
    np.copyto(grads["b1"], ds.sum(0))
    np.copyto(grads["w1"], ds.T @ x)
    ddp.mark_ready("b1")
    ddp.mark_ready("w1")
    return loss, adamw.step(max_norm=1.0).norm


def main():
    with nxd.Context() as ctx:
        weights = make_weights()
        grads = {name: np.zeros_like(array) for name, array in weights.items()}
        # Two buckets, so that there is something to overlap.
        ddp = nxd.Ddp.over_arrays(ctx, weights, grads, zero_stage=1, bucket_bytes=1024)
        adamw = nxd.AdamW(ddp, learning_rate=0.02, weight_decay=0.01)
        adamw.add_group(["b?"], {"weight_decay": 0})
        x, labels = samples()
        mine = slice(SAMPLES * ctx.rank // ctx.size, SAMPLES * (ctx.rank + 1) // ctx.size)
        for step in range(STEPS):
            loss, norm = train_step(ddp, adamw, weights, grads, x[mine], labels[mine])
            total = ctx.world.all_reduce(np.array([loss], "f8"))[0]
            ctx.master_print(f"step {step} loss {total:.6f} norm {norm:.6f}")
        ctx.master_print(f"{ctx.size} ranks; rank 0 keeps {adamw.state_bytes} bytes of state for "
                         f"{sum(w.nbytes for w in weights.values())} of weights")


if __name__ == "__main__":
    main()

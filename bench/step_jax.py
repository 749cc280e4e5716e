"""The training step of bench_step written with JAX: the same Llama, tokens, optimizer and clipping.

Run by scripts/bench_peers, with RANK and WORLD_SIZE set by the launcher where there are several ranks, and
--init naming a file through which they meet. Tensor, sequence and data parallelism and ZeRO-1 are
shardings of the arrays, from which JAX's compiler derives the collectives. Prints one line of JSON
on rank 0.

The hidden states are [batch, sequence, hidden].
"""
import json
import os
import socket
import time

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))
# XLA starts a thread for each core that it may use, and has no other setting.
_cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {_cores[(RANK * THREADS + i) % len(_cores)] for i in range(THREADS)})

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

from step_inputs import (LEARNING_RATE, MAX_NORM, NO_LABEL, make_ids, measure,  # noqa: E402
                         parse_arguments, read_safetensors)

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"
MEETING_SECONDS = 60


def meet(path):
    """The address of rank 0, which the others read from the file."""
    if RANK == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(address)
        os.rename(path + ".new", path)
        return address
    until = time.monotonic() + MEETING_SECONDS
    while not os.path.exists(path):
        if time.monotonic() > until:
            raise TimeoutError(f"rank 0 has not written {path} for {MEETING_SECONDS} seconds")
        time.sleep(0.05)
    with open(path, encoding="ascii") as file:
        return file.read()


def view(data, dtype, offset, shape):
    kind = {"F32": np.float32, "BF16": jnp.bfloat16}[dtype]
    flat = np.frombuffer(data, dtype=kind, offset=offset, count=int(np.prod(shape)))
    return flat.reshape(shape).astype(np.float32)


class Shardings:
    """Where arrays lie: one axis, "ranks", which splits weights or batches by the mode."""

    def __init__(self, mode):
        # A PJRT plug-in for the CPU has more devices than ranks.
        self.mesh = Mesh(np.array(jax.devices()[:SIZE]), ("ranks",))
        self.tensor = mode in ("tp", "tp_sp")
        self.sequence, self.sharded_state = mode == "tp_sp", mode == "zero"

    def of(self, *axes):
        return NamedSharding(self.mesh, P(*axes))

    def weight(self, name):
        if not self.tensor or "norm" in name:
            return self.of()
        by_rows = any(part in name for part in ("o_proj", "down_proj"))
        return self.of(None, "ranks") if by_rows else self.of("ranks", None)

    def state(self, name, shape):
        """Where moments and f32 masters lie."""
        if self.sharded_state and shape[0] % self.mesh.size == 0:
            return self.of("ranks", *[None] * (len(shape) - 1))
        return self.weight(name)

    def batch(self):
        return self.of(None if self.tensor else "ranks", None)

    def between(self, x):
        """Hidden states outside of the products."""
        axes = (None, "ranks" if self.sequence else None, None) if self.tensor else ("ranks", None,
                                                                                     None)
        return jax.lax.with_sharding_constraint(x, self.of(*axes))

    def whole(self, x):
        """Hidden states that a product reads."""
        axes = (None, None, None) if self.tensor else ("ranks", None, None)
        return jax.lax.with_sharding_constraint(x, self.of(*axes))


class Llama:
    def __init__(self, config, shardings, sequence, dtype):
        self.shardings, self.eps = shardings, config.get("rms_norm_eps", 1e-6)
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.dim, self.layers = config["hidden_size"] // self.heads, config["num_hidden_layers"]
        frequencies = config.get("rope_theta", 10000.0) ** (-np.arange(0, self.dim, 2) / self.dim)
        angles = np.arange(sequence)[:, None] * frequencies
        self.cos, self.sin = (jnp.asarray(f(angles)[:, None], dtype) for f in (np.cos, np.sin))

    def norm(self, x, weight):
        wide = x.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + self.eps)
        return self.shardings.whole((wide * scale * weight).astype(x.dtype))

    def rotate(self, x):
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * self.cos - b * self.sin, b * self.cos + a * self.sin], -1)

    def attention(self, x, weights, path):
        def heads(name, count):
            return (x @ weights[f"{path}.{name}_proj.weight"].T).reshape(*x.shape[:2], count, self.dim)

        q, k = self.rotate(heads("q", self.heads)), self.rotate(heads("k", self.kv_heads))
        out = jax.nn.dot_product_attention(q, k, heads("v", self.kv_heads), is_causal=True)
        return out.reshape(*x.shape[:2], -1) @ weights[f"{path}.o_proj.weight"].T

    def mlp(self, x, weights, path):
        gate, up = (x @ weights[f"{path}.{name}_proj.weight"].T for name in ("gate", "up"))
        return (jax.nn.silu(gate) * up) @ weights[f"{path}.down_proj.weight"].T

    def loss(self, weights, ids, labels):
        between = self.shardings.between
        x = between(weights["model.embed_tokens.weight"][ids])
        for i in range(self.layers):
            path = f"model.layers.{i}"
            normed = self.norm(x, weights[f"{path}.input_layernorm.weight"])
            x = between(x + self.attention(normed, weights, f"{path}.self_attn"))
            normed = self.norm(x, weights[f"{path}.post_attention_layernorm.weight"])
            x = between(x + self.mlp(normed, weights, f"{path}.mlp"))
        logits = self.norm(x, weights["model.norm.weight"]) @ weights["lm_head.weight"].T
        logits = logits.astype(jnp.float32)
        # Not a gather: the vocabulary is split.
        chosen = labels[..., None] == jnp.arange(logits.shape[-1])
        own = jnp.sum(jnp.where(chosen, logits, 0), -1)
        valid = labels != NO_LABEL
        return jnp.sum((jax.nn.logsumexp(logits, -1) - own) * valid) / jnp.sum(valid)


def adamw(state, gradients, count):
    """Masters and moments of f32, after one step; without weight decay."""
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gradients.values()))
    scale = jnp.where(norm > MAX_NORM, MAX_NORM / (norm + 1e-6), 1.0)
    out = {}
    for name, (master, first, second) in state.items():
        g = gradients[name] * scale
        first = BETA_1 * first + (1 - BETA_1) * g
        second = BETA_2 * second + (1 - BETA_2) * g * g
        rate = LEARNING_RATE / (1 - BETA_1 ** count)
        root = jnp.sqrt(second / (1 - BETA_2 ** count)) + EPSILON
        out[name] = (master - rate * first / root, first, second)
    return out


class Trainer:
    def __init__(self, arguments, config):
        shardings = Shardings(arguments.mode)
        dtype = jnp.float32 if arguments.dtype == "f32" else jnp.bfloat16
        llama = Llama(config, shardings, arguments.sequence, dtype)

        def put(array, sharding):
            return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

        read = read_safetensors(arguments.weights, view)
        places = {name: shardings.state(name, array.shape) for name, array in read.items()}
        self.state = {name: tuple(put(part, places[name])
                                  for part in (array, np.zeros_like(array), np.zeros_like(array)))
                      for name, array in read.items()}
        copies = 1 if shardings.tensor else shardings.mesh.size
        ids = np.array(make_ids(config["vocab_size"], arguments.batch, arguments.sequence) * copies)
        labels = np.full_like(ids, NO_LABEL)
        labels[:, :-1] = ids[:, 1:]
        self.ids, self.labels = (put(x, shardings.batch()) for x in (ids, labels))
        self.count = 0

        def step(state, ids, labels, count):
            def loss_of(masters):
                weights = {name: jax.lax.with_sharding_constraint(
                    m if "norm" in name else m.astype(dtype), shardings.weight(name))
                           for name, m in masters.items()}
                return llama.loss(weights, ids, labels)

            masters = {name: parts[0] for name, parts in state.items()}
            loss, gradients = jax.value_and_grad(loss_of)(masters)
            return adamw(state, gradients, count), loss

        three = {name: (place,) * 3 for name, place in places.items()}
        self.train = jax.jit(step, donate_argnums=0, out_shardings=(three, shardings.of()))

    def step(self):
        self.count += 1
        self.state, loss = self.train(self.state, self.ids, self.labels, float(self.count))
        loss = float(loss)
        jax.block_until_ready(self.state)
        return loss


def main():
    arguments = parse_arguments()
    compiles = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiles.append(seconds) if event == COMPILE_EVENT else None)
    if SIZE > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(meet(arguments.init), num_processes=SIZE, process_id=RANK)
    with open(arguments.config, encoding="utf-8") as file:
        config = json.load(file)
    result = measure(Trainer(arguments, config).step, arguments.steps)
    if RANK == 0:
        print(json.dumps({**result, "version": jax.__version__, "compile_s": sum(compiles)}),
              flush=True)
    if SIZE > 1:
        jax.distributed.shutdown()


if __name__ == "__main__":
    main()

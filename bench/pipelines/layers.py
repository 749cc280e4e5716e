"""Models of the library's layers that are drawn by a seed, over any layout: the same on one rank."""
import random

import nxd
from nxd import ops

VOCABULARY, WIDTH = 12, 24


class Block(nxd.Module):
    """A residual of what a subclass makes. make(kind, ..., **options) gives a layer in the model's dtype and place."""

    def __init__(self, context, r, make):
        super().__init__(context)
        self.build(r, make)

    def layer(self, name, layer):
        return self.add_child(name, layer)

    def forward(self, x):
        return x + self.inner(x)


ACTIVATIONS = {"tanh": ops.tanh, "relu": ops.relu, "silu": ops.silu, "gelu": ops.gelu}


class Mlp(Block):
    """A column-parallel layer and the row-parallel one that takes its parts."""

    def build(self, r, make):
        features, bias = r.choice([12, 24, 36]), r.choice([True, False])
        self.activation = ACTIVATIONS[r.choice(sorted(ACTIVATIONS))]
        self.up = self.layer("up", make("ColumnParallelLinear", WIDTH, features, gather_output=False, bias=bias))
        self.down = self.layer("down", make("RowParallelLinear", features, WIDTH, input_is_parallel=1, bias=bias))

    def inner(self, x):
        return self.down(self.activation(self.up(x)))


class Fused(Block):
    """Two products of one fused weight, whose parts are dropped, and a bias that is added outside of its layer."""

    def build(self, r, make):
        self.up = self.layer("up", make("ColumnParallelLinear", WIDTH, 24, gather_output=False, stride=2, bias=False))
        self.drop = self.layer("drop", make("Dropout", r.choice([0.0, 0.2]), shard_dim=2))
        self.down = self.layer("down", make("RowParallelLinear", 12, WIDTH, input_is_parallel=1, skip_bias_add=1))

    def inner(self, x):
        gate, up = ops.chunk(self.up(x), 2, 2)
        y, bias = self.down(self.drop(ops.silu(gate) * up), num_outputs=2)
        return y * 0.5 + bias


class Sequenced(Block):
    """Sequence parallelism between two mappings."""

    def build(self, r, make):
        options = {"sequence_parallel": 1}
        self.norm = self.layer("norm", make(r.choice(["RmsNorm", "LayerNorm"]), WIDTH, **options))
        options["sequence_dim"] = 1
        self.up = self.layer("up", make("ColumnParallelLinear", WIDTH, 12, gather_output=False, **options))
        self.down = self.layer("down", make("RowParallelLinear", 12, WIDTH, input_is_parallel=1, **options))

    def inner(self, x):
        part = nxd.scatter_to_sequence_region(self.context, x, 1)
        part = self.down(ops.tanh(self.up(self.norm(part))))
        return nxd.gather_from_sequence_region(self.context, part, 1, False)


class Queried(Block):
    """An attention of its own over the library's queries, keys and values."""

    def build(self, r, make):
        self.qkv = self.layer("qkv", make("QkvLinear", WIDTH, 12, fusion=r.choice(["SEPARATE", "BY_PART", "BY_HEAD"])))
        self.rotary = self.layer("rotary", nxd.RotaryEmbedding(self.context, 2)) if r.random() < 0.5 else None
        self.out = self.layer("out", make("RowParallelLinear", 24, WIDTH, input_is_parallel=1))

    def inner(self, x):
        q, k, v = self.qkv(x)
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        q, k, v = (ops.transpose(each, 1, 2, overload="int") for each in (q, k, v))
        scores = ops.softmax(ops.matmul(q, ops.transpose(k, 2, 3, overload="int")) * 0.7, 3, overload="int")
        mixed = ops.transpose(ops.matmul(scores, v), 1, 2, overload="int")
        return self.out(ops.reshape(mixed, [*x.shape[:2], -1]))


SQUARE = nxd.Function("pipelines::square", lambda call, x: (call.save(x), x * x)[1],
                      lambda call, g: g * call.saved(0) * 2, lambda x: x * x)


class Own(Block):
    """A function and a parameter of its own, and a buffer that is read."""

    def build(self, r, make):
        options = make.options
        self.add_parameter("scale", [WIDTH], **options)
        shift = nxd.tensor([0.1 * k for k in range(WIDTH)]).to(options["dtype"]).to_device(options["device"])
        self.add_buffer("shift", shift)

    def inner(self, x):
        scale = self.parameter("scale").tensor
        return SQUARE(ops.tanh(x * scale)) + self.buffer("shift") * 0.1


class Gathered(Block):
    """Whole outputs of a column-parallel layer, and a row-parallel one that takes its part of them itself."""

    def build(self, r, make):
        self.is_replicated = r.random() < 0.3
        self.up = self.layer("up", make("ColumnParallelLinear", WIDTH, 12))
        self.down = self.layer("down", make("Linear" if self.is_replicated else "RowParallelLinear", 12, WIDTH))

    def inner(self, x):
        return self.down(ops.tanh(self.up(x)))


class Gated(Block):
    def build(self, r, make):
        self.norm = self.layer("norm", make("RmsNorm", WIDTH))
        self.mlp = self.layer("mlp", make("GatedMlp", WIDTH, r.choice([12, 20]), bias=r.choice([True, False]),
                                          activation=r.choice(["SILU", "GELU", "GELU_TANH", "RELU"])))

    def inner(self, x):
        return self.mlp(self.norm(x))


class Attending(Block):
    """The library's own attention, of heads that ranks may share unevenly."""

    def build(self, r, make):
        heads = r.choice([4, 6, 8])  # as many as ranks, or more
        self.norm = self.layer("norm", make("LayerNorm", WIDTH))
        self.attention = self.layer("attention", make(
            "Attention", WIDTH, heads, num_kv_heads=r.choice([k for k in range(1, heads + 1) if heads % k == 0]),
            causal=r.choice([True, False]), qkv_bias=r.choice([True, False]), output_bias=r.choice([True, False]),
            **({"rope": {"theta": 100.0}} if WIDTH // heads % 2 == 0 and r.random() < 0.5 else {})))

    def inner(self, x):
        return self.attention(self.norm(x))


class Padded(Block):
    """An attention of its own over parallel layers, whose heads nxd_pad_model pads."""

    def build(self, r, make):
        self.heads, self.size = 3, r.choice([2, 4])
        features, split = self.heads * self.size, {"gather_output": False, "pad": 1}
        self.own = self.heads
        for name in ("q", "k", "v"):
            setattr(self, name, self.layer(name, make("ColumnParallelLinear", WIDTH, features, bias=name != "k", **split)))
        self.out = self.layer("out", make("RowParallelLinear", features, WIDTH, input_is_parallel=1, pad=1))

    def split(self, y):
        batch, length, _ = y.shape
        return ops.transpose(ops.view(y, [batch, length, self.own, self.size]), 1, 2, overload="int")

    def inner(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = ops.softmax(ops.matmul(q, ops.transpose(k, 2, 3, overload="int")), 3, overload="int")
        mixed = ops.transpose(ops.matmul(scores, v), 1, 2, overload="int")
        # The values that padding has here are none of zeros.
        return self.out(ops.sigmoid(ops.reshape(mixed, [*x.shape[:2], self.own * self.size])))


class Dropping(Block):
    def build(self, r, make):
        self.p, self.inside = r.choice([0.0, 0.2]), self.layer("inside", make("Linear", WIDTH, WIDTH))
        self.dropout = self.layer("dropout", make("Dropout", self.p))

    def inner(self, x):
        return self.dropout(self.inside(x))


class Normed(Block):
    """A norm that adds its residual itself."""

    def build(self, r, make):
        self.norm = self.layer("norm", make(r.choice(["LayerNorm", "RmsNorm"]), WIDTH))
        self.linear = self.layer("linear", make("Linear", WIDTH, WIDTH, bias=False))

    def forward(self, x):
        normed, summed = self.norm(self.linear(x), x, num_outputs=2)
        return normed + summed * 0.5


class Deep(Block):
    def build(self, r, make):
        self.parts = [self.layer(str(k), r.choice([Mlp, Gated, Attending])(self.context, r, make.below(str(k))))
                      for k in range(r.choice([1, 2]))]

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x * 0.9


KINDS = [Mlp, Fused, Sequenced, Queried, Own, Gathered, Gated, Attending, Padded, Dropping, Normed, Deep]


class Maker:
    """Makes layers by name: their initial weights follow from the path, whatever rank makes them."""

    def __init__(self, context, path, options):
        self.context, self.path, self.options = context, path, options

    def below(self, name):
        return Maker(self.context, f"{self.path}.{name}" if self.path else name, self.options)

    def __call__(self, kind, *sizes, **options):
        if kind == "Dropout":
            return nxd.Dropout(self.context, *sizes, name=self.path, **options)
        return getattr(nxd, kind)(self.context, *sizes, **self.options, **options)


class Layered(nxd.Module):
    """ids and labels -> the mean loss, and the states below the head."""

    def __init__(self, context, seed, dtype, device):
        super().__init__(context, num_outputs=2)
        r = random.Random(seed)
        make = Maker(context, "", {"dtype": dtype, "device": device})
        across = r.random() < 0.2
        self.embedding = self.add_child("embedding", make(
            "ParallelEmbedding", VOCABULARY, WIDTH, shard_across_embedding=across,
            **({"has_padding_idx": 1, "padding_idx": 3} if r.random() < 0.2 else {})))
        self.blocks = [self.add_child(f"block{k}", r.choice(KINDS)(context, r, make.below(f"block{k}")))
                       for k in range(r.choice([3, 4, 5, 6]))]
        self.norm = self.add_child("norm", make("LayerNorm", WIDTH))
        self.head = self.add_child("head", make("ColumnParallelLinear", WIDTH, VOCABULARY, bias=False,
                                                gather_output=False))
        self.shared = self.add_child("shared", Mlp(context, r, make.below("shared"))) if r.random() < 0.3 else None
        self.is_fused, self.smoothing = r.random() < 0.3, r.choice([0.0, 0.0, 0.1])
        if r.random() < 0.4 and not across:
            self.tie("embedding.weight", "head.weight")
        self.initialize(seed)

    @property
    def places(self):
        return ["embedding", *(f"block{k}" for k in range(len(self.blocks)))]

    def forward(self, ids, labels):
        x = self.embedding(ids)
        if self.shared is not None:
            x = self.shared(x)
        for block in self.blocks:
            x = block(x)
        if self.shared is not None:
            x = self.shared(x)
        x = self.norm(x)
        options = {"label_smoothing": self.smoothing}
        if self.is_fused:
            weight = self.parameter("head.weight").tensor
            return nxd.linear_cross_entropy(self.context, x, weight, labels, **options), x
        return nxd.parallel_cross_entropy(self.context, self.head(x), labels, **options), x

    def pad_heads(self, degree):
        """Has all ranks the same number of heads."""
        ranks = self.context.parallel_size("TENSOR")

        def tell(module, _, padded):
            if isinstance(module, Padded):
                module.own = padded // ranks

        if any(isinstance(block, Padded) for block in self.blocks):
            self.pad(degree, 3, ["Padded"], tell)

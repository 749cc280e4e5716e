"""Layers and models: modules over the tensor-parallel group, with forwards of the library's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nxd._handle import Struct, c_path, c_text, get, pointers, whole
from nxd.errors import check
from nxd.module import Module
from nxd.raw import engine, ffi

if TYPE_CHECKING:
    from typing import Unpack

    from nxd._raw import AttentionOptions, EmbeddingOptions, LinearOptions, MlpOptions, \
        ModelOptions, NormOptions, QkvOptions, RopeOptions
    from nxd.context import Context


def number_of_extra_heads(num_heads: int, tp_degree: int) -> int:
    """Heads that are to be added to num_heads for a multiple of tp_degree."""
    return get("int64_t*", engine.nxd_get_number_of_extra_heads, whole(num_heads),
               whole(tp_degree))


class Layer(Module):
    """A module that the library makes."""

    def __init__(self, context: Context, create: str, *arguments: Any) -> None:
        out = ffi.new("nxd_module_t**")
        given = [a if isinstance(a, (bytes, float)) else whole(a) for a in arguments]
        check(getattr(engine, f"nxd_{create}")(context.pointer, *given, out))
        self._adopt(out[0], context, None)


class ParallelEmbedding(Layer):
    """ids [...] -> [..., embedding_dim]; the table's rows are split over ranks."""

    def __init__(self, context: Context, num_embeddings: int, embedding_dim: int,
                 **options: Unpack[EmbeddingOptions]) -> None:
        struct = Struct("nxd_embedding_options_t", options, engine)
        super().__init__(context, "layer_create_parallel_embedding", num_embeddings, embedding_dim,
                         struct.pointer)


class ColumnParallelLinear(Layer):
    """x [..., in] -> [..., out / ranks], or [..., out] with gather_output."""

    def __init__(self, context: Context, in_features: int, out_features: int,
                 **options: Unpack[LinearOptions]) -> None:
        struct = Struct("nxd_linear_options_t", options, engine)
        super().__init__(context, "layer_create_column_parallel_linear", in_features, out_features,
                         struct.pointer)


class RowParallelLinear(Layer):
    """x [..., in / ranks] with input_is_parallel -> [..., out], summed over ranks."""

    def __init__(self, context: Context, in_features: int, out_features: int,
                 **options: Unpack[LinearOptions]) -> None:
        struct = Struct("nxd_linear_options_t", options, engine)
        super().__init__(context, "layer_create_row_parallel_linear", in_features, out_features,
                         struct.pointer)


class Linear(Layer):
    """x [..., in] -> [..., out]; each rank has all of it."""

    def __init__(self, context: Context, in_features: int, out_features: int,
                 **options: Unpack[LinearOptions]) -> None:
        struct = Struct("nxd_linear_options_t", options, engine)
        super().__init__(context, "layer_create_linear", in_features, out_features, struct.pointer)


class Sequential(Layer):
    """Calls its children in order; they are named "0", "1" and so on."""

    def __init__(self, context: Context, *children: Module, num_outputs: int = 1) -> None:
        super().__init__(context, "module_create_sequential", pointers("nxd_module_t", children),
                         len(children))
        self._children = {str(i): child for i, child in enumerate(children)}
        self.num_outputs = num_outputs


class LayerNorm(Layer):
    """x [..., size], and optionally a residual to add first -> the normalised sum."""

    def __init__(self, context: Context, size: int, **options: Unpack[NormOptions]) -> None:
        struct = Struct("nxd_norm_options_t", options, engine)
        super().__init__(context, "layer_create_layer_norm", size, struct.pointer)


class RmsNorm(Layer):
    """As LayerNorm, by the root mean square."""

    def __init__(self, context: Context, size: int, **options: Unpack[NormOptions]) -> None:
        struct = Struct("nxd_norm_options_t", options, engine)
        super().__init__(context, "layer_create_rms_norm", size, struct.pointer)


class RotaryEmbedding(Layer):
    """Rotates query or key heads [batch, sequence, heads, head_dim] by their position."""

    def __init__(self, context: Context, head_dim: int, **options: Unpack[RopeOptions]) -> None:
        struct = Struct("nxd_rope_options_t", options, engine)
        super().__init__(context, "layer_create_rotary_embedding", head_dim, struct.pointer)


class Attention(Layer):
    """Self-attention with heads split over ranks; rope is a dictionary of RopeOptions."""

    def __init__(self, context: Context, hidden: int, num_heads: int,
                 **options: Unpack[AttentionOptions]) -> None:
        given: dict[str, Any] = {**options}
        if isinstance(given.get("rope"), dict):
            given["rope"] = Struct("nxd_rope_options_t", given["rope"], engine)
        struct = Struct("nxd_attention_options_t", given, engine)
        super().__init__(context, "layer_create_attention", hidden, num_heads, struct.pointer)


class QkvLinear(Layer):
    """Queries, keys and values for attention: three outputs [..., heads, head_dim]."""

    def __init__(self, context: Context, hidden: int, num_heads: int,
                 **options: Unpack[QkvOptions]) -> None:
        struct = Struct("nxd_qkv_options_t", options, engine)
        super().__init__(context, "layer_create_qkv_linear", hidden, num_heads, struct.pointer)
        self.num_outputs = 3


class GatedMlp(Layer):
    """down_proj(activation(gate_proj(x)) * up_proj(x)), split over ranks."""

    def __init__(self, context: Context, hidden: int, intermediate: int,
                 **options: Unpack[MlpOptions]) -> None:
        struct = Struct("nxd_mlp_options_t", options, engine)
        super().__init__(context, "layer_create_gated_mlp", hidden, intermediate, struct.pointer)


class Dropout(Layer):
    """In training zeroes elements with probability p, by the name of the site."""

    def __init__(self, context: Context, p: float, name: str, shard_dim: int = -1) -> None:
        probability = ffi.new("double*", p)[0]
        super().__init__(context, "layer_create_dropout", probability, c_text(name), shard_dim)


class Model(Layer):
    """A model of a Hugging Face configuration, such as a Llama or GPT-2: (ids) -> logits,
    (ids, labels) -> loss. A BERT has inputs of its own; the page about models tells them.

    With from_pretrained the text is a directory, whose config.json and safetensors are read.
    """

    def __init__(self, context: Context, config_json: str, *, from_pretrained: bool = False,
                 **options: Unpack[ModelOptions]) -> None:
        struct = Struct("nxd_model_options_t", options, engine)
        super().__init__(context, "model_from_pretrained" if from_pretrained else "model_create",
                         c_text(str(config_json)), struct.pointer)

    @classmethod
    def from_pretrained(cls, context: Context, directory: str,
                        **options: Unpack[ModelOptions]) -> Model:
        """The model of a directory's config.json, with its safetensors loaded strictly."""
        return cls(context, directory, from_pretrained=True, **options)

    def step_flops(self, batch: int, sequence: int) -> float:
        """Floating-point operations of one training step, all ranks together."""
        return get("double*", engine.nxd_model_get_step_flops, self.pointer, whole(batch),
                   whole(sequence))


class TorchScript(Layer):
    """A module of a file of torch.jit.save, which is to be trusted: its forward is a program."""

    def __init__(self, context: Context, path: str, num_outputs: int = 1) -> None:
        super().__init__(context, "model_from_torchscript", c_path(path))
        self.num_outputs = num_outputs

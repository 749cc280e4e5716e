# Layers are modules over the tensor-parallel group. Keywords are the fields of the layer's options
# in nxd.h, whose dimensions are those of `shape`. An array x of size (features, ..., batch) is the
# input of shape [batch, ..., features].

layer(create, context, sizes, options) = given(out -> create(context, sizes..., options, out), ModuleNode)

"Heads that are to be added to `num_heads` for a multiple of `tp_degree`."
extra_heads(num_heads::Integer, tp_degree::Integer) =
    Int(value(out -> nxd_get_number_of_extra_heads(num_heads, tp_degree, out), Int64))

"Embedding table split over the tensor-parallel ranks; options: `nxd_embedding_options_t`."
parallel_embedding(context::Context, num_embeddings::Integer, embedding_dim::Integer; options...) =
    layer(nxd_layer_create_parallel_embedding, context, (num_embeddings, embedding_dim),
          Options(nxd_embedding_options_t; options...))

"Linear layer whose output features are split; options: `nxd_linear_options_t`."
column_parallel_linear(context::Context, in_features::Integer, out_features::Integer; options...) =
    layer(nxd_layer_create_column_parallel_linear, context, (in_features, out_features),
          Options(nxd_linear_options_t; options...))

"Linear layer whose input features are split; options: `nxd_linear_options_t`."
row_parallel_linear(context::Context, in_features::Integer, out_features::Integer; options...) =
    layer(nxd_layer_create_row_parallel_linear, context, (in_features, out_features),
          Options(nxd_linear_options_t; options...))

"Linear layer that each rank has all of; options: `nxd_linear_options_t`."
linear(context::Context, in_features::Integer, out_features::Integer; options...) =
    layer(nxd_layer_create_linear, context, (in_features, out_features),
          Options(nxd_linear_options_t; options...))

"Layer normalisation over the features; options: `nxd_norm_options_t`."
layer_norm(context::Context, features::Integer; options...) =
    layer(nxd_layer_create_layer_norm, context, (features,), Options(nxd_norm_options_t; options...))

"Root-mean-square normalisation over the features; options: `nxd_norm_options_t`."
rms_norm(context::Context, features::Integer; options...) =
    layer(nxd_layer_create_rms_norm, context, (features,), Options(nxd_norm_options_t; options...))

"Rotary position embedding of heads; options: `nxd_rope_options_t`."
rotary_embedding(context::Context, head_dim::Integer; options...) =
    layer(nxd_layer_create_rotary_embedding, context, (head_dim,), Options(nxd_rope_options_t; options...))

"Self-attention, heads split over the ranks; options: `nxd_attention_options_t`, `rope` a named tuple."
function attention(context::Context, hidden::Integer, num_heads::Integer; rope = nothing, options...)
    turned = rope === nothing ? nothing : Options(nxd_rope_options_t; rope...)
    layer(nxd_layer_create_attention, context, (hidden, num_heads),
          Options(nxd_attention_options_t; rope = turned, options...))
end

"Queries, keys and values for attention, heads split over the ranks; options: `nxd_qkv_options_t`."
qkv_linear(context::Context, hidden::Integer, num_heads::Integer; options...) =
    layer(nxd_layer_create_qkv_linear, context, (hidden, num_heads), Options(nxd_qkv_options_t; options...))

"Gated MLP split over the ranks; options: `nxd_mlp_options_t`."
gated_mlp(context::Context, hidden::Integer, intermediate::Integer; options...) =
    layer(nxd_layer_create_gated_mlp, context, (hidden, intermediate), Options(nxd_mlp_options_t; options...))

"Dropout whose bits depend on the seed, the name, the element, the step and the microbatch alone."
dropout(context::Context, p::Real, name::AbstractString; shard_dim::Integer = -1) =
    given(out -> nxd_layer_create_dropout(context, p, name, shard_dim, out), ModuleNode)

"""
    model(context, config_json; dtype, device, sequence_parallel)

A model of a Hugging Face configuration, such as of a "llama", initialised with the context's seed.
"""
model(context::Context, config_json::AbstractString; options...) = given(ModuleNode) do out
    nxd_model_create(context, config_json, Options(nxd_model_options_t; options...), out)
end

"A model of a directory's config.json with its safetensors loaded."
from_pretrained(context::Context, directory::AbstractString; options...) = given(ModuleNode) do out
    nxd_model_from_pretrained(context, directory, Options(nxd_model_options_t; options...), out)
end

"A module of a file of torch.jit.save, which is to be trusted: its forward is a program."
from_torchscript(context::Context, path::AbstractString) =
    given(out -> nxd_model_from_torchscript(context, path, out), ModuleNode)

"Writes a module of such a file back, with its values as they are now."
save_torchscript(root::ModuleNode, path::AbstractString) =
    check(nxd_model_save_torchscript(root, path))

"Floating-point operations of one training step of a built-in model, all ranks together."
step_flops(model::ModuleNode, batch::Integer, sequence::Integer) =
    value(out -> nxd_model_get_step_flops(model, batch, sequence, out), Cdouble)

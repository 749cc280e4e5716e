// nxd/layers.h: layers.
#include "capi/engine_handles.h"
#include "core/base/last_error.h"
#include "engine/layers/attention.h"
#include "engine/layers/dropout.h"
#include "engine/layers/gated_mlp.h"
#include "engine/layers/norm.h"
#include "engine/layers/pad_model.h"
#include "engine/layers/parallel_embedding.h"
#include "engine/layers/parallel_linear.h"
#include "engine/layers/qkv_linear.h"
#include "engine/layers/replicated_linear.h"
#include "engine/layers/rotary_embedding.h"

using namespace nxd;

namespace {

const nxd_embedding_options_t kEmbedding = NXD_EMBEDDING_OPTIONS_INIT;
const nxd_linear_options_t kLinear = NXD_LINEAR_OPTIONS_INIT;
const nxd_norm_options_t kNorm = NXD_NORM_OPTIONS_INIT;
const nxd_rope_options_t kRope = NXD_ROPE_OPTIONS_INIT;
const nxd_attention_options_t kAttention = NXD_ATTENTION_OPTIONS_INIT;
const nxd_qkv_options_t kQkv = NXD_QKV_OPTIONS_INIT;
const nxd_mlp_options_t kMlp = NXD_MLP_OPTIONS_INIT;

// Options as layers have them, with their defaults in.

EmbeddingOptions resolve(const nxd_embedding_options_t& given) {
  EmbeddingOptions out;
  if (flag(given.has_padding_idx, "has_padding_idx")) out.padding_idx = given.padding_idx;
  out.shard_columns = flag(given.shard_across_embedding, "shard_across_embedding");
  out.sequence_dim = given.sequence_dim;
  return out;
}

LinearOptions resolve(const nxd_linear_options_t& given) {
  LinearOptions out;
  out.bias = toggle(given.bias, out.bias, "bias");
  out.gather_output = toggle(given.gather_output, given.sequence_parallel == 0, "gather_output");
  out.reduce_output = toggle(given.reduce_output, out.reduce_output, "reduce_output");
  out.input_is_parallel = flag(given.input_is_parallel, "input_is_parallel");
  out.sequence_dim = given.sequence_dim;
  out.skip_bias_add = flag(given.skip_bias_add, "skip_bias_add");
  out.keep_master_weight = flag(given.keep_master_weight, "keep_master_weight");
  if (given.stride != 0) out.stride = given.stride;
  out.pad = flag(given.pad, "pad");
  return out;
}

NormOptions resolve(const nxd_norm_options_t& given) {
  NormOptions out;
  if (given.eps != 0) out.eps = given.eps;
  out.affine = toggle(given.affine, out.affine, "affine");
  const bool bias = toggle(given.bias, true, "bias");
  if (given.bias != NXD_TOGGLE_DEFAULT) out.bias = bias;
  return out;
}

RopeOptions resolve(const nxd_rope_options_t& given) {
  RopeOptions out;
  const auto set = [](double& value, double other) { value = other != 0 ? other : value; };
  out.type = given.type;
  out.rotary_dim = given.rotary_dim;
  set(out.theta, given.theta);
  set(out.factor, given.factor);
  set(out.low_freq_factor, given.low_freq_factor);
  set(out.high_freq_factor, given.high_freq_factor);
  set(out.beta_fast, given.beta_fast);
  set(out.beta_slow, given.beta_slow);
  out.attention_factor = given.attention_factor;
  out.original_max_position_embeddings = given.original_max_position_embeddings;
  return out;
}

AttentionOptions resolve(const nxd_attention_options_t& given) {
  AttentionOptions out;
  out.kv_heads = given.num_kv_heads;
  out.head_dim = given.head_dim;
  if (given.rope) out.rope = resolve(read_options(given.rope, kRope, "options->rope"));
  out.causal = toggle(given.causal, out.causal, "causal");
  out.qkv_bias = toggle(given.qkv_bias, out.qkv_bias, "qkv_bias");
  out.output_bias = toggle(given.output_bias, out.output_bias, "output_bias");
  return out;
}

QkvOptions resolve(const nxd_qkv_options_t& given) {
  QkvOptions out;
  out.kv_heads = given.num_kv_heads;
  out.head_dim = given.head_dim;
  out.fusion = given.fusion;
  out.bias = toggle(given.bias, out.bias, "bias");
  return out;
}

MlpOptions resolve(const nxd_mlp_options_t& given) {
  return {.activation = given.activation, .bias = toggle(given.bias, false, "bias")};
}

template <class Options>
LayerContext place(const std::shared_ptr<Context>& context, const Options& given) {
  if constexpr (requires { given.dtype; }) {
    LayerContext at = LayerContext::make(context, given.name, given.dtype, given.device,
                                         flag(given.sequence_parallel, "sequence_parallel"));
    if constexpr (requires { given.init; }) at.init = {given.init, given.init_a, given.init_b};
    return at;
  } else {
    return {.context = context};
  }
}

// Reads options, then creates: both may fail, and the output is empty either way.
template <class Layer, class Options, class... Arguments>
nxd_status_t create_with(nxd_context_t* ctx, nxd_module_t** out_module, const Options* options,
                         const Options& defaults, Arguments... arguments) {
  return guard([&] {
    auto& out = output(out_module, "out_module");
    const std::shared_ptr<Context>& context = unwrap(ctx, "ctx");
    const Options known = read_options(options, defaults, "options");
    out = new_handle(std::make_shared<Layer>(place(context, known), arguments..., resolve(known)));
  });
}

template <class Options>
nxd_status_t init(Options* options, size_t size, const Options& defaults) {
  return guard([&] { init_options(options, size, defaults, "options"); });
}

}  // namespace

nxd_status_t nxd_embedding_options_init(nxd_embedding_options_t* options, size_t size) {
  return init(options, size, kEmbedding);
}

nxd_status_t nxd_layer_create_parallel_embedding(nxd_context_t* ctx, int64_t num_embeddings,
                                                 int64_t embedding_dim,
                                                 const nxd_embedding_options_t* options,
                                                 nxd_module_t** out_module) {
  return create_with<ParallelEmbedding>(ctx, out_module, options, kEmbedding, num_embeddings,
                                        embedding_dim);
}

nxd_status_t nxd_linear_options_init(nxd_linear_options_t* options, size_t size) {
  return init(options, size, kLinear);
}

nxd_status_t nxd_layer_create_column_parallel_linear(nxd_context_t* ctx, int64_t in_features,
                                                     int64_t out_features,
                                                     const nxd_linear_options_t* options,
                                                     nxd_module_t** out_module) {
  return create_with<ColumnParallelLinear>(ctx, out_module, options, kLinear, in_features,
                                           out_features);
}

nxd_status_t nxd_layer_create_row_parallel_linear(nxd_context_t* ctx, int64_t in_features,
                                                  int64_t out_features,
                                                  const nxd_linear_options_t* options,
                                                  nxd_module_t** out_module) {
  return create_with<RowParallelLinear>(ctx, out_module, options, kLinear, in_features,
                                        out_features);
}

nxd_status_t nxd_layer_create_linear(nxd_context_t* ctx, int64_t in_features, int64_t out_features,
                                     const nxd_linear_options_t* options,
                                     nxd_module_t** out_module) {
  return create_with<ReplicatedLinear>(ctx, out_module, options, kLinear, in_features,
                                       out_features);
}

nxd_status_t nxd_module_get_master_weight(nxd_module_t* module, nxd_tensor_t** out_weight) {
  return guard([&] {
    auto& out = output(out_weight, "out_weight");
    auto* layer = dynamic_cast<ParallelLinearLayer*>(&unwrap(module, "module"));
    check_state(layer != nullptr, "module: only parallel linear layers keep a master weight");
    nxd_tensor& lent = handles_of(*layer).master_weight;
    lent.value = layer->master_weight();
    out = &lent;
  });
}

nxd_status_t nxd_norm_options_init(nxd_norm_options_t* options, size_t size) {
  return init(options, size, kNorm);
}

nxd_status_t nxd_layer_create_layer_norm(nxd_context_t* ctx, int64_t size,
                                         const nxd_norm_options_t* options,
                                         nxd_module_t** out_module) {
  return create_with<LayerNorm>(ctx, out_module, options, kNorm, size);
}

nxd_status_t nxd_layer_create_rms_norm(nxd_context_t* ctx, int64_t size,
                                       const nxd_norm_options_t* options,
                                       nxd_module_t** out_module) {
  return create_with<RmsNorm>(ctx, out_module, options, kNorm, size);
}

nxd_status_t nxd_rope_options_init(nxd_rope_options_t* options, size_t size) {
  return init(options, size, kRope);
}

nxd_status_t nxd_layer_create_rotary_embedding(nxd_context_t* ctx, int64_t head_dim,
                                               const nxd_rope_options_t* options,
                                               nxd_module_t** out_module) {
  return create_with<RotaryEmbedding>(ctx, out_module, options, kRope, head_dim);
}

nxd_status_t nxd_attention_options_init(nxd_attention_options_t* options, size_t size) {
  return init(options, size, kAttention);
}

nxd_status_t nxd_layer_create_attention(nxd_context_t* ctx, int64_t hidden_size, int64_t num_heads,
                                        const nxd_attention_options_t* options,
                                        nxd_module_t** out_module) {
  return create_with<Attention>(ctx, out_module, options, kAttention, hidden_size, num_heads);
}

nxd_status_t nxd_qkv_options_init(nxd_qkv_options_t* options, size_t size) {
  return init(options, size, kQkv);
}

nxd_status_t nxd_layer_create_qkv_linear(nxd_context_t* ctx, int64_t hidden_size, int64_t num_heads,
                                         const nxd_qkv_options_t* options,
                                         nxd_module_t** out_module) {
  return create_with<QkvLinear>(ctx, out_module, options, kQkv, hidden_size, num_heads);
}

nxd_status_t nxd_mlp_options_init(nxd_mlp_options_t* options, size_t size) {
  return init(options, size, kMlp);
}

nxd_status_t nxd_layer_create_gated_mlp(nxd_context_t* ctx, int64_t hidden_size,
                                        int64_t intermediate_size, const nxd_mlp_options_t* options,
                                        nxd_module_t** out_module) {
  return create_with<GatedMlp>(ctx, out_module, options, kMlp, hidden_size, intermediate_size);
}

nxd_status_t nxd_layer_create_dropout(nxd_context_t* ctx, double p, const char* name,
                                      int32_t shard_dim, nxd_module_t** out_module) {
  return guard([&] {
    auto& out = output(out_module, "out_module");
    const LayerContext at{.context = unwrap(ctx, "ctx"), .path = name ? name : ""};
    out = new_handle(std::make_shared<Dropout>(at, p, static_cast<int>(shard_dim)));
  });
}

nxd_status_t nxd_get_number_of_extra_heads(int64_t num_heads, int32_t tp_degree,
                                           int64_t* out_extra) {
  return guard([&] {
    auto& out = output(out_extra, "out_extra");
    out = HeadPadding::make(num_heads, tp_degree).extra();
  });
}

nxd_status_t nxd_pad_model(nxd_module_t* root, int32_t tp_degree, int64_t num_heads,
                           const char* const* wrapped_classes, size_t num_wrapped_classes,
                           nxd_pad_hook_fn hook, void* user_data) {
  return guard([&] {
    const std::shared_ptr<Module> self = hold(root, "root");
    PadRequest request{tp_degree, num_heads};
    const Outcome given = Outcome::of(self->context()->rank(), [&] {
      request.wrapped_classes =
          unwrap_texts(wrapped_classes, num_wrapped_classes, "wrapped_classes");
    });
    if (hook) {
      request.hook = [hook, user_data](Module& module, const HeadPadding& heads) {
        nxd_module_t* const own = borrow_module(module);
        CallbackWatch().run([&] { return hook(own, heads.heads, heads.padded_heads, user_data); },
                            (module.class_name() + ": pad hook").c_str());
      };
    }
    pad_model(*self, request, given);
  });
}

// nxd/layers.h: layers.
#include "capi/engine_handles.h"
#include "core/base/last_error.h"
#include "engine/layers/attention.h"
#include "engine/layers/dropout.h"
#include "engine/layers/gated_mlp.h"
#include "engine/layers/norm.h"
#include "engine/layers/parallel_embedding.h"
#include "engine/layers/parallel_linear.h"
#include "engine/layers/rotary_embedding.h"

using namespace nxd;

namespace {

const nxd_embedding_options_t kEmbedding = NXD_EMBEDDING_OPTIONS_INIT;
const nxd_linear_options_t kLinear = NXD_LINEAR_OPTIONS_INIT;
const nxd_norm_options_t kNorm = NXD_NORM_OPTIONS_INIT;
const nxd_rope_options_t kRope = NXD_ROPE_OPTIONS_INIT;
const nxd_attention_options_t kAttention = NXD_ATTENTION_OPTIONS_INIT;
const nxd_mlp_options_t kMlp = NXD_MLP_OPTIONS_INIT;

template <class Layer, class... Arguments>
nxd_status_t create(nxd_context_t* ctx, nxd_module_t** out_module, Arguments&&... arguments) {
  return engine_guard([&] {
    auto& out = output(out_module, "out_module");
    const std::shared_ptr<Context>& context = unwrap(ctx, "ctx");
    out = new_handle(std::make_shared<Layer>(context, std::forward<Arguments>(arguments)...));
  });
}

// Reads options, then creates: both may fail, and the output is empty either way.
template <class Layer, class Options, class... Arguments>
nxd_status_t create_with(nxd_context_t* ctx, nxd_module_t** out_module, const Options* options,
                         const Options& defaults, Arguments... arguments) {
  return engine_guard([&] {
    auto& out = output(out_module, "out_module");
    const std::shared_ptr<Context>& context = unwrap(ctx, "ctx");
    out = new_handle(
        std::make_shared<Layer>(context, arguments..., read_options(options, defaults, "options")));
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

nxd_status_t nxd_parallel_embedding_create(nxd_context_t* ctx, int64_t num_embeddings,
                                           int64_t embedding_dim,
                                           const nxd_embedding_options_t* options,
                                           nxd_module_t** out_module) {
  return create_with<ParallelEmbedding>(ctx, out_module, options, kEmbedding, num_embeddings,
                                        embedding_dim);
}

nxd_status_t nxd_linear_options_init(nxd_linear_options_t* options, size_t size) {
  return init(options, size, kLinear);
}

nxd_status_t nxd_column_parallel_linear_create(nxd_context_t* ctx, int64_t in_features,
                                               int64_t out_features,
                                               const nxd_linear_options_t* options,
                                               nxd_module_t** out_module) {
  return create_with<ColumnParallelLinear>(ctx, out_module, options, kLinear, in_features,
                                           out_features);
}

nxd_status_t nxd_row_parallel_linear_create(nxd_context_t* ctx, int64_t in_features,
                                            int64_t out_features,
                                            const nxd_linear_options_t* options,
                                            nxd_module_t** out_module) {
  return create_with<RowParallelLinear>(ctx, out_module, options, kLinear, in_features,
                                        out_features);
}

nxd_status_t nxd_module_get_master_weight(nxd_module_t* module, nxd_tensor_t** out_weight) {
  return engine_guard([&] {
    auto& out = output(out_weight, "out_weight");
    auto* layer = dynamic_cast<ParallelLinearLayer*>(&unwrap(module, "module"));
    check_state(layer != nullptr, "module: only parallel linear layers keep a master weight");
    out = layer->master_weight_handle();
  });
}

nxd_status_t nxd_norm_options_init(nxd_norm_options_t* options, size_t size) {
  return init(options, size, kNorm);
}

nxd_status_t nxd_layer_norm_create(nxd_context_t* ctx, int64_t size,
                                   const nxd_norm_options_t* options, nxd_module_t** out_module) {
  return create_with<LayerNorm>(ctx, out_module, options, kNorm, size);
}

nxd_status_t nxd_rms_norm_create(nxd_context_t* ctx, int64_t size,
                                 const nxd_norm_options_t* options, nxd_module_t** out_module) {
  return create_with<RmsNorm>(ctx, out_module, options, kNorm, size);
}

nxd_status_t nxd_rope_options_init(nxd_rope_options_t* options, size_t size) {
  return init(options, size, kRope);
}

nxd_status_t nxd_rotary_embedding_create(nxd_context_t* ctx, int64_t head_dim,
                                         const nxd_rope_options_t* options,
                                         nxd_module_t** out_module) {
  return create_with<RotaryEmbedding>(ctx, out_module, options, kRope, head_dim);
}

nxd_status_t nxd_attention_options_init(nxd_attention_options_t* options, size_t size) {
  return init(options, size, kAttention);
}

nxd_status_t nxd_attention_create(nxd_context_t* ctx, int64_t hidden, int64_t n_heads,
                                  const nxd_attention_options_t* options,
                                  nxd_module_t** out_module) {
  return engine_guard([&] {
    auto& out = output(out_module, "out_module");
    const std::shared_ptr<Context>& context = unwrap(ctx, "ctx");
    nxd_attention_options_t resolved = read_options(options, kAttention, "options");
    nxd_rope_options_t rope = kRope;
    if (resolved.rope) {
      rope = read_options(resolved.rope, kRope, "options->rope");
      resolved.rope = &rope;
    }
    out = new_handle(std::make_shared<Attention>(context, hidden, n_heads, resolved));
  });
}

nxd_status_t nxd_mlp_options_init(nxd_mlp_options_t* options, size_t size) {
  return init(options, size, kMlp);
}

nxd_status_t nxd_gated_mlp_create(nxd_context_t* ctx, int64_t hidden, int64_t intermediate,
                                  const nxd_mlp_options_t* options, nxd_module_t** out_module) {
  return create_with<GatedMlp>(ctx, out_module, options, kMlp, hidden, intermediate);
}

nxd_status_t nxd_dropout_create(nxd_context_t* ctx, double p, const char* name, int32_t shard_dim,
                                nxd_module_t** out_module) {
  return create<Dropout>(ctx, out_module, p, std::string(name ? name : ""),
                         static_cast<int>(shard_dim));
}

// nxd/tensor_parallel.h: layers over buffers.
#include "capi/layer_calls.h"
#include "capi/loss_options.h"
#include "core/tensor_parallel/column_linear.h"
#include "core/tensor_parallel/parallel_cross_entropy.h"
#include "core/tensor_parallel/region_mapping.h"
#include "core/tensor_parallel/row_linear.h"
#include "core/tensor_parallel/vocab_parallel_embedding.h"

using namespace nxd;

namespace {

const nxd_column_linear_options_t kColumnDefaults = NXD_COLUMN_LINEAR_OPTIONS_INIT;
const nxd_row_linear_options_t kRowDefaults = NXD_ROW_LINEAR_OPTIONS_INIT;
const nxd_vocab_parallel_embedding_options_t kEmbeddingDefaults =
    NXD_VOCAB_PARALLEL_EMBEDDING_OPTIONS_INIT;
const nxd_parallel_cross_entropy_options_t kLossDefaults = NXD_PARALLEL_CROSS_ENTROPY_OPTIONS_INIT;

// The fields that both kinds have.
template <class Options>
LinearCallOptions resolve_common(const Options& given) {
  LinearCallOptions options;
  options.sequence_parallel = flag(given.sequence_parallel, "sequence_parallel");
  options.sequence_dim = given.sequence_dim;
  options.transposed_weight = flag(given.transposed_weight, "transposed_weight");
  options.accumulate_grads = flag(given.accumulate_grads, "accumulate_grads");
  options.workspace = workspace_of(given);
  return options;
}

LinearCallOptions resolve(const nxd_column_linear_options_t* given) {
  const auto known = read_options(given, kColumnDefaults, "options");
  LinearCallOptions options = resolve_common(known);
  options.gather_output = flag(known.gather_output, "gather_output");
  return options;
}

LinearCallOptions resolve(const nxd_row_linear_options_t* given) {
  const auto known = read_options(given, kRowDefaults, "options");
  LinearCallOptions options = resolve_common(known);
  options.input_is_parallel = toggle(known.input_is_parallel, true, "input_is_parallel");
  return options;
}

VocabEmbeddingOptions resolve(const nxd_vocab_parallel_embedding_options_t* given) {
  const auto known = read_options(given, kEmbeddingDefaults, "options");
  VocabEmbeddingOptions options;
  options.num_embeddings = known.num_embeddings;
  if (flag(known.has_padding_idx, "has_padding_idx")) options.padding_idx = known.padding_idx;
  options.sequence_parallel = flag(known.sequence_parallel, "sequence_parallel");
  options.sequence_dim = known.sequence_dim;
  options.accumulate_grads = flag(known.accumulate_grads, "accumulate_grads");
  options.workspace = workspace_of(known);
  return options;
}

VocabLossOptions resolve(const nxd_parallel_cross_entropy_options_t* given) {
  const auto known = read_options(given, kLossDefaults, "options");
  VocabLossOptions options;
  read_loss_formula(known, options);
  options.vocab_size = known.vocab_size;
  options.workspace = workspace_of(known);
  return options;
}

// A caller's arrays, as they are named in a forward and in a backward pass.
struct LinearTensors {
  const DLTensor *x, *weight, *y, *bias;
  const DLTensor *grad_x, *grad_weight, *grad_bias;
  bool backward;

  LinearArrays read(Data data) const {
    const Array in = read_array(x, "x", data);
    return {in,
            {{read_array(weight, "weight", data), read_array(y, backward ? "grad_y" : "y", data),
              read_optional_array(bias, "bias", data),
              read_optional_array(grad_weight, "grad_weight", data),
              read_optional_array(grad_bias, "grad_bias", data)}},
            read_optional_array(grad_x, "grad_x", data)};
  }
};

LinearTensors forward_of(const DLTensor* x, const DLTensor* weight, const DLTensor* bias,
                         const DLTensor* y) {
  return {x, weight, y, bias, nullptr, nullptr, nullptr, false};
}

LinearTensors backward_of(const DLTensor* x, const DLTensor* weight, const DLTensor* grad_y,
                          const DLTensor* grad_x, const DLTensor* grad_weight,
                          const DLTensor* grad_bias) {
  return {x, weight, grad_y, nullptr, grad_x, grad_weight, grad_bias, true};
}

// The same for several weights. Lists of what may be left out may be NULL.
struct LinearsTensors {
  using List = const DLTensor* const*;

  const DLTensor* x;
  List weights, ys;
  size_t count;
  List biases;
  const DLTensor* grad_x;
  List grad_weights, grad_biases;
  bool backward;

  LinearArrays read(Data data) const {
    check_count(count, sizeof *weights, "weights");
    const char* const outputs = backward ? "grad_ys" : "ys";
    check_list(weights, "weights");
    check_list(ys, outputs);
    LinearArrays arrays{
        read_array(x, "x", data), {}, read_optional_array(grad_x, "grad_x", data), true};
    for (size_t i = 0; i < count; ++i) {
      const auto optional = [&](List list, const char* name) {
        return read_optional_array(list ? list[i] : nullptr, text(name, "[", i, "]"), data);
      };
      arrays.weights.push_back({read_array(weights[i], text("weights[", i, "]"), data),
                                read_array(ys[i], text(outputs, "[", i, "]"), data),
                                optional(biases, "biases"), optional(grad_weights, "grad_weights"),
                                optional(grad_biases, "grad_biases")});
    }
    return arrays;
  }

 private:
  void check_list(List list, const char* name) const {
    check_argument(list || count == 0, name, ": expected an array of ", count,
                   " tensors, got NULL");
  }
};

// The same of an embedding.
struct EmbeddingTensors {
  const DLTensor *ids, *weight, *y;
  bool backward;

  VocabEmbeddingArrays read(Data data) const {
    return {read_array(ids, "ids", data),
            read_array(weight, backward ? "grad_weight" : "weight", data),
            read_array(y, backward ? "grad_y" : "y", data)};
  }
};

// The same of a loss.
struct LossTensors {
  const DLTensor *logits, *labels, *statistics, *loss, *grad_logits;
  bool backward;

  VocabLossArrays read(Data data) const {
    VocabLossArrays arrays{read_array(logits, "logits", data), read_array(labels, "labels", data)};
    arrays.statistics = backward ? read_array(statistics, "statistics", data)
                                 : read_optional_array(statistics, "statistics", data);
    arrays.loss =
        backward ? read_optional_array(loss, "grad_loss", data) : read_array(loss, "loss", data);
    if (backward) arrays.grad_logits = read_array(grad_logits, "grad_logits", data);
    return arrays;
  }
};

// With what the context has for all layers.
template <class Options>
auto resolve_in(const Context& context, const Options* given) {
  auto options = resolve(given);
  if constexpr (std::is_same_v<decltype(options), LinearCallOptions>) {
    options.reduce_dtype = context.reduce_dtype();
  }
  return options;
}

template <class Plan, class Tensors, class Options>
nxd_status_t run_plan(nxd_context_t* ctx, const char* operation, const Tensors& tensors,
                      const Options* options) {
  return nxd::run_plan(ctx, operation, [&](const Context& context, const ProcessGroup& group) {
    return Plan(group, tensors.read(Data::kNeeded), resolve_in(context, options));
  });
}

template <class Plan, class Tensors, class Options>
nxd_status_t get_workspace(nxd_context_t* ctx, const Tensors& tensors, const Options* options,
                           size_t* out_bytes) {
  return nxd::get_workspace(ctx, out_bytes, [&](const Context& context, const ProcessGroup& group) {
    auto known = resolve_in(context, options);
    known.workspace = {true, nullptr, 0};
    return Plan(group, tensors.read(Data::kIgnored), known);
  });
}

}  // namespace

nxd_status_t nxd_column_linear_options_init(nxd_column_linear_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kColumnDefaults, "options"); });
}

nxd_status_t nxd_column_linear_forward(nxd_context_t* ctx, const DLTensor* x,
                                       const DLTensor* weight, const DLTensor* bias,
                                       const nxd_column_linear_options_t* options, DLTensor* y) {
  return run_plan<ColumnLinearForward>(ctx, "column_linear_forward", forward_of(x, weight, bias, y),
                                       options);
}

nxd_status_t nxd_column_linear_forward_get_workspace(nxd_context_t* ctx, const DLTensor* x,
                                                     const DLTensor* weight, const DLTensor* bias,
                                                     const nxd_column_linear_options_t* options,
                                                     const DLTensor* y, size_t* out_bytes) {
  return get_workspace<ColumnLinearForward>(ctx, forward_of(x, weight, bias, y), options,
                                            out_bytes);
}

nxd_status_t nxd_column_linear_backward(nxd_context_t* ctx, const DLTensor* x,
                                        const DLTensor* weight, const DLTensor* grad_y,
                                        const nxd_column_linear_options_t* options,
                                        DLTensor* grad_x, DLTensor* grad_weight,
                                        DLTensor* grad_bias) {
  return run_plan<ColumnLinearBackward>(
      ctx, "column_linear_backward", backward_of(x, weight, grad_y, grad_x, grad_weight, grad_bias),
      options);
}

nxd_status_t nxd_column_linear_backward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* grad_y,
    const nxd_column_linear_options_t* options, const DLTensor* grad_x, const DLTensor* grad_weight,
    const DLTensor* grad_bias, size_t* out_bytes) {
  return get_workspace<ColumnLinearBackward>(
      ctx, backward_of(x, weight, grad_y, grad_x, grad_weight, grad_bias), options, out_bytes);
}

nxd_status_t nxd_column_linears_forward(nxd_context_t* ctx, const DLTensor* x,
                                        const DLTensor* const* weights,
                                        const DLTensor* const* biases, size_t num_weights,
                                        const nxd_column_linear_options_t* options,
                                        DLTensor* const* ys) {
  return run_plan<ColumnLinearForward>(
      ctx, "column_linears_forward",
      LinearsTensors{x, weights, ys, num_weights, biases, nullptr, nullptr, nullptr, false},
      options);
}

nxd_status_t nxd_column_linears_forward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* const* weights,
    const DLTensor* const* biases, size_t num_weights, const nxd_column_linear_options_t* options,
    const DLTensor* const* ys, size_t* out_bytes) {
  return get_workspace<ColumnLinearForward>(
      ctx, LinearsTensors{x, weights, ys, num_weights, biases, nullptr, nullptr, nullptr, false},
      options, out_bytes);
}

nxd_status_t nxd_column_linears_backward(nxd_context_t* ctx, const DLTensor* x,
                                         const DLTensor* const* weights,
                                         const DLTensor* const* grad_ys, size_t num_weights,
                                         const nxd_column_linear_options_t* options,
                                         DLTensor* grad_x, DLTensor* const* grad_weights,
                                         DLTensor* const* grad_biases) {
  return run_plan<ColumnLinearBackward>(ctx, "column_linears_backward",
                                        LinearsTensors{x, weights, grad_ys, num_weights, nullptr,
                                                       grad_x, grad_weights, grad_biases, true},
                                        options);
}

nxd_status_t nxd_column_linears_backward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* const* weights,
    const DLTensor* const* grad_ys, size_t num_weights, const nxd_column_linear_options_t* options,
    const DLTensor* grad_x, const DLTensor* const* grad_weights, const DLTensor* const* grad_biases,
    size_t* out_bytes) {
  return get_workspace<ColumnLinearBackward>(
      ctx,
      LinearsTensors{x, weights, grad_ys, num_weights, nullptr, grad_x, grad_weights, grad_biases,
                     true},
      options, out_bytes);
}

nxd_status_t nxd_row_linear_options_init(nxd_row_linear_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kRowDefaults, "options"); });
}

nxd_status_t nxd_row_linear_forward(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight,
                                    const DLTensor* bias, const nxd_row_linear_options_t* options,
                                    DLTensor* y) {
  return run_plan<RowLinearForward>(ctx, "row_linear_forward", forward_of(x, weight, bias, y),
                                    options);
}

nxd_status_t nxd_row_linear_forward_get_workspace(nxd_context_t* ctx, const DLTensor* x,
                                                  const DLTensor* weight, const DLTensor* bias,
                                                  const nxd_row_linear_options_t* options,
                                                  const DLTensor* y, size_t* out_bytes) {
  return get_workspace<RowLinearForward>(ctx, forward_of(x, weight, bias, y), options, out_bytes);
}

nxd_status_t nxd_row_linear_backward(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight,
                                     const DLTensor* grad_y,
                                     const nxd_row_linear_options_t* options, DLTensor* grad_x,
                                     DLTensor* grad_weight, DLTensor* grad_bias) {
  return run_plan<RowLinearBackward>(ctx, "row_linear_backward",
                                     backward_of(x, weight, grad_y, grad_x, grad_weight, grad_bias),
                                     options);
}

nxd_status_t nxd_row_linear_backward_get_workspace(nxd_context_t* ctx, const DLTensor* x,
                                                   const DLTensor* weight, const DLTensor* grad_y,
                                                   const nxd_row_linear_options_t* options,
                                                   const DLTensor* grad_x,
                                                   const DLTensor* grad_weight,
                                                   const DLTensor* grad_bias, size_t* out_bytes) {
  return get_workspace<RowLinearBackward>(
      ctx, backward_of(x, weight, grad_y, grad_x, grad_weight, grad_bias), options, out_bytes);
}

nxd_status_t nxd_vocab_parallel_embedding_options_init(
    nxd_vocab_parallel_embedding_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kEmbeddingDefaults, "options"); });
}

nxd_status_t nxd_vocab_parallel_embedding_forward(
    nxd_context_t* ctx, const DLTensor* ids, const DLTensor* weight,
    const nxd_vocab_parallel_embedding_options_t* options, DLTensor* y) {
  return run_plan<VocabEmbeddingForward>(ctx, "vocab_parallel_embedding_forward",
                                         EmbeddingTensors{ids, weight, y, false}, options);
}

nxd_status_t nxd_vocab_parallel_embedding_forward_get_workspace(
    nxd_context_t* ctx, const DLTensor* ids, const DLTensor* weight,
    const nxd_vocab_parallel_embedding_options_t* options, const DLTensor* y, size_t* out_bytes) {
  return get_workspace<VocabEmbeddingForward>(ctx, EmbeddingTensors{ids, weight, y, false}, options,
                                              out_bytes);
}

nxd_status_t nxd_vocab_parallel_embedding_backward(
    nxd_context_t* ctx, const DLTensor* ids, const DLTensor* grad_y,
    const nxd_vocab_parallel_embedding_options_t* options, DLTensor* grad_weight) {
  return run_plan<VocabEmbeddingBackward>(ctx, "vocab_parallel_embedding_backward",
                                          EmbeddingTensors{ids, grad_weight, grad_y, true},
                                          options);
}

nxd_status_t nxd_vocab_parallel_embedding_backward_get_workspace(
    nxd_context_t* ctx, const DLTensor* ids, const DLTensor* grad_y,
    const nxd_vocab_parallel_embedding_options_t* options, const DLTensor* grad_weight,
    size_t* out_bytes) {
  return get_workspace<VocabEmbeddingBackward>(
      ctx, EmbeddingTensors{ids, grad_weight, grad_y, true}, options, out_bytes);
}

nxd_status_t nxd_parallel_cross_entropy_options_init(nxd_parallel_cross_entropy_options_t* options,
                                                     size_t size) {
  return guard([&] { init_options(options, size, kLossDefaults, "options"); });
}

nxd_status_t nxd_parallel_cross_entropy_forward(nxd_context_t* ctx, const DLTensor* logits,
                                                const DLTensor* labels,
                                                const nxd_parallel_cross_entropy_options_t* options,
                                                DLTensor* statistics, DLTensor* loss) {
  return run_plan<VocabLossForward>(ctx, "parallel_cross_entropy_forward",
                                    LossTensors{logits, labels, statistics, loss, nullptr, false},
                                    options);
}

nxd_status_t nxd_parallel_cross_entropy_forward_get_workspace(
    nxd_context_t* ctx, const DLTensor* logits, const DLTensor* labels,
    const nxd_parallel_cross_entropy_options_t* options, const DLTensor* statistics,
    const DLTensor* loss, size_t* out_bytes) {
  return get_workspace<VocabLossForward>(
      ctx, LossTensors{logits, labels, statistics, loss, nullptr, false}, options, out_bytes);
}

nxd_status_t nxd_parallel_cross_entropy_backward(
    nxd_context_t* ctx, const DLTensor* logits, const DLTensor* labels, const DLTensor* statistics,
    const DLTensor* grad_loss, const nxd_parallel_cross_entropy_options_t* options,
    DLTensor* grad_logits) {
  return run_plan<VocabLossBackward>(
      ctx, "parallel_cross_entropy_backward",
      LossTensors{logits, labels, statistics, grad_loss, grad_logits, true}, options);
}

nxd_status_t nxd_parallel_cross_entropy_backward_get_workspace(
    nxd_context_t* ctx, const DLTensor* logits, const DLTensor* labels, const DLTensor* statistics,
    const DLTensor* grad_loss, const nxd_parallel_cross_entropy_options_t* options,
    const DLTensor* grad_logits, size_t* out_bytes) {
  return get_workspace<VocabLossBackward>(
      ctx, LossTensors{logits, labels, statistics, grad_loss, grad_logits, true}, options,
      out_bytes);
}

nxd_status_t nxd_region_mapping_forward(nxd_context_t* ctx, nxd_region_mapping_t mapping,
                                        int32_t dim, const DLTensor* x, DLTensor* y) {
  return nxd::run_plan(ctx, "region_mapping_forward",
                       [&](const Context&, const ProcessGroup& group) {
                         return RegionMapping(group, region_moves(mapping).forward, dim,
                                              read_array(x, "x", Data::kNeeded),
                                              read_array(y, "y", Data::kNeeded), {"x", "y"});
                       });
}

nxd_status_t nxd_region_mapping_backward(nxd_context_t* ctx, nxd_region_mapping_t mapping,
                                         int32_t dim, const DLTensor* grad_y, DLTensor* grad_x) {
  return nxd::run_plan(
      ctx, "region_mapping_backward", [&](const Context&, const ProcessGroup& group) {
        return RegionMapping(group, region_moves(mapping).backward, dim,
                             read_array(grad_y, "grad_y", Data::kNeeded),
                             read_array(grad_x, "grad_x", Data::kNeeded), {"grad_y", "grad_x"});
      });
}

// nxd/buffer_layers.h: norms, dropout and heads with their loss, over buffers.
#include "capi/layer_calls.h"
#include "capi/loss_options.h"
#include "core/tensor_parallel/dropout.h"
#include "core/tensor_parallel/linear_cross_entropy.h"
#include "core/tensor_parallel/normalization.h"

using namespace nxd;

namespace {

const nxd_normalization_options_t kNormDefaults = NXD_NORMALIZATION_OPTIONS_INIT;
const nxd_dropout_options_t kDropoutDefaults = NXD_DROPOUT_OPTIONS_INIT;
const nxd_linear_cross_entropy_options_t kLinearLossDefaults =
    NXD_LINEAR_CROSS_ENTROPY_OPTIONS_INIT;

NormalizationOptions resolve(const nxd_normalization_options_t* given) {
  const auto known = read_options(given, kNormDefaults, "options");
  NormalizationOptions options;
  if (known.eps != 0) options.eps = known.eps;
  options.sequence_parallel = flag(known.sequence_parallel, "sequence_parallel");
  options.accumulate_grads = flag(known.accumulate_grads, "accumulate_grads");
  options.workspace = workspace_of(known);
  return options;
}

DropoutOptions resolve(const nxd_dropout_options_t* given) {
  const auto known = read_options(given, kDropoutDefaults, "options");
  DropoutOptions options;
  options.p = known.p;
  if (flag(known.has_position, "has_position")) {
    options.position = RandomPosition{known.step, known.microbatch};
  }
  if (flag(known.has_shard_dim, "has_shard_dim")) options.shard_dim = known.shard_dim;
  options.transposed = flag(known.transposed, "transposed");
  options.workspace = workspace_of(known);
  return options;
}

LinearLossOptions resolve(const nxd_linear_cross_entropy_options_t* given) {
  const auto known = read_options(given, kLinearLossDefaults, "options");
  LinearLossOptions options;
  read_loss_formula(known, options);
  options.vocab_size = known.vocab_size;
  options.sequence_parallel = flag(known.sequence_parallel, "sequence_parallel");
  options.sequence_dim = known.sequence_dim;
  options.transposed_weight = flag(known.transposed_weight, "transposed_weight");
  options.accumulate_grads = flag(known.accumulate_grads, "accumulate_grads");
  options.block_tokens = known.block_tokens;
  options.workspace = workspace_of(known);
  return options;
}

// A call of a norm: the arrays that it names, and those of other calls NULL.
struct NormCall {
  NormKind kind;
  bool backward;
  const nxd_normalization_options_t* options;
  const DLTensor *x, *weight, *bias, *y, *statistics;
  const DLTensor *grad_x = nullptr, *grad_weight = nullptr, *grad_bias = nullptr;

  NormalizationArrays read(Data data) const {
    NormalizationArrays arrays{read_array(x, "x", data),
                               read_array(y, backward ? "grad_y" : "y", data)};
    arrays.weight = read_optional_array(weight, "weight", data);
    arrays.bias = read_optional_array(bias, "bias", data);
    arrays.statistics = backward ? read_array(statistics, "statistics", data)
                                 : read_optional_array(statistics, "statistics", data);
    arrays.grad_x = read_optional_array(grad_x, "grad_x", data);
    arrays.grad_weight = read_optional_array(grad_weight, "grad_weight", data);
    arrays.grad_bias = read_optional_array(grad_bias, "grad_bias", data);
    return arrays;
  }

  template <class Plan>
  nxd_status_t run(nxd_context_t* ctx, const char* operation) const {
    return run_plan(ctx, operation, [&](const Context&, const ProcessGroup& group) {
      return Plan(group, kind, read(Data::kNeeded), resolve(options));
    });
  }
  template <class Plan>
  nxd_status_t workspace(nxd_context_t* ctx, size_t* out_bytes) const {
    return get_workspace(ctx, out_bytes, [&](const Context&, const ProcessGroup& group) {
      auto known = resolve(options);
      known.workspace = {true, nullptr, 0};
      return Plan(group, kind, read(Data::kIgnored), known);
    });
  }
};

// The same of a dropout.
struct DropoutCall {
  bool backward;
  const char* name;
  const nxd_dropout_options_t* options;
  const DLTensor *in, *out;

  DropoutPlan plan(const Context& context, const ProcessGroup& group, Data data,
                   const DropoutOptions& known) const {
    check_argument(name, "name: expected the name of a layer, got NULL");
    return {group,
            dropout_site(context, name, known.position),
            backward,
            read_array(in, backward ? "grad_y" : "x", data),
            read_array(out, backward ? "grad_x" : "y", data),
            known};
  }
  nxd_status_t run(nxd_context_t* ctx, const char* operation) const {
    return run_plan(ctx, operation, [&](const Context& context, const ProcessGroup& group) {
      return plan(context, group, Data::kNeeded, resolve(options));
    });
  }
  nxd_status_t workspace(nxd_context_t* ctx, size_t* out_bytes) const {
    return get_workspace(ctx, out_bytes, [&](const Context& context, const ProcessGroup& group) {
      auto known = resolve(options);
      known.workspace = {true, nullptr, 0};
      return plan(context, group, Data::kIgnored, known);
    });
  }
};

// The same of a head with its loss.
struct LinearLossCall {
  bool backward;
  const nxd_linear_cross_entropy_options_t* options;
  const DLTensor *x, *weight, *bias, *labels, *statistics, *loss;
  const DLTensor *grad_x = nullptr, *grad_weight = nullptr, *grad_bias = nullptr;

  LinearLossArrays read(Data data) const {
    LinearLossArrays arrays{read_array(x, "x", data), read_array(weight, "weight", data),
                            read_array(labels, "labels", data)};
    arrays.bias = read_optional_array(bias, "bias", data);
    arrays.statistics = backward ? read_array(statistics, "statistics", data)
                                 : read_optional_array(statistics, "statistics", data);
    arrays.loss =
        backward ? read_optional_array(loss, "grad_loss", data) : read_array(loss, "loss", data);
    arrays.grad_x = read_optional_array(grad_x, "grad_x", data);
    arrays.grad_weight = read_optional_array(grad_weight, "grad_weight", data);
    arrays.grad_bias = read_optional_array(grad_bias, "grad_bias", data);
    return arrays;
  }

  template <class Plan>
  nxd_status_t run(nxd_context_t* ctx, const char* operation) const {
    return run_plan(ctx, operation, [&](const Context& context, const ProcessGroup& group) {
      return Plan(group, read(Data::kNeeded), resolve_in(context));
    });
  }
  template <class Plan>
  nxd_status_t workspace(nxd_context_t* ctx, size_t* out_bytes) const {
    return get_workspace(ctx, out_bytes, [&](const Context& context, const ProcessGroup& group) {
      auto known = resolve_in(context);
      known.workspace = {true, nullptr, 0};
      return Plan(group, read(Data::kIgnored), known);
    });
  }

 private:
  // With what the context has for all layers.
  LinearLossOptions resolve_in(const Context& context) const {
    LinearLossOptions known = resolve(options);
    known.reduce_dtype = context.reduce_dtype();
    return known;
  }
};

}  // namespace

nxd_status_t nxd_normalization_options_init(nxd_normalization_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kNormDefaults, "options"); });
}

nxd_status_t nxd_rms_norm_forward(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight,
                                  const nxd_normalization_options_t* options, DLTensor* y,
                                  DLTensor* statistics) {
  const NormCall call{NormKind::kRms, false, options, x, weight, nullptr, y, statistics};
  return call.run<NormalizationForward>(ctx, "rms_norm_forward");
}

nxd_status_t nxd_rms_norm_forward_get_workspace(nxd_context_t* ctx, const DLTensor* x,
                                                const DLTensor* weight,
                                                const nxd_normalization_options_t* options,
                                                const DLTensor* y, const DLTensor* statistics,
                                                size_t* out_bytes) {
  const NormCall call{NormKind::kRms, false, options, x, weight, nullptr, y, statistics};
  return call.workspace<NormalizationForward>(ctx, out_bytes);
}

nxd_status_t nxd_rms_norm_backward(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight,
                                   const DLTensor* statistics, const DLTensor* grad_y,
                                   const nxd_normalization_options_t* options, DLTensor* grad_x,
                                   DLTensor* grad_weight) {
  const NormCall call{NormKind::kRms, true,   options,    x,      weight,
                      nullptr,        grad_y, statistics, grad_x, grad_weight};
  return call.run<NormalizationBackward>(ctx, "rms_norm_backward");
}

nxd_status_t nxd_rms_norm_backward_get_workspace(nxd_context_t* ctx, const DLTensor* x,
                                                 const DLTensor* weight, const DLTensor* statistics,
                                                 const DLTensor* grad_y,
                                                 const nxd_normalization_options_t* options,
                                                 const DLTensor* grad_x,
                                                 const DLTensor* grad_weight, size_t* out_bytes) {
  const NormCall call{NormKind::kRms, true,   options,    x,      weight,
                      nullptr,        grad_y, statistics, grad_x, grad_weight};
  return call.workspace<NormalizationBackward>(ctx, out_bytes);
}

nxd_status_t nxd_layer_norm_forward(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight,
                                    const DLTensor* bias,
                                    const nxd_normalization_options_t* options, DLTensor* y,
                                    DLTensor* statistics) {
  const NormCall call{NormKind::kLayer, false, options, x, weight, bias, y, statistics};
  return call.run<NormalizationForward>(ctx, "layer_norm_forward");
}

nxd_status_t nxd_layer_norm_forward_get_workspace(nxd_context_t* ctx, const DLTensor* x,
                                                  const DLTensor* weight, const DLTensor* bias,
                                                  const nxd_normalization_options_t* options,
                                                  const DLTensor* y, const DLTensor* statistics,
                                                  size_t* out_bytes) {
  const NormCall call{NormKind::kLayer, false, options, x, weight, bias, y, statistics};
  return call.workspace<NormalizationForward>(ctx, out_bytes);
}

nxd_status_t nxd_layer_norm_backward(nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight,
                                     const DLTensor* statistics, const DLTensor* grad_y,
                                     const nxd_normalization_options_t* options, DLTensor* grad_x,
                                     DLTensor* grad_weight, DLTensor* grad_bias) {
  const NormCall call{NormKind::kLayer, true,       options, x,           weight,   nullptr,
                      grad_y,           statistics, grad_x,  grad_weight, grad_bias};
  return call.run<NormalizationBackward>(ctx, "layer_norm_backward");
}

nxd_status_t nxd_layer_norm_backward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* statistics,
    const DLTensor* grad_y, const nxd_normalization_options_t* options, const DLTensor* grad_x,
    const DLTensor* grad_weight, const DLTensor* grad_bias, size_t* out_bytes) {
  const NormCall call{NormKind::kLayer, true,       options, x,           weight,   nullptr,
                      grad_y,           statistics, grad_x,  grad_weight, grad_bias};
  return call.workspace<NormalizationBackward>(ctx, out_bytes);
}

nxd_status_t nxd_dropout_options_init(nxd_dropout_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kDropoutDefaults, "options"); });
}

nxd_status_t nxd_dropout_forward(nxd_context_t* ctx, const char* name, const DLTensor* x,
                                 const nxd_dropout_options_t* options, DLTensor* y) {
  return DropoutCall{false, name, options, x, y}.run(ctx, "dropout_forward");
}

nxd_status_t nxd_dropout_forward_get_workspace(nxd_context_t* ctx, const char* name,
                                               const DLTensor* x,
                                               const nxd_dropout_options_t* options,
                                               const DLTensor* y, size_t* out_bytes) {
  return DropoutCall{false, name, options, x, y}.workspace(ctx, out_bytes);
}

nxd_status_t nxd_dropout_backward(nxd_context_t* ctx, const char* name, const DLTensor* grad_y,
                                  const nxd_dropout_options_t* options, DLTensor* grad_x) {
  return DropoutCall{true, name, options, grad_y, grad_x}.run(ctx, "dropout_backward");
}

nxd_status_t nxd_dropout_backward_get_workspace(nxd_context_t* ctx, const char* name,
                                                const DLTensor* grad_y,
                                                const nxd_dropout_options_t* options,
                                                const DLTensor* grad_x, size_t* out_bytes) {
  return DropoutCall{true, name, options, grad_y, grad_x}.workspace(ctx, out_bytes);
}

nxd_status_t nxd_linear_cross_entropy_options_init(nxd_linear_cross_entropy_options_t* options,
                                                   size_t size) {
  return guard([&] { init_options(options, size, kLinearLossDefaults, "options"); });
}

nxd_status_t nxd_linear_cross_entropy_forward(nxd_context_t* ctx, const DLTensor* x,
                                              const DLTensor* weight, const DLTensor* bias,
                                              const DLTensor* labels,
                                              const nxd_linear_cross_entropy_options_t* options,
                                              DLTensor* statistics, DLTensor* loss) {
  const LinearLossCall call{false, options, x, weight, bias, labels, statistics, loss};
  return call.run<LinearLossForward>(ctx, "linear_cross_entropy_forward");
}

nxd_status_t nxd_linear_cross_entropy_forward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* bias,
    const DLTensor* labels, const nxd_linear_cross_entropy_options_t* options,
    const DLTensor* statistics, const DLTensor* loss, size_t* out_bytes) {
  const LinearLossCall call{false, options, x, weight, bias, labels, statistics, loss};
  return call.workspace<LinearLossForward>(ctx, out_bytes);
}

nxd_status_t nxd_linear_cross_entropy_backward(nxd_context_t* ctx, const DLTensor* x,
                                               const DLTensor* weight, const DLTensor* bias,
                                               const DLTensor* labels, const DLTensor* statistics,
                                               const DLTensor* grad_loss,
                                               const nxd_linear_cross_entropy_options_t* options,
                                               DLTensor* grad_x, DLTensor* grad_weight,
                                               DLTensor* grad_bias) {
  const LinearLossCall call{true,       options,   x,      weight,      bias,     labels,
                            statistics, grad_loss, grad_x, grad_weight, grad_bias};
  return call.run<LinearLossBackward>(ctx, "linear_cross_entropy_backward");
}

nxd_status_t nxd_linear_cross_entropy_backward_get_workspace(
    nxd_context_t* ctx, const DLTensor* x, const DLTensor* weight, const DLTensor* bias,
    const DLTensor* labels, const DLTensor* statistics, const DLTensor* grad_loss,
    const nxd_linear_cross_entropy_options_t* options, const DLTensor* grad_x,
    const DLTensor* grad_weight, const DLTensor* grad_bias, size_t* out_bytes) {
  const LinearLossCall call{true,       options,   x,      weight,      bias,     labels,
                            statistics, grad_loss, grad_x, grad_weight, grad_bias};
  return call.workspace<LinearLossBackward>(ctx, out_bytes);
}

// nxd/functional.h: region mappings and losses.
#include <tuple>

#include "capi/engine_handles.h"
#include "capi/loss_options.h"
#include "core/base/last_error.h"
#include "engine/functional/cross_entropy.h"
#include "engine/functional/linear_cross_entropy.h"
#include "engine/layers/layer_support.h"
#include "engine/ops/collectives.h"

using namespace nxd;

namespace {

const nxd_cross_entropy_options_t kCrossEntropy = NXD_CROSS_ENTROPY_OPTIONS_INIT;

LossFormula resolve(const nxd_cross_entropy_options_t& options) {
  LossFormula formula;
  read_loss_formula(options, formula);
  return formula;
}

// f: (tensor-parallel group, x) -> y. Peers learn of a missing x or output, and of what `check`
// rejects, where the mapping communicates.
template <class Function, class Check = decltype([] {})>
nxd_status_t map(nxd_context_t* ctx, nxd_tensor_t* x, nxd_tensor_t** out_y, bool communicates,
                 Function&& f, const Check& check = {}, const char* name = __builtin_FUNCTION()) {
  const auto mapped = [&] {
    if (out_y) *out_y = nullptr;
    const GroupRef group = unwrap(ctx, "ctx")->parallel()->group(NXD_AXIS_TENSOR);
    const auto value = [&] {
      output(out_y, "out_y");
      check();
      return unwrap_input(x, "x");
    };
    *out_y = wrap(f(group, communicates ? check_with_group(*group, "mapping", value) : value()));
  };
  return guard(mapped, name);
}

}  // namespace

nxd_status_t nxd_copy_to_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x, nxd_tensor_t** out_y) {
  return map(ctx, x, out_y, false, copy_to_region);
}

nxd_status_t nxd_reduce_from_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                           nxd_tensor_t** out_y) {
  return map(ctx, x, out_y, true, reduce_from_region);
}

nxd_status_t nxd_scatter_to_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                          nxd_tensor_t** out_y) {
  return map(ctx, x, out_y, false, [](const GroupRef& group, const at::Tensor& value) {
    return scatter_to_region(group, value, -1);
  });
}

nxd_status_t nxd_gather_from_tensor_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                           nxd_tensor_t** out_y) {
  return map(ctx, x, out_y, true, [](const GroupRef& group, const at::Tensor& value) {
    return gather_from_region(group, value, -1);
  });
}

nxd_status_t nxd_scatter_to_sequence_region(nxd_context_t* ctx, nxd_tensor_t* x, int32_t dim,
                                            nxd_tensor_t** out_y) {
  return map(ctx, x, out_y, false, [dim](const GroupRef& group, const at::Tensor& value) {
    return scatter_to_region(group, value, dim);
  });
}

nxd_status_t nxd_gather_from_sequence_region(nxd_context_t* ctx, nxd_tensor_t* x, int32_t dim,
                                             int32_t to_model_parallel, nxd_tensor_t** out_y) {
  const auto gather = [=](const GroupRef& group, const at::Tensor& value) {
    return to_model_parallel == 1 ? gather_to_model_parallel(group, value, dim)
                                  : gather_from_region(group, value, dim);
  };
  return map(ctx, x, out_y, true, gather, [&] { flag(to_model_parallel, "to_model_parallel"); });
}

nxd_status_t nxd_reduce_scatter_to_sequence_region(nxd_context_t* ctx, nxd_tensor_t* x, int32_t dim,
                                                   nxd_tensor_t** out_y) {
  return map(ctx, x, out_y, true, [dim](const GroupRef& group, const at::Tensor& value) {
    return reduce_scatter_to_region(group, value, dim);
  });
}

nxd_status_t nxd_cross_entropy_options_init(nxd_cross_entropy_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kCrossEntropy, "options"); });
}

nxd_status_t nxd_parallel_cross_entropy(nxd_context_t* ctx, nxd_tensor_t* logits,
                                        nxd_tensor_t* labels,
                                        const nxd_cross_entropy_options_t* options,
                                        nxd_tensor_t** out_loss) {
  return guard([&] {
    if (out_loss) *out_loss = nullptr;
    const std::shared_ptr<Context>& context = unwrap(ctx, "ctx");
    const GroupRef group = tensor_group(*context);
    const auto [x, targets, resolved] = check_with_group(*group, "parallel_cross_entropy", [&] {
      output(out_loss, "out_loss");
      return std::tuple(unwrap_input(logits, "logits"), unwrap(labels, "labels"),
                        resolve(read_options(options, kCrossEntropy, "options")));
    });
    *out_loss = wrap(parallel_cross_entropy(*context, group, x, targets, resolved));
  });
}

nxd_status_t nxd_linear_cross_entropy(nxd_context_t* ctx, nxd_tensor_t* x, nxd_tensor_t* weight,
                                      nxd_tensor_t* labels, int32_t sequence_dim,
                                      const nxd_cross_entropy_options_t* options,
                                      nxd_tensor_t** out_loss) {
  return guard([&] {
    if (out_loss) *out_loss = nullptr;
    ParallelLinearPlan plan;
    plan.context = unwrap(ctx, "ctx");
    plan.group = tensor_group(*plan.context);
    plan.input = sequence_dim == -1 ? ParallelLinearPlan::Input::kCopy
                                    : ParallelLinearPlan::Input::kGatherSequence;
    plan.dim = sequence_dim;
    const auto [in, w, targets, resolved] =
        check_with_group(*plan.group, "linear_cross_entropy", [&] {
          output(out_loss, "out_loss");
          return std::tuple(unwrap_input(x, "x"), unwrap_input(weight, "weight"),
                            unwrap(labels, "labels"),
                            resolve(read_options(options, kCrossEntropy, "options")));
        });
    *out_loss = wrap(linear_cross_entropy(plan, in, w, at::Tensor(), targets, resolved));
  });
}

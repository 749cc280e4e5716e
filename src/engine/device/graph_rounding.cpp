#include "engine/device/graph_rounding.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/kernels/stochastic_rounding.h"
#include "engine/device/node_replay.h"

namespace nxd {
namespace {

bool gives_bf16(const at::Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == at::kBFloat16;
}

// Their results are numbers of the dtype itself, such as its largest, which those of f32 would be
// rounded away from.
bool asks_for_numbers_of_dtype(const RecordedOperator& op) {
  return op.name == "aten::nan_to_num" || op.name == "aten::nextafter";
}

bool is_dtype_argument(const c10::Argument& argument) {
  const c10::TypePtr type = argument.real_type();
  const auto* optional = type->castRaw<c10::OptionalType>();
  return (optional ? optional->getElementType() : type)->kind() == c10::TypeKind::ScalarTypeType;
}

}  // namespace

std::optional<uint64_t> GraphRounding::seed_of_environment() {
  if (env::get_int("NEURON_RT_STOCHASTIC_ROUNDING_EN").value_or(0) == 0) return std::nullopt;
  const auto seed = env::get_int("NEURON_RT_STOCHASTIC_ROUNDING_SEED");
  return seed ? static_cast<uint64_t>(*seed) : env::seed();
}

GraphRounding::GraphRounding(uint64_t seed, const Numbers& graph)
    : site_(seed, text("rounding of results ", graph.others_)), graph_(graph.effects_) {}

bool GraphRounding::rounds(const RecordedNode& node) {
  const RecordedOperator& op = *node.call->op;
  const bool is_computed = op.replay && !op.is_view && !op.is_effect && !op.reinterprets_memory &&
                           !asks_for_numbers_of_dtype(op);
  return is_computed && !node.inputs.empty() &&
         std::any_of(node.call->results.begin(), node.call->results.end(), gives_bf16);
}

at::Tensor GraphRounding::rounded(const at::Tensor& exact) {
  const at::Tensor dense = exact.contiguous();
  at::Tensor out = at::empty(dense.sizes(), at::kBFloat16);
  const kernels::RoundingSource source{site_.at(graph_, next_++)};
  if (dense.numel() == 0) return out;
  kernels::cast_stochastic(source, dense.numel(), dense.data_ptr<float>(), out.data_ptr());
  return out;
}

std::vector<at::Tensor> GraphRounding::run(const RecordedNode& node,
                                           const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> wide;
  for (const at::Tensor& input : inputs) {
    wide.push_back(gives_bf16(input) ? input.to(at::kFloat) : input);
  }
  torch::jit::Stack arguments = node.call->arguments;
  const auto& declared = node.call->op->replay->schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool asks_for_bf16 = arguments[i].isInt() && is_dtype_argument(declared[i]) &&
                               arguments[i].toInt() == static_cast<int64_t>(at::kBFloat16);
    if (asks_for_bf16) arguments[i] = static_cast<int64_t>(at::kFloat);
  }
  std::vector<at::Tensor> results = call_operator(node, std::move(arguments), wide);
  for (size_t r = 0; r < results.size() && r < node.call->results.size(); ++r) {
    const bool is_exact = results[r].defined() && results[r].scalar_type() == at::kFloat;
    if (gives_bf16(node.call->results[r]) && is_exact) results[r] = rounded(results[r]);
  }
  return results;
}

}  // namespace nxd

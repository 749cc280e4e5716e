#include "engine/stablehlo/lowering.h"

#include <unordered_map>
#include <utility>

#include "core/base/error.h"

namespace nxd {

NodeLowering::NodeLowering(HloBuilder& builder, HloScalars& scalars, const RecordedGraph& graph,
                           size_t index, std::vector<HloValue> inputs, const Lowering& how)
    : hlo(builder),
      node(*graph.nodes[index]),
      operation(how.operation),
      scalars_(scalars),
      index_(static_cast<int>(index)),
      inputs_(std::move(inputs)),
      results_(node.call->results.size()) {}

int NodeLowering::find(int argument, int element) const {
  const std::vector<InputPlace>& places = node.call->places;
  for (size_t k = 0; k < places.size(); ++k) {
    if (places[k].argument == argument && places[k].element == element) return static_cast<int>(k);
  }
  return -1;
}

const HloValue& NodeLowering::value_of(int input, int argument) const {
  check_internal(input >= 0, node.call->op->name, ": argument ", argument, " is no tensor");
  return inputs_[static_cast<size_t>(input)];
}

const HloValue& NodeLowering::tensor(int argument) const {
  return value_of(find(argument, InputPlace::kNoList), argument);
}

const HloValue& NodeLowering::element(int argument, int element) const {
  return value_of(find(argument, element), argument);
}

std::vector<HloValue> NodeLowering::list(int argument) const {
  std::vector<HloValue> out;
  const size_t count = node.call->lists.at(static_cast<size_t>(argument)).size;
  for (size_t i = 0; i < count; ++i) out.push_back(element(argument, static_cast<int>(i)));
  return out;
}

const at::Tensor& NodeLowering::meta(int argument) const {
  const int input = find(argument, InputPlace::kNoList);
  check_internal(input >= 0, node.call->op->name, ": argument ", argument, " is no tensor");
  const NodeResult& from = node.inputs[static_cast<size_t>(input)];
  return from.node->is_leaf() ? from.node->leaf
                              : from.node->call->results[static_cast<size_t>(from.index)];
}

int64_t NodeLowering::attribute(std::string_view word) const {
  const size_t found = node.call->attributes.find(std::string(word) + " ");
  check_internal(found != std::string::npos, node.call->op->name, ": no attribute ", word);
  return std::stoll(node.call->attributes.substr(found + word.size()));
}

HloValue NodeLowering::operand(int argument, at::ScalarType dtype) const {
  return hlo.broadcast(hlo.convert(tensor(argument), dtype), sizes());
}

HloValue NodeLowering::wide(int argument) const {
  const HloValue& x = tensor(argument);
  return hlo.convert(x, wide_dtype(x.dtype));
}

HloValue NodeLowering::scalar(int argument, at::ScalarType dtype) const {
  const c10::IValue& value = argument_at(argument);
  if (is_default(argument) || !node.call->op->is_scalar.at(static_cast<size_t>(argument))) {
    if (value.isDouble()) return hlo.constant(value.toDouble(), dtype);
    return hlo.constant(value.isBool() ? int64_t{value.toBool()} : value.toInt(), dtype);
  }
  return hlo.convert(scalars_.scalar({-1, index_, argument}, value), dtype);
}

HloValue NodeLowering::scalar_operand(int argument, at::ScalarType dtype) const {
  return hlo.broadcast(scalar(argument, dtype), sizes());
}

bool NodeLowering::is_default(int argument) const {
  return node.call->op->is_default(static_cast<size_t>(argument), argument_at(argument));
}

void NodeLowering::give(const HloValue& value, int result) {
  const HloValue out = hlo.convert(value, dtype(result));
  check_internal(out.sizes == sizes(result), node.call->op->name, ": lowered to ",
                 hlo_type(out.dtype, out.sizes), ", recorded as ",
                 hlo_type(dtype(result), sizes(result)));
  results_.at(static_cast<size_t>(result)) = out;
}

const Lowering* find_lowering(std::string_view name) {
  static const auto* all = [] {
    auto* out = new std::unordered_map<std::string_view, const Lowering*>;
    for (const Lowerings* family :
         {&elementwise_lowerings(), &activation_lowerings(), &gate_lowerings(),
          &creation_lowerings(), &reduction_lowerings(), &shape_lowerings(), &product_lowerings(),
          &convolution_lowerings(), &indexing_lowerings(), &normalization_lowerings(),
          &update_lowerings(), &random_lowerings()}) {
      for (const Lowering& lowering : *family) out->emplace(lowering.name, &lowering);
    }
    return out;
  }();
  const auto found = all->find(name);
  return found == all->end() ? nullptr : found->second;
}

HloSizes named_dims(const NodeLowering& n, int argument, int64_t dims) {
  const c10::IValue& named = n.argument_at(argument);
  if (dims == 0) return {};  // 0 and -1 name none of it
  if (named.isInt()) return {positive_dim(named.toInt(), dims)};
  if (named.isNone() || named.toIntVector().empty()) return all_dims(dims);
  HloSizes out = named.toIntVector();
  for (int64_t& dim : out) dim = positive_dim(dim, dims);
  return out;
}

}  // namespace nxd

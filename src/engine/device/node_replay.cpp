#include "engine/device/node_replay.h"

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "engine/device/graph_rounding.h"
#include "engine/own_products.h"

namespace nxd {
namespace {

void put_lists(const RecordedNode& node, const std::vector<at::Tensor>& inputs,
               torch::jit::Stack& stack) {
  for (size_t a = 0; a < node.call->lists.size(); ++a) {
    const ListArgument& list = node.call->lists[a];
    if (list.kind == ListArgument::Kind::kNone) continue;
    std::vector<at::Tensor> elements(list.size);
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const InputPlace& place = node.call->places[k];
      if (place.argument != static_cast<int>(a)) continue;
      elements[static_cast<size_t>(place.element)] = inputs[k];
    }
    if (list.kind == ListArgument::Kind::kTensors) {
      stack[a] = c10::IValue(elements);
      continue;
    }
    c10::List<c10::optional<at::Tensor>> optional;
    for (const at::Tensor& element : elements) {
      optional.push_back(element.defined() ? c10::optional<at::Tensor>(element) : c10::nullopt);
    }
    stack[a] = c10::IValue(std::move(optional));
  }
}

// Later nodes, and those who read the result, take it for what its shape function said.
void check_like_recorded(const RecordedNode& node, const at::Tensor& result, size_t k) {
  const at::Tensor& meta = node.call->results[k];
  if (!result.defined() || !meta.defined()) return;
  check_internal(result.sizes() == meta.sizes() && result.scalar_type() == meta.scalar_type(),
                 node.call->op->name, " gave ", result.scalar_type(), " ", result.sizes(),
                 " as result ", k, ", and ", meta.scalar_type(), " ", meta.sizes(),
                 " was recorded");
}

std::string place_of(const RecordedNode& node, size_t index) {
  return text("in node ", index, " of a recorded graph: ", call_text(node));
}

}  // namespace

std::vector<at::Tensor> call_operator(const RecordedNode& node, torch::jit::Stack stack,
                                      const std::vector<at::Tensor>& inputs) {
  put_lists(node, inputs, stack);
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    const InputPlace& place = node.call->places[k];
    if (place.element != InputPlace::kNoList) continue;
    stack[static_cast<size_t>(place.argument)] =
        node.call->op->needs_dense_inputs ? inputs[k].contiguous() : inputs[k];
  }
  const OwnProducts own_products;
  node.call->op->replay->callBoxed(&stack);
  std::vector<at::Tensor> results;
  for (const c10::IValue& result : stack) {
    if (result.isTensor()) {
      results.push_back(result.toTensor());
    } else {
      for (const at::Tensor& element : result.toTensorVector()) results.push_back(element);
    }
  }
  return results;
}

std::vector<at::Tensor> replay_node(const RecordedNode& node, size_t index,
                                    const std::vector<at::Tensor>& inputs,
                                    GraphRounding* rounding) {
  try {
    std::vector<at::Tensor> results = node.function ? (*node.function)(inputs)
                                      : rounding && GraphRounding::rounds(node)
                                          ? rounding->run(node, inputs)
                                          : call_operator(node, node.call->arguments, inputs);
    check_internal(results.size() == node.call->results.size(), node.call->op->name, " gave ",
                   results.size(), " results, and ", node.call->results.size(), " were recorded");
    for (size_t k = 0; k < results.size(); ++k) check_like_recorded(node, results[k], k);
    return results;
  } catch (c10::Error& error) {
    error.add_context(place_of(node, index));
    throw;
  } catch (...) {
    const Error error = Error::current();
    // The library's own functions name themselves, but the memory that they lack does not.
    if (node.function && error.status() != NXD_ERROR_OUT_OF_MEMORY) throw;
    throw Error(error.status(), text(error.what(), " (", place_of(node, index), ")"),
                error.context());
  }
}

}  // namespace nxd

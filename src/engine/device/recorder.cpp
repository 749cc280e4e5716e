#include "engine/device/recorder.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "engine/device/device_metrics.h"
#include "engine/device/device_tensor.h"
#include "engine/device/operator_arguments.h"
#include "engine/device/shape_functions.h"

namespace nxd {
namespace {

using torch::jit::Stack;

// A tensor on the CPU among the arguments is copied when the call is recorded: the host may write
// to it before the graph runs.
DeviceValuePtr uploaded(const at::Tensor& tensor) {
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  return Recording::current()->known(tensor.detach().clone(at::MemoryFormat::Contiguous));
}

struct Source {
  NodeResult result{};
  at::Tensor meta{};
  bool is_reordered = false;
};

Source source_of(const RecordedOperator& op, const at::Tensor& tensor) {
  if (is_recorded(tensor)) {
    DeviceValue& value = device_value(tensor);
    return {Recording::current()->source_of(value), value.meta, value.is_reordered};
  }
  const bool is_mixed = tensor.dim() > 0 && op.name != "aten::copy";
  check_argument(tensor.is_cpu() && !is_mixed, op.name, ": expected all tensors on device ",
                 "xla:0, got one of shape ", tensor.sizes(), " on ", tensor.device().str());
  const DeviceValuePtr value = uploaded(tensor);
  at::Tensor meta = value->meta;
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    meta.unsafeGetTensorImpl()->set_wrapped_number(true);
    value->data.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return {Recording::current()->source_of(*value), meta};
}

// A call on its way to becoming a node, with the arguments that give its results' shapes.
struct Draft {
  std::shared_ptr<RecordedNode> node = std::make_shared<RecordedNode>();
  Stack meta{};
  bool takes_reordered = false;  // as its first input

  at::Tensor take(const RecordedOperator& op, const at::Tensor& tensor, int element) {
    if (!tensor.defined()) return tensor;
    Source source = source_of(op, tensor);
    if (node->inputs.empty()) takes_reordered = source.is_reordered;
    node->inputs.push_back(
        {static_cast<int>(node->arguments.size()), element, std::move(source.result)});
    return source.meta;
  }

  void add(const RecordedOperator& op, const c10::IValue& argument) {
    ListArgument list;
    c10::IValue meta_argument = argument, kept;
    if (argument.isTensor()) {
      const at::Tensor taken = take(op, argument.toTensor(), NodeInput::kNoList);
      meta_argument = taken.defined() ? c10::IValue(taken) : c10::IValue();
    } else if (argument.isTensorList() || argument.isOptionalTensorList()) {
      list.kind = argument.isTensorList() ? ListArgument::Kind::kTensors
                                          : ListArgument::Kind::kOptionalTensors;
      std::vector<at::Tensor> metas;
      for (const c10::IValue& each : argument.toListRef()) {
        const auto element = static_cast<int>(list.size++);
        metas.push_back(each.isTensor() ? take(op, each.toTensor(), element) : at::Tensor());
      }
      meta_argument = list_of(metas, list.kind);
    } else if (argument.isDevice()) {
      kept = at::Device(at::kCPU);
      meta_argument = at::Device(at::kMeta);
    } else {
      kept = argument;
    }
    node->arguments.push_back(std::move(kept));
    node->lists.push_back(list);
    meta.push_back(std::move(meta_argument));
  }

  static c10::IValue list_of(const std::vector<at::Tensor>& tensors, ListArgument::Kind kind) {
    if (kind == ListArgument::Kind::kTensors) return c10::IValue(tensors);
    c10::List<c10::optional<at::Tensor>> list;
    for (const at::Tensor& tensor : tensors) {
      list.push_back(tensor.defined() ? c10::optional<at::Tensor>(tensor) : c10::nullopt);
    }
    return c10::IValue(std::move(list));
  }
};

// Values on the device are in C order, whatever strides a view of them would have.
at::Tensor dense_meta(const at::Tensor& meta) {
  if (!meta.defined() || meta.is_contiguous()) return meta;
  return at::empty(meta.sizes(), at::TensorOptions().dtype(meta.scalar_type()).device(at::kMeta));
}

// An error of the arguments is the caller's; one of the meta device is not.
bool lacks_shape_function(const c10::Error& error) {
  if (dynamic_cast<const c10::NotImplementedError*>(&error)) return true;
  const std::string_view message = error.what_without_backtrace();
  for (const char* sign :
       {"INTERNAL ASSERT FAILED", "DispatchStub", "Meta", "data_ptr", "storage"}) {
    if (message.find(sign) != std::string_view::npos) return true;
  }
  return false;
}

// Leaves the results on the stack; "" or why there are no shapes.
std::string infer_shapes(const c10::OperatorHandle& op, Stack& stack) {
  if (reads_values(op, stack)) return "its result's shape depends on values";
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  try {
    if (const ShapeFunction* function = find_shape_function(op)) {
      function->give(stack);
    } else {
      op.callBoxed(&stack);
    }
  } catch (const c10::Error& error) {
    if (!lacks_shape_function(error)) throw;
    return "there is no shape function for it";
  }
  for (const c10::IValue& result : stack) {
    bool on_meta = true;
    Stack one;
    one.push_back(result);
    for_each_tensor(
        one, [&](const at::Tensor& t) { on_meta = on_meta && (!t.defined() || t.is_meta()); });
    if (!on_meta) return "its shape function gives values";
  }
  return "";
}

// Replaces the operator's arguments on the stack by tensors on the CPU, and runs it there. A tensor
// that it writes to gets the written value.
void run_on_cpu(const c10::OperatorHandle& op, Stack& stack) {
  const std::string name = qualified_name(op);
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  const auto& arguments = op.schema().arguments();
  Stack values(stack.end() - static_cast<ptrdiff_t>(arguments.size()), stack.end());
  torch::jit::drop(stack, arguments.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    const bool writes = alias && alias->isWrite();
    Stack one{values[i]};
    replace_tensors(one, [&](const at::Tensor& tensor) {
      if (!is_recorded(tensor)) return tensor;
      at::Tensor data = Recording::value_of(device_value(tensor), name);
      if (!writes) return data;
      written.emplace_back(tensor, data.clone());
      return written.back().second;
    });
    values[i] = one[0].isDevice() ? c10::IValue(at::Device(at::kCPU)) : one[0];
  }
  {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
    op.callBoxed(&values);
  }
  for (const auto& [tensor, data] : written) set_device_value(tensor, data.contiguous());
  replace_tensors(values, [&](const at::Tensor& result) {
    if (!result.defined()) return result;
    for (const auto& [tensor, data] : written) {
      if (data.is_same(result)) return tensor;
    }
    return device_tensor(Recording::current()->known(result.contiguous()));
  });
  for (c10::IValue& value : values) stack.push_back(std::move(value));
}

void fall_back(const c10::OperatorHandle& op, const std::string& why, Stack& stack) {
  const std::string name = qualified_name(op);
  if (device_metrics::count_fallback(name)) {
    log(NXD_LOG_WARN, "device xla: ", name, " cannot be recorded (", why,
        "): each call of it ends the graph and runs on the CPU");
  }
  run_on_cpu(op, stack);
}

void push_results(const RecordedNode& node, const std::vector<DeviceValuePtr>& values,
                  Stack& stack) {
  size_t next = 0;
  const auto tensor = [&] {
    const DeviceValuePtr& value = values[next++];
    return value ? device_tensor(value) : at::Tensor();
  };
  for (const int length : node.result_lists) {
    if (length < 0) {
      stack.emplace_back(tensor());
      continue;
    }
    std::vector<at::Tensor> list;
    for (int i = 0; i < length; ++i) list.push_back(tensor());
    stack.emplace_back(std::move(list));
  }
}

// Places among a node's inputs in place of those among the tensors that were given.
std::vector<int> taken_inputs(const RecordedNode& node, const std::vector<int>& given) {
  std::vector<int> out;
  for (const int place : given) {
    const auto found =
        std::find_if(node.inputs.begin(), node.inputs.end(),
                     [place](const NodeInput& input) { return input.argument == place; });
    out.push_back(place < 0 ? -1 : static_cast<int>(found - node.inputs.begin()));
  }
  return out;
}

}  // namespace

void record_operator(const c10::OperatorHandle& op, Stack* stack) {
  const RecordedOperator& known = recorded_operator(op);
  if (!known.why_not_recorded.empty()) return fall_back(op, known.why_not_recorded, *stack);
  const size_t count = op.schema().arguments().size();
  Draft draft;
  draft.node->op = &known;
  for (size_t i = stack->size() - count; i < stack->size(); ++i) draft.add(known, (*stack)[i]);
  // The device has no memory of a base that these strides could go over.
  if (known.strides_over_memory && draft.takes_reordered) {
    fail(NXD_ERROR_UNSUPPORTED, known.name, ": expected a tensor on device xla:0 that is no view, ",
         "or one in its base's order, got a view of other strides; clone it first");
  }
  const std::string why_not = infer_shapes(op, draft.meta);
  if (!why_not.empty()) return fall_back(op, why_not, *stack);
  RecordedNode& node = *draft.node;
  for (const c10::IValue& result : draft.meta) {
    if (result.isTensor()) {
      node.result_lists.push_back(-1);
      node.results.push_back(dense_meta(result.toTensor()));
      continue;
    }
    const std::vector<at::Tensor> list = result.toTensorVector();
    node.result_lists.push_back(static_cast<int>(list.size()));
    for (const at::Tensor& element : list) node.results.push_back(dense_meta(element));
  }
  node.id = Recording::next_id();
  torch::jit::drop(*stack, count);
  const std::vector<DeviceValuePtr> values = Recording::current()->add(draft.node);
  const bool is_reordered = known.is_view && (!known.keeps_order || draft.takes_reordered);
  for (const DeviceValuePtr& value : values) {
    if (value) value->is_reordered = is_reordered;
  }
  push_results(node, values, *stack);
}

void take_recorded_value(const at::Tensor& tensor, const at::Tensor& from) {
  Recording::current()->move_value(device_value(from), device_value(tensor));
}

std::vector<at::Tensor> record_call(RecordedCall call, const std::vector<at::Tensor>& inputs) {
  const RecordedOperator& known = recorded_function(call.name, call.is_effect);
  auto node = std::make_shared<RecordedNode>();
  node->op = &known;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    node->inputs.push_back(
        {static_cast<int>(i), NodeInput::kNoList, source_of(known, inputs[i]).result});
  }
  node->attributes = std::move(call.attributes);
  node->exchanges = std::move(call.exchanges);
  node->results = std::move(call.results);
  node->overwrites = taken_inputs(*node, call.overwrites);
  // The function is given as many tensors as were recorded, undefined ones too.
  std::vector<size_t> places;
  for (const NodeInput& input : node->inputs) places.push_back(static_cast<size_t>(input.argument));
  node->function = [count = inputs.size(), places,
                    run = std::move(call.function)](const std::vector<at::Tensor>& given) {
    std::vector<at::Tensor> all(count);
    for (size_t k = 0; k < places.size(); ++k) all[places[k]] = given[k];
    return run(all);
  };
  node->id = Recording::next_id();
  std::vector<at::Tensor> out;
  const std::vector<DeviceValuePtr> values = Recording::current()->add(node);
  for (size_t r = 0; r < values.size(); ++r) {
    const int from = call.overwrites.empty() ? -1 : call.overwrites[r];
    if (from >= 0) values[r]->set_previous(device_value(inputs[static_cast<size_t>(from)]));
    out.push_back(values[r] ? device_tensor(values[r]) : at::Tensor());
  }
  return out;
}

}  // namespace nxd

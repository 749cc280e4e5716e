#include "engine/models/torchscript_placement.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/models/torchscript_operators.h"
#include "engine/module/buffers.h"
#include "engine/tensor/call_tracer.h"

namespace nxd {
namespace {

namespace jit = torch::jit;

thread_local ScriptDeviceScope* script_device_of_thread = nullptr;

at::Device device_of_code() {
  return is_tracing() || !script_device_of_thread ? at::Device(at::kCPU)
                                                  : script_device_of_thread->device();
}

// (device, is it that of a tensor that is made of none). In a trace the meta device is that of some
// other tensor: one that is made of none has values, which the code may read.
void give_device(jit::Stack& stack) {
  const bool makes = jit::pop(stack).toBool();
  const c10::IValue named = jit::pop(stack);
  const bool stays =
      named.isNone() ? !makes : named.toDevice().is_meta() && !(makes && is_tracing());
  if (stays) {
    jit::push(stack, named);
  } else {
    jit::push(stack, device_of_code());
  }
}

void give_constant(jit::Stack& stack) {
  const at::Tensor constant = jit::pop(stack).toTensor();
  const at::Device device = device_of_code();
  jit::push(stack,
            device.is_cpu() ? constant : script_device_of_thread->constants().on(constant, device));
}

// None of a tree without values.
std::optional<at::Device> device_of_values(const Module& module) {
  if (!module.parameters().empty()) return module.parameters()[0].second->tensor().device();
  const auto* holder = dynamic_cast<const BufferHolder*>(&module);
  if (holder && !holder->own_buffers().empty()) {
    return holder->own_buffers()[0].buffer->value.device();
  }
  for (const auto& [name, child] : module.children()) {
    if (const auto found = device_of_values(*child)) return found;
  }
  return std::nullopt;
}

void give_on_host(jit::Stack& stack) {
  const at::Tensor sizes = jit::pop(stack).toTensor();
  jit::push(stack, sizes.is_meta() ? sizes : sizes.to(at::kCPU));
}

c10::Symbol host_operator() {
  static const c10::Symbol symbol =
      known_to_interpreter("nxd::on_host", "(Tensor sizes) -> Tensor", &give_on_host);
  return symbol;
}

c10::Symbol device_operator() {
  static const c10::Symbol symbol =
      known_to_interpreter("nxd::device", "(Device? named, bool makes) -> Device?", &give_device);
  return symbol;
}

// A device that is named stays one: overloads differ by that.
c10::Symbol named_device_operator() {
  static const c10::Symbol symbol = known_to_interpreter(
      "nxd::named_device", "(Device named, bool makes) -> Device", &give_device);
  return symbol;
}

c10::Symbol constant_operator() {
  static const c10::Symbol symbol =
      known_to_interpreter("nxd::constant", "(Tensor constant) -> Tensor", &give_constant);
  return symbol;
}

bool is_device(const c10::TypePtr& type) {
  const auto optional = type->cast<c10::OptionalType>();
  return (optional ? optional->getElementType() : type)->kind() == c10::TypeKind::DeviceObjType;
}

bool takes_tensors(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& argument) {
                       return argument.type()->isSubtypeOf(*c10::TensorType::get()) ||
                              argument.type()->isSubtypeOf(*c10::ListType::ofTensors());
                     });
}

void ask_for_devices_of(jit::Graph& graph, jit::Node& node) {
  const c10::FunctionSchema* schema = node.maybeSchema();
  if (!schema || !node.kind().is_aten()) return;
  const jit::WithInsertPoint at(&node);
  const auto& arguments = schema->arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_device(arguments[i].type())) continue;
    jit::Value* const makes = graph.insertConstant(!takes_tensors(*schema));
    const bool is_named = node.input(i)->type()->kind() == c10::TypeKind::DeviceObjType;
    const c10::Symbol asks = is_named ? named_device_operator() : device_operator();
    node.replaceInput(i, graph.insert(asks, {node.input(i), makes}));
  }
}

// Uses of a constant become uses of what the run has in its place.
void ask_for_constant(jit::Graph& graph, jit::Node& node) {
  const auto value = jit::toIValue(node.output());
  if (!value || !value->isTensor() || value->toTensor().dim() == 0) return;
  jit::Node* const asked = graph.create(constant_operator(), {node.output()});
  asked->insertAfter(&node);
  node.output()->replaceAllUsesAfterNodeWith(asked, asked->output());
}

// libtorch reads the sizes of packed sequences on the host.
void ask_for_host_sizes(jit::Graph& graph, jit::Node& node) {
  const c10::FunctionSchema* schema = node.maybeSchema();
  if (!schema || schema->overload_name() != "data" || schema->arguments().size() < 2 ||
      schema->arguments()[1].name() != "batch_sizes") {
    return;
  }
  const jit::WithInsertPoint at(&node);
  jit::Node* const asked = graph.insertNode(graph.create(host_operator(), {node.input(1)}));
  node.replaceInput(1, asked->output());
}

const c10::Symbol kToCpu = c10::Symbol::fromQualString("aten::cpu");

void visit(jit::Graph& graph, jit::Block& block) {
  const std::vector<jit::Node*> nodes(block.nodes().begin(), block.nodes().end());
  for (jit::Node* node : nodes) {
    for (jit::Block* inner : node->blocks()) visit(graph, *inner);
    if (node->kind() == c10::prim::Constant) {
      ask_for_constant(graph, *node);
    } else if (node->kind() == kToCpu) {
      node->output()->replaceAllUsesWith(node->input());
      node->destroy();
    } else {
      ask_for_devices_of(graph, *node);
      ask_for_host_sizes(graph, *node);
    }
  }
}

}  // namespace

void ask_for_devices(jit::Graph& graph) { visit(graph, *graph.block()); }

at::Device device_of_run(const Module& module, const std::vector<at::Tensor>& inputs) {
  const at::Device cpu(at::kCPU);
  if (is_tracing()) return cpu;
  std::optional<at::Device> device = device_of_values(module);
  if (device && device->is_meta()) return cpu;
  for (size_t i = 0; i < inputs.size(); ++i) {
    // A number of the host's mixes with both.
    if (!inputs[i].defined() || (inputs[i].dim() == 0 && inputs[i].is_cpu())) continue;
    if (!device) device = inputs[i].device();
    const bool fits = inputs[i].device() == *device || (inputs[i].dim() == 0 && !device->is_cpu());
    check_argument(fits, module.class_name(), ": input ", i, ": expected a tensor on ",
                   device->str(), ", got one of shape ", inputs[i].sizes(), " on ",
                   inputs[i].device().str());
  }
  return device.value_or(cpu);
}

at::Tensor PlacedConstants::on(const at::Tensor& constant, at::Device device) {
  at::Tensor& placed = placed_[constant.unsafeGetTensorImpl()];
  if (!placed.defined()) placed = constant.to(device);
  return placed;
}

ScriptDeviceScope::ScriptDeviceScope(at::Device device, PlacedConstants& constants)
    : device_(device),
      constants_(constants),
      outer_(std::exchange(script_device_of_thread, this)) {}

ScriptDeviceScope::~ScriptDeviceScope() { script_device_of_thread = outer_; }

}  // namespace nxd

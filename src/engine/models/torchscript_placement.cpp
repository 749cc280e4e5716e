#include "engine/models/torchscript_placement.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/models/torchscript_nodes.h"
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

at::Device told_device(const at::Tensor& tensor) {
  return is_tracing() && script_device_of_thread ? script_device_of_thread->device_of_values()
                                                 : tensor.device();
}

void give_device_of(jit::Stack& stack) {
  const at::Tensor tensor = jit::pop(stack).toTensor();
  jit::push(stack, told_device(tensor));
}

void give_is_on(jit::Stack& stack) {
  const at::Device of_type = jit::pop(stack).toDevice();
  const at::Tensor tensor = jit::pop(stack).toTensor();
  jit::push(stack, told_device(tensor).type() == of_type.type());
}

void give_constant(jit::Stack& stack) {
  const at::Tensor constant = jit::pop(stack).toTensor();
  const at::Device device = device_of_code();
  jit::push(stack,
            device.is_cpu() ? constant : script_device_of_thread->constants().on(constant, device));
}

// Where the first value of the tree lies that is accepted; none of a tree without one.
std::optional<at::Device> find_device(const Module& module, bool (*accepts)(const at::Tensor&)) {
  for (const auto& [name, parameter] : module.parameters()) {
    if (accepts(parameter->tensor())) return parameter->tensor().device();
  }
  if (const auto* holder = dynamic_cast<const BufferHolder*>(&module)) {
    for (const NamedBuffer& own : holder->own_buffers()) {
      if (accepts(own.buffer->value)) return own.buffer->value.device();
    }
  }
  for (const auto& [name, child] : module.children()) {
    if (const auto found = find_device(*child, accepts)) return found;
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

c10::Symbol device_of_operator() {
  static const c10::Symbol symbol =
      known_to_interpreter("nxd::device_of", "(Tensor tensor) -> Device", &give_device_of);
  return symbol;
}

c10::Symbol is_on_operator() {
  static const c10::Symbol symbol =
      known_to_interpreter("nxd::is_on", "(Tensor tensor, Device of_type) -> bool", &give_is_on);
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

// True of a node that asks for a tensor's device; it is replaced.
bool ask_for_device_of(jit::Graph& graph, jit::Node& node) {
  static const std::pair<c10::Symbol, at::DeviceType> kQuestions[] = {
      {c10::Symbol::fromQualString("prim::is_cpu"), at::kCPU},
      {c10::Symbol::fromQualString("prim::is_xla"), at::kXLA},
      {c10::Symbol::fromQualString("prim::is_meta"), at::kMeta}};
  if (node.kind() == c10::prim::device) {
    replace_node(node, device_of_operator(), {node.input()});
    return true;
  }
  for (const auto& [question, type] : kQuestions) {
    if (node.kind() != question) continue;
    const jit::WithInsertPoint at(&node);
    jit::Value* const of_type = graph.insertConstant(at::Device(type));
    replace_node(node, is_on_operator(), {node.input(), of_type});
    return true;
  }
  return false;
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
    } else if (!ask_for_device_of(graph, *node)) {
      ask_for_devices_of(graph, *node);
      ask_for_host_sizes(graph, *node);
    }
  }
}

}  // namespace

void ask_for_devices(jit::Graph& graph) { visit(graph, *graph.block()); }

std::optional<at::Device> device_of_values(const Module& module) {
  return find_device(module, [](const at::Tensor& value) { return !value.is_meta(); });
}

at::Device device_of_run(const Module& module, const std::vector<at::Tensor>& inputs) {
  const at::Device cpu(at::kCPU);
  if (is_tracing()) return cpu;
  std::optional<at::Device> device = find_device(module, [](const at::Tensor&) { return true; });
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

ScriptDeviceScope::ScriptDeviceScope(at::Device device, std::optional<at::Device> values,
                                     PlacedConstants& constants)
    : device_(device),
      values_(script_device_of_thread ? script_device_of_thread->values_ : values.value_or(device)),
      constants_(constants),
      outer_(std::exchange(script_device_of_thread, this)) {}

ScriptDeviceScope::~ScriptDeviceScope() { script_device_of_thread = outer_; }

}  // namespace nxd

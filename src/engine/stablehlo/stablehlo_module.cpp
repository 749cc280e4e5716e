#include "engine/stablehlo/stablehlo_module.h"

#include <utility>

#include "core/base/error.h"
#include "engine/stablehlo/host_checks.h"

namespace nxd {
namespace {

// One target for all calls: the client looks the function up by an attribute.
constexpr const char* kCallTarget = "nxd_call";

// A number that a program wrote, such as 2 in x * 2.
bool is_host_number(const at::Tensor& leaf) {
  return leaf.dim() == 0 && leaf.unsafeGetTensorImpl()->is_wrapped_number() &&
         (leaf.is_floating_point() ? leaf.scalar_type() == at::kDouble
                                   : leaf.scalar_type() == at::kLong);
}

class ModuleEmitter final : public HloScalars {
 public:
  ModuleEmitter(const RecordedGraph& graph, const ModuleReplicas& replicas,
                const PjrtTarget& target)
      : graph_(graph),
        replicas_(replicas),
        builder_(target),
        exchanges_(builder_, replicas),
        host_checks_(graph),
        values_(static_cast<size_t>(graph.num_slots)) {}

  StableHloModule emit() {
    take_leaves();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) add_node(i);
    const std::string prologue = unpacked("%floats", "%f", at::kDouble, module_.floats.size()) +
                                 unpacked("%integers", "%i", at::kLong, module_.integers.size());
    take_numbers("%floats", at::kDouble, module_.floats.size());
    take_numbers("%integers", at::kLong, module_.integers.size());
    std::string results, types;
    for (const int slot : graph_.kept_slots) {
      HloValue value = values_[static_cast<size_t>(slot)];
      if (results.empty()) value = exchanges_.after_all(value);
      results += (results.empty() ? "" : ", ") + value.name;
      types += (types.empty() ? "" : ", ") + builder_.type(value.dtype, value.sizes);
    }
    const std::string attributes =
        replicas_.exchange()
            ? text("attributes {mhlo.num_replicas = ", replicas_.ranks.size(), " : i32} ")
            : "";
    module_.text = text("module @step ", attributes, "{\n  func.func public @main(", parameters_,
                        ") -> (", types, ") {\n", prologue, builder_.body(), "    \"func.return\"(",
                        results, ") : (", types, ") -> ()\n  }\n}\n");
    return std::move(module_);
  }

  HloValue scalar(const Source& source, const c10::IValue& kind) override {
    const bool is_float = kind.isDouble();
    auto& numbers = is_float ? module_.floats : module_.integers;
    numbers.push_back(source);
    return {text(is_float ? "%f" : "%i", numbers.size() - 1), is_float ? at::kDouble : at::kLong};
  }

 private:
  void take(const std::string& name, const std::string& type) {
    parameters_ += text(parameters_.empty() ? "" : ", ", name, ": ", type);
  }

  // A plug-in writes a result to the memory of the leaf that its node overwrites.
  std::string alias_of(int leaf) const {
    for (size_t i = graph_.kept_slots.size(); i-- > 0;) {
      if (graph_.overwritten_leaf(graph_.kept_slots[i]) != leaf) continue;
      return text(" {tf.aliasing_output = ", i, " : i32}");
    }
    return "";
  }

  void take_leaves() {
    for (size_t i = 0; i < graph_.leaves.size(); ++i) {
      const at::Tensor& leaf = graph_.leaves[i];
      const int slot = static_cast<int>(i);
      if (is_host_number(leaf)) {
        values_[i] = scalar({slot, -1, -1},
                            leaf.is_floating_point() ? c10::IValue(0.0) : c10::IValue(int64_t{0}));
        continue;
      }
      values_[i] = {text("%arg", module_.buffers.size()), leaf.scalar_type(), leaf.sizes().vec()};
      module_.buffers.push_back(slot);
      take(values_[i].name, builder_.type(values_[i].dtype, values_[i].sizes) + alias_of(slot));
    }
  }

  void take_numbers(const std::string& name, at::ScalarType dtype, size_t count) {
    if (count != 0) take(name, builder_.type(dtype, {static_cast<int64_t>(count)}));
  }

  // The elements of a vector, each by a name of its own.
  std::string unpacked(const std::string& vector, const std::string& prefix, at::ScalarType dtype,
                       size_t count) const {
    const std::string all = builder_.type(dtype, {static_cast<int64_t>(count)});
    const std::string one = builder_.type(dtype, {1}), element = builder_.type(dtype, {});
    std::string out;
    for (size_t i = 0; i < count; ++i) {
      out +=
          text("    ", prefix, "s", i, " = \"stablehlo.slice\"(", vector,
               ") {start_indices = array<i64: ", i, ">, limit_indices = array<i64: ", i + 1,
               ">, strides = array<i64: 1>} : (", all, ") -> ", one, "\n    ", prefix, i,
               " = \"stablehlo.reshape\"(", prefix, "s", i, ") : (", one, ") -> ", element, "\n");
    }
    return out;
  }

  std::vector<HloValue> inputs_of(size_t index) const {
    std::vector<HloValue> inputs;
    for (const int slot : graph_.input_slots[index]) {
      inputs.push_back(values_[static_cast<size_t>(slot)]);
    }
    return inputs;
  }

  bool leaves_out_check(size_t index) const {
    const bool are_alike = graph_.nodes[index]->call->attributes == kSameOnAllRanks;
    return host_checks_.has(index) || !replicas_.have_host || (replicas_.exchange() && are_alike);
  }

  void add_node(size_t index) {
    const RecordedNode& node = *graph_.nodes[index];
    if (node.call->results.empty() && leaves_out_check(index)) return;
    if (replicas_.exchange() && !node.call->exchanges.empty()) {
      return put_results(index, exchanges_.lower(node, inputs_of(index)));
    }
    const Lowering* how = node.call->op->is_effect ? nullptr : find_lowering(node.call->op->name);
    if (how) {
      NodeLowering lowering(builder_, *this, graph_, index, inputs_of(index), *how);
      how->lower(lowering);
      if (!lowering.is_left_to_host()) return put_results(index, lowering.results());
    }
    call_host(index);
  }

  void put_results(size_t index, const std::vector<HloValue>& results) {
    const RecordedNode& node = *graph_.nodes[index];
    for (size_t r = 0; r < results.size(); ++r) {
      check_internal(!node.call->results[r].defined() || !results[r].name.empty(),
                     node.call->op->name, ": result ", r, " was not lowered");
      values_[static_cast<size_t>(graph_.first_slots[index]) + r] = results[r];
    }
  }

  void call_host(size_t index) {
    const RecordedNode& node = *graph_.nodes[index];
    if (!replicas_.have_host) {
      fail(NXD_ERROR_UNSUPPORTED, "device xla: ", node.call->op->name,
           " has no lowering to StableHLO, and the plug-in has no calls of the host");
    }
    module_.host_nodes.push_back(static_cast<int>(index));
    std::vector<HloValue> types;
    for (const at::Tensor& result : node.call->results) {
      if (result.defined()) types.push_back({"", result.scalar_type(), result.sizes().vec()});
    }
    std::string config = text("function = \"", kHostNodeFunction, "\", node = ", index,
                              " : i64, operator = \"", hlo_escaped(node.call->op->name), "\"");
    if (!node.call->attributes.empty()) {
      config += text(", attributes = \"", hlo_escaped(node.call->attributes), "\"");
    }
    std::vector<HloValue> inputs = inputs_of(index);
    if (replicas_.exchange()) inputs.push_back(builder_.replica());
    const std::vector<HloValue> given =
        builder_.host_call(kCallTarget, config, inputs, types, node.call->op->is_effect);
    std::vector<HloValue> results(node.call->results.size());
    size_t next = 0;
    for (size_t r = 0; r < results.size(); ++r) {
      if (node.call->results[r].defined()) results[r] = given[next++];
    }
    put_results(index, results);
  }

  const RecordedGraph& graph_;
  const ModuleReplicas& replicas_;
  HloBuilder builder_;
  ExchangeLowering exchanges_;
  const HostChecks host_checks_;
  StableHloModule module_;
  std::vector<HloValue> values_;  // of each slot
  std::string parameters_;
};

}  // namespace

StableHloModule emit_stablehlo(const RecordedGraph& graph, const ModuleReplicas& replicas,
                               const PjrtTarget& target) {
  return ModuleEmitter(graph, replicas, target).emit();
}

}  // namespace nxd

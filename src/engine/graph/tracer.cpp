// Traces a model by running its forward once on tensors of the meta device, which have shapes and
// dtypes and no values.
//
// Two kinds of calls become nodes: those of modules that are leaves, and those of operators between
// them. The operators come through a boxed fallback under a dispatch key above autograd, which is
// switched on for this thread alone. A leaf's own operators are not seen. Every node's outputs are
// numbered values, and an input that no node made is an input of the graph or a parameter.
//
// Example: a model of layers 0, 1, 2, to be cut for three ranks.
//   x = embed(ids)          node 0: module "embed"
//   x = layers[i](x) + x    nodes 1 to 6: module "layers.i", aten::add
//   loss = head(x, labels)  node 7: module "head"
// Every rank traces the whole model and gets the same graph. partition.cpp then cuts it behind
// nodes 2 and 4, so that rank 1 has nodes 3 and 4 and one value comes in and one goes out. Only a
// graph's values can cross a cut: a forward that reads a number ends with an error that names the
// module.
#include "engine/graph/tracer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "core/base/log.h"
#include "core/base/suggestions.h"
#include "engine/device/operator_arguments.h"
#include "engine/device/shape_functions.h"
#include "engine/graph/operator_hook.h"
#include "engine/graph/trace_values.h"
#include "engine/module/buffers.h"
#include "engine/module/module_tree.h"
#include "engine/ops/autocast.h"
#include "engine/own_products.h"

namespace nxd {
namespace {

using Kind = GraphNode::Kind;
using Tensors = Module::Tensors;

std::string operator_name(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

// "add_" of "aten::add_.Tensor": values are called by it.
std::string short_name(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  const size_t end = name.rfind(':');
  std::string result = end == std::string::npos ? name : name.substr(end + 1);
  while (result.size() > 1 && result.back() == '_') result.pop_back();
  return result;
}

// Paths and classes of a tree, in one order.
struct TreeNames {
  std::vector<std::string> paths, classes;

  void collect(const Module& module, const std::string& path) {
    paths.push_back(path);
    classes.push_back(module.class_name());
    for (const auto& [name, child] : module.children()) collect(*child, join_path(path, name));
  }
};

bool has(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

class Deeper {
 public:
  explicit Deeper(int& depth) : depth_(depth) { ++depth_; }
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  int& depth_;
};

class Tracer : public CallTracer, public OperatorObserver {
 public:
  Tracer(const std::shared_ptr<Module>& root, const TraceOptions& options)
      : root_(root), options_(options), values_(graph_, *root) {
    graph_.parameters = named_parameters(*root);
    collect_paths(*root, "");
    TreeNames names;
    names.collect(*root, "");
    check_leaves(options.leaf_classes, names.classes, "class");
    check_leaves(options.leaf_paths, names.paths, "path");
  }

  Graph run(const Tensors& inputs, size_t n_outputs);

  Tensors call_module(Module& module, const Tensors& inputs,
                      const std::function<Tensors()>& run) override;
  Tensors call_function(const char* name, const Tensors& inputs,
                        const OpaqueFunction& function) override;
  [[noreturn]] void reject_read(const std::string& operation) override;
  void check_access(const at::Tensor& tensor, Access access, const char* operation) override;
  void call_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack) override;

 private:
  struct Place {
    std::string class_name, path;
  };
  class Inside {
   public:
    Inside(std::vector<Place>& places, Place place) : places_(places) {
      places_.push_back(std::move(place));
    }
    ~Inside() { places_.pop_back(); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    std::vector<Place>& places_;
  };

  void collect_paths(const Module& module, const std::string& path);
  void check_leaves(const std::vector<std::string>& leaves, const std::vector<std::string>& known,
                    const char* what) const;
  Tensors add_inputs(const Tensors& inputs);
  bool is_leaf(Module& module, const Place& place) const;
  const std::string& module_path() const { return places_.back().path; }
  std::string where() const;
  GraphNode begin_node(Kind kind, const std::string& name, const Tensors& inputs);
  Tensors end_node(GraphNode node, const Tensors& outputs, const std::string& value_name);
  void record_operator(const c10::OperatorHandle& op, std::vector<c10::IValue> arguments,
                       const torch::jit::Stack& results, double flops);
  void set_mode(GraphNode& node) const;

  std::shared_ptr<Module> root_;
  const TraceOptions& options_;
  Graph graph_;
  TraceValues values_;
  std::unordered_map<const Module*, std::string> paths_;
  std::vector<Place> places_;  // modules under way, the innermost last
  int depth_ = 0;              // of calls that are recorded as a whole
  int operators_ = 0;          // under way, within one another
  double flops_ = 0;           // of all products so far
  std::string rejection_;      // a callback may go on after a read failed
};

void Tracer::collect_paths(const Module& module, const std::string& path) {
  paths_.emplace(&module, path);
  for (const auto& [name, child] : module.children()) collect_paths(*child, join_path(path, name));
}

void Tracer::check_leaves(const std::vector<std::string>& leaves,
                          const std::vector<std::string>& known, const char* what) const {
  for (const std::string& leaf : leaves) {
    check_argument(has(known, leaf), "leaf \"", leaf, "\": ", root_->class_name(),
                   " has no module of this ", what, Suggestions(leaf, known));
  }
}

std::string Tracer::where() const {
  const Place& place = places_.back();
  return place.path.empty() ? place.class_name : place.class_name + " at " + place.path;
}

void Tracer::reject_read(const std::string& operation) {
  const std::string message =
      text(where(), ": the forward reads a value (", operation,
           "), and a trace has none; what depends on values belongs into an nxd_function with a "
           "shape callback");
  if (rejection_.empty()) rejection_ = message;
  fail(NXD_ERROR_INVALID_STATE, message);
}

void Tracer::check_access(const at::Tensor& tensor, Access access, const char* operation) {
  if (!tensor.defined()) return;
  if (values_.is_unknown(tensor)) reject_read(operation);
  if (access == Access::kWrite && values_.is_seen(tensor)) {
    const std::string message =
        text(where(), ": the forward takes the memory of a tensor that it computes with (",
             operation, "), and a trace does not see what is written there");
    if (rejection_.empty()) rejection_ = message;
    fail(NXD_ERROR_INVALID_STATE, message);
  }
}

Tensors Tracer::add_inputs(const Tensors& inputs) {
  const auto& names = options_.input_names;
  check_argument(names.empty() || names.size() == inputs.size(), "input_names: expected ",
                 inputs.size(), " names, one for each input, got ", names.size());
  Tensors given(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = names.empty() ? "input_" + std::to_string(i) : names[i];
    check_argument(!name.empty() && std::find(graph_.input_names.begin(), graph_.input_names.end(),
                                              name) == graph_.input_names.end(),
                   "input_names: \"", name, "\" is empty or given twice");
    graph_.input_names.push_back(name);
    if (!inputs[i].defined()) continue;
    given[i] = at::empty(inputs[i].sizes(),
                         at::TensorOptions().dtype(inputs[i].scalar_type()).device(at::kMeta));
    GraphNode node{};
    node.kind = Kind::kInput;
    node.name = name;
    node.input_index = i;
    node.outputs = {values_.define(given[i], static_cast<int>(graph_.nodes.size()), name)};
    graph_.nodes.push_back(std::move(node));
  }
  return given;
}

// A tensor that is made without a gradient has one once values that have one are written to it, or
// to a view of it: so have all values of its memory. A stage that gives one without it sends none.
void mark_written(Graph& graph) {
  std::set<int> written;  // alias sets
  for (const GraphNode& node : graph.nodes) {
    const auto needs_grad = [&](ValueId id) {
      return id != kNoValue && graph.values[slot(id)].needs_grad;
    };
    const auto& given = node.outputs.empty() ? node.inputs : node.outputs;
    if (!node.writes || std::none_of(given.begin(), given.end(), needs_grad)) continue;
    for (const ValueId id : given) {
      if (id != kNoValue) written.insert(graph.values[slot(id)].alias_set);
    }
  }
  for (GraphValue& value : graph.values) {
    const bool is_float = at::isFloatingType(value.dtype);
    if (is_float && written.count(value.alias_set) != 0) value.needs_grad = true;
  }
}

Graph Tracer::run(const Tensors& inputs, size_t n_outputs) {
  const Tensors given = add_inputs(inputs);
  const TracedCastLists casts(
      options_.cast_lists.value_or(lists_of({inputs.begin(), inputs.end()})));
  const at::AutoGradMode grad_mode(true);
  const TracingScope tracing(this);
  const ObservingScope observing(*this);
  const Tensors outputs = root_->call(given, n_outputs);
  check_state(rejection_.empty(), rejection_);
  for (const at::Tensor& output : outputs) graph_.outputs.push_back(values_.id_of(output, ""));
  graph_.output_paths = root_->output_paths();
  mark_written(graph_);
  return std::move(graph_);
}

bool Tracer::is_leaf(Module& module, const Place& place) const {
  if (module.is_leaf()) return true;
  if (&module == root_.get()) return false;
  if (module.children().empty()) return true;
  const bool is_listed = has(options_.leaf_classes, place.class_name) ||
                         (paths_.count(&module) != 0 && has(options_.leaf_paths, place.path));
  return options_.leaf_rule ? options_.leaf_rule(module, place.path, is_listed) : is_listed;
}

void Tracer::set_mode(GraphNode& node) const {
  node.grad_mode = at::GradMode::is_enabled();
  node.own_products = OwnProducts::are_on();
  node.autocast = autocast_dtype();
  node.call_path = CallPath::current();
}

GraphNode Tracer::begin_node(Kind kind, const std::string& name, const Tensors& inputs) {
  GraphNode node{};
  node.kind = kind;
  node.name = name;
  node.module = places_.empty() ? "" : module_path();
  for (const at::Tensor& input : inputs) node.inputs.push_back(values_.id_of(input, node.module));
  set_mode(node);
  node.flops = -flops_;
  return node;
}

Tensors Tracer::end_node(GraphNode node, const Tensors& outputs, const std::string& value_name) {
  node.flops += flops_;
  const auto index = static_cast<int>(graph_.nodes.size());
  for (const at::Tensor& output : outputs) {
    node.outputs.push_back(values_.define(output, index, value_name));
  }
  graph_.nodes.push_back(std::move(node));
  return outputs;
}

Tensors Tracer::call_module(Module& module, const Tensors& inputs,
                            const std::function<Tensors()>& run) {
  if (depth_ > 0) return run();
  // One that is in no place of the tree, such as a helper that a callback keeps, goes by its class.
  const auto known = paths_.find(&module);
  const Place place{module.class_name(),
                    known == paths_.end() ? module.class_name() : known->second};
  if (!is_leaf(module, place)) {
    const Inside inside(places_, place);
    Tensors outputs = run();
    if (&module != root_.get()) {
      graph_.calls.push_back(
          {place.path, place.class_name, static_cast<int>(graph_.nodes.size()) - 1});
    }
    return outputs;
  }
  GraphNode node = begin_node(Kind::kModule, place.path, inputs);
  node.callee = module.shared_from_this();
  const Inside inside(places_, place);
  Tensors outputs;
  {
    const Deeper deeper(depth_);
    outputs = run();
  }
  const std::string value_name = place.path.empty() ? place.class_name : place.path;
  end_node(std::move(node), outputs, value_name);
  graph_.calls.push_back({place.path, place.class_name, static_cast<int>(graph_.nodes.size()) - 1});
  return outputs;
}

Tensors Tracer::call_function(const char* name, const Tensors& inputs,
                              const OpaqueFunction& function) {
  const bool any_unknown = std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) {
    return values_.is_unknown(input);
  });
  GraphNode node;
  if (depth_ == 0) node = begin_node(Kind::kFunction, name, inputs);
  Tensors outputs;
  {
    const Deeper deeper(depth_);
    Tensors given = inputs;
    if (any_unknown) {
      for (at::Tensor& input : given) input = values_.without_data(input);
    }
    outputs = function(given);
  }
  if (depth_ > 0) return outputs;
  node.function = function;
  return end_node(std::move(node), outputs, name);
}

void Tracer::call_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  bool any_unknown = false;
  for_each_tensor(stack, [&](const at::Tensor& tensor) {
    any_unknown = any_unknown || values_.is_unknown(tensor);
  });
  const bool recorded = depth_ == 0;
  const bool writes = op.schema().is_mutable();
  const std::vector<c10::IValue> arguments =
      recorded || writes || any_unknown ? stack : std::vector<c10::IValue>();
  const Deeper deeper(depth_);
  if (any_unknown) {
    if (reads_values(op, stack)) reject_read(op.operator_name().name);
    replace_tensors(stack, [&](const at::Tensor& t) { return values_.without_data(t); });
    for (c10::IValue& argument : stack) {
      if (argument.isDevice()) argument = at::Device(at::kMeta);
    }
  }
  const double before = flops_;
  const Deeper inside(operators_);
  try {
    run_operator(op, stack);
  } catch (const c10::NotImplementedError&) {
    // The operator that called this one may have a shape function, or be tried.
    if (operators_ > 1) throw;
    fail(NXD_ERROR_UNSUPPORTED, where(), ": no shape function for operator ", operator_name(op),
         ", which a trace needs; call it in an nxd_function with a shape callback");
  }
  if (any_unknown) flops_ += product_flops(op, arguments, stack);
  if (recorded) record_operator(op, arguments, stack, flops_ - before);
  if (!writes || !any_unknown) return;
  const auto& schema = op.schema().arguments();
  for (size_t i = 0; i < schema.size(); ++i) {
    const auto* alias = schema[i].alias_info();
    if (!alias || !alias->isWrite()) continue;
    for_each_tensor({arguments[i]}, [&](const at::Tensor& tensor) {
      if (tensor.defined()) values_.was_written(tensor, values_.without_data(tensor));
    });
  }
}

void Tracer::record_operator(const c10::OperatorHandle& op, std::vector<c10::IValue> arguments,
                             const torch::jit::Stack& results, double flops) {
  const bool writes = op.schema().is_mutable();
  bool gives_tensors = false;
  for_each_tensor(results, [&](const at::Tensor&) { gives_tensors = true; });
  if (!gives_tensors && !writes) return;
  GraphNode node{};
  node.kind = Kind::kOperator;
  node.name = operator_name(op);
  node.module = module_path();
  set_mode(node);
  node.flops = flops;
  node.op = op;
  node.writes = writes;
  replace_tensors(arguments, [&](const at::Tensor& tensor) {
    node.inputs.push_back(values_.id_of(tensor, node.module));
    return at::Tensor();
  });
  // The device that stands for all others while tracing.
  for (c10::IValue& argument : arguments) {
    if (argument.isDevice() && argument.toDevice().is_meta()) argument = at::Device(at::kCPU);
  }
  node.arguments = std::move(arguments);
  const auto index = static_cast<int>(graph_.nodes.size());
  const std::string name = short_name(op);
  for_each_tensor(results, [&](const at::Tensor& tensor) {
    node.outputs.push_back(values_.define(tensor, index, name));
  });
  graph_.nodes.push_back(std::move(node));
}

// Operators whose arguments are known run in a trace. They write nothing to buffers that stays.
class KeptBuffers {
 public:
  explicit KeptBuffers(const Module& root) {
    const at::NoGradGuard no_grad;
    for (const NamedBuffer& entry : named_buffers(root)) {
      const at::Tensor& value = entry.buffer->value;
      kept_.push_back({value, value.clone(), value._version()});
    }
  }
  ~KeptBuffers() {
    const at::NoGradGuard no_grad;
    for (const Kept& each : kept_) {
      if (each.value._version() == each.version) continue;
      try {
        each.value.copy_(each.before);
      } catch (const std::exception& e) {
        log(NXD_LOG_ERROR, "trace: what it wrote to a buffer could not be undone: ", e.what());
      }
    }
  }
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  struct Kept {
    at::Tensor value, before;
    int64_t version;
  };
  std::vector<Kept> kept_;
};

}  // namespace

Graph trace(const std::shared_ptr<Module>& root, const Module::Tensors& inputs, size_t n_outputs,
            const TraceOptions& options) {
  check_argument(root != nullptr, "root: expected a module, got none");
  check_state(!is_tracing(), "trace: this thread is tracing already");
  const KeptBuffers kept(*root);
  return Tracer(root, options).run(inputs, n_outputs);
}

}  // namespace nxd

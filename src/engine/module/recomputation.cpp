#include "engine/module/recomputation.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/base/log.h"
#include "core/base/suggestions.h"
#include "engine/autograd/gradient_interceptor.h"
#include "engine/autograd/gradients.h"
#include "engine/device/device_tensor.h"
#include "engine/device/random_state.h"
#include "engine/device/recording.h"
#include "engine/device/step_closures.h"
#include "engine/graph_node.h"
#include "engine/module/attributes.h"
#include "engine/module/buffer_watch.h"
#include "engine/module/buffers.h"
#include "engine/module/call_path.h"
#include "engine/module/module_tree.h"
#include "engine/ops/autocast.h"

namespace nxd {
namespace {

using torch::autograd::variable_list;
using Tensors = Module::Tensors;

template <class Visit>
void for_each_module(Module& module, const std::string& path, const Visit& visit) {
  visit(module, path);
  for (const auto& [name, child] : module.children()) {
    for_each_module(*child, join_path(path, name), visit);
  }
}

uint32_t version_of(const at::Tensor& tensor) { return static_cast<uint32_t>(tensor._version()); }

// The state of ATen's own generator, which operators such as dropout draw from; a step that runs on
// another thread draws from it too.
at::Tensor generator_state() {
  wait_for_step();
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

// State that a forward depends on besides inputs and parameters.
class Surroundings {
 public:
  explicit Surroundings(Module& module)
      : context_(module.context()),
        step_(context_->step()),
        microbatch_(context_->microbatch()),
        casts_(autocast_dtype()),
        path_(CallPath::current()) {
    for_each_module(module, "", [&](Module& each, const std::string&) {
      training_.emplace_back(&each, each.training());
    });
  }

  CallPath path() const { return path_; }
  // Makes the others those of now, for each module alone.
  void restore() const {
    context_->set_step(step_, microbatch_);
    set_autocast(casts_);
    for (const auto& [module, training] : training_) module->set_own_training(training);
  }

 private:
  std::shared_ptr<Context> context_;
  int64_t step_, microbatch_;
  nxd_dtype_t casts_;
  CallPath path_;
  std::vector<std::pair<Module*, bool>> training_;  // of a tree that somebody keeps alive
};

// Where a forward began to draw random bits; each undefined where it drew none.
struct RandomStates {
  at::Tensor of_generator{};  // from ATen's generator itself
  at::Tensor of_device{};     // by the graph (random_state.h)
};

// Other surroundings for a scope. An undefined state leaves the generator alone.
class InSurroundings {
 public:
  InSurroundings(Module& module, const Surroundings& wanted, const RandomStates& random)
      : before_(module), path_(wanted.path()) {
    wanted.restore();
    run_draws_of(random);
    if (random.of_generator.defined()) {
      random_before_.of_generator = generator_state();
      set_generator_state(random.of_generator);
    }
    if (random.of_device.defined()) {
      random_before_.of_device = exchange_random_state(random.of_device);
    }
  }
  ~InSurroundings() {
    try {
      before_.restore();
      if (random_before_.of_device.defined()) exchange_random_state(random_before_.of_device);
      run_draws_of(random_before_);
      if (random_before_.of_generator.defined()) set_generator_state(random_before_.of_generator);
    } catch (const std::exception& e) {
      log(NXD_LOG_ERROR, "recomputation: what it changed could not be put back: ", e.what());
    }
  }
  InSurroundings(const InSurroundings&) = delete;
  InSurroundings& operator=(const InSurroundings&) = delete;

 private:
  // A graph draws from the same generator when it runs. A forward with an operator that cannot be
  // recorded has drawn from both, and recorded draws have their place among the generator's.
  static void run_draws_of(const RandomStates& random) {
    if (!random.of_generator.defined() || !random.of_device.defined()) return;
    Recording::current()->sync("nxd::exchange_random_state");
  }

  Surroundings before_;
  CallPathScope path_;
  RandomStates random_before_{};
};

// Takes the gradients that a pass over recomputed activations has for the module's parameters: the
// pass outside hands them on.
class ParameterGradients : public GradientInterceptor {
 public:
  explicit ParameterGradients(const Tensors& leaves) {
    for (const at::Tensor& leaf : leaves) taken_[leaf.unsafeGetTensorImpl()];
  }

  at::Tensor arrive(const at::Tensor& leaf, at::Tensor grad) override {
    const auto found = taken_.find(leaf.unsafeGetTensorImpl());
    if (found == taken_.end()) return grad;
    found->second = std::move(grad);
    return {};
  }
  bool holds_back(const at::Tensor& leaf) const override {
    return taken_.count(leaf.unsafeGetTensorImpl()) != 0;
  }
  at::Tensor take(const at::Tensor& leaf) {
    return std::move(taken_.at(leaf.unsafeGetTensorImpl()));
  }

 private:
  std::unordered_map<const c10::TensorImpl*, at::Tensor> taken_;
};

// The buffers of a tree, as a forward found them.
class BuffersBefore {
 public:
  explicit BuffersBefore(const Module& module) {
    for (NamedBuffer& entry : named_buffers(module)) {
      found_.push_back({BufferWatch(std::move(entry.buffer)), false});
    }
  }

  // When the forward is done.
  void find_written() {
    for (Found& each : found_) each.is_written = !each.watch.is_as_found();
  }
  // The ones that the forward would not find as they were, or would write to again.
  std::vector<BufferWatch> changed() const {
    std::vector<BufferWatch> out;
    for (const Found& each : found_) {
      if (each.is_written || !each.watch.is_as_found()) out.push_back(each.watch);
    }
    return out;
  }

 private:
  struct Found {
    BufferWatch watch;
    bool is_written;
  };
  std::vector<Found> found_;
};

// A module's call in the graph. Its edges lead to the inputs, then to the parameters.
class RecomputedCall : public torch::autograd::Node {
 public:
  RecomputedCall(Module& module, const Tensors& inputs, ModuleForward forward)
      : module_(module.shared_from_this()), forward_(std::move(forward)), surroundings_(module) {
    random_.of_generator = generator_state();
    for (const at::Tensor& input : inputs) {
      if (input.defined()) {
        inputs_.push_back({input.detach(), input.requires_grad(), version_of(input)});
      } else {
        inputs_.emplace_back();
      }
    }
    for (NamedParameter& entry : named_parameters(module)) {
      const at::Tensor value = entry.parameter->tensor();
      if (value.requires_grad()) leaves_.push_back(value);
      parameters_.push_back({std::move(entry), value, version_of(value)});
    }
  }

  bool wants_gradients() const {
    return !leaves_.empty() ||
           std::any_of(inputs_.begin(), inputs_.end(), [](const Input& i) { return i.needs_grad; });
  }

  Tensors run_forward() {
    Tensors given;
    for (const Input& input : inputs_) given.push_back(input.value);
    const at::NoGradGuard no_grad;
    const RandomStateScope on_device;
    buffers_.emplace(*module_);
    attributes_.emplace(*module_);
    const Tensors outputs = forward_(given);
    buffers_->find_written();
    attributes_->forget_unchanged_tensors();
    check_unchanged();
    if (at::equal(random_.of_generator, generator_state())) random_.of_generator.reset();
    random_.of_device = on_device.state();
    return outputs;
  }

  // Edges from the outputs to here, and from here to inputs and parameters.
  static Tensors attach(const Held<RecomputedCall>& node, const Tensors& inputs,
                        const Tensors& outputs);

  variable_list apply(variable_list&& grads) override;
  void release_variables() override {
    inputs_.clear();
    buffers_.reset();
    attributes_.reset();
    released_ = true;
  }
  std::string name() const override { return module_->class_name() + " (recomputed)"; }

 private:
  struct Input {
    at::Tensor value;  // detached
    bool needs_grad = false;
    uint32_t version = 0;
  };
  // An output that has memory of another one. A write to it reaches the other outside, and not in a
  // graph that is made again, in which each begins anew.
  struct SharedOutput {
    size_t index;
    c10::VariableVersion counter;
    uint32_t version;
  };
  // A parameter of the tree, and the value that it had: another may stand in for a call.
  struct OwnParameter {
    NamedParameter named;
    at::Tensor value;
    uint32_t version;
  };

  void watch_shared(const Tensors& outputs);
  void check_unchanged() const;
  void check_outputs() const;
  Tensors detached_inputs() const;
  Tensors recompute(const Tensors& given);
  void swap_values();
  variable_list asked_for(const Tensors& given, const Tensors& roots, const Tensors& root_grads);
  variable_list added_up(const Tensors& given, const Tensors& roots, const Tensors& root_grads);

  std::shared_ptr<Module> module_;
  ModuleForward forward_;
  Surroundings surroundings_;
  RandomStates random_{};
  std::vector<Input> inputs_;
  std::vector<OwnParameter> parameters_;
  Tensors leaves_;  // values of those that are trainable
  std::optional<BuffersBefore> buffers_;
  std::optional<AttributesBefore> attributes_;
  std::vector<SharedOutput> shared_outputs_;
  bool released_ = false;
};

void RecomputedCall::check_unchanged() const {
  const auto check = [&](const at::Tensor& value, uint32_t version, const auto&... what) {
    check_state(!value.defined() || version_of(value) == version, module_->class_name(), ": ",
                what...,
                " was written to since the call began, which a module that is recomputed "
                "needs as it was");
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    check(inputs_[i].value, inputs_[i].version, "input ", i);
  }
  for (const OwnParameter& own : parameters_) {
    check(own.value, own.version, "parameter ", own.named.name);
    check_state(
        own.named.parameter->tensor().scalar_type() == own.value.scalar_type(),
        module_->class_name(), ": parameter ", own.named.name,
        " was cast since the call began, which a module that is recomputed needs as it was");
  }
}

void RecomputedCall::watch_shared(const Tensors& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (size_t j = 0; j < outputs.size(); ++j) {
      if (i == j || !outputs[i].defined() || !outputs[j].defined()) continue;
      if (!share_memory(outputs[i], outputs[j])) continue;
      const c10::VariableVersion& counter = outputs[i].unsafeGetTensorImpl()->version_counter();
      shared_outputs_.push_back({i, counter, counter.current_version()});
      break;
    }
  }
}

void RecomputedCall::check_outputs() const {
  for (const SharedOutput& each : shared_outputs_) {
    check_state(each.counter.current_version() == each.version, module_->class_name(), ": output ",
                each.index,
                ", which shares memory with another output, was written to; a module that is "
                "recomputed cannot tell the other's gradient of it: write to a copy");
  }
}

Tensors RecomputedCall::attach(const Held<RecomputedCall>& node, const Tensors& inputs,
                               const Tensors& outputs) {
  torch::autograd::edge_list edges = torch::autograd::collect_next_edges(inputs);
  for (const at::Tensor& leaf : node->leaves_) {
    edges.emplace_back(watched_accumulator(leaf), 0);
  }
  node->set_next_edges(std::move(edges));
  Tensors results;
  for (const at::Tensor& output : outputs) {
    // History is written into what goes out, which may be an input, or an output twice.
    results.push_back(output.defined() ? output.detach() : output);
    if (output.defined() && (output.is_floating_point() || output.is_complex())) {
      torch::autograd::create_gradient_edge(results.back(), node);
    } else {
      node->add_input_metadata(Node::undefined_input());
    }
  }
  node->watch_shared(results);
  return results;
}

// The inputs as leaves of a graph of their own.
Tensors RecomputedCall::detached_inputs() const {
  Tensors result;
  for (const Input& input : inputs_) {
    result.push_back(input.value.defined() ? input.value.detach() : input.value);
    if (input.needs_grad) result.back().set_requires_grad(true);
  }
  return result;
}

Tensors RecomputedCall::recompute(const Tensors& given) {
  const InSurroundings as_then(*module_, surroundings_, random_);
  const CopiesOfBuffers buffers(buffers_->changed());
  const AttributesBefore::Scope attributes(*attributes_);
  const at::AutoGradMode record(true);
  swap_values();
  struct SwapBack {
    RecomputedCall& call;
    ~SwapBack() { call.swap_values(); }
  } swap_back{*this};
  return forward_(given);
}

void RecomputedCall::swap_values() {
  for (OwnParameter& own : parameters_) std::swap(own.named.parameter->tensor(), own.value);
}

variable_list RecomputedCall::apply(variable_list&& grads) {
  const std::string& name = module_->class_name();
  check_state(!released_, name,
              ": its graph was differentiated already; the pass before needs retain_graph");
  if (at::GradMode::is_enabled()) {
    fail(NXD_ERROR_UNSUPPORTED, name,
         ": gradients of recomputed activations cannot be differentiated again (create_graph)");
  }
  check_unchanged();
  check_outputs();
  const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
  const bool hands_out = wanted && !wanted->empty();
  const Tensors given = detached_inputs();
  Tensors roots, root_grads;
  {
    const Tensors outputs = recompute(given);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!grads[i].defined() || !outputs[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      root_grads.push_back(std::move(grads[i]));
    }
  }
  if (roots.empty()) return variable_list(inputs_.size() + leaves_.size());
  return hands_out ? asked_for(given, roots, root_grads) : added_up(given, roots, root_grads);
}

// The pass outside gives gradients to the callers that asked for them, and none to the leaves.
variable_list RecomputedCall::asked_for(const Tensors& given, const Tensors& roots,
                                        const Tensors& root_grads) {
  Tensors wanted;
  std::vector<size_t> places;
  for (size_t i = 0; i < given.size() + leaves_.size(); ++i) {
    const bool is_input = i < given.size();
    const at::Tensor& leaf = is_input ? given[i] : leaves_[i - given.size()];
    if (!task_should_compute_output(i) || !leaf.requires_grad()) continue;
    wanted.push_back(leaf);
    places.push_back(i);
  }
  variable_list result(given.size() + leaves_.size());
  if (wanted.empty()) return result;
  const Tensors found = run_gradients(roots, root_grads, wanted, /*retain_graph=*/false);
  for (size_t i = 0; i < found.size(); ++i) result[places[i]] = found[i];
  return result;
}

// Products add to the parameters' gradients as they would have done; what they leave to autograd
// goes on to the pass outside, which adds it up with what other uses have.
variable_list RecomputedCall::added_up(const Tensors& given, const Tensors& roots,
                                       const Tensors& root_grads) {
  ParameterGradients of_parameters(leaves_);
  {
    const InterceptionScope scope(of_parameters);
    run_backward(roots, root_grads, /*retain_graph=*/false);
  }
  variable_list result;
  for (size_t i = 0; i < given.size(); ++i) {
    result.push_back(inputs_[i].needs_grad ? given[i].grad() : at::Tensor());
  }
  for (const at::Tensor& leaf : leaves_) result.push_back(of_parameters.take(leaf));
  return result;
}

// The modules that a name means: the one of this path, or all of this class.
std::vector<Module*> modules_named(Module& root, const std::string& name) {
  std::vector<Module*> found;
  std::vector<std::string> known;
  for_each_module(root, "", [&](Module& module, const std::string& path) {
    if (path == name || module.class_name() == name) found.push_back(&module);
    if (!path.empty()) known.push_back(path);
    known.push_back(module.class_name());
  });
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  check_argument(!name.empty() && !found.empty(), "names: ", root.class_name(),
                 " has no module of the path or class \"", name, "\"", Suggestions(name, known));
  return found;
}

}  // namespace

Tensors call_recomputed(Module& module, const Tensors& inputs, const ModuleForward& forward) {
  const auto node = hold(std::make_unique<RecomputedCall>(module, inputs, forward));
  if (!node->wants_gradients()) return forward(inputs);
  return RecomputedCall::attach(node, inputs, node->run_forward());
}

void set_recomputation(Module& root, const std::vector<std::string>& names, bool on) {
  std::vector<Module*> chosen;
  for (const std::string& name : names) {
    const std::vector<Module*> found = modules_named(root, name);
    chosen.insert(chosen.end(), found.begin(), found.end());
  }
  for (Module* module : chosen) module->set_recomputes(on);
}

}  // namespace nxd

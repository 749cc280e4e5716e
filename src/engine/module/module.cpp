#include "engine/module/module.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "core/base/suggestions.h"
#include "engine/module/buffers.h"
#include "engine/module/module_tree.h"
#include "engine/module/recomputation.h"
#include "engine/ops/collectives.h"
#include "engine/own_products.h"
#include "engine/tensor/call_tracer.h"

namespace nxd {
namespace {

// How often any tree has got a child or a parameter, or another parameter in one's place.
std::atomic<uint64_t> changes_of_trees{1};

}  // namespace

std::string join_path(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

Module::Module(std::shared_ptr<Context> context, std::string class_name)
    : context_(std::move(context)), class_name_(std::move(class_name)) {}

void Module::check_parameters(const Tensors& inputs) const {
  if (parameters_.empty()) return;
  // Shapes go through parameters that have nothing but a shape.
  const auto is_shape = [](const at::Tensor& x) { return x.defined() && x.is_meta(); };
  const bool only_shapes =
      CallTracer::current() || std::any_of(inputs.begin(), inputs.end(), is_shape);
  check_with_peers(*context_, "forward", [&] {
    for (const auto& [name, parameter] : parameters_) {
      parameter->check_complete();
      check_state(only_shapes || parameter->has_value(), class_name_, ": parameter ",
                  parameter->canonical_name(),
                  ": it has no values, since it is on the meta device; nxd_move_model_to_device, "
                  "nxd_pp_create and loads give it some");
    }
  });
}

Module::Tensors Module::call(const Tensors& inputs, size_t n_outputs) {
  context_->check_usable();
  check_parameters(inputs);
  const OwnProducts own_products(!context_->plain_kernels());
  // By value: a recomputation outlives this call.
  const auto run = [this, n_outputs](const Tensors& given) {
    Tensors outputs = forward(given, n_outputs);
    check_internal(outputs.size() == n_outputs || n_outputs == kAllOutputs, class_name_, ": gave ",
                   outputs.size(), " outputs where ", n_outputs, " were asked for");
    if (!names_outputs_) number_outputs(outputs.size());
    return outputs;
  };
  if (CallTracer* tracer = CallTracer::current()) {
    return tracer->call_module(*this, inputs, [&] { return run(inputs); });
  }
  const bool recompute = recomputes_ && at::GradMode::is_enabled();
  return recompute ? call_recomputed(*this, inputs, run) : run(inputs);
}

void Module::note_modes(Modes used) {
  // An evaluation beside the training, which one rank alone may make, changes no gradient.
  if (at::GradMode::is_enabled() && !CallTracer::current()) modes_used_ = used;
}

void Module::name_outputs(std::vector<std::string> paths) {
  names_outputs_ = true;
  output_paths_ = std::move(paths);
}

void Module::number_outputs(size_t count) {
  output_paths_.resize(std::min(count, output_paths_.size()));
  while (output_paths_.size() < count)
    output_paths_.push_back(std::to_string(output_paths_.size()));
}

void Module::set_training(bool training) {
  training_ = training;
  for (const auto& [name, child] : children_) child->set_training(training);
}

void Module::check_open(const std::string& name) const {
  check_argument(!is_closed_, class_name_, ": nothing is added to a module that has its forward ",
                 "from a file, got \"", name, "\"; make both children of another module");
}

void Module::check_name(const std::string& name) const {
  check_open(name);
  check_argument(!name.empty() && name.find('.') == std::string::npos,
                 "name: expected a name that is not empty and has no dot, got \"", name, "\"");
  const auto taken = [&](const auto& entry) { return entry.first == name; };
  const auto* holder = dynamic_cast<const BufferHolder*>(this);
  check_argument(!(holder && holder->has_buffer(name)) &&
                     std::none_of(children_.begin(), children_.end(), taken) &&
                     std::none_of(parameters_.begin(), parameters_.end(), taken),
                 class_name_, ": the name \"", name, "\" is taken already");
}

namespace {

bool contains(const Module& tree, const Module* wanted) {
  if (&tree == wanted || (tree.whole() && contains(*tree.whole(), wanted))) return true;
  return std::any_of(tree.children().begin(), tree.children().end(),
                     [&](const auto& entry) { return contains(*entry.second, wanted); });
}

}  // namespace

void Module::add_child(const std::string& name, std::shared_ptr<Module> child) {
  check_name(name);
  check_argument(child->context() == context_, "child: expected a module of the parent's context");
  check_argument(!contains(*child, this), "child: adding \"", name,
                 "\" would make the module its own descendant");
  children_.emplace_back(name, std::move(child));
  ++changes_of_trees;
}

Parameter& Module::add_parameter(const std::string& name, std::shared_ptr<Parameter> parameter) {
  check_name(name);
  if (!parameter->shard_group()) {
    if (const auto layout = context_->find_parallel()) {
      parameter->set_shard_group(layout->group(NXD_AXIS_TENSOR));
    }
  }
  parameters_.emplace_back(name, std::move(parameter));
  ++changes_of_trees;
  return *parameters_.back().second;
}

std::shared_ptr<void> Module::alias_parameter(const std::string& name,
                                              std::shared_ptr<Parameter> owner) {
  const std::shared_ptr<Parameter> before = parameter(name);
  const auto is_named = [&](const auto& entry) { return entry.first == name; };
  auto replaced = std::find_if(replaced_.begin(), replaced_.end(), is_named);
  if (replaced == replaced_.end()) {
    replaced_.emplace_back(name, nullptr);
    replaced = std::prev(replaced_.end());
    replaced->second = before->attachment().take();
  }
  std::find_if(parameters_.begin(), parameters_.end(), is_named)->second = std::move(owner);
  ++changes_of_trees;
  return replaced->second;
}

bool Module::is_alias(const std::string& name) const {
  const auto is_named = [&](const auto& entry) { return entry.first == name; };
  return std::any_of(replaced_.begin(), replaced_.end(), is_named);
}

std::shared_ptr<Parameter> Module::parameter(const std::string& name) const {
  std::vector<std::string> known;
  for (const auto& [own_name, parameter] : parameters_) {
    if (own_name == name) return parameter;
    known.push_back(own_name);
  }
  fail(NXD_ERROR_INVALID_ARGUMENT, class_name_, " has no parameter \"", name, "\"",
       suggestions(name, known));
}

at::Tensor Module::parameter_value(std::string_view name) const {
  for (const auto& [own_name, parameter] : parameters_) {
    if (own_name == name) return parameter->tensor();
  }
  return {};
}

// Callers go through the list by index: only after a change is it made anew.
const std::vector<NamedParameter>& Module::tree_parameters() {
  const uint64_t changes = changes_of_trees;
  if (tree_parameters_as_of_ == changes) return tree_parameters_;
  std::vector<NamedParameter> fresh = named_parameters(*this);
  const auto same = [](const NamedParameter& a, const NamedParameter& b) {
    return a.name == b.name && a.parameter == b.parameter;
  };
  if (!std::equal(fresh.begin(), fresh.end(), tree_parameters_.begin(), tree_parameters_.end(),
                  same)) {
    tree_parameters_ = std::move(fresh);
  }
  tree_parameters_as_of_ = changes;
  return tree_parameters_;
}

void Module::check_arity(const Tensors& inputs, size_t n_outputs, size_t min_inputs,
                         size_t max_inputs, size_t max_outputs, ProcessGroup* group) const {
  if (group) {
    return check_with_group(*group, class_name_.c_str(), [&] {
      check_arity(inputs, n_outputs, min_inputs, max_inputs, max_outputs);
    });
  }
  check_argument(inputs.size() >= min_inputs && inputs.size() <= max_inputs, class_name_,
                 ": expected ", min_inputs, min_inputs == max_inputs ? "" : " to ",
                 min_inputs == max_inputs ? std::string() : std::to_string(max_inputs),
                 " inputs, got ", inputs.size());
  for (size_t i = 0; i < min_inputs; ++i) {
    check_argument(inputs[i].defined(), class_name_, ": input ", i,
                   ": expected a tensor, got NULL");
  }
  check_argument(n_outputs >= 1 && n_outputs <= max_outputs, class_name_, ": gives 1",
                 max_outputs == 1 ? "" : " to ",
                 max_outputs == 1 ? std::string() : std::to_string(max_outputs), " outputs, ",
                 n_outputs, " were asked for");
}

}  // namespace nxd

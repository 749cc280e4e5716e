#include "engine/layers/pad_model.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/agree/agree.h"
#include "core/base/hash.h"
#include "core/base/suggestions.h"
#include "engine/layers/parallel_linear.h"
#include "engine/layers/qkv_linear.h"
#include "engine/module/callback_module.h"
#include "engine/module/full_parameter.h"
#include "engine/module/module_tree.h"
#include "engine/module/sequential.h"
#include "engine/tensor/call_tracer.h"

namespace nxd {
namespace {

using PaddedParameter = ParallelLinearLayer::PaddedParameter;

// Modules of the library's own know their heads and features, and share them as they can.
bool is_callers(const Module& module) {
  return dynamic_cast<const CallbackModule*>(&module) || dynamic_cast<const Sequential*>(&module);
}

// The parts of a tree that are to be padded, found before anything is changed.
class PadPlan {
 public:
  PadPlan() = default;
  PadPlan(Module& root, const HeadPadding& heads, const std::vector<std::string>& wrapped_classes)
      : heads_(heads), wrapped_(wrapped_classes) {
    check_classes(root);
    visit(root, "", wrapped_.empty());
    check_argument(!parameters_.empty(), "root: expected column- or row-parallel layers of the ",
                   "caller's modules, to pad; ", root.class_name(), " has none",
                   wrapped_.empty() ? "" : " in wrapped_classes",
                   ". The library's own attention, MLPs and models need no padding");
    check_ties(root, "");
    for (const PaddedParameter& entry : parameters_) {
      entry.parameter->check_complete();
      entry.parameter->check_movable();
    }
  }

  const std::vector<Module*>& visited() const { return visited_; }  // children first
  const std::vector<PaddedParameter>& parameters() const { return parameters_; }
  size_t values() const {
    return static_cast<size_t>(
        std::count_if(parameters_.begin(), parameters_.end(),
                      [](const auto& p) { return p.parameter->has_value(); }));
  }
  uint32_t hash_of_values() const {
    Hash hash;
    for (const PaddedParameter& p : parameters_) hash.add(uint64_t{p.parameter->has_value()});
    return hash.folded();
  }

 private:
  static void list_classes(const Module& module, std::set<std::string>& names) {
    names.insert(module.class_name());
    for (const auto& [name, child] : module.children()) list_classes(*child, names);
  }

  void check_classes(const Module& root) const {
    std::set<std::string> known;
    list_classes(root, known);
    for (const std::string& name : wrapped_) {
      check_argument(known.count(name) != 0, "wrapped_classes: ", root.class_name(),
                     " has no module of class \"", name, "\"",
                     Suggestions(name, {known.begin(), known.end()}));
    }
  }

  void visit(Module& module, const std::string& path, bool is_padded) {
    is_padded = is_padded ||
                std::find(wrapped_.begin(), wrapped_.end(), module.class_name()) != wrapped_.end();
    if (is_callers(module)) {
      for (const auto& [name, child] : module.children()) {
        visit(*child, join_path(path, name), is_padded);
      }
    }
    if (!is_padded) return;
    if (dynamic_cast<const QkvLinear*>(&module)) {
      fail(NXD_ERROR_UNSUPPORTED, path, ": the heads of a ", module.class_name(),
           " are shared without padding; expected column-parallel layers in what is padded");
    }
    visited_.push_back(&module);
    const auto* layer = dynamic_cast<const ParallelLinearLayer*>(&module);
    if (!layer) return;
    layers_.insert(layer);
    for (PaddedParameter& entry : layer->padded_parameters(heads_, path)) {
      const auto [known, added] = shards_.emplace(entry.parameter.get(), entry.shard);
      check_argument(added || known->second == entry.shard, "parameter ",
                     entry.parameter->canonical_name(), ": it is tied to that of ", path,
                     ", which is padded in another way");
      if (added) parameters_.push_back(std::move(entry));
    }
  }

  // A tied parameter is padded for all modules that have it, or for none.
  void check_ties(const Module& module, const std::string& path) const {
    for (const auto& [name, parameter] : module.parameters()) {
      check_argument(shards_.count(parameter.get()) == 0 || layers_.count(&module) != 0,
                     "parameter ", parameter->canonical_name(), ": it is tied to ",
                     join_path(path, name), ", which is not padded");
    }
    for (const auto& [name, child] : module.children()) check_ties(*child, join_path(path, name));
  }

  HeadPadding heads_;
  std::vector<std::string> wrapped_;
  std::vector<Module*> visited_;
  std::set<const Module*> layers_;
  std::map<const Parameter*, ShardSpec> shards_;
  std::vector<PaddedParameter> parameters_;
};

// All parameters, or none where a rank fails on the way: one that lacks memory comes to all
// gatherings, in which its peers wait for it, and tells them then.
void reshard(ProcessGroup& group, int rank, const std::vector<PaddedParameter>& parameters) {
  std::vector<at::Tensor> values(parameters.size());
  Outcome taken;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = *parameters[i].parameter;
    const ShardSpec& shard = parameters[i].shard;
    if (!parameter.has_value() || parameter.shard() == shard) continue;
    const at::Tensor full = gather_full(parameter);
    Outcome own = Outcome::of(rank, [&] { values[i] = parameter.value_of(shard, full); });
    if (taken.good()) taken = std::move(own);
  }
  gather_texts(&group, "", taken);
  for (size_t i = 0; i < parameters.size(); ++i) {
    Parameter& parameter = *parameters[i].parameter;
    if (parameter.shard() == parameters[i].shard) continue;  // on all ranks or none
    parameter.reshard(parameters[i].shard, std::move(values[i]));
  }
}

}  // namespace

void pad_model(Module& root, const PadRequest& request, const Outcome& given) {
  const Context& context = *root.context();
  context.check_usable();
  check_not_tracing("nxd_pad_model");
  const GroupRef group = tensor_group(context);
  HeadPadding heads;
  PadPlan plan;
  Proposal proposal(context.rank(), "pad the model");
  proposal.attempt([&] {
    given.rethrow();
    for (const NamedParameter& entry : named_parameters(root)) {
      entry.parameter->check_uncut("nxd_pad_model");
    }
    heads = HeadPadding::make(request.num_heads, request.tp_degree);
    check_argument(heads.padded_heads % group->size() == 0, "tp_degree: expected one that pads ",
                   heads.heads, " heads to a multiple of the ranks, got ", request.tp_degree,
                   ", for ", heads.padded_heads, " heads, which ", group->size(),
                   " ranks do not divide");
    plan = PadPlan(root, heads, request.wrapped_classes);
  });
  proposal.same("tp_degree", static_cast<double>(request.tp_degree))
      .same("num_heads", static_cast<double>(request.num_heads))
      .same("number of parameters to pad", static_cast<double>(plan.parameters().size()))
      .same("number of parameters with values", static_cast<double>(plan.values()))
      .same("which parameters have values, as a hash", plan.hash_of_values());
  agree({group.get()}, proposal);
  const Outcome hooked = Outcome::of(context.rank(), [&] {
    for (Module* module : plan.visited()) {
      if (request.hook) request.hook(*module, heads);
    }
  });
  gather_texts(group.get(), "", hooked);
  reshard(*group, context.rank(), plan.parameters());
}

}  // namespace nxd

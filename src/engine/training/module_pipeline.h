#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/agree/agree.h"
#include "core/optim/data_parallel.h"
#include "core/pipeline/pipeline.h"
#include "engine/graph/tracer.h"
#include "engine/training/module_stages.h"

namespace nxd {

// How a model is traced, cut and run.
struct ModulePipelineOptions {
  PipelineShape shape;
  std::shared_ptr<const Schedule> schedule;
  nxd_pp_partition_t partition = NXD_PP_PARTITION_EVEN;
  std::string layer_class;  // "" when there is none
  std::vector<std::string> cuts;
  TraceOptions trace;
  size_t num_outputs = 1;  // or Module::kAllOutputs
  size_t loss_output = 0;
  std::string loss_path;  // instead of loss_output; "" when there is none
  bool by_tokens = false;
  size_t labels_input = 0;
  int64_t ignore_index = -100;
  bool labels_shifted = false;
  bool share_loss = false, return_losses = false, keep_outputs = false;
  // Writes the first values of a parameter that has none; by default they are its initial ones.
  std::function<void(Parameter&, const std::string& name, at::Tensor& value)> param_init;
  std::string trace_path;
};

// A model that is traced and cut, of which this rank runs its stages.
class ModulePipeline {
 public:
  // See nxd_pp_create. Collective over the pipeline-parallel group and, where cuts are found by
  // costs, the tensor-parallel one.
  static std::shared_ptr<ModulePipeline> create(std::shared_ptr<Module> root,
                                                const Module::Tensors& inputs,
                                                ModulePipelineOptions options);
  // Rejects in a handler, with the reason that is handled, a create() that the other ranks make.
  static void reject(const Context& context, bool by_costs) noexcept;

  Pipeline& pipeline() { return *pipeline_; }
  double run_train(const Module::Tensors& inputs);
  struct Evaluation {
    double loss = 0;
    Module::Tensors outputs;  // undefined but on the rank with the last stage
  };
  Evaluation run_eval(const Module::Tensors& inputs, size_t n_outputs);

  // The inputs of a run, read by a function. Where it fails, all ranks of the pipeline do, as if
  // this one were in the run.
  Module::Tensors read_inputs(const std::function<Module::Tensors()>& read, bool training) const;
  // Inputs in the forward's order, by their names; one that none names is left out.
  Module::Tensors by_name(const std::vector<std::string>& names,
                          const Module::Tensors& given) const;

  // INVALID_STATE unless asked for by the options.
  const std::vector<double>& losses() const;
  void set_ddp(std::weak_ptr<DataParallel> ddp) { stages_->set_ddp(std::move(ddp)); }

  const std::shared_ptr<Module>& local_module() const { return local_; }
  const std::vector<std::string>& local_module_names() const { return local_names_; }
  const std::vector<std::string>& cuts() const { return options_.cuts; }
  // The outputs that run_eval gives, as Module::output_paths has them.
  const std::vector<std::string>& output_paths() const { return output_paths_; }
  const std::string& graph_text() const { return graph_text_; }
  const std::vector<std::string>& unsplit() const { return stages_->unsplit(); }

 private:
  // Facts that a trace depends on.
  struct Signature {
    std::vector<std::vector<int64_t>> shapes;  // of one microbatch's inputs
    std::vector<int> dtypes;                   // -1: left out
    nxd_dtype_t autocast = NXD_DTYPE_INVALID;
    bool training = true;  // callbacks may look at it
    std::vector<bool> branch_modes;
    std::vector<bool> trainable;                      // of the local module's parameters
    CastLists cast_lists = CastLists::kAccelerators;  // of the model's device
    bool operator==(const Signature&) const = default;
  };

  ModulePipeline(std::shared_ptr<Module> root, ModulePipelineOptions options);
  const std::shared_ptr<Context>& context() const { return root_->context(); }
  Signature check_inputs(const Module::Tensors& inputs) const;
  std::shared_ptr<const Graph> trace_for(const Module::Tensors& inputs,
                                         const Signature& signature) const;
  // The ranks that add up their costs; null where cuts are not found by these.
  std::shared_ptr<ProcessGroup> group_of_costs() const;
  std::vector<double> costs_of_all_shares(const Graph& graph) const;
  void find_cuts(const Graph& graph);
  size_t loss_of(const Graph& graph) const;
  void keep_texts(const Graph& graph);
  void keep_own_parameters();
  void add_settings(Proposal& proposal) const;
  // Gives the parameters that are in it.
  std::unordered_set<const Parameter*> make_local_module();
  void give_value(const NamedParameter& entry);
  std::vector<bool> own_trainable() const;
  void share_trainable() const;
  void prepare(const Module::Tensors& inputs, bool training);
  void check_parameters() const;
  void add_sizes(Proposal& proposal, const Module::Tensors& inputs, bool training, bool fits) const;
  void agree_on_run(const std::function<void()>& agreement, bool training) const;
  double run_stages(bool training);
  double run_batch(const Module::Tensors& inputs, bool training, size_t n_outputs);
  std::vector<double> loss_weights(const Module::Tensors& inputs) const;
  at::Tensor joined_output(size_t index) const;

  std::shared_ptr<Module> root_;
  ModulePipelineOptions options_;
  std::shared_ptr<ProcessGroup> data_;  // of the layout that it was made in, as all its ranks are
  std::optional<Signature> traced_;     // what the stages fit; none behind a failed trace
  std::shared_ptr<ModuleStages> stages_;
  std::unique_ptr<Pipeline> pipeline_;
  std::shared_ptr<Module> local_;
  std::vector<std::string> local_names_;
  std::string graph_text_;
  std::vector<std::string> output_paths_;
};

}  // namespace nxd

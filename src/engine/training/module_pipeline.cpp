#include "engine/training/module_pipeline.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "core/base/hash.h"
#include "core/base/suggestions.h"
#include "core/comm/take_for_call.h"
#include "core/kernels/memory_pool.h"
#include "core/world/trained_axes.h"
#include "engine/device/device_tensor.h"
#include "engine/module/module_tree.h"
#include "engine/ops/autocast.h"
#include "engine/ops/collectives.h"
#include "engine/training/local_module.h"
#include "engine/training/loss_place.h"
#include "engine/training/loss_weights.h"

namespace nxd {
namespace {

// The call by which tensor-parallel ranks add up their costs.
constexpr const char* kShareCosts = "all_reduce";

// Evaluation mode for a scope.
class EvaluationScope {
 public:
  explicit EvaluationScope(Module& root) : root_(root) {
    save(root);
    root.set_training(false);
  }
  ~EvaluationScope() {
    size_t next = 0;
    restore(root_, next);
  }
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  void save(const Module& module) {
    flags_.push_back(module.training());
    for (const auto& [name, child] : module.children()) save(*child);
  }
  // A parent's flag is set first, and with it its children's.
  void restore(Module& module, size_t& next) {
    const bool training = flags_[next++] != 0;
    if (module.training() != training) module.set_training(training);
    for (const auto& [name, child] : module.children()) restore(*child, next);
  }

  Module& root_;
  std::vector<char> flags_;
};

void add_branch_modes(const Module& module, std::vector<bool>& modes) {
  module.add_branch_modes(modes);
  for (const auto& [name, child] : module.children()) add_branch_modes(*child, modes);
}

std::vector<bool> branch_modes(const Module& root) {
  std::vector<bool> modes;
  add_branch_modes(root, modes);
  return modes;
}

// True if a parameter lies on the recorded device; none without such parameters. A stage does not
// hear where those of the others have moved.
std::optional<bool> is_any_recorded(const Module& module, bool with_values) {
  std::optional<bool> found;
  for (const auto& [name, parameter] : module.parameters()) {
    if (parameter->has_value() != with_values) continue;
    found = found.value_or(false) || parameter->device().type() == kRecordedDeviceType;
  }
  for (const auto& [name, child] : module.children()) {
    const std::optional<bool> below = is_any_recorded(*child, with_values);
    if (below) found = found.value_or(false) || *below;
  }
  return found;
}

CastLists cast_lists_of(const Module& root, const Module::Tensors& inputs) {
  std::optional<bool> recorded = is_any_recorded(root, true);
  if (!recorded) recorded = is_any_recorded(root, false);
  if (!recorded) return lists_of({inputs.begin(), inputs.end()});
  return *recorded ? CastLists::kXla : CastLists::kAccelerators;
}

uint32_t digest_of(const std::vector<bool>& modes) {
  Hash hash;
  for (const bool training : modes) hash.add(training ? 1 : 0);
  return hash.folded();
}

uint32_t type_digest(const at::Tensor& tensor) {
  Hash hash;
  hash.add(static_cast<uint64_t>(tensor.scalar_type()));
  for (const int64_t size : tensor.sizes()) hash.add(static_cast<uint64_t>(size));
  return hash.folded();
}

}  // namespace

ModulePipeline::ModulePipeline(std::shared_ptr<Module> root, ModulePipelineOptions options)
    : root_(std::move(root)), options_(std::move(options)) {
  check_trained_axes(*context(), "a pipeline");
  data_ = context()->parallel()->group(NXD_AXIS_DATA);
}

std::shared_ptr<ModulePipeline> ModulePipeline::create(std::shared_ptr<Module> root,
                                                       const Module::Tensors& inputs,
                                                       ModulePipelineOptions options) {
  const std::shared_ptr<Context> context = root->context();
  std::shared_ptr<ModulePipeline> self;
  try {
    self.reset(new ModulePipeline(std::move(root), std::move(options)));
    std::shared_ptr<const Graph> graph;
    take_for_call(self->group_of_costs().get(), kShareCosts, [&] {
      self->traced_ = self->check_inputs(inputs);
      graph = self->trace_for(inputs, *self->traced_);
    });
    self->find_cuts(*graph);
    self->keep_texts(*graph);
    if (!self->options_.trace_path.empty() && context->rank() == 0) {
      write_graph(*graph, self->options_.trace_path);
    }
    self->stages_ = std::make_shared<ModuleStages>(
        self->root_, graph, partition_at(*graph, self->options_.cuts), self->options_.shape,
        self->loss_of(*graph), self->options_.keep_outputs);
  } catch (...) {
    PipelineRunner::reject(*context);
    throw;
  }
  self->pipeline_ = std::make_unique<Pipeline>(context, self->stages_, self->options_.schedule,
                                               self->options_.share_loss);
  self->keep_own_parameters();
  return self;
}

void ModulePipeline::reject(const Context& context, bool by_costs) noexcept {
  try {
    const auto group = by_costs ? context.parallel()->group(NXD_AXIS_TENSOR) : nullptr;
    if (group) take_for_call(group.get(), kShareCosts, [] { throw; });
  } catch (...) {
    // The caller fails anyway, for the reason.
  }
  PipelineRunner::reject(context);
}

ModulePipeline::Signature ModulePipeline::check_inputs(const Module::Tensors& inputs) const {
  const auto& names = options_.trace.input_names;
  check_argument(inputs.size() == names.size(), "num_inputs: expected ", names.size(), ", got ",
                 inputs.size());
  Signature signature;
  signature.autocast = autocast_dtype();
  signature.training = root_->training();
  signature.branch_modes = branch_modes(*root_);
  signature.cast_lists = cast_lists_of(*root_, inputs);
  const int64_t parts = options_.shape.microbatches;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    signature.shapes.emplace_back();
    signature.dtypes.push_back(input.defined() ? static_cast<int>(input.scalar_type()) : -1);
    if (!input.defined()) continue;
    check_argument(input.dim() > 0, "inputs[", i, "] (", names[i],
                   "): expected a batch in dimension 0, got a scalar");
    check_argument(input.size(0) > 0 && input.size(0) % parts == 0, "inputs[", i, "] (", names[i],
                   "): expected a batch that divides by the ", parts,
                   " microbatches, got the shape ", input.sizes());
    signature.shapes.back() = input.sizes().vec();
    signature.shapes.back()[0] /= parts;
  }
  return signature;
}

std::shared_ptr<const Graph> ModulePipeline::trace_for(const Module::Tensors& inputs,
                                                       const Signature& signature) const {
  Module::Tensors examples(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    examples[i] =
        at::empty(signature.shapes[i], inputs[i].options().device(at::kMeta).requires_grad(false));
  }
  TraceOptions options = options_.trace;
  options.cast_lists = signature.cast_lists;
  return std::make_shared<const Graph>(trace(root_, examples, options_.num_outputs, options));
}

size_t ModulePipeline::loss_of(const Graph& graph) const {
  return options_.loss_path.empty() ? options_.loss_output : find_loss(graph, options_.loss_path);
}

void ModulePipeline::keep_texts(const Graph& graph) {
  graph_text_ = graph.to_text();
  output_paths_ = graph.output_paths;
  output_paths_.resize(graph.outputs.size());
}

std::shared_ptr<ProcessGroup> ModulePipeline::group_of_costs() const {
  const bool are_wanted = options_.partition == NXD_PP_PARTITION_COST && options_.cuts.empty() &&
                          options_.shape.stages() > 1;
  return are_wanted ? context()->parallel()->group(NXD_AXIS_TENSOR) : nullptr;
}

void ModulePipeline::find_cuts(const Graph& graph) {
  const int stages = options_.shape.stages();
  if (!options_.cuts.empty() || stages == 1) return;
  options_.cuts = options_.partition == NXD_PP_PARTITION_COST
                      ? cost_cuts(graph, options_.layer_class, stages, costs_of_all_shares(graph))
                      : even_cuts(graph, options_.layer_class, stages);
}

// Tensor-parallel ranks whose shares of a layer differ count other costs, and have to cut alike.
std::vector<double> ModulePipeline::costs_of_all_shares(const Graph& graph) const {
  const std::shared_ptr<ProcessGroup> group = group_of_costs();
  std::vector<double> costs;
  take_for_call(group.get(), kShareCosts, [&] { costs = node_costs(graph); });
  if (group->size() > 1) {
    group->run(
        Call::all_reduce(costs.data(), costs.data(), costs.size(), NXD_DTYPE_F64, NXD_REDUCE_SUM));
  }
  return costs;
}

// Whatever may fail comes before the agreement: a call that fails on one rank leaves the model
// whole on all of them.
void ModulePipeline::keep_own_parameters() {
  std::unordered_set<const Parameter*> own;
  Proposal proposal(context()->rank());
  proposal.attempt([&] { own = make_local_module(); });
  add_settings(proposal);
  pipeline_->agree_on_run(proposal);
  share_trainable();
  traced_->trainable = own_trainable();
  for (const NamedParameter& entry : named_parameters(*root_)) {
    Parameter& parameter = *entry.parameter;
    parameter.mark_cut();
    parameter.set_elsewhere(own.count(&parameter) == 0);
    if (parameter.is_elsewhere()) {
      parameter.release();
    } else if (!stages_->shared().is_owner(parameter)) {
      parameter.set_counts_in_norm(false);
    }
  }
  // Blocks of other stages' parameters.
  kernels::pool_trim();
  stages_->shared().synchronize();
}

// Stages that differ in these may fit together by the shapes of what they exchange, and compute
// another model, or leave one another in the middle of a run.
void ModulePipeline::add_settings(Proposal& proposal) const {
  Hash cuts, inputs;
  for (const std::string& cut : options_.cuts) cuts.add(cut).add(cut.size());
  for (size_t i = 0; i < traced_->shapes.size(); ++i) {
    inputs.add(static_cast<uint64_t>(traced_->dtypes[i])).add(traced_->shapes[i].size());
    for (const int64_t size : traced_->shapes[i]) inputs.add(static_cast<uint64_t>(size));
  }
  const bool tokens = options_.by_tokens;
  proposal.same_digest("the cuts", cuts.folded())
      .same("num_inputs", static_cast<double>(traced_->shapes.size()))
      .same_digest("the inputs that are given, their shapes or dtypes", inputs.folded())
      .same("num_outputs", static_cast<double>(output_paths_.size()))
      .same("the loss: over tokens (1) or microbatches (0)", tokens ? 1 : 0)
      .same("labels_input", tokens ? static_cast<double>(options_.labels_input) : 0)
      .same("ignore_index", tokens ? static_cast<double>(options_.ignore_index) : 0)
      .same("labels_shifted", tokens && options_.labels_shifted ? 1 : 0);
}

std::unordered_set<const Parameter*> ModulePipeline::make_local_module() {
  std::vector<std::shared_ptr<Parameter>> own;
  std::unordered_set<const Parameter*> known;
  for (const StageExecutor& executor : stages_->executors()) {
    for (const NamedParameter& entry : executor.parameters()) {
      if (known.insert(entry.parameter.get()).second) own.push_back(entry.parameter);
    }
    const auto& names = executor.module_names();
    local_names_.insert(local_names_.end(), names.begin(), names.end());
  }
  // Parameters that no stage uses stay with the first.
  if (context()->parallel()->rank(NXD_AXIS_PIPELINE) == 0) {
    for (const std::shared_ptr<Parameter>& unused : stages_->unused_parameters()) {
      if (known.insert(unused.get()).second) own.push_back(unused);
    }
  }
  for (const NamedParameter& entry : named_parameters(*root_)) {
    if (known.count(entry.parameter.get()) == 0) entry.parameter->check_movable();
  }
  for (const NamedParameter& entry : named_parameters(*root_)) {
    if (known.count(entry.parameter.get()) != 0) give_value(entry);
  }
  local_ = LocalModule::create(root_, own, local_names_, stages_->kept_buffers());
  return known;
}

// One on the meta device gets its first values.
void ModulePipeline::give_value(const NamedParameter& entry) {
  Parameter& parameter = *entry.parameter;
  parameter.set_elsewhere(false);  // another cut of the model may have given it up
  if (!options_.param_init) return parameter.materialize();
  parameter.materialize(
      [&](at::Tensor& value) { options_.param_init(parameter, entry.name, value); });
}

std::vector<bool> ModulePipeline::own_trainable() const {
  std::vector<bool> trainable;
  for (const NamedParameter& entry : named_parameters(*local_)) {
    trainable.push_back(entry.parameter->tensor().requires_grad());
  }
  return trainable;
}

// A trace depends on what is trainable in all stages, which each rank knows of its own parameters
// alone: those that it has released are as on the ranks that have them from now on. Collective over
// the pipeline.
void ModulePipeline::share_trainable() const {
  std::unordered_set<const Parameter*> own;
  for (const NamedParameter& entry : named_parameters(*local_)) own.insert(entry.parameter.get());
  const std::vector<NamedParameter> all = named_parameters(*root_);
  // For each parameter: some rank trains it, and some rank has it frozen.
  std::vector<int32_t> known(2 * all.size(), 0);
  for (size_t i = 0; i < all.size(); ++i) {
    const bool trainable = all[i].parameter->tensor().requires_grad();
    if (own.count(all[i].parameter.get()) != 0) known[2 * i + (trainable ? 0 : 1)] = 1;
  }
  ProcessGroup& group = pipeline_->group();
  if (group.size() > 1 && !known.empty()) {
    group.run(
        Call::all_reduce(known.data(), known.data(), known.size(), NXD_DTYPE_I32, NXD_REDUCE_MAX));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    check_argument(known[2 * i] == 0 || known[2 * i + 1] == 0, "parameter ", all[i].name,
                   ": stages of several ranks have it; expected it to be trainable on all of them "
                   "or frozen on all, got both");
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (known[2 * i] != known[2 * i + 1])
      all[i].parameter->tensor().set_requires_grad(known[2 * i] != 0);
  }
}

// Another shape, other automatic casts, other trainable parameters: the same cuts, other values.
// All ranks of the pipeline come to it together, or none does.
void ModulePipeline::prepare(const Module::Tensors& inputs, bool training) {
  Signature signature;
  Proposal proposal(context()->rank());
  proposal.attempt([&] {
    check_parameters();
    stages_->check_buffers();
    signature = check_inputs(inputs);
    signature.trainable = own_trainable();
  });
  // Parameters of one stage alone may have been frozen since, which that stage's rank knows.
  const bool fits = signature == traced_;
  add_sizes(proposal, inputs, training, fits);
  bool alike = true;
  agree_on_run([&] { alike = pipeline_->agree_on_run(proposal).front(); }, training);
  if (fits && alike) return;
  agree_on_run([&] { share_trainable(); }, training);
  // Where some ranks fail, others have the new stages already: whatever comes next is traced anew.
  traced_.reset();
  const auto take_shapes = [&] {
    pipeline_->agree_on_run(Proposal(context()->rank()).attempt([&] {
      const auto graph = trace_for(inputs, signature);
      stages_->reshape(graph, partition_at(*graph, options_.cuts), loss_of(*graph));
      keep_texts(*graph);
    }));
    pipeline_->reshape();
  };
  agree_on_run(take_shapes, training);
  traced_ = std::move(signature);
}

// The graph reads parameters that no module of a stage is asked for, as those of a head are: a run
// begins with the questions of all.
void ModulePipeline::check_parameters() const {
  for (const NamedParameter& entry : named_parameters(*local_)) {
    entry.parameter->check_complete();
    check_state(entry.parameter->has_value(), "parameter ", entry.name,
                ": it has no values, since it is on the meta device");
  }
}

// A run that all ranks of this pipeline reject. Other data-parallel copies count tokens first, then
// they wait for the loss, and for the reductions of gradients.
void ModulePipeline::agree_on_run(const std::function<void()>& agreement, bool training) const {
  pipeline_->check_idle();  // a run that goes on is not to hear of another that a callback asks for
  try {
    agreement();
  } catch (const std::exception& e) {
    const auto ddp = training ? stages_->ddp() : nullptr;
    const bool reduces = ddp && ddp->begin_run(/*is_rejected=*/true);
    if (options_.by_tokens) {
      const Outcome why = Outcome::from_current_exception(context()->rank());
      try {
        nxd::loss_weights(*data_, {}, options_.ignore_index, false, why);
      } catch (const std::exception&) {
        // It fails here as it does on the copies.
      }
    }
    pipeline_->reject_loss("another copy of the pipeline rejected the run");
    if (reduces) ddp->reject_run(e.what());
    throw;
  }
}

// Values that ranks compare before a run, under the names of the inputs. fits: this rank's stages
// are what it would trace now; agree() tells whether all ranks gave the same.
void ModulePipeline::add_sizes(Proposal& proposal, const Module::Tensors& inputs, bool training,
                               bool fits) const {
  proposal.same("training (1) or evaluation (0)", training ? 1 : 0)
      .same("the model's mode, training (1) or evaluation (0)", root_->training() ? 1 : 0)
      .same("automatic casts", static_cast<double>(autocast_dtype()))
      .same("the device, recorded (1) or not (0)",
            cast_lists_of(*root_, inputs) == CastLists::kXla ? 1 : 0)
      .same_digest("the modes (training or evaluation) of modules that branch on them",
                   digest_of(branch_modes(*root_)))
      // A run that failed on one rank alone has left its context where it was.
      .same("the context's microbatch", training ? static_cast<double>(context()->microbatch()) : 0)
      .same("num_inputs", static_cast<double>(inputs.size()));
  const auto& names = options_.trace.input_names;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool given = i < inputs.size() && inputs[i].defined();
    proposal.same(names[i], given ? static_cast<double>(inputs[i].numel()) : -1.0);
    proposal.same_digest("the shape or dtype of " + names[i], given ? type_digest(inputs[i]) : 0U);
  }
  proposal.compare_within(0, 1, fits ? 1 : 0);
}

std::vector<double> ModulePipeline::loss_weights(const Module::Tensors& inputs) const {
  const auto parts = static_cast<size_t>(options_.shape.microbatches);
  if (!options_.by_tokens) return std::vector<double>(parts, 1.0 / static_cast<double>(parts));
  const at::Tensor& labels = inputs[options_.labels_input];
  std::vector<at::Tensor> each(parts);
  if (labels.defined()) each = labels.chunk(static_cast<int64_t>(parts), 0);
  return nxd::loss_weights(*data_, each, options_.ignore_index, !options_.labels_shifted);
}

double ModulePipeline::run_stages(bool training) {
  const auto run = [&] {
    return pipeline_->run(
        training, [this] { return stages_->loss(); },
        options_.by_tokens ? NXD_REDUCE_SUM : NXD_REDUCE_AVG);
  };
  if (!training) return run();
  double loss = 0;
  try {
    loss = run();
  } catch (const std::exception& e) {
    stages_->shared().reject_end(e.what());
    throw;
  }
  stages_->shared().end_run(stages_->has_valid_tokens());
  return loss;
}

double ModulePipeline::run_batch(const Module::Tensors& inputs, bool training, size_t n_outputs) {
  prepare(inputs, training);
  const auto ddp = training ? stages_->ddp() : nullptr;
  if (ddp) ddp->begin_run(/*is_rejected=*/false);
  try {
    // Ranks meet in what was recorded before, such as the sums of shared gradients: one that began
    // its run would wait for a message of a rank that waits for it there.
    run_recorded_before("nxd::pipeline_run");
    check_argument(n_outputs <= output_paths_.size(), "num_outputs: expected at most ",
                   output_paths_.size(), ", as many as the model was traced for, got ", n_outputs);
    stages_->set_batch(inputs, loss_weights(inputs));
  } catch (...) {
    // The run fails as it begins, and tells its neighbours.
    stages_->fail_run(std::current_exception());
  }
  double loss = 0;
  try {
    loss = run_stages(training);
  } catch (const std::exception& e) {
    if (ddp) ddp->reject_run(e.what());
    throw;
  }
  if (!training) return loss;
  if (ddp) ddp->end_run();
  // Another run of the step goes on with random bits of its own.
  Context& random = *context();
  random.set_step(random.step(), random.microbatch() + options_.shape.microbatches);
  return loss;
}

Module::Tensors ModulePipeline::read_inputs(const std::function<Module::Tensors()>& read,
                                            bool training) const {
  Module::Tensors inputs;
  Proposal proposal(context()->rank());
  proposal.attempt([&] { inputs = read(); });
  if (!proposal.own().good()) {
    add_sizes(proposal, inputs, false, false);  // the other ranks compare sizes now
    agree_on_run([&] { pipeline_->agree_on_run(proposal); }, training);
  }
  return inputs;
}

Module::Tensors ModulePipeline::by_name(const std::vector<std::string>& names,
                                        const Module::Tensors& given) const {
  const std::vector<std::string>& known = options_.trace.input_names;
  Module::Tensors inputs(known.size());
  std::unordered_set<std::string> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto place = std::find(known.begin(), known.end(), names[i]);
    check_argument(place != known.end(), "names[", i, "]: ", root_->class_name(),
                   " has no input \"", names[i], "\"", Suggestions(names[i], known));
    check_argument(seen.insert(names[i]).second, "names[", i, "]: expected each name once, got \"",
                   names[i], "\" twice");
    inputs[static_cast<size_t>(place - known.begin())] = given[i];
  }
  return inputs;
}

double ModulePipeline::run_train(const Module::Tensors& inputs) {
  return run_batch(inputs, true, 0);
}

ModulePipeline::Evaluation ModulePipeline::run_eval(const Module::Tensors& inputs,
                                                    size_t n_outputs) {
  Evaluation result;
  {
    const EvaluationScope evaluation(*root_);
    result.loss = run_batch(inputs, false, n_outputs);
  }
  result.outputs.resize(n_outputs);
  for (size_t i = 0; i < n_outputs && pipeline_->has_loss(); ++i)
    result.outputs[i] = joined_output(i);
  return result;
}

at::Tensor ModulePipeline::joined_output(size_t index) const {
  std::vector<at::Tensor> parts;
  for (const Module::Tensors& outputs : stages_->root_outputs()) {
    if (!outputs[index].defined()) return {};
    parts.push_back(outputs[index]);
  }
  return parts.front().dim() == 0 ? at::stack(parts) : at::cat(parts);
}

const std::vector<double>& ModulePipeline::losses() const {
  check_state(options_.return_losses,
              "nxd_pp_get_losses: the pipeline was made without return_mb_loss");
  return stages_->losses();
}

}  // namespace nxd

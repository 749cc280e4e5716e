#include "engine/training/module_stages.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "engine/autograd/gradients.h"
#include "engine/autograd/leaf_alias.h"
#include "engine/device/device_tensor.h"
#include "engine/module/buffers.h"
#include "engine/module/module_tree.h"
#include "engine/ops/part_at.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

std::vector<PipelineValue> values_of(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<PipelineValue> result;
  for (const ValueId id : ids) {
    const GraphValue& value = graph.values[static_cast<size_t>(id)];
    result.push_back({value.name, value.shape, to_nxd_dtype(value.dtype), value.needs_grad});
  }
  return result;
}

// Every rank sees all cuts, so that all reject one.
void check_exchangeable(const Graph& graph, const Partition& partition) {
  for (size_t i = 0; i < partition.stages.size(); ++i) {
    for (const ValueId id : partition.stages[i].outputs) {
      const GraphValue& value = graph.values[static_cast<size_t>(id)];
      if (!at::isComplexType(value.dtype)) continue;
      fail(NXD_ERROR_UNSUPPORTED, "cuts: stage ", i, " hands on the value \"", value.name,
           "\" of dtype ", value.dtype,
           "; expected values that are not complex: cut before or after them");
    }
  }
}

at::Tensor tensor_over(const PipelineBuffer& buffer, const PipelineValue& value) {
  return at::from_blob(
      buffer.data, value.shape, [owner = buffer.owner](void*) {},
      at::TensorOptions().dtype(to_scalar_type(value.dtype)));
}

// A value of the recorded device is known after this: what is sent has run.
PipelineBuffer buffer_over(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  at::Tensor dense = is_recorded(tensor) ? tensor.to(at::kCPU) : tensor.detach().contiguous();
  // A tensor without elements has no data, which would mean that there is no tensor.
  static char nothing;
  void* const data = dense.numel() == 0 ? static_cast<void*>(&nothing) : dense.data_ptr();
  return {data, std::make_shared<at::Tensor>(std::move(dense))};
}

}  // namespace

ModuleStages::ModuleStages(std::shared_ptr<Module> root, std::shared_ptr<const Graph> graph,
                           const Partition& partition, const PipelineShape& shape,
                           size_t loss_output, bool keep_outputs)
    : root_(std::move(root)),
      shape_(shape),
      keep_outputs_(keep_outputs),
      pipeline_(root_->context()->parallel()->group(NXD_AXIS_PIPELINE)),
      rank_(pipeline_->rank()) {
  reshape(std::move(graph), partition, loss_output);
}

void ModuleStages::reshape(std::shared_ptr<const Graph> graph, const Partition& partition,
                           size_t loss_output) {
  check_exchangeable(*graph, partition);
  loss_output_ = loss_output;
  executors_.clear();
  inputs_.clear();
  outputs_.clear();
  for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
    const int stage = shape_.stage_of(rank_, chunk);
    executors_.emplace_back(graph, partition, stage);
    const Partition::Stage& part = partition.stages[static_cast<size_t>(stage)];
    inputs_.push_back(values_of(*graph, part.inputs));
    outputs_.push_back(values_of(*graph, part.outputs));
  }
  shared_ =
      std::make_unique<SharedParameters>(root_->context(), *pipeline_, graph, partition, shape_);
  const std::vector<BufferPlace> places = buffer_places(*root_, *graph, partition, shape_);
  shared_buffers_ = std::make_unique<SharedBuffers>(places, rank_);
  kept_buffers_.clear();
  for (const BufferPlace& place : places) {
    if (place.keepers.count(rank_) != 0) kept_buffers_.push_back(place.named.buffer);
  }
}

void ModuleStages::check_buffers() const {
  check_state(!parted_buffer_, "buffer ", parted_buffer_ ? *parted_buffer_ : "",
              ": modules that stages of several ranks call have written to it, each rank's to a "
              "copy of its own; cut the model where one rank calls them all");
}

std::vector<std::shared_ptr<Parameter>> ModuleStages::unused_parameters() const {
  std::unordered_set<const Parameter*> used;
  for (const GraphNode& node : executors_.front().graph().nodes) {
    if (node.parameter) used.insert(node.parameter.get());
    if (!node.callee) continue;
    for (const NamedParameter& entry : named_parameters(*node.callee)) {
      used.insert(entry.parameter.get());
    }
  }
  std::vector<std::shared_ptr<Parameter>> result;
  for (const NamedParameter& entry : named_parameters(*root_)) {
    if (used.count(entry.parameter.get()) == 0) result.push_back(entry.parameter);
  }
  return result;
}

void ModuleStages::set_batch(Module::Tensors inputs, std::vector<double> loss_weights) {
  batch_ = std::move(inputs);
  weights_ = std::move(loss_weights);
}

double ModuleStages::loss() const {
  double sum = 0;
  for (size_t i = 0; i < losses_.size(); ++i) {
    // A microbatch without valid tokens has a loss that means nothing.
    if (weights_[i] != 0) sum += weights_[i] * losses_[i];
  }
  return sum;
}

bool ModuleStages::has_valid_tokens() const {
  return std::any_of(weights_.begin(), weights_.end(), [](double weight) { return weight != 0; });
}

const std::vector<PipelineValue>& ModuleStages::inputs(int chunk) const {
  return inputs_[static_cast<size_t>(chunk)];
}

const std::vector<PipelineValue>& ModuleStages::outputs(int chunk) const {
  return outputs_[static_cast<size_t>(chunk)];
}

bool ModuleStages::is_last(int chunk) const {
  return shape_.stage_of(rank_, chunk) == shape_.stages() - 1;
}

void ModuleStages::set_microbatch(int microbatch) const {
  root_->context()->set_step(step_, first_microbatch_ + microbatch);
}

void ModuleStages::begin_run(bool training) {
  step_ = root_->context()->step();
  first_microbatch_ = root_->context()->microbatch();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  for (const StageExecutor& executor : executors_) {
    for (const NamedParameter& entry : executor.parameters()) {
      check_state(
          !entry.parameter->tensor().is_meta(), "parameter ", entry.name,
          ": it has no values here: it is on the meta device, or no stage of this rank used "
          "it when the model was cut, and a forward has to use the same in every mode");
    }
  }
  on_recorded_device_ = uses_recorded_device();
  training_ = training;
  const auto count = static_cast<size_t>(shape_.microbatches);
  const bool has_loss = is_last(shape_.chunks - 1);
  losses_.assign(has_loss ? count : 0, 0.0);
  root_outputs_.assign(has_loss && !training ? count : 0, {});
  if (training) shared_->begin_run();
  shared_buffers_->begin_run();
}

void ModuleStages::end_run(bool) noexcept {
  if (!parted_buffer_) parted_buffer_ = shared_buffers_->written();
  stashes_.clear();
  batch_.clear();
  set_microbatch(0);
  hold_gradients(false);
}

void ModuleStages::hold_gradients(bool on) const {
  if (const auto ddp = ddp_.lock()) ddp->set_holds(on);
}

Module::Tensors ModuleStages::root_inputs(int chunk, int microbatch) const {
  Module::Tensors result(batch_.size());
  for (const size_t i : executors_[static_cast<size_t>(chunk)].root_inputs()) {
    if (!batch_[i].defined()) continue;
    const at::Tensor& batch = batch_[i];
    const int64_t size = batch.size(0) / shape_.microbatches;
    result[i] = is_recorded(batch) && !batch.requires_grad()
                    ? device_tensor(record_part_at(value_of(batch), 0, microbatch, size))
                    : batch.narrow(0, microbatch * size, size);
  }
  return result;
}

bool ModuleStages::uses_recorded_device() const {
  for (const StageExecutor& executor : executors_) {
    for (const NamedParameter& entry : executor.parameters()) {
      if (is_recorded(entry.parameter->tensor())) return true;
    }
  }
  return std::any_of(batch_.begin(), batch_.end(), is_recorded);
}

at::Tensor ModuleStages::received(const PipelineBuffer& buffer, const PipelineValue& value) const {
  at::Tensor tensor = tensor_over(buffer, value);
  return on_recorded_device_ ? on_recorded_device(std::move(tensor)) : tensor;
}

Module::Tensors ModuleStages::take_inputs(int chunk, const PipelineBuffers& buffers,
                                          Stash& stash) const {
  const auto& values = inputs(chunk);
  Module::Tensors tensors;
  for (size_t i = 0; i < values.size(); ++i) {
    at::Tensor tensor = received(buffers[i], values[i]);
    const bool needs_grad = training_ && values[i].needs_grad;
    if (needs_grad) tensor.set_requires_grad(true);
    stash.inputs.push_back(needs_grad ? tensor : at::Tensor());
    // The first operator may be one that works in place.
    tensors.push_back(needs_grad ? alias_of_leaf(tensor) : std::move(tensor));
  }
  return tensors;
}

// A later microbatch may write to a buffer before its values have gone to the next stage, or are
// looked at.
at::Tensor ModuleStages::apart_from_buffers(const at::Tensor& output) const {
  const at::NoGradGuard no_grad;
  if (!output.defined()) return output;
  const bool is_shared = std::any_of(
      kept_buffers_.begin(), kept_buffers_.end(), [&](const std::shared_ptr<Buffer>& buffer) {
        return buffer->value.defined() && share_memory(output, buffer->value);
      });
  return is_shared ? output.clone() : output;
}

PipelineBuffers ModuleStages::give_outputs(int chunk, const Module::Tensors& outputs,
                                           Stash& stash) const {
  const auto& values = this->outputs(chunk);
  PipelineBuffers buffers;
  for (size_t i = 0; i < values.size(); ++i) {
    const at::Tensor& output = outputs[i];
    check_argument(output.defined() && output.sizes() == values[i].shape &&
                       to_nxd_dtype(output.scalar_type()) == values[i].dtype,
                   "model: the value \"", values[i].name,
                   "\" is not what it was when traced: expected ", at::IntArrayRef(values[i].shape),
                   ", got ",
                   output.defined() ? text(output.sizes(), " ", output.scalar_type()) : "nothing");
    const bool needs_grad = training_ && values[i].needs_grad && output.requires_grad();
    stash.outputs.push_back(needs_grad ? torch::autograd::impl::gradient_edge(output)
                                       : torch::autograd::Edge());
    buffers.push_back(buffer_over(apart_from_buffers(output)));
  }
  if (keep_outputs_) stash.kept = outputs;
  return buffers;
}

void ModuleStages::take_root_outputs(int microbatch, const Module::Tensors& outputs, Stash& stash) {
  const auto at = static_cast<size_t>(microbatch);
  const at::Tensor& loss = outputs[loss_output_];
  const bool is_loss = loss.defined() && loss.dim() == 0 && loss.is_floating_point();
  check_argument(is_loss || !training_, "loss_output: expected the output ", loss_output_,
                 " to be a scalar, got ",
                 loss.defined() ? text("shape ", loss.sizes()) : std::string("nothing"));
  if (is_loss) losses_[at] = loss.item<double>();
  if (training_) {
    stash.loss = loss;
    return;
  }
  for (const at::Tensor& output : outputs) {
    root_outputs_[at].push_back(output.defined() ? apart_from_buffers(output).detach() : output);
  }
}

PipelineBuffers ModuleStages::forward(const TaskPlace& place, const PipelineBuffers& buffers) {
  const at::AutoGradMode record(training_);
  set_microbatch(place.microbatch);
  const StageExecutor& executor = executors_[static_cast<size_t>(place.chunk)];
  Stash stash;
  const Module::Tensors tensors = take_inputs(place.chunk, buffers, stash);
  const std::vector<ParameterUse> uses =
      training_ ? shared_->uses(shape_.stage_of(rank_, place.chunk)) : std::vector<ParameterUse>();
  const Module::Tensors outputs =
      executor.run(tensors, root_inputs(place.chunk, place.microbatch), uses);
  PipelineBuffers result;
  if (is_last(place.chunk)) {
    take_root_outputs(place.microbatch, outputs, stash);
  } else {
    result = give_outputs(place.chunk, outputs, stash);
  }
  if (training_) stashes_[{place.chunk, place.microbatch}] = std::move(stash);
  return result;
}

// Roots are edges, not tensors: an output's values need not be kept for that.
void ModuleStages::differentiate(int chunk, int microbatch, Stash& stash,
                                 const PipelineBuffers& grad_outputs) const {
  std::vector<torch::autograd::Edge> roots;
  std::vector<at::Tensor> grads;
  const double weight = weights_[static_cast<size_t>(microbatch)];
  // One without valid tokens, whose mean may be none: 0 times its gradients would not be 0. No
  // stage has gradients of it then, wherever the model is cut.
  if (weight == 0) return;
  if (is_last(chunk)) {
    const torch::autograd::Edge root = stash.loss.requires_grad()
                                           ? torch::autograd::impl::gradient_edge(stash.loss)
                                           : torch::autograd::Edge();
    // A view that was made while nothing was recorded has none either.
    if (!root.is_valid()) return;
    roots.push_back(root);
    grads.push_back(at::scalar_tensor(weight, stash.loss.options()));
  } else {
    for (size_t i = 0; i < stash.outputs.size(); ++i) {
      if (!stash.outputs[i].is_valid() || !grad_outputs[i].data) continue;
      roots.push_back(stash.outputs[i]);
      grads.push_back(received(grad_outputs[i], outputs(chunk)[i]));
    }
  }
  if (!roots.empty()) run_backward_from(roots, grads);
}

PipelineBuffers ModuleStages::give_input_gradients(const Stash& stash) {
  PipelineBuffers result(stash.inputs.size());
  for (size_t i = 0; i < stash.inputs.size(); ++i) {
    const at::Tensor& input = stash.inputs[i];
    if (!input.defined()) continue;
    const at::Tensor grad = input.grad().defined() ? input.grad() : at::zeros_like(input.detach());
    result[i] = buffer_over(grad);
  }
  return result;
}

std::unique_ptr<DeferredGradients> ModuleStages::make_deferred(int chunk) const {
  auto deferred = std::make_unique<DeferredGradients>();
  for (const NamedParameter& entry : executors_[static_cast<size_t>(chunk)].parameters()) {
    const at::Tensor& value = entry.parameter->tensor();
    if (value.requires_grad()) deferred->watch(value, entry.name);
  }
  for (const ParameterUse& use : shared_->uses(shape_.stage_of(rank_, chunk))) {
    const bool trained = use.tensor.defined() && use.tensor.requires_grad();
    if (trained) deferred->watch(use.tensor, use.parameter->canonical_name());
  }
  return deferred;
}

void ModuleStages::await_weight_tasks(int chunk, DeferredGradients& last) const {
  for (const auto& [key, stash] : stashes_) {
    const bool earlier = key.first == chunk && stash.deferred && stash.deferred.get() != &last;
    if (earlier) last.hold_arrivals_of(*stash.deferred);
  }
}

PipelineBuffers ModuleStages::backward(const TaskPlace& place, const PipelineBuffers& grad_outputs,
                                       bool whole) {
  const auto found = stashes_.find({place.chunk, place.microbatch});
  check_internal(found != stashes_.end(), "a backward pass without its forward pass");
  Stash& stash = found->second;
  set_microbatch(place.microbatch);
  // Input gradients come in the order of the microbatches. With the last ones those gradients are
  // complete that no weight task adds to.
  const bool last_inputs = place.microbatch == shape_.microbatches - 1;
  hold_gradients(!place.last && !last_inputs);
  if (whole) {
    differentiate(place.chunk, place.microbatch, stash, grad_outputs);
  } else {
    stash.deferred = make_deferred(place.chunk);
    if (last_inputs) await_weight_tasks(place.chunk, *stash.deferred);
    const InterceptionScope scope(*stash.deferred);
    differentiate(place.chunk, place.microbatch, stash, grad_outputs);
  }
  shared_->add_up(shape_.stage_of(rank_, place.chunk));
  PipelineBuffers result = give_input_gradients(stash);
  if (whole) {
    stashes_.erase(found);
  } else {
    stash = Stash{{}, {}, {}, {}, std::move(stash.deferred)};
  }
  return result;
}

void ModuleStages::weight_gradients(const TaskPlace& place) {
  const auto found = stashes_.find({place.chunk, place.microbatch});
  check_internal(found != stashes_.end() && found->second.deferred,
                 "weight gradients without their backward pass");
  set_microbatch(place.microbatch);
  hold_gradients(!place.last);
  DeferredGradients& deferred = *found->second.deferred;
  deferred.run();
  shared_->add_up(shape_.stage_of(rank_, place.chunk));
  for (const std::string& name : deferred.unsplit()) {
    if (std::find(unsplit_.begin(), unsplit_.end(), name) == unsplit_.end()) {
      unsplit_.push_back(name);
    }
  }
  stashes_.erase(found);
}

}  // namespace nxd

#pragma once

#include <torch/csrc/autograd/edge.h>

#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/optim/data_parallel.h"
#include "core/pipeline/pipeline_stages.h"
#include "engine/autograd/deferred_gradients.h"
#include "engine/training/shared_buffers.h"
#include "engine/training/shared_parameters.h"

namespace nxd {

// A rank's stages of a traced model. Between a microbatch's forward and backward it keeps the graph
// of autograd, and of a stage's outputs no values unless told to.
class ModuleStages : public PipelineStages {
 public:
  ModuleStages(std::shared_ptr<Module> root, std::shared_ptr<const Graph> graph,
               const Partition& partition, const PipelineShape& shape, size_t loss_output,
               bool keep_outputs);

  // Takes other shapes, cut at the same places. No run may be under way.
  void reshape(std::shared_ptr<const Graph> graph, const Partition& partition, size_t loss_output);

  const std::vector<StageExecutor>& executors() const { return executors_; }  // of each chunk
  SharedParameters& shared() { return *shared_; }
  // INVALID_STATE once a run has written to a buffer that other ranks' stages have copies of.
  void check_buffers() const;
  // The root's that no stage uses, the same on all ranks.
  std::vector<std::shared_ptr<Parameter>> unused_parameters() const;

  // For the next run: the root's inputs, of which each microbatch takes its part of dimension 0,
  // and what each microbatch's loss is multiplied by.
  void set_batch(Module::Tensors inputs, std::vector<double> loss_weights);
  // Instead: the next run fails as it begins.
  void fail_run(std::exception_ptr failure) { failure_ = std::move(failure); }
  void set_ddp(std::weak_ptr<DataParallel> ddp) { ddp_ = std::move(ddp); }
  std::shared_ptr<DataParallel> ddp() const { return ddp_.lock(); }

  // Results of the last run on the rank with the last stage: each microbatch's loss, 0 where the
  // model gives none; and, without training, the root's outputs.
  const std::vector<double>& losses() const { return losses_; }
  double loss() const;            // weighted
  bool has_valid_tokens() const;  // in any microbatch of this pipeline
  const std::vector<Module::Tensors>& root_outputs() const { return root_outputs_; }
  // The root's buffers that this rank saves.
  const std::vector<std::shared_ptr<Buffer>>& kept_buffers() const { return kept_buffers_; }
  // Parameters whose gradients a split backward pass has made with the input gradients.
  const std::vector<std::string>& unsplit() const { return unsplit_; }

  const std::vector<PipelineValue>& inputs(int chunk) const override;
  const std::vector<PipelineValue>& outputs(int chunk) const override;
  bool splits_backward() const override { return true; }
  void begin_run(bool training) override;
  void end_run(bool failed) noexcept override;
  PipelineBuffers forward(const TaskPlace& place, const PipelineBuffers& inputs) override;
  PipelineBuffers backward(const TaskPlace& place, const PipelineBuffers& grad_outputs,
                           bool whole) override;
  void weight_gradients(const TaskPlace& place) override;

 private:
  // Activation stash of one microbatch in one chunk.
  struct Stash {
    Module::Tensors inputs;                      // leaves; only those that need gradients
    std::vector<torch::autograd::Edge> outputs;  // where gradients go in; invalid: nowhere
    Module::Tensors kept;                        // outputs, with keep_outputs
    at::Tensor loss;
    std::unique_ptr<DeferredGradients> deferred;
  };
  using Key = std::pair<int, int>;  // chunk, microbatch

  bool is_last(int chunk) const;
  // Random bits are those of the microbatch, counted from the step's first.
  void set_microbatch(int microbatch) const;
  bool uses_recorded_device() const;
  // A tensor over what another stage has sent, on this rank's device.
  at::Tensor received(const PipelineBuffer& buffer, const PipelineValue& value) const;
  Module::Tensors root_inputs(int chunk, int microbatch) const;
  Module::Tensors take_inputs(int chunk, const PipelineBuffers& buffers, Stash& stash) const;
  at::Tensor apart_from_buffers(const at::Tensor& output) const;
  PipelineBuffers give_outputs(int chunk, const Module::Tensors& outputs, Stash& stash) const;
  void take_root_outputs(int microbatch, const Module::Tensors& outputs, Stash& stash);
  void differentiate(int chunk, int microbatch, Stash& stash,
                     const PipelineBuffers& grad_outputs) const;
  static PipelineBuffers give_input_gradients(const Stash& stash);
  std::unique_ptr<DeferredGradients> make_deferred(int chunk) const;
  // The last microbatch completes no gradient that a weight task of an earlier one is to add to.
  void await_weight_tasks(int chunk, DeferredGradients& last) const;
  // Lets gradients of the ddp add up, for all microbatches but the last.
  void hold_gradients(bool on) const;

  std::shared_ptr<Module> root_;
  PipelineShape shape_;
  size_t loss_output_ = 0;
  bool keep_outputs_;
  // A layout that the context gets later is not that of the stages.
  const std::shared_ptr<ProcessGroup> pipeline_;
  const int rank_;
  std::vector<StageExecutor> executors_;
  std::vector<std::vector<PipelineValue>> inputs_, outputs_;
  std::unique_ptr<SharedParameters> shared_;
  std::unique_ptr<SharedBuffers> shared_buffers_;
  std::vector<std::shared_ptr<Buffer>> kept_buffers_;
  std::shared_ptr<const std::string> parted_buffer_;  // the name of one whose copies have parted
  std::weak_ptr<DataParallel> ddp_;

  Module::Tensors batch_;
  std::vector<double> weights_, losses_;
  std::vector<Module::Tensors> root_outputs_;
  std::vector<std::string> unsplit_;
  std::exception_ptr failure_;
  bool training_ = false;
  bool on_recorded_device_ = false;
  int64_t step_ = 0, first_microbatch_ = 0;  // of the context, as the run begins
  std::map<Key, Stash> stashes_;
};

}  // namespace nxd

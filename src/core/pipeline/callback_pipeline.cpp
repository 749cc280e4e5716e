#include "core/pipeline/callback_pipeline.h"

#include <string>
#include <utility>

#include "core/base/buffer_limit.h"
#include "core/base/dtype.h"
#include "core/base/element_count.h"
#include "core/layout/shard_spec.h"
#include "core/world/trained_axes.h"

namespace nxd {
namespace {

PipelineValue read_value(const nxd_pp_value_t& given, const std::string& what) {
  check_argument(given.name, what, ".name: expected a name, got NULL");
  const std::string named = text(what, " (", given.name, ")");
  check_argument(given.ndim >= 0 && given.ndim <= kMostDims, named, ".ndim: expected 0 to ",
                 kMostDims, ", got ", given.ndim);
  check_argument(given.shape || given.ndim == 0, named, ".shape: expected ", given.ndim,
                 " sizes, got NULL");
  check_argument(is_dtype(given.dtype), named, ".dtype: expected an NXD_DTYPE_*, got ",
                 given.dtype);
  flag(given.needs_grad, named, ".needs_grad");
  check_argument(given.reserved == 0, named, ".reserved: expected 0, got ", given.reserved);
  PipelineValue value;
  value.name = given.name;
  if (given.ndim > 0) value.shape.assign(given.shape, given.shape + given.ndim);
  value.dtype = given.dtype;
  value.needs_grad = given.needs_grad == 1;
  for (const int64_t size : value.shape) {
    check_argument(size >= 0, named, ".shape: expected sizes of at least 0, got ",
                   shape_text(value.shape));
  }
  check_argument(element_count(value.shape, (int64_t{1} << 56) - 1).has_value(), named,
                 ".shape: expected a tensor that fits in memory, got ", shape_text(value.shape));
  return value;
}

CallbackStages::Values read_values(const nxd_pp_value_t* values, const size_t* counts, int chunks,
                                   const char* name) {
  check_argument(counts, "num_", name, ": expected the counts of ", chunks, " chunks, got NULL");
  CallbackStages::Values read;
  size_t next = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    read.emplace_back();
    check_count(counts[chunk], sizeof *values, name);
    for (size_t i = 0; i < counts[chunk]; ++i, ++next) {
      check_argument(values, name, ": expected an array of values, got NULL");
      read.back().push_back(read_value(values[next], text(name, "[", next, "]")));
    }
  }
  return read;
}

std::shared_ptr<const Schedule> read_schedule(const CallbackPipelineOptions& options,
                                              const PipelineShape& shape) {
  if (!options.custom_schedule) {
    return std::make_shared<const Schedule>(Schedule::make(options.schedule, shape));
  }
  const auto& custom = options.custom_schedule;
  check_argument(custom->shape() == shape, "custom_schedule: expected ", shape.ranks, " ranks, ",
                 shape.chunks, " chunks and ", shape.microbatches, " microbatches, got ",
                 custom->shape().ranks, ", ", custom->shape().chunks, " and ",
                 custom->shape().microbatches);
  return custom;
}

void check_callbacks(const nxd_pp_stage_callbacks_t& callbacks, const Schedule& schedule,
                     int rank) {
  check_argument(callbacks.forward, "callbacks.forward: expected a function, got NULL");
  check_argument(!callbacks.backward_input == !callbacks.backward_weight,
                 "callbacks: expected both of backward_input and backward_weight, or neither");
  for (const PipelineTask& task : schedule.tasks(rank)) {
    check_argument(task.kind != NXD_PP_TASK_BACKWARD || callbacks.backward,
                   "callbacks.backward: expected a function, for the schedule ", schedule.name(),
                   " has backward tasks, got NULL");
  }
}

struct Parts {
  std::shared_ptr<const Schedule> schedule;
  std::shared_ptr<CallbackStages> stages;
};

Parts read_parts(const std::shared_ptr<ProcessGroup>& group, const CallbackPipelineOptions& options,
                 const nxd_pp_value_t* inputs, const size_t* n_inputs,
                 const nxd_pp_value_t* outputs, const size_t* n_outputs,
                 const nxd_pp_stage_callbacks_t& callbacks) {
  const PipelineShape shape{group->size(), options.chunks, options.microbatches};
  check_argument(shape.microbatches >= 1, "num_microbatches: expected at least 1, got ",
                 options.microbatches);
  check_argument(shape.chunks >= 1, "virtual_size: expected at least 1, got ", options.chunks);
  Parts parts;
  parts.schedule = read_schedule(options, shape);
  check_callbacks(callbacks, *parts.schedule, group->rank());
  parts.stages = std::make_shared<CallbackStages>(
      shape, group, read_values(inputs, n_inputs, shape.chunks, "inputs"),
      read_values(outputs, n_outputs, shape.chunks, "outputs"), callbacks);
  return parts;
}

}  // namespace

std::shared_ptr<CallbackPipeline> CallbackPipeline::create(
    std::shared_ptr<Context> context, const CallbackPipelineOptions& options,
    const nxd_pp_value_t* inputs, const size_t* n_inputs, const nxd_pp_value_t* outputs,
    const size_t* n_outputs, const nxd_pp_stage_callbacks_t& callbacks) {
  Parts parts;
  try {
    check_trained_axes(*context, "a pipeline");
    parts = read_parts(context->parallel()->group(NXD_AXIS_PIPELINE), options, inputs, n_inputs,
                       outputs, n_outputs, callbacks);
  } catch (...) {
    PipelineRunner::reject(*context);
    throw;
  }
  std::shared_ptr<CallbackPipeline> pipeline(new CallbackPipeline(
      std::move(context), std::move(parts.stages), std::move(parts.schedule), options.share_loss));
  pipeline->stages_->own_user_data();
  return pipeline;
}

CallbackPipeline::CallbackPipeline(std::shared_ptr<Context> context,
                                   std::shared_ptr<CallbackStages> stages,
                                   std::shared_ptr<const Schedule> schedule, bool share_loss)
    : world_rank_(context->rank()),
      stages_(std::move(stages)),
      pipeline_(std::move(context), stages_, std::move(schedule), share_loss) {}

double CallbackPipeline::run(int32_t training) {
  Proposal proposal(world_rank_, "pp_run");
  proposal.attempt([&] {
    flag(training, "training");
    check_state(training == 0 || pipeline_.schedule().has_backward(), "training: the schedule ",
                pipeline_.schedule().name(), " has no backward tasks");
  });
  try {
    pipeline_.agree_on_run(proposal.same("training", training));
  } catch (const std::exception& e) {
    pipeline_.reject_loss(e.what());
    throw;
  }
  return pipeline_.run(
      training == 1, [this] { return stages_->loss(); }, NXD_REDUCE_AVG);
}

}  // namespace nxd

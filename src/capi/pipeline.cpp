// nxd/pipeline.h: schedules, and pipelines over a caller's stages.
#include <algorithm>
#include <memory>

#include "capi/handles.h"
#include "capi/options.h"
#include "capi/pipeline_handles.h"
#include "core/base/last_error.h"
#include "core/schedule/schedule.h"
#include "core/schedule/schedule_report.h"

using namespace nxd;

namespace {

const Schedule& unwrap(nxd_pp_schedule_t* schedule) {
  check_argument(schedule, "schedule: expected a schedule, got NULL");
  return *schedule->value;
}

nxd_pp_schedule_t* new_schedule(Schedule&& schedule) {
  return new nxd_pp_schedule{std::make_shared<const Schedule>(std::move(schedule))};
}

std::vector<std::vector<PipelineTask>> read_tasks(const PipelineShape& shape,
                                                  const nxd_pp_task_t* tasks,
                                                  const size_t* counts) {
  check_shape(shape);
  required(counts, "counts");
  std::vector<std::vector<PipelineTask>> lists(static_cast<size_t>(shape.ranks));
  // Forward, and a backward pass in two parts; and as many again, which the check of the schedule
  // names one by one.
  const size_t most =
      6 * static_cast<size_t>(shape.chunks) * static_cast<size_t>(shape.microbatches);
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    check_argument(counts[rank] <= most, "counts[", rank, "]: expected at most ", most,
                   " tasks for ", shape.chunks, " chunks and ", shape.microbatches,
                   " microbatches, got ", counts[rank]);
    check_array(tasks, counts[rank], "tasks");
    lists[rank].reserve(counts[rank]);
    for (size_t i = 0; i < counts[rank]; ++i, ++tasks) {
      lists[rank].push_back({tasks->kind, tasks->microbatch, tasks->chunk});
    }
  }
  return lists;
}

const nxd_pp_callbacks_options_t kPpCallbacksDefaults = NXD_PP_CALLBACKS_OPTIONS_INIT;
const nxd_pp_costs_t kCosts = NXD_PP_COSTS_INIT;

nxd_pp_stage_callbacks_t read_callbacks(const nxd_pp_stage_callbacks_t* given) {
  check_argument(given, "callbacks: expected a struct, got NULL");
  return read_options(given, nxd_pp_stage_callbacks_t{}, "callbacks");
}

CallbackPipelineOptions resolve(const nxd_pp_callbacks_options_t& given) {
  CallbackPipelineOptions out;
  if (given.num_microbatches != 0) out.microbatches = given.num_microbatches;
  if (given.virtual_size != 0) out.chunks = given.virtual_size;
  out.schedule = given.schedule;
  if (given.custom_schedule) out.custom_schedule = given.custom_schedule->value;
  out.share_loss = flag(given.broadcast_and_average_loss, "broadcast_and_average_loss");
  return out;
}

Pipeline& unwrap(nxd_pp_t* pp) {
  check_argument(pp, "pp: expected a pipeline, got NULL");
  return pp->pipeline;
}

}  // namespace

nxd_status_t nxd_pp_schedule_create(nxd_pp_schedule_kind_t kind, int32_t ranks, int32_t chunks,
                                    int32_t microbatches, nxd_pp_schedule_t** out_schedule) {
  return guard([&] {
    auto& out = output(out_schedule, "out_schedule");
    out = new_schedule(Schedule::make(kind, {ranks, chunks, microbatches}));
  });
}

nxd_status_t nxd_pp_schedule_create_tasks(int32_t ranks, int32_t chunks, int32_t microbatches,
                                          const nxd_pp_task_t* tasks, const size_t* counts,
                                          nxd_pp_schedule_t** out_schedule) {
  return guard([&] {
    auto& out = output(out_schedule, "out_schedule");
    const PipelineShape shape{ranks, chunks, microbatches};
    out = new_schedule(Schedule::of_tasks(shape, read_tasks(shape, tasks, counts)));
  });
}

nxd_status_t nxd_pp_schedule_get_tasks(nxd_pp_schedule_t* schedule, int32_t rank,
                                       nxd_pp_task_t* tasks, size_t cap, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    const Schedule& value = unwrap(schedule);
    const int ranks = value.shape().ranks;
    check_argument(rank >= 0 && rank < ranks, "rank: expected 0 to ", ranks - 1, ", got ", rank);
    const std::vector<PipelineTask>& all = value.tasks(rank);
    if (cap > 0) {
      check_argument(tasks, "tasks: expected room for ", cap, " tasks, got NULL");
      out = all.size();
      check_argument(cap >= all.size(), "cap: expected room for the rank's ", all.size(),
                     " tasks, got ", cap);
      std::transform(all.begin(), all.end(), tasks, [](const PipelineTask& task) {
        return nxd_pp_task_t{task.kind, task.microbatch, task.chunk};
      });
    }
    out = all.size();
  });
}

nxd_status_t nxd_pp_schedule_get_name(nxd_pp_schedule_t* schedule, const char** out_name) {
  return guard([&] {
    auto& out = output(out_name, "out_name");
    out = unwrap(schedule).name().c_str();
  });
}

nxd_status_t nxd_pp_costs_init(nxd_pp_costs_t* costs, size_t size) {
  return guard([&] { init_options(costs, size, kCosts, "costs"); });
}

nxd_status_t nxd_pp_schedule_get_report(nxd_pp_schedule_t* schedule, const nxd_pp_costs_t* costs,
                                        nxd_pp_report_t* out_report) {
  return guard([&] {
    OutputStruct out(out_report, "out_report");
    const Schedule& value = unwrap(schedule);
    const nxd_pp_costs_t known = read_options(costs, kCosts, "costs");
    const ScheduleReport report = report_schedule(value, read_costs(known, value.shape().stages()));
    out.write({sizeof(nxd_pp_report_t), report.makespan, report.critical_path, report.bubble_share,
               report.peak_activations, report.fullest_rank});
  });
}

void nxd_pp_schedule_destroy(nxd_pp_schedule_t* schedule) { delete schedule; }

nxd_status_t nxd_pp_callbacks_options_init(nxd_pp_callbacks_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kPpCallbacksDefaults, "options"); });
}

nxd_status_t nxd_pp_create_callbacks(nxd_context_t* ctx, const nxd_pp_callbacks_options_t* options,
                                     const nxd_pp_value_t* inputs, const size_t* num_inputs,
                                     const nxd_pp_value_t* outputs, const size_t* num_outputs,
                                     const nxd_pp_stage_callbacks_t* callbacks, nxd_pp_t** out_pp) {
  return guard([&] {
    if (out_pp) *out_pp = nullptr;
    Context& context = unwrap(ctx);
    CallbackPipelineOptions known;
    nxd_pp_stage_callbacks_t known_callbacks{};
    try {
      static_cast<void>(output(out_pp, "out_pp"));
      known = resolve(read_options(options, kPpCallbacksDefaults, "options"));
      known_callbacks = read_callbacks(callbacks);
    } catch (...) {
      PipelineRunner::reject(context);
      throw;
    }
    *out_pp =
        new nxd_pp(CallbackPipeline::create(context.shared_from_this(), known, inputs, num_inputs,
                                            outputs, num_outputs, known_callbacks));
  });
}

nxd_status_t nxd_pp_run(nxd_pp_t* pp, int32_t training, double* out_loss) {
  return guard([&] {
    if (out_loss) *out_loss = 0;
    unwrap(pp);
    check_state(pp->callbacks != nullptr,
                "nxd_pp_run: the stages of this pipeline are modules, which need inputs: use "
                "nxd_pp_run_train or nxd_pp_run_eval");
    const std::shared_ptr<CallbackPipeline> self = pp->callbacks;  // a callback may destroy pp
    const double loss = self->run(training);
    if (out_loss) *out_loss = loss;
  });
}

nxd_status_t nxd_pp_has_loss(nxd_pp_t* pp, int32_t* out_has) {
  return guard([&] {
    auto& out = output(out_has, "out_has");
    out = unwrap(pp).has_loss() ? 1 : 0;
  });
}

nxd_status_t nxd_pp_get_schedule(nxd_pp_t* pp, nxd_pp_schedule_t** out_schedule) {
  return guard([&] {
    auto& out = output(out_schedule, "out_schedule");
    unwrap(pp);
    out = &pp->schedule;
  });
}

nxd_status_t nxd_pp_get_buffer_bytes(nxd_pp_t* pp, uint64_t* out_bytes) {
  return guard([&] {
    auto& out = output(out_bytes, "out_bytes");
    out = unwrap(pp).buffer_bytes();
  });
}

nxd_status_t nxd_pp_set_timeline(nxd_pp_t* pp, int32_t on) {
  return guard([&] {
    Pipeline& self = unwrap(pp);
    flag(on, "on");
    self.set_timeline(on == 1);
  });
}

nxd_status_t nxd_pp_write_timeline(nxd_pp_t* pp, const char* path) {
  return guard([&] { unwrap(pp).write_timeline(path); });
}

void nxd_pp_destroy(nxd_pp_t* pp) {
  const Uncancelled whole_call;
  delete pp;
}

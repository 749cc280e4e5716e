#include "core/pipeline/pipeline_runner.h"

#include <map>
#include <new>
#include <optional>
#include <tuple>
#include <utility>

#include "core/agree/agree.h"
#include "core/base/dtype.h"
#include "core/comm/net/deadline.h"
#include "core/comm/process_group.h"
#include "core/pipeline/buffer_pool.h"
#include "core/pipeline/message_stream.h"
#include "core/pipeline/p2p_plan.h"
#include "core/pipeline/pipeline_agreement.h"
#include "core/pipeline/task_failure.h"

namespace nxd {
namespace {

using Step = P2pPlan::Step;

// Errors that this rank alone can find.
void check_own(const Schedule& schedule, const PipelineStages& stages) {
  check_argument(!schedule.splits_backward() || stages.splits_backward(), "the schedule ",
                 schedule.name(),
                 " makes input and weight gradients in two tasks, which the stages of this rank "
                 "cannot");
  for (int chunk = 0; chunk < schedule.shape().chunks; ++chunk) {
    for (const auto* values : {&stages.inputs(chunk), &stages.outputs(chunk)}) {
      for (const PipelineValue& value : *values) {
        check_argument(!value.needs_grad || dtype_is_float(value.dtype), "value \"", value.name,
                       "\" of chunk ", chunk, ": expected floats for a gradient, got ",
                       dtype_name(value.dtype));
      }
    }
  }
}

std::string describe(const Step& step) {
  return text(task_name(step.task.kind), " of microbatch ", step.task.microbatch, " in stage ",
              step.stage);
}

}  // namespace

struct PipelineRunner::Impl {
  const std::shared_ptr<Context> context;
  const std::shared_ptr<PipelineStages> stages;
  const std::shared_ptr<const Schedule> schedule;
  const std::shared_ptr<ProcessGroup> group;
  const bool shares_loss;
  const int rank;
  BufferPool pool;
  std::array<std::unique_ptr<MessageStream>, 2> incoming, outgoing;  // by flow; none with one rank
  P2pPlan::Values inputs, outputs;
  std::optional<P2pPlan> training, evaluation;
  std::shared_ptr<Timeline> timeline;

  // State of the run that goes on.
  bool running = false;
  const Step* current = nullptr;
  // With one rank: what tasks have left for one another, by flow, stage and microbatch.
  std::map<std::tuple<Flow, int, int>, PipelineBuffers> left;

  Impl(std::shared_ptr<Context> c, std::shared_ptr<PipelineStages> p,
       std::shared_ptr<const Schedule> s, bool shares)
      : context(std::move(c)),
        stages(std::move(p)),
        schedule(std::move(s)),
        group(context->parallel()->group(NXD_AXIS_PIPELINE)),
        shares_loss(shares),
        rank(group->rank()),
        pool(group) {}

  const PipelineShape& shape() const { return schedule->shape(); }
  bool alone() const { return shape().ranks == 1; }
  Timeline* recorder() const { return timeline.get(); }
  void check_idle() const { check_state(!running, "pipeline: a run is going on"); }

  void bind();
  void make_streams();
  const P2pPlan& plan_for(bool training_run);

  void run(bool training_run);
  void begin(const P2pPlan& plan);
  void run_step(const Step& step);
  void receive_ahead(const Step& step);
  PipelineBuffers take(const Step& step);
  PipelineBuffers compute(const Step& step, const PipelineBuffers& taken);
  void give(const Step& step, PipelineBuffers given);
  PipelineBuffer await_incoming(const Step& step, size_t i);
  void let_go_of_sent(bool all);
  Error end_early(const Error& error) noexcept;
  std::string reason_for_peers(const Error& error) const noexcept;

  std::string peer_of(int stage) const;
  std::string place_of(const Step* step) const;
};

// --- Before runs ---------------------------------------------------------------------------------

void PipelineRunner::Impl::bind() {
  // Without agreement there is no run.
  training.reset();
  evaluation.reset();
  const PipelineSide own = PipelineSide::of(*schedule, *stages, shares_loss);
  agree_on_pipeline(*group, own,
                    Outcome::of(context->rank(), [&] { check_own(*schedule, *stages); }));
  pool.clear();
  inputs = own.inputs;
  outputs = own.outputs;
  Proposal proposal(context->rank());
  proposal.attempt([&] {
    training.emplace(*schedule, rank, inputs, outputs);
    for (const P2pPlan::Need& need : training->most_incoming()) {
      pool.reserve(need.bytes, need.count);
    }
    if (!alone() && !outgoing.back()) make_streams();
  });
  try {
    agree({group.get()}, proposal);
  } catch (...) {
    // Where a rank has no memory for the new shapes, none has them.
    training.reset();
    pool.clear();
    throw;
  }
}

void PipelineRunner::Impl::make_streams() {
  const int next = (rank + 1) % shape().ranks;
  const int previous = (rank + shape().ranks - 1) % shape().ranks;
  for (const Flow flow : kFlows) {
    const bool values = flow == Flow::kValues;
    const size_t f = P2pPlan::index(flow);
    incoming[f] = std::make_unique<MessageStream>(*group, Operation::kReceive, flow,
                                                  values ? previous : next);
    outgoing[f] =
        std::make_unique<MessageStream>(*group, Operation::kSend, flow, values ? next : previous);
  }
}

const P2pPlan& PipelineRunner::Impl::plan_for(bool training_run) {
  check_state(training.has_value(), "pipeline: the stages' new shapes were rejected");
  if (training_run || !schedule->has_backward()) return *training;
  if (!evaluation) {
    evaluation.emplace(Schedule::make(NXD_PP_SCHEDULE_INFERENCE, shape()), rank, inputs, outputs);
  }
  return *evaluation;
}

// --- A run ---------------------------------------------------------------------------------------

void PipelineRunner::Impl::run(bool training_run) {
  check_idle();
  context->check_usable();
  const P2pPlan& plan = plan_for(training_run);
  begin(plan);
  running = true;
  try {
    stages->begin_run(training_run && schedule->has_backward());
    for (const Step& step : plan.steps()) {
      current = &step;
      run_step(step);
    }
    current = nullptr;
    let_go_of_sent(true);
  } catch (...) {
    const Error error = end_early(Error::current());
    running = false;
    throw error;
  }
  stages->end_run(false);
  running = false;
}

void PipelineRunner::Impl::begin(const P2pPlan& plan) {
  current = nullptr;
  if (alone()) return;
  for (const Flow f : kFlows) {
    incoming[P2pPlan::index(f)]->begin(plan.incoming(f), recorder());
    outgoing[P2pPlan::index(f)]->begin(plan.outgoing(f), recorder());
  }
}

void PipelineRunner::Impl::run_step(const Step& step) {
  receive_ahead(step);
  PipelineBuffers given;
  {
    const PipelineBuffers taken = take(step);
    given = compute(step, taken);
  }
  give(step, std::move(given));
  let_go_of_sent(false);
}

void PipelineRunner::Impl::receive_ahead(const Step& step) {
  if (alone()) return;
  for (const Flow flow : kFlows) {
    MessageStream& stream = *incoming[P2pPlan::index(flow)];
    while (stream.started() < step.wanted[P2pPlan::index(flow)]) {
      stream.start(pool.take(stream.message(stream.started()).bytes()));
    }
  }
}

PipelineBuffers PipelineRunner::Impl::take(const Step& step) {
  if (step.from == P2pPlan::kNowhere) return {};
  if (alone()) {
    const auto node = left.extract({step.flow, step.stage, step.task.microbatch});
    check_internal(!node.empty(), describe(step), ": nothing was left for it");
    return std::move(node.mapped());
  }
  const auto chunk = static_cast<size_t>(step.task.chunk);
  const auto& values = step.flow == Flow::kValues ? inputs[chunk] : outputs[chunk];
  PipelineBuffers buffers(values.size());
  for (size_t i = step.in; i < step.in + step.n_in; ++i) {
    const MessageStream& stream = *incoming[P2pPlan::index(step.flow)];
    buffers[stream.message(i).value] = await_incoming(step, i);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const bool is_there = step.flow == Flow::kValues || values[i].needs_grad;
    if (is_there && values[i].count() == 0) buffers[i] = pool.take(0);
  }
  return buffers;
}

PipelineBuffer PipelineRunner::Impl::await_incoming(const Step& step, size_t i) {
  MessageStream& stream = *incoming[P2pPlan::index(step.flow)];
  const int64_t begin = recorder() && !stream.is_done(i) ? monotonic_ns() : 0;
  try {
    PipelineBuffer buffer = stream.await(i);
    if (begin != 0) {
      recorder()->add(
          {"wait", "wait", step.task.chunk, step.task.microbatch, begin, monotonic_ns()});
    }
    return buffer;
  } catch (const Error& e) {
    const std::string waited =
        text("waited for ", stream.flow(), " from ", peer_of(step.from), ": ");
    if (const auto failure = TaskFailure::find_in(e.what())) {
      throw Error(failure->status, waited + failure->to_reason(),
                  {failure->rank, e.context().sequence, e.context().group, e.context().operation});
    }
    throw Error(e.status(), waited + e.what(), e.context());
  }
}

PipelineBuffers PipelineRunner::Impl::compute(const Step& step, const PipelineBuffers& taken) {
  const TaskPlace place{step.task.chunk, step.task.microbatch, step.last};
  const int64_t begin = recorder() ? monotonic_ns() : 0;
  PipelineBuffers given;
  switch (step.task.kind) {
    case NXD_PP_TASK_FORWARD: given = stages->forward(place, taken); break;
    case NXD_PP_TASK_BACKWARD: given = stages->backward(place, taken, true); break;
    case NXD_PP_TASK_INPUT_GRAD: given = stages->backward(place, taken, false); break;
    default: stages->weight_gradients(place); break;
  }
  if (recorder()) {
    recorder()->add({task_name(step.task.kind), "compute", place.chunk, place.microbatch, begin,
                     monotonic_ns()});
  }
  return given;
}

void PipelineRunner::Impl::give(const Step& step, PipelineBuffers given) {
  if (step.to == P2pPlan::kNowhere) return;
  const auto chunk = static_cast<size_t>(step.task.chunk);
  const auto& values = step.flow == Flow::kValues ? outputs[chunk] : inputs[chunk];
  check_internal(given.size() == values.size(), describe(step), " gave ", given.size(),
                 " buffers, not ", values.size());
  if (alone()) {
    left[{step.flow, step.to, step.task.microbatch}] = std::move(given);
    return;
  }
  MessageStream& stream = *outgoing[P2pPlan::index(step.flow)];
  for (size_t i = step.out; i < step.out + step.n_out; ++i) {
    const size_t value = stream.message(i).value;
    check_internal(given[value].data != nullptr, describe(step), " gave no ", stream.flow(),
                   " of \"", values[value].name, "\"");
    stream.start(std::move(given[value]));
  }
}

// all: waits for those that are still under way.
void PipelineRunner::Impl::let_go_of_sent(bool all) {
  if (alone()) return;
  for (const auto& stream : outgoing) {
    for (size_t i = stream->first_open(); i < stream->started(); i = stream->first_open()) {
      if (!all && !stream->is_done(i)) break;
      try {
        stream->await(i);
      } catch (const Error& e) {
        const P2pPlan::Message& m = stream->message(i);
        const int stage = shape().stage_of(rank, m.chunk);
        const bool values = stream == outgoing[P2pPlan::index(Flow::kValues)];
        const auto failure = TaskFailure::find_in(e.what());
        ErrorContext about = e.context();
        if (failure) about.root_rank = failure->rank;
        throw Error(failure ? failure->status : e.status(),
                    text(stream->flow(), " of microbatch ", m.microbatch, " were not taken by ",
                         peer_of(values ? stage + 1 : stage - 1), ": ",
                         failure ? failure->to_reason() : e.what()),
                    about);
      }
    }
  }
}

// The peers are told first, then waited for: so they end their runs, too, and nothing is left
// under way.
Error PipelineRunner::Impl::end_early(const Error& error) noexcept {
  const std::string reason = reason_for_peers(error);
  if (!alone()) {
    for (const auto* streams : {&incoming, &outgoing}) {
      for (const auto& stream : *streams) stream->reject_rest(reason);
    }
    for (const auto* streams : {&incoming, &outgoing}) {
      for (const auto& stream : *streams) stream->settle();
    }
  }
  left.clear();
  stages->end_run(true);
  try {
    return {error.status(), place_of(current) + error.what(), error.context()};
  } catch (const std::bad_alloc&) {
    return error;
  }
}

// "" when there is no memory for more: the peers then learn the rank, and not the reason.
std::string PipelineRunner::Impl::reason_for_peers(const Error& error) const noexcept {
  try {
    const std::string what = text(current ? describe(*current) + ": " : "", error.what());
    return TaskFailure::find_in(error.what())
        .value_or(TaskFailure{context->rank(), error.status(), what})
        .to_reason();
  } catch (const std::bad_alloc&) {
    return "";
  }
}

std::string PipelineRunner::Impl::peer_of(int stage) const {
  const auto place = static_cast<size_t>(shape().rank_of(stage));
  return text("stage ", stage, " (world rank ", group->ranks()[place], ")");
}

std::string PipelineRunner::Impl::place_of(const Step* step) const {
  const std::string ranks = text("rank ", rank, " of the pipeline, world rank ", context->rank());
  if (!step) return text("pipeline: run (", ranks, "): ");
  return text("pipeline: ", describe(*step), " (chunk ", step->task.chunk, ", ", ranks, "): ");
}

// --- The class -----------------------------------------------------------------------------------

PipelineRunner::PipelineRunner(std::shared_ptr<Context> context,
                               std::shared_ptr<PipelineStages> stages,
                               std::shared_ptr<const Schedule> schedule, bool shares_loss)
    : impl_(std::make_unique<Impl>(std::move(context), std::move(stages), std::move(schedule),
                                   shares_loss)) {
  impl_->bind();
}

PipelineRunner::~PipelineRunner() = default;

void PipelineRunner::reject(const Context& context) noexcept {
  const Outcome own = Outcome::from_current_exception(context.rank());
  try {
    agree_on_pipeline(*context.parallel()->group(NXD_AXIS_PIPELINE), {}, own);
  } catch (...) {
    // The caller fails anyway, for the reason.
  }
}

const Schedule& PipelineRunner::schedule() const { return *impl_->schedule; }

void PipelineRunner::reshape() {
  impl_->check_idle();
  impl_->bind();
}

void PipelineRunner::run(bool training) { impl_->run(training); }

void PipelineRunner::check_idle() const { impl_->check_idle(); }

void PipelineRunner::set_timeline(std::shared_ptr<Timeline> timeline) {
  impl_->check_idle();
  impl_->timeline = std::move(timeline);
}

uint64_t PipelineRunner::buffer_bytes() const { return impl_->pool.bytes(); }

}  // namespace nxd

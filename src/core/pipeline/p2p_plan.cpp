#include "core/pipeline/p2p_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/base/dtype.h"

namespace nxd {
namespace {

// Receiving tasks ahead of the one that is about to begin whose messages are under way. With two,
// both flows are: where forward and backward tasks alternate, the next of each.
constexpr int kTasksAhead = 2;

bool gives_gradients(nxd_pp_task_kind_t kind) {
  return kind == NXD_PP_TASK_BACKWARD || kind == NXD_PP_TASK_INPUT_GRAD;
}

bool belongs_to(nxd_pp_task_kind_t kind, Flow flow) {
  return flow == Flow::kValues ? kind == NXD_PP_TASK_FORWARD : gives_gradients(kind);
}

// Appends the messages of one task, and gives how many they are.
size_t append(std::vector<P2pPlan::Message>& messages, Flow flow, int chunk, int microbatch,
              const std::vector<PipelineValue>& values) {
  const size_t before = messages.size();
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t count = values[i].count();
    if (count == 0 || (flow == Flow::kGradients && !values[i].needs_grad)) continue;
    messages.push_back({chunk, microbatch, i, count, values[i].dtype});
  }
  return messages.size() - before;
}

}  // namespace

const char* flow_name(Flow flow) { return flow == Flow::kValues ? "values" : "gradients"; }

size_t P2pPlan::Message::bytes() const { return count * dtype_size(dtype); }

P2pPlan::P2pPlan(const Schedule& schedule, int rank, const Values& inputs, const Values& outputs) {
  if (schedule.shape().ranks > 1) {
    list_incoming(schedule, rank, Flow::kValues, inputs);
    list_incoming(schedule, rank, Flow::kGradients, outputs);
  }
  list_steps(schedule, rank, inputs, outputs);
  find_ends();
  look_ahead();
}

// In the order in which the neighbour's tasks give them.
void P2pPlan::list_incoming(const Schedule& schedule, int rank, Flow flow, const Values& values) {
  const PipelineShape& shape = schedule.shape();
  const int step = flow == Flow::kValues ? 1 : -1;
  const int neighbour = (rank - step + shape.ranks) % shape.ranks;
  for (const PipelineTask& task : schedule.tasks(neighbour)) {
    const int stage = shape.stage_of(neighbour, task.chunk) + step;
    if (!belongs_to(task.kind, flow) || stage < 0 || stage >= shape.stages()) continue;
    const int chunk = shape.chunk_of(stage);
    append(incoming_[index(flow)], flow, chunk, task.microbatch,
           values[static_cast<size_t>(chunk)]);
  }
}

void P2pPlan::list_steps(const Schedule& schedule, int rank, const Values& inputs,
                         const Values& outputs) {
  const PipelineShape& shape = schedule.shape();
  // The index of the first message of a chunk's microbatch in a flow, and the number of messages.
  std::array<std::map<std::pair<int, int>, std::pair<size_t, size_t>>, 2> places;
  for (const Flow flow : kFlows) {
    const auto& messages = incoming_[index(flow)];
    for (size_t i = 0; i < messages.size(); ++i) {
      const std::pair<int, int> key{messages[i].chunk, messages[i].microbatch};
      ++places[index(flow)].try_emplace(key, i, 0).first->second.second;
    }
  }
  for (const PipelineTask& task : schedule.tasks(rank)) {
    Step step;
    step.task = task;
    step.stage = shape.stage_of(rank, task.chunk);
    const bool forward = task.kind == NXD_PP_TASK_FORWARD;
    if (forward || gives_gradients(task.kind)) {
      const int direction = forward ? 1 : -1;
      step.flow = forward ? Flow::kValues : Flow::kGradients;
      step.from = step.stage - direction;
      step.to = step.stage + direction;
      if (step.from < 0 || step.from >= shape.stages()) step.from = kNowhere;
      if (step.to < 0 || step.to >= shape.stages()) step.to = kNowhere;
      const auto& here = places[index(step.flow)];
      if (const auto at = here.find({task.chunk, task.microbatch}); at != here.end()) {
        step.in = at->second.first;
        step.n_in = at->second.second;
      }
      if (step.to != kNowhere && shape.ranks > 1) {
        auto& messages = outgoing_[index(step.flow)];
        step.out = messages.size();
        step.n_out = append(messages, step.flow, task.chunk, task.microbatch,
                            (forward ? outputs : inputs)[static_cast<size_t>(task.chunk)]);
      }
    }
    steps_.push_back(step);
  }
}

void P2pPlan::find_ends() {
  std::set<int> chunks;
  std::set<std::pair<int, int>> microbatches;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const PipelineTask& task = step->task;
    const bool adds = task.kind == NXD_PP_TASK_BACKWARD || task.kind == NXD_PP_TASK_WEIGHT_GRAD;
    step->last = adds && chunks.insert(task.chunk).second;
    step->is_final = microbatches.insert({task.chunk, task.microbatch}).second;
  }
}

void P2pPlan::look_ahead() {
  std::array<size_t, 2> under_way{};
  size_t next = 0;  // the first step whose messages are not yet wanted
  int ahead = 0;    // steps after the current one, up to there, that receive
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (next > i && steps_[i].n_in > 0) --ahead;
    while (next < steps_.size() && (next <= i || ahead < kTasksAhead)) {
      const Step& step = steps_[next];
      if (step.n_in > 0) {
        size_t& count = under_way[index(step.flow)];
        count = std::max(count, step.in + step.n_in);
        if (next > i) ++ahead;
      }
      ++next;
    }
    steps_[i].wanted = under_way;
  }
}

std::vector<P2pPlan::Need> P2pPlan::most_incoming() const {
  struct Use {
    size_t now = 0, most = 0;
  };
  std::map<size_t, Use> uses;  // by size
  std::array<size_t, 2> started{};
  std::map<std::pair<int, int>, std::vector<size_t>> held;  // sizes, by chunk and microbatch
  for (const Step& step : steps_) {
    for (const Flow flow : kFlows) {
      const size_t f = index(flow);
      for (; started[f] < step.wanted[f]; ++started[f]) {
        const Message& message = incoming_[f][started[f]];
        Use& use = uses[message.bytes()];
        use.most = std::max(use.most, ++use.now);
        held[{message.chunk, message.microbatch}].push_back(message.bytes());
      }
    }
    if (!step.is_final) continue;
    const auto done = held.find({step.task.chunk, step.task.microbatch});
    if (done == held.end()) continue;
    for (const size_t bytes : done->second) --uses[bytes].now;
    held.erase(done);
  }
  std::vector<Need> needs;
  for (const auto& [bytes, use] : uses) needs.push_back({bytes, use.most});
  return needs;
}

}  // namespace nxd

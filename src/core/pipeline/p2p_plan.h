#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "core/pipeline/pipeline_stages.h"

namespace nxd {

// Traffic from stage to stage: values with the forward tasks, to the stage after; and with the
// backward tasks, to the stage before, the gradients of values that need one.
enum class Flow { kValues = 0, kGradients = 1 };
constexpr std::array<Flow, 2> kFlows{Flow::kValues, Flow::kGradients};
const char* flow_name(Flow flow);  // "values" or "gradients"

// Point-to-point messages that one rank of a pipeline sends and receives for each task, in order. A
// pure function of the schedule and of the values at the boundaries of the rank's stages.
//
// A flow's messages from one rank to its neighbour have one order: that of the sender's tasks, and
// of the values within a task. Values without elements are not sent. With one rank nothing is: what
// one task gives is another's as it is.
class P2pPlan {
 public:
  using Values = std::vector<std::vector<PipelineValue>>;  // of each of the rank's chunks

  P2pPlan(const Schedule& schedule, int rank, const Values& inputs, const Values& outputs);

  // One value of one microbatch, or its gradient.
  struct Message {
    int chunk = 0;  // this rank's, that gives or takes it
    int microbatch = 0;
    size_t value = 0;  // among the chunk's inputs or outputs
    size_t count = 0;
    nxd_dtype_t dtype = NXD_DTYPE_INVALID;

    size_t bytes() const;
  };

  static constexpr int kNowhere = -1;
  struct Step {
    PipelineTask task;
    int stage = 0;
    bool last = false;      // TaskPlace::last
    bool is_final = false;  // no later task of this microbatch in this chunk
    Flow flow = Flow::kValues;
    int from = kNowhere, to = kNowhere;  // stages that the task takes from and gives to
    size_t in = 0, n_in = 0;             // incoming(flow), from the in-th on
    size_t out = 0, n_out = 0;           // outgoing(flow), likewise
    // How many of incoming() of each flow are to be under way when the task begins: its own, those
    // of the next tasks, and whatever comes before them.
    std::array<size_t, 2> wanted{};
  };
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<Message>& incoming(Flow flow) const { return incoming_[index(flow)]; }
  const std::vector<Message>& outgoing(Flow flow) const { return outgoing_[index(flow)]; }

  // The most buffers of each size that incoming messages need at once, when each is given back
  // after the last task of its microbatch in its chunk: sizes in bytes and counts.
  struct Need {
    size_t bytes = 0, count = 0;
  };
  std::vector<Need> most_incoming() const;

  static size_t index(Flow flow) { return static_cast<size_t>(flow); }

 private:
  void list_incoming(const Schedule& schedule, int rank, Flow flow, const Values& values);
  void list_steps(const Schedule& schedule, int rank, const Values& inputs, const Values& outputs);
  void find_ends();
  void look_ahead();

  std::vector<Step> steps_;
  std::array<std::vector<Message>, 2> incoming_, outgoing_;
};

}  // namespace nxd

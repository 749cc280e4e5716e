#pragma once

#include <vector>

#include "core/planner/part_memory.h"
#include "core/planner/plan_parts.h"
#include "core/schedule/schedule.h"
#include "core/schedule/schedule_report.h"

namespace nxd {

// INVALID_ARGUMENT, which names the field, where no layout of the model can have the length.
void check_sequence_length(const char* name, int32_t length, const ModelSizes& model);

// A layout with its defaults filled in. INVALID_ARGUMENT names what does not divide, or is
// out of range.
nxd_plan_layout_t read_plan_layout(const nxd_plan_layout_t& given, const ModelSizes& model);

// Cost of a layout of a model on a machine, all of which have been read. Memory and bounds come
// without looking at single tasks; a prediction plays the schedule.
class LayoutPlan {
 public:
  // layers: of each stage.
  LayoutPlan(const ModelSizes& model, const nxd_plan_machine_t& machine,
             const nxd_plan_layout_t& layout, const std::vector<int>& layers);

  // No step is shorter. In time of the stages.
  double least_seconds() const;
  // Bytes of the fullest rank.
  double total_bytes() const;
  bool fits() const;
  // The report depends on no ZeRO stage.
  ScheduleReport play() const;
  nxd_plan_prediction_t predict(const ScheduleReport& report) const;

 private:
  // Bytes of the ranks of one place in the pipeline.
  struct Memory {
    double parameters = 0, gradients = 0, optimizer = 0, activations = 0, buffers = 0;
    double total() const { return parameters + gradients + optimizer + activations + buffers; }
  };
  // Seconds after the last task.
  struct Finish {
    double reduction = 0, exposed = 0, optimizer = 0;
  };

  enum Part : size_t { kLayer, kEmbedding, kHead, kParts };

  template <class Add>
  void for_parts(const std::vector<int>& layers, const Add& add) const;
  void add_stages(const PlanParts& all, const std::vector<int>& layers);
  void add_finish(int rank);
  void add_memory(const std::vector<int>& layers);
  double slack_bytes(const BlockList& matrices) const;
  double left_by_parameters(double elements) const;
  double taken_by_gradients(const ModelMemory& memory, int layers) const;
  Memory memory_of(int rank) const;
  int fullest_rank() const;
  double kept_bytes(int rank) const;
  PassTime work_of(int rank) const;
  double finish_after(const std::vector<double>& ends) const;
  void fill_busiest(const ScheduleReport& report, nxd_plan_prediction_t& out) const;
  void fill_memory(nxd_plan_prediction_t& out) const;
  // Ranks of a stage are numbered one after the other.
  int ranks_of_stage() const { return layout_.tensor_parallel_size * layout_.data_parallel_size; }

  const ModelSizes& model_;
  const nxd_plan_machine_t& machine_;
  nxd_plan_layout_t layout_;
  PipelineShape shape_;
  nxd_pp_schedule_kind_t kind_;
  PipelineCosts costs_;
  std::vector<PassTime> forward_, input_, weight_;  // of each stage
  std::vector<double> stage_kept_;                  // bytes of one microbatch
  std::vector<double> rank_elements_;
  // All bytes beside what is kept and what goes between stages.
  std::vector<double> rank_other_;
  double boundary_bytes_ = 0;
  std::vector<Finish> finish_;  // of each rank
};

// Reads a layout and predicts it.
nxd_plan_prediction_t predict_layout(const ModelSizes& model, const nxd_plan_machine_t& machine,
                                     const nxd_plan_layout_t& layout);

}  // namespace nxd

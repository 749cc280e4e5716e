#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/snapshot.h"
#include "core/optim/data_parallel.h"
#include "core/optim/gradient_finish.h"
#include "core/optim/optimizer_settings.h"
#include "core/optim/optimizer_state.h"
#include "core/optim/step_outcome.h"
#include "core/optim/step_recorder.h"
#include "core/optim/update_rule.h"
#include "core/optim/update_under_way.h"

namespace nxd {

// Updates the parameters of a source by a rule. Over a ddp of ZeRO stage 1 each rank updates its
// parts of the buckets, keeps state for these alone, and all parts are gathered.
class Optimizer {
 public:
  // Gradients are reduced when a step finishes them.
  Optimizer(std::shared_ptr<ParameterSource> source, std::unique_ptr<UpdateRule> rule);
  Optimizer(std::shared_ptr<DataParallel> ddp, std::unique_ptr<UpdateRule> rule);

  // Patterns as of nxd_optimizer_add_group. Gives the group's index.
  int add_group(const std::vector<std::string>& patterns);
  int group_count() const { return static_cast<int>(settings_.groups.size()); }
  void set_hyperparameter(int group, nxd_hyperparameter_t which, double value);
  double hyperparameter(int group, nxd_hyperparameter_t which) const;
  void set_schedule(const LearningRateSchedule& schedule);
  double learning_rate(int group);  // of the next update

  // See nxd_optimizer_step and nxd_optimizer_update. Where steps are recorded, one without a report
  // ends when its graph has run: errors come then.
  void step(const FinishOptions& options, nxd_step_report_t* report);
  void update();

  // The last step or update left it; none once partially updated parameters are loaded again.
  StepOutcome outcome();

  int64_t updates() const { return updates_; }
  uint64_t state_bytes() const { return state_->bytes(*source_); }
  // See nxd_optimizer_save and nxd_optimizer_load. path may be null, which is rejected together
  // with the peers.
  void save(const char* path);
  void load(const std::string& path);
  // The state as it is now. INVALID_STATE where it is PARTIAL.
  std::unique_ptr<Snapshot> snapshot(Context& context);

 private:
  // An update of a span without its memory. It keeps the rule and the state.
  struct SpanUpdate;

  bool sharded() const { return gather_ != nullptr; }
  // Before a call that changes or reads the state.
  void check_usable(const char* call) const {
    under_way_.check(call);
    source_->check_usable();
  }
  static constexpr int kAllGroups = -1;
  void check_group(int group, int first = 0) const;
  // INVALID_STATE where a ddp has the gradients that this optimizer does not know.
  void check_reduced_here() const;
  // UNSUPPORTED where the ranks that have the rest of the model's state are not known. The same on
  // all ranks of the source's groups.
  void check_known() const;
  // By which the update of a parameter is rounded stochastically; none where it is not.
  std::optional<uint64_t> rounding_seed(const ParameterInfo& info,
                                        const StepRecorder* records) const;
  std::optional<uint64_t> seed_of_copies(const StepRecorder* records) const;  // see UpdatePlan
  GradientReducer::Options reduction_by(nxd_reduce_t reduce) const;
  GradientReducer& reducer_for(nxd_reduce_t reduce);
  FinishOptions with_reducer(const FinishOptions& options);
  FinishedGradients finish_gradients(const FinishOptions& options, bool same_used_map);
  void update_all(const FinishedGradients& finished);
  void update_span(OptimizerState::Span& span, double factor);
  // The update is recorded, or null: run at once.
  SpanUpdate prepare(OptimizerState::Span& span, const StepRecorder* records);
  // Makes states, and a master where value is to be rounded from one.
  bool copies_value(const OptimizerState::Span& span) const;
  void make_blocks(OptimizerState::Span& span, const void* value);
  void take_blocks(const std::vector<char>& present, const StepRecorder* records);
  // Null unless this step is to be recorded.
  StepRecorder* recorder();
  void prepare_to_record();
  void record_step(const FinishOptions& options);
  void record_span(OptimizerState::Span& span);
  void add_rounding(const OptimizerState::Span& span, const RandomSite& site,
                    RecordedUpdate& update) const;
  // Learns how the step that was recorded last has ended, which runs it if it has not run.
  GradientFactor settle();
  void settle_for_host();
  void settle_if_ended();
  void take_back(const std::vector<char>& updated);
  void update_parts(const FinishedGradients& finished);
  // Why a step or a save is rejected: values or state are PARTIAL. "" when they are not.
  std::string why_partial() const;
  void prepare_to_save();
  // The update of some parameters broke off, with the error under way. begun: some are changed.
  [[noreturn]] void break_off(const std::vector<char>& updated, bool begun);
  void mark_partial(const std::vector<char>& updated);
  void value_updated(size_t parameter);
  // True if this rank has elements of one of the parameters that are present.
  bool has_elements(const std::vector<char>& present) const;

  std::shared_ptr<DataParallel> ddp_;  // keeps alive what gradients and values lie in
  std::shared_ptr<ParameterSource> source_;
  std::shared_ptr<GradientReducer> reducer_;  // the ddp's, or made at the first step
  std::shared_ptr<ParameterGather> gather_;
  std::shared_ptr<UpdateRule> rule_;
  OptimizerSettings settings_;
  int64_t updates_ = 0;
  std::shared_ptr<OptimizerState> state_;
  std::vector<uint64_t> seen_versions_;  // of values, as their masters are
  UpdateUnderWay under_way_;
  std::unique_ptr<StepRecorder> recorder_;
  std::vector<char> unsettled_;    // the parameters of a recorded step; empty once it is settled
  bool unsettled_checks_ = false;  // that its norm is finite
  bool state_partial_ = false;
  StepOutcome outcome_;
};

}  // namespace nxd

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/optim/gradient_finish.h"
#include "core/optim/gradient_reducer.h"
#include "core/optim/optimizer_state.h"
#include "core/optim/parameter_source.h"
#include "core/optim/update_rule.h"

namespace nxd {

// Updates the parameters of a source by a rule. Over a scattering reducer each rank updates its
// parts of the buckets, keeps state for these alone, and all parts are gathered: ZeRO stage 1.
class Optimizer {
 public:
  // reducer null: the source's gradients are reduced when a step finishes them.
  Optimizer(std::shared_ptr<ParameterSource> source, std::shared_ptr<GradientReducer> reducer,
            std::unique_ptr<UpdateRule> rule);
  virtual ~Optimizer();

  // Patterns as of nxd_optimizer_add_group. Gives the group's index.
  int add_group(const std::vector<std::string>& patterns);
  int group_count() const { return static_cast<int>(groups_.size()); }
  void set_hyperparameter(int group, nxd_hyperparameter_t which, double value);
  double hyperparameter(int group, nxd_hyperparameter_t which) const;
  void set_schedule(const nxd_schedule_options_t& options);
  double learning_rate(int group) const;  // of the next update

  // See nxd_optimizer_step and nxd_optimizer_update.
  void step(const nxd_finish_options_t& options, nxd_step_report_t& report);
  void update();

  int64_t updates() const { return updates_; }
  uint64_t state_bytes() const;
  void save(const std::string& path);
  void load(const std::string& path);

 private:
  void check_group(int group) const;
  bool sharded() const { return reducer_ && reducer_->options().scatter; }
  void update_runs(const FinishedGradients& finished);
  void update_run(OptimizerState::Run& run, const FinishedGradients& finished);

  std::shared_ptr<ParameterSource> source_;
  std::shared_ptr<GradientReducer> reducer_;
  std::unique_ptr<UpdateRule> rule_;
  std::vector<Hyperparameters> groups_;
  std::vector<int> group_of_;  // of each parameter
  nxd_schedule_options_t schedule_ = NXD_SCHEDULE_OPTIONS_INIT;
  int64_t updates_ = 0;
  OptimizerState state_;
};

}  // namespace nxd

struct nxd_optimizer {
  std::shared_ptr<void> owner;  // what the parameters belong to, such as a module tree
  std::unique_ptr<nxd::Optimizer> value;
};

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/agree/outcome.h"
#include "core/optim/bucket_plan.h"
#include "core/optim/gradient_reducer.h"
#include "core/optim/parameter_source.h"

namespace nxd {

// See nxd_finish_grads.
struct FinishOptions {
  double scale = 1;
  double max_norm = 0;  // 0: no clipping
  double norm_type = 2;
  nxd_reduce_t reduce = NXD_REDUCE_SUM;  // over data-parallel ranks, where no ddp says otherwise
  bool check_finite = true;
  Outcome given = {};  // why a caller's options could not be read, which all ranks are to hear
};

// Gradients that are complete but for a factor: the scale, and the clip where the norm exceeds it.
struct FinishedGradients {
  double norm = 0;     // of the scaled gradients, before clipping; the same bits on all ranks
  double factor = 1;   // what every gradient is to be multiplied by
  bool finite = true;  // and within F32 once they are multiplied
  std::vector<char> present;  // of each parameter: it has a gradient
};

// The ranks of a stage must have this alike to make the same updates.
struct UpdatePlan {
  double learning_rate = -1;  // of group 0, with the schedule's factor
  int64_t updates = -1;       // made so far; -1: none is to be made
  uint32_t digest = 0;        // of the rule, the hyperparameters and the schedule
  // Why this rank's values are rejected, with INVALID_STATE on all ranks; "" when they are
  // complete.
  std::string why_partial{};
  // By which this rank and its copies each round updates stochastically; none where they do not.
  std::optional<uint64_t> rounding_seed{};
  // Takes the memory of the update for the parameters that have a gradient here: whatever may be
  // lacking is to be missed before anything is changed. May be null.
  std::function<void(const std::vector<char>& used)> take_memory{};
};

// INVALID_ARGUMENT, on all ranks of the groups, unless all have the same options and as many
// parameters; ABI_MISMATCH for a struct that cannot be read. UNSUPPORTED if the norm that clipping
// needs is not known; OUT_OF_MEMORY if a rank lacks memory for the step. After these four the
// step may be finished by another call; other failures end it. The same unless all ranks reduce
// alike over data-parallel ones, and those of a stage have the same parameters and the same plan.
// reducer: the one that has begun to reduce the gradients; null for none. Gives true if all ranks
// of the stage have the same gradients.
bool agree_on_finish(ParameterSource& source, GradientReducer* reducer,
                     const FinishOptions& options, const GradientReducer::Options& reduction,
                     const UpdatePlan& update = {});

// Completes the reduction, sums over gradient groups and takes the norm, in this order; gradients
// are not scaled yet. With a scattering reducer each rank's part is complete. Collective over all
// of the source's groups.
FinishedGradients finish(ParameterSource& source, GradientReducer& reducer,
                         const FinishOptions& options, bool same_used_map);

// Multiplies all gradients by the factor.
void apply_factor(ParameterSource& source, const FinishedGradients& finished);

// All of this, for a caller who wants to see the gradients: agrees, finishes, scales and clips.
// Gives the norm; INVALID_STATE when it is not finite, unless the options allow it.
double finish_in_place(ParameterSource& source, GradientReducer& reducer,
                       const FinishOptions& options);

}  // namespace nxd

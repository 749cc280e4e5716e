#include "engine/training/finish_gradients.h"

#include "core/optim/gradient_finish.h"
#include "engine/training/module_parameters.h"

namespace nxd {

double finish_gradients(Module& root, const nxd_finish_options_t& options) {
  const auto source = std::make_shared<ModuleParameters>(root.shared_from_this());
  source->check_usable();
  agree_on_finish(*source, options);
  GradientReducer::Options reduction;
  reduction.reduce = options.data_parallel_reduce;
  reduction.overlap = false;
  GradientReducer reducer(source, reduction);
  const FinishedGradients finished = finish(*source, reducer, options);
  apply_factor(*source, finished);
  check_state(finished.finite || options.skip_nonfinite_check != 0, "rank ",
              source->groups().world_rank, ": the norm of the gradients is ", finished.norm,
              "; they are left unclipped");
  return finished.norm;
}

}  // namespace nxd

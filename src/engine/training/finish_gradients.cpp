#include "engine/training/finish_gradients.h"

#include "engine/training/module_parameters.h"

namespace nxd {

double finish_gradients(Module& root, const FinishOptions& options) {
  const auto source = std::make_shared<ModuleParameters>(root.shared_from_this());
  source->check_usable();
  GradientReducer::Options reduction;
  reduction.reduce = options.reduce;
  reduction.overlap = false;
  GradientReducer reducer(source, reduction);
  return finish_in_place(*source, reducer, options);
}

}  // namespace nxd

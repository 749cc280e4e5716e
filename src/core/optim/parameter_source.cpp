#include "core/optim/parameter_source.h"

namespace nxd {

std::vector<ProcessGroup*> OptimizerGroups::all() const {
  if (world) return {world.get()};
  return {tensor.get(), data.get(), pipeline.get()};
}

std::optional<std::vector<std::string>> ParameterSource::names_of_model() const {
  const std::shared_ptr<ProcessGroup>& pipeline = groups().pipeline;
  if (pipeline && pipeline->size() > 1) return std::nullopt;
  std::vector<std::string> names;
  for (size_t i = 0; i < size(); ++i) names.push_back(info(i).name);
  return names;
}

}  // namespace nxd

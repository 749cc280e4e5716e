#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/optim/learning_rate.h"
#include "core/optim/update_rule.h"

namespace nxd {

// Settings of an optimizer, which are saved with its state: hyperparameters of the groups, the
// group of each parameter, and the course of the learning rate.
struct OptimizerSettings {
  using Metadata = std::map<std::string, std::string>;

  std::vector<Hyperparameters> groups;
  std::vector<int> group_of;  // of each parameter
  LearningRateSchedule schedule;

  // Adds them to what a file says, with the parameters by name.
  void write(Metadata& metadata, const std::vector<std::string>& names) const;
  // Takes hyperparameters and schedule from a file, one that has none of them excepted. Values
  // that the rule does not have stay. INVALID_ARGUMENT for other groups than these; CORRUPT.
  void read(const Metadata& metadata, const std::string& path,
            const std::vector<std::string>& names, const UpdateRule& rule);
  // It covers all that decides on an update by the rule, memory apart.
  uint32_t digest(const UpdateRule& rule) const;
};

}  // namespace nxd

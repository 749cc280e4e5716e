#pragma once

#include <optional>
#include <string>

#include "core/base/error.h"

namespace nxd {

// Why a rank could not go on with a run of a pipeline, as it tells its neighbours, who tell theirs.
struct TaskFailure {
  int rank = -1;  // world rank whose task failed
  nxd_status_t status = NXD_ERROR_USER;
  std::string what;

  // In place of a message that will not come.
  std::string to_reason() const;
  // The one that an error tells of, if it does.
  static std::optional<TaskFailure> find_in(const std::string& message);
};

}  // namespace nxd

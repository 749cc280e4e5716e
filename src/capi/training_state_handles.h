#pragma once

// Handles of training states.
#include <memory>

#include "capi/arguments.h"
#include "core/base/fork_guard.h"
#include "core/checkpoint/training_state.h"

struct nxd_training_state {
  std::unique_ptr<nxd::TrainingState> value;
  nxd::ForkGuard fork_guard{};
};

namespace nxd {

inline TrainingState& unwrap(nxd_training_state_t* state) {
  check_argument(state, "state: expected a training state, got NULL");
  state->fork_guard.check("state");
  return *state->value;
}

}  // namespace nxd

#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace nxd {

// How the end of a step left a rank's parameters; see nxd_optimizer_get_parameter_state.
struct StepOutcome {
  nxd_parameter_state_t parameters = NXD_PARAMETER_STATE_NONE;
  int64_t step = -1;

  // As an error carries it.
  ErrorPayload payload() const;
  static StepOutcome of(const ErrorPayload& payload);
};

// Within a handler: throws the error under way again, with the step whose end it broke off and the
// state that this has left this rank's parameters in. One that says so already stays as it is.
[[noreturn]] void rethrow_with_parameters(int64_t step, nxd_parameter_state_t state);

// Runs a part of a step's end that leaves parameters alone when it fails.
template <class Function>
auto before_update(int64_t step, Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (...) {
    rethrow_with_parameters(step, NXD_PARAMETER_STATE_OLD);
  }
}

// Why a parameter is rejected whose update broke off at the end of a step.
std::string partial_text(const std::string& parameter, int64_t step);

}  // namespace nxd

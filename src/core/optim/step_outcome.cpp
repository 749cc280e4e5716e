#include "core/optim/step_outcome.h"

namespace nxd {
namespace {

const char* const kKind = "step outcome";

const char* words(nxd_parameter_state_t state) {
  switch (state) {
    case NXD_PARAMETER_STATE_OLD: return "OLD: as before the step";
    case NXD_PARAMETER_STATE_NEW: return "NEW: as after the step";
    default: return "PARTIAL: some as before the step, some as after it; load them again";
  }
}

// An error of the caller is reported as it is: parameters are OLD then, as anyone would expect.
bool tells_of_parameters(nxd_status_t status, nxd_parameter_state_t state) {
  return state != NXD_PARAMETER_STATE_OLD || status == NXD_ERROR_PEER_LOST ||
         status == NXD_ERROR_TIMEOUT || status == NXD_ERROR_ABORTED;
}

[[noreturn]] void fail_with(nxd_status_t status, std::string message, ErrorContext context,
                            const StepOutcome& outcome) {
  if (tells_of_parameters(status, outcome.parameters)) {
    message += text("; the end of step ", outcome.step, " left this rank's parameters ",
                    words(outcome.parameters));
  }
  context.payload = outcome.payload();
  throw Error(status, std::move(message), std::move(context));
}

}  // namespace

ErrorPayload StepOutcome::payload() const { return {kKind, {parameters, step}}; }

StepOutcome StepOutcome::of(const ErrorPayload& payload) {
  if (payload.kind != kKind) return {};
  return {static_cast<nxd_parameter_state_t>(payload.values[0]), payload.values[1]};
}

void rethrow_with_parameters(int64_t step, nxd_parameter_state_t state) {
  const Error error = Error::current();
  if (StepOutcome::of(error.context().payload).parameters != NXD_PARAMETER_STATE_NONE) throw error;
  fail_with(error.status(), error.what(), error.context(), {state, step});
}

std::string partial_text(const std::string& parameter, int64_t step) {
  return text("parameter ", parameter,
              ": expected the values of one step, got PARTIAL ones: the end of step ", step,
              " broke off; load the parameters again");
}

}  // namespace nxd

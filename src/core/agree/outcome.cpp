#include "core/agree/outcome.h"

#include <array>

#include "core/base/shortened.h"

namespace nxd {

Outcome Outcome::from_current_exception(int rank) noexcept {
  Outcome outcome;
  outcome.rank = rank;
  outcome.cause = std::current_exception();
  const Error error = Error::current();
  outcome.status = error.status();
  try {
    outcome.reason = error.what();
  } catch (...) {
    // The status has to do.
  }
  return outcome;
}

void Outcome::rethrow() const {
  if (good()) return;
  if (cause) std::rethrow_exception(cause);
  check(status == NXD_ERROR_INVALID_ARGUMENT ? " rejected its arguments: " : " failed: ");
}

void Outcome::check(const char* words) const {
  if (!good()) throw Error(status, text("rank ", rank, words, reason), {rank, 0, group, operation});
}

void Outcome::share(ProcessGroup& group) {
  if (group.size() == 1) return;
  struct {
    int32_t status, rank;
    std::array<char, 504> reason;
  } message{status, rank, {}};
  copy_shortened(reason, message.reason.data(), message.reason.size() - 1);
  group.run(Call::broadcast(&message, sizeof message, NXD_DTYPE_U8, 0));
  if (group.rank() == 0) return;
  message.reason.back() = '\0';
  *this = {message.status, message.rank, message.reason.data(), nullptr, group.name(), operation};
}

}  // namespace nxd

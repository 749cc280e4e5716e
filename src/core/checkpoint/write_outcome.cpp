#include "core/checkpoint/write_outcome.h"

#include <cstring>
#include <new>

#include "core/base/error.h"

namespace nxd {

void WriteOutcome::keep(nxd_status_t status, const char* message) noexcept {
  message_.status = status;
  std::strncpy(message_.text.data(), message, message_.text.size() - 1);
}

void WriteOutcome::attempt(const std::function<void()>& write) noexcept {
  try {
    write();
  } catch (const Error& error) {
    keep(error.status(), error.what());
  } catch (const std::bad_alloc&) {
    keep(NXD_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    keep(NXD_ERROR_INTERNAL, error.what());
  }
}

void WriteOutcome::share(ProcessGroup& group) {
  if (group.size() > 1) group.run(Call::broadcast(&message_, sizeof message_, NXD_DTYPE_U8, 0));
}

void WriteOutcome::check() const {
  if (message_.status == NXD_OK) return;
  fail(message_.status, "rank ", message_.writer, " could not write: ", message_.text.data());
}

}  // namespace nxd

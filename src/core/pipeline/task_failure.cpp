#include "core/pipeline/task_failure.h"

#include <cstdio>

namespace nxd {
namespace {

const char* const kMark = "a task failed on rank ";

}  // namespace

std::string TaskFailure::to_reason() const {
  return text(kMark, rank, " (status ", status, "): ", what);
}

std::optional<TaskFailure> TaskFailure::find_in(const std::string& message) {
  const size_t at = message.find(kMark);
  if (at == std::string::npos) return std::nullopt;
  const std::string form = text(kMark, "%d (status %d): %n");
  TaskFailure found;
  int read = 0;
  if (std::sscanf(message.c_str() + at, form.c_str(), &found.rank, &found.status, &read) != 2 ||
      read == 0 || found.status == NXD_OK) {
    return std::nullopt;
  }
  found.what = message.substr(at + static_cast<size_t>(read));
  return found;
}

}  // namespace nxd

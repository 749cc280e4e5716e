#include "core/comm/recorded_step.h"

#include <atomic>

namespace nxd {
namespace {

std::atomic<void (*)()> end_of_step{nullptr};

}  // namespace

void set_recorded_step_end(void (*end)()) { end_of_step.store(end); }

void end_recorded_step() {
  if (void (*const end)() = end_of_step.load()) end();
}

}  // namespace nxd

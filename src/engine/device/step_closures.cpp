#include "engine/device/step_closures.h"

#include <utility>
#include <vector>

#include "engine/device/recording.h"

namespace nxd {
namespace {

thread_local std::vector<StepClosure> closures_of_thread;

}  // namespace

void add_step_closure(StepClosure closure) { closures_of_thread.push_back(std::move(closure)); }

void mark_step() {
  const std::vector<StepClosure> closures = std::exchange(closures_of_thread, {});
  if (Recording* recording = Recording::existing()) recording->mark_step();
  for (const StepClosure& closure : closures) closure();
}

}  // namespace nxd

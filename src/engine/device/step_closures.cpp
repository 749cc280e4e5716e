#include "engine/device/step_closures.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/thread_own.h"
#include "engine/device/closure_thread.h"
#include "engine/device/recording.h"

namespace nxd {
namespace {

struct Closures {
  std::vector<StepClosure> here{}, there{};
};

Closures& closures_of_thread() { return ThreadOwn<Closures>::get(); }

struct OtherThread : LazyClosureThread {
  OtherThread() : LazyClosureThread("for step closures") {}
};

LazyClosureThread& other_thread() { return ThreadOwn<OtherThread>::get(); }

}  // namespace

void add_step_closure(StepClosure closure) {
  closures_of_thread().here.push_back(std::move(closure));
}

void add_step_closure_async(StepClosure closure) {
  other_thread().started();
  closures_of_thread().there.push_back(std::move(closure));
}

void wait_step_closures() {
  ClosureThread* const other = other_thread().existing();
  if (!other) return;
  wait_for_step();  // which they wait for too, and whose calls may need this thread
  other->wait();
  if (const std::optional<Error> failure = other->take_failure()) throw Error(*failure);
}

void mark_step(bool wait) {
  Closures closures = std::exchange(closures_of_thread(), {});
  std::shared_ptr<StepRun> run;
  // A closure for this thread is part of this call, and follows the graph.
  if (Recording* recording = Recording::existing()) {
    run = recording->mark_step(wait || !closures.here.empty());
  }
  for (const StepClosure& closure : closures.here) closure();
  // Failures of closures that earlier steps have handed over: never one of those that follow.
  ClosureThread* const other = other_thread().existing();
  const std::optional<Error> failure = other ? other->take_failure() : std::nullopt;
  for (StepClosure& closure : closures.there) {
    other_thread().started().add([run, closure = std::move(closure)] {
      if (!run || run->has_succeeded()) closure();
    });
  }
  if (failure) throw Error(*failure);
}

void wait_for_step() {
  if (Recording* recording = Recording::existing()) recording->wait();
}

}  // namespace nxd

#include "engine/device/step_closures.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/fork_guard.h"
#include "engine/device/closure_thread.h"
#include "engine/device/recording.h"

namespace nxd {
namespace {

struct Closures {
  std::vector<StepClosure> here{}, there{};
};

thread_local Closures closures_of_thread;

// The other thread of this one. A forked child has its parent's, which does not run there.
class OtherThread {
 public:
  OtherThread() = default;
  OtherThread(const OtherThread&) = delete;
  OtherThread& operator=(const OtherThread&) = delete;
  ~OtherThread() { existing(); }

  // Null before the first closure for it.
  ClosureThread* existing() noexcept {
    if (guard_.is_foreign()) {
      static_cast<void>(thread_.release());
      guard_ = {};
    }
    return thread_.get();
  }
  ClosureThread& started() {
    if (!existing()) thread_ = std::make_unique<ClosureThread>();
    thread_->start();
    return *thread_;
  }

 private:
  std::unique_ptr<ClosureThread> thread_;
  ForkGuard guard_;
};

thread_local OtherThread other_thread;

}  // namespace

void add_step_closure(StepClosure closure) {
  closures_of_thread.here.push_back(std::move(closure));
}

void add_step_closure_async(StepClosure closure) {
  other_thread.started();
  closures_of_thread.there.push_back(std::move(closure));
}

void wait_step_closures() {
  ClosureThread* const other = other_thread.existing();
  if (!other) return;
  other->wait();
  if (const std::optional<Error> failure = other->take_failure()) throw Error(*failure);
}

void mark_step() {
  Closures closures = std::exchange(closures_of_thread, {});
  if (Recording* recording = Recording::existing()) recording->mark_step();
  for (const StepClosure& closure : closures.here) closure();
  // Failures of closures that earlier steps have handed over: never one of those that follow.
  ClosureThread* const other = other_thread.existing();
  const std::optional<Error> failure = other ? other->take_failure() : std::nullopt;
  for (StepClosure& closure : closures.there) {
    other_thread.started().add(std::move(closure));
  }
  if (failure) throw Error(*failure);
}

}  // namespace nxd

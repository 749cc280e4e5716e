#pragma once

#include <functional>

namespace nxd {

using StepClosure = std::function<void()>;

// Closures of this thread that the next step's graph is followed by, once; see
// nxd_add_step_closure and nxd_add_step_closure_async.
void add_step_closure(StepClosure closure);
void add_step_closure_async(StepClosure closure);
// Waits for those that the other thread has been handed, and fails as the first that failed did.
void wait_step_closures();

// Ends a step on this thread: the graph, then the closures. See nxd_mark_step for wait.
void mark_step(bool wait);
// Waits for this thread's step that runs, and leaves its failure to others.
void wait_for_step();

}  // namespace nxd

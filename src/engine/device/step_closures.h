#pragma once

#include <functional>

namespace nxd {

using StepClosure = std::function<void()>;

// Has the next mark_step() of this thread call the function, once.
void add_step_closure(StepClosure closure);

// Ends a step of this thread: executes what it has recorded, if anything, then calls the closures
// in the order in which they were added. With the first failure those left over are dropped.
void mark_step();

}  // namespace nxd

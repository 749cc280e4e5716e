#include "cause.h"

static _Thread_local uintptr_t cause_of_thread;

uintptr_t* nxdgo_cause_of_thread(void) { return &cause_of_thread; }

uintptr_t nxdgo_set_cause(uintptr_t handle) {
  if (cause_of_thread) return handle;
  cause_of_thread = handle;
  return 0;
}

/* The Go error of a callback that has failed on this thread, until the call it was made from takes
 * it. */
#ifndef NXDGO_CAUSE_H
#define NXDGO_CAUSE_H

#include <stdint.h>

uintptr_t* nxdgo_cause_of_thread(void);

/* Keeps the first of several; returns the handle that was not kept, or 0. */
uintptr_t nxdgo_set_cause(uintptr_t handle);

#endif /* NXDGO_CAUSE_H */

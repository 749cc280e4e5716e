/* Seconds of saving and loading what a rank of bench_step trains. */
#ifndef NXD_BENCH_STEP_CHECKPOINT_H
#define NXD_BENCH_STEP_CHECKPOINT_H

#include "nxd.h"

/* Both give 0, with a message, for failure; rank 0 prints.
 *
 * Loads the newest checkpoint below directory: before the first step, when the optimizer
 * has no state yet. A later load would have both states in memory until it has succeeded. */
int load_checkpoint(nxd_context_t* ctx, nxd_module_t* trained, nxd_optimizer_t* optimizer,
                    const char* directory);
/* Saves the parameters of all ranks and the optimizer's state as files of a checkpoint below
 * directory. Nothing is copied before it is written, so that this takes no more memory than
 * training does. */
int save_checkpoint(nxd_context_t* ctx, nxd_module_t* trained, nxd_optimizer_t* optimizer,
                    const char* directory);

#endif

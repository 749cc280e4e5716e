/* Checkpoints of a training run: saved while it goes on, and gone on from. */
#ifndef NXD_EXAMPLES_RUN_CHECKPOINTS_H
#define NXD_EXAMPLES_RUN_CHECKPOINTS_H

#include "nxd.h"

typedef struct {
  nxd_context_t* ctx;
  const char* directory;
  int32_t rank, keep;
  float* losses;               /* of all steps so far; a file beside those of the state */
  nxd_training_state_t* state; /* all else that the run goes on from */
  nxd_checkpoint_t* under_way; /* the last one that was saved */
} run_checkpoints_t;

/* All ranks call these. Each gives 1, or 0 after a message on stderr. */

/* Says what is saved: this rank's part of the model, its optimizer, and the data, which are NULL
 * where batches follow from the step alone. */
int run_begin(run_checkpoints_t* run, nxd_module_t* model, nxd_optimizer_t* optimizer,
              nxd_data_loader_t* data);
/* Reads the newest complete checkpoint, if there is one. *out_steps are made by then. */
int run_resume(run_checkpoints_t* run, int max_steps, int* out_steps);
/* Saves after so many steps, in the background; waits for the save before. */
int run_save(run_checkpoints_t* run, int steps);
/* Waits for the last save. */
int run_end(run_checkpoints_t* run);
/* In any state. */
void run_close(run_checkpoints_t* run);

#endif

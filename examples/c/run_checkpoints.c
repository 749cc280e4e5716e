#include "run_checkpoints.h"

#include <stdio.h>
#include <stdlib.h>

#define LOSSES_FILE "losses.f32"

static int failed(const char* call, nxd_status_t status) {
  if (status == NXD_OK) return 0;
  fprintf(stderr, "checkpoint: %s: %s: %s\n", call, nxd_status_string(status), nxd_last_error());
  return 1;
}
/* Leaves the calling function, which gives 0 for failure. */
#define TRY(call)                        \
  do {                                   \
    if (failed(#call, (call))) return 0; \
  } while (0)

enum { kPathRoom = 4096 };

static int path_of(nxd_checkpoint_t* checkpoint, const char* name, char* path) {
  size_t needed = 0;
  TRY(nxd_checkpoint_get_path(checkpoint, name, path, kPathRoom, &needed));
  return 1;
}

/* The whole file is read or written, or nothing counts. */
static int move_losses(const char* path, const char* mode, float* losses, size_t steps) {
  FILE* file = fopen(path, mode);
  const size_t moved = !file          ? 0
                       : *mode == 'r' ? fread(losses, sizeof *losses, steps, file)
                                      : fwrite(losses, sizeof *losses, steps, file);
  if ((file && fclose(file) != 0) || moved != steps) {
    perror(path);
    return 0;
  }
  return 1;
}

int run_begin(run_checkpoints_t* run, nxd_module_t* model, nxd_optimizer_t* optimizer,
              nxd_data_loader_t* data) {
  TRY(nxd_training_state_create(run->ctx, &run->state));
  TRY(nxd_training_state_add_module(run->state, "model", model));
  TRY(nxd_training_state_add_optimizer(run->state, "optimizer", optimizer));
  if (data) TRY(nxd_training_state_add_data_loader(run->state, "data", data));
  return 1;
}

static int read_checkpoint(run_checkpoints_t* run, nxd_checkpoint_t* checkpoint, int max_steps,
                           int* out_steps) {
  char path[kPathRoom];
  int64_t step = 0;
  TRY(nxd_checkpoint_get_step(checkpoint, &step));
  if (step > max_steps) {
    fprintf(stderr, "checkpoint: it is of step %lld, and the run is to have %d\n", (long long)step,
            max_steps);
    return 0;
  }
  TRY(nxd_training_state_restore(run->state, checkpoint));
  if (!path_of(checkpoint, LOSSES_FILE, path)) return 0;
  if (!move_losses(path, "rb", run->losses, (size_t)step)) return 0;
  *out_steps = (int)step;
  return 1;
}

int run_resume(run_checkpoints_t* run, int max_steps, int* out_steps) {
  nxd_checkpoint_t* checkpoint = NULL;
  *out_steps = 0;
  TRY(nxd_checkpoint_open_newest(run->ctx, run->directory, 1, &checkpoint));
  if (!checkpoint) return 1;
  const int good = read_checkpoint(run, checkpoint, max_steps, out_steps);
  nxd_checkpoint_destroy(checkpoint);
  return good;
}

int run_end(run_checkpoints_t* run) {
  const nxd_status_t status = run->under_way ? nxd_checkpoint_wait(run->under_way, -1) : NXD_OK;
  const int good = !failed("nxd_checkpoint_wait", status);
  nxd_checkpoint_destroy(run->under_way);
  run->under_way = NULL;
  return good;
}

int run_save(run_checkpoints_t* run, int steps) {
  char path[kPathRoom];
  if (!run_end(run)) return 0;
  TRY(nxd_checkpoint_create(run->ctx, run->directory, steps, &run->under_way));
  TRY(nxd_training_state_snapshot(run->state, run->under_way));
  if (run->rank == 0 && (!path_of(run->under_way, LOSSES_FILE, path) ||
                         !move_losses(path, "wb", run->losses, (size_t)steps))) {
    return 0;
  }
  TRY(nxd_checkpoint_publish_async(run->under_way, run->keep));
  return 1;
}

void run_close(run_checkpoints_t* run) {
  nxd_checkpoint_destroy(run->under_way);
  nxd_training_state_destroy(run->state);
}

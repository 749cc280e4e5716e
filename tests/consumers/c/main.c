/* Heat in a rod that is shared out over ranks: heat RANKS */
#include <stdio.h>
#include <stdlib.h>

#include "rod.h"

enum { CELLS = 64, STEPS = 40000 };

static nxd_status_t simulate(nxd_context_t* ctx) {
  nxd_group_t* world = NULL;
  rod r = {0};
  double change = 1, total = 0;
  int step = 0;
  nxd_status_t status = nxd_context_get_world_group(ctx, &world);
  if (!status) status = rod_create(&r, world, CELLS);
  for (; !status && step < STEPS && change > 1e-9; ++step) status = rod_step(&r, &change);
  if (!status) status = rod_total(&r, &total);
  if (!status) {
    char line[80];
    snprintf(line, sizeof line, "%d steps, heat %.4f", step, total);
    status = nxd_master_print(ctx, line);
  }
  rod_destroy(&r);
  return status;
}

static nxd_status_t run_rank(void) {
  nxd_context_t* ctx = NULL;
  nxd_status_t status = nxd_context_create(NULL, &ctx);
  if (!status) status = simulate(ctx);
  if (!status) status = nxd_context_finalize(ctx);
  nxd_context_destroy(ctx);
  return status;
}

/* INVALID_STATE where a launcher has started this process. */
static nxd_status_t start(int ranks) {
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  nxd_job_t* job = NULL;
  options.num_processes = ranks;
  nxd_status_t status = nxd_spawn(&options, &job);
  if (!status) status = nxd_job_wait(job, 240000);
  nxd_job_destroy(job);
  return status;
}

int main(int argc, char** argv) {
  if (nxd_abi_version() != NXD_ABI_VERSION) return 2;
  nxd_status_t status = start(argc > 1 ? atoi(argv[1]) : 1);
  if (status == NXD_ERROR_INVALID_STATE) status = run_rank();
  if (status) fprintf(stderr, "heat: %s: %s\n", nxd_status_string(status), nxd_last_error());
  return status ? 1 : 0;
}

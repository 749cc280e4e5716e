/* Times of the smallest calls in C, to compare the bindings with: nxd_context_get_rank,
 * and an all-reduce of 256 f32 between two ranks of this host. Medians of batches, on rank 0. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "nxd.h"
#include "timing.h"

enum { BATCHES = 31, EMPTY_CALLS = 100000, REDUCTIONS = 1000, COUNT = 256 };

#define TRY(call)                          \
  do {                                     \
    const nxd_status_t status_ = (call);   \
    if (status_ != NXD_OK) return status_; \
  } while (0)

static nxd_status_t measure(nxd_context_t* ctx) {
  static float send[COUNT], recv[COUNT];
  double empty[BATCHES], reduce[BATCHES];
  nxd_group_t* world = NULL;
  int32_t rank = 0;
  TRY(nxd_context_get_world_group(ctx, &world));
  for (int i = 0; i < COUNT; ++i) send[i] = (float)i;
  for (int batch = 0; batch < BATCHES; ++batch) {
    const double begin = now();
    for (int i = 0; i < EMPTY_CALLS; ++i) TRY(nxd_context_get_rank(ctx, &rank));
    empty[batch] = (now() - begin) / EMPTY_CALLS;
  }
  for (int batch = 0; batch < BATCHES; ++batch) {
    TRY(nxd_barrier(world));
    const double begin = now();
    for (int i = 0; i < REDUCTIONS; ++i)
      TRY(nxd_all_reduce(world, send, recv, COUNT, NXD_DTYPE_F32, NXD_REDUCE_SUM));
    reduce[batch] = (now() - begin) / REDUCTIONS;
  }
  for (int i = 0; i < COUNT; ++i)
    if (recv[i] != 2 * send[i]) return NXD_ERROR_INTERNAL;
  if (rank == 0)
    printf("empty_call_ns %.1f\nall_reduce_1k_us %.2f\n", 1e9 * median(empty, BATCHES),
           1e6 * median(reduce, BATCHES));
  return NXD_OK;
}

static nxd_status_t run_rank(void) {
  nxd_context_t* ctx = NULL;
  nxd_status_t status = nxd_context_create(NULL, &ctx);
  if (!status) status = measure(ctx);
  if (!status) status = nxd_context_finalize(ctx);
  nxd_context_destroy(ctx);
  return status;
}

/* INVALID_STATE where a launcher has started this process. */
static nxd_status_t start(void) {
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  nxd_job_t* job = NULL;
  options.num_processes = 2;
  TRY(nxd_spawn(&options, &job));
  const nxd_status_t status = nxd_job_wait(job, 120000);
  nxd_job_destroy(job);
  return status;
}

int main(void) {
  nxd_status_t status = start();
  if (status == NXD_ERROR_INVALID_STATE) status = run_rank();
  if (status) fprintf(stderr, "calls: %s: %s\n", nxd_status_string(status), nxd_last_error());
  return status ? 1 : 0;
}

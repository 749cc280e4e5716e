/* Seconds of saving and loading parameters, and those that training stands still for a save in the
 * background, on rank 0. scripts/bench_checkpoints runs it beside dd.
 * usage: bench_checkpoints DIRECTORY [MIB] [PASSES], alone or under nxdrun: split over the ranks */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "nxd.h"

enum { TENSORS = 8, COLUMNS = 1024, PATH_ROOM = 4096 };

#define TRY(call)                          \
  do {                                     \
    const nxd_status_t status_ = (call);   \
    if (status_ != NXD_OK) return status_; \
  } while (0)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static nxd_status_t make_model(nxd_context_t* ctx, int64_t mib, nxd_module_t** out) {
  nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
  const int64_t shape[2] = {mib * 1024 * 1024 / (TENSORS * COLUMNS * 4), COLUMNS};
  options.has_shard_dim = 1;
  options.shard_dim = 1;
  options.init = NXD_INIT_UNIFORM;
  options.init_b = 1;
  TRY(nxd_module_create(ctx, "Holder", NULL, NULL, NULL, out));
  for (int i = 0; i < TENSORS; ++i) {
    char name[16];
    snprintf(name, sizeof name, "w%d", i);
    TRY(nxd_module_add_parameter(*out, name, shape, 2, &options, NULL));
  }
  return NXD_OK;
}

/* A read after this comes from the disk, where the kernel lets go of the pages. */
static void forget_pages(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  close(file);
}

static nxd_status_t save(nxd_context_t* ctx, nxd_module_t* model, const char* directory,
                         int64_t step, int background, double* stall, double* whole) {
  nxd_checkpoint_t* checkpoint = NULL;
  const double begin = now();
  nxd_status_t status = nxd_checkpoint_create(ctx, directory, step, &checkpoint);
  if (!status) status = nxd_module_snapshot(model, checkpoint, "model.safetensors");
  if (!status && background) status = nxd_checkpoint_publish_async(checkpoint, 1);
  if (!status && !background) status = nxd_checkpoint_publish(checkpoint, 1);
  *stall = now() - begin;
  if (!status && background) status = nxd_checkpoint_wait(checkpoint, -1);
  *whole = now() - begin;
  nxd_checkpoint_destroy(checkpoint);
  return status;
}

static nxd_status_t load(nxd_context_t* ctx, nxd_module_t* model, const char* directory,
                         double* seconds) {
  nxd_checkpoint_t* checkpoint = NULL;
  char path[PATH_ROOM];
  size_t needed = 0;
  TRY(nxd_checkpoint_open_newest(ctx, directory, 0, &checkpoint));
  nxd_status_t status =
      nxd_checkpoint_get_path(checkpoint, "model.safetensors", path, sizeof path, &needed);
  if (!status) {
    forget_pages(path);
    const double begin = now();
    status = nxd_module_load_safetensors(model, path, 1, NULL);
    *seconds = now() - begin;
  }
  nxd_checkpoint_destroy(checkpoint);
  return status;
}

static nxd_status_t measure(nxd_context_t* ctx, const char* directory, int64_t mib, int passes) {
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  nxd_module_t* model = NULL;
  int32_t rank = 0;
  TRY(nxd_context_get_rank(ctx, &rank));
  TRY(nxd_context_get_size(ctx, &parallel.tensor_parallel_size));
  TRY(nxd_init_model_parallel(ctx, &parallel));
  nxd_status_t status = make_model(ctx, mib, &model);
  for (int pass = 0; pass < passes && !status; ++pass) {
    double unused = 0, saved = 0, stall = 0, background = 0, loaded = 0;
    status = save(ctx, model, directory, 2 * pass + 1, 0, &unused, &saved);
    if (!status) status = save(ctx, model, directory, 2 * pass + 2, 1, &stall, &background);
    if (!status) status = load(ctx, model, directory, &loaded);
    if (!status && rank == 0)
      printf("save_s %.4f background_s %.4f stall_s %.4f load_s %.4f\n", saved, background, stall,
             loaded);
  }
  nxd_module_destroy(model);
  return status;
}

int main(int argc, char** argv) {
  const int64_t mib = argc > 2 ? atoll(argv[2]) : 256;
  const int passes = argc > 3 ? atoi(argv[3]) : 3;
  if (argc < 2 || mib < 1 || passes < 1) {
    fprintf(stderr, "usage: bench_checkpoints DIRECTORY [MIB] [PASSES]\n");
    return 2;
  }
  nxd_context_t* ctx = NULL;
  nxd_status_t status = nxd_context_create(NULL, &ctx);
  if (!status) status = measure(ctx, argv[1], mib, passes);
  if (!status) status = nxd_context_finalize(ctx);
  if (status) fprintf(stderr, "bench_checkpoints: %s\n", nxd_last_error());
  nxd_context_destroy(ctx);
  return status ? 1 : 0;
}

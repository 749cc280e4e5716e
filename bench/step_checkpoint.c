#define _GNU_SOURCE
#include "step_checkpoint.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { kPathRoom = 4096 };

typedef struct {
  char parameters[kPathRoom], state[kPathRoom];
} paths_t;

/* Leaves the calling function, which gives what failed. */
#define TRY(call)                          \
  do {                                     \
    const nxd_status_t status_ = (call);   \
    if (status_ != NXD_OK) return status_; \
  } while (0)

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static nxd_status_t get_paths(nxd_checkpoint_t* checkpoint, paths_t* paths) {
  size_t needed = 0;
  TRY(nxd_checkpoint_get_path(checkpoint, "model.safetensors", paths->parameters, kPathRoom,
                              &needed));
  return nxd_checkpoint_get_path(checkpoint, "optimizer.safetensors", paths->state, kPathRoom,
                                 &needed);
}

static nxd_status_t save(nxd_module_t* trained, nxd_optimizer_t* optimizer,
                         nxd_checkpoint_t* checkpoint) {
  paths_t paths;
  TRY(get_paths(checkpoint, &paths));
  TRY(nxd_module_save_safetensors(trained, paths.parameters));
  TRY(nxd_optimizer_save(optimizer, paths.state));
  return nxd_checkpoint_publish(checkpoint, 1);
}

/* The kernel lets go of the file's pages, so that it is read from the disk. */
static double let_go(const char* path) {
  struct stat about = {0};
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  (void)fstat(file, &about);
  close(file);
  return (double)about.st_size;
}

static nxd_status_t load(nxd_module_t* trained, nxd_optimizer_t* optimizer,
                         nxd_checkpoint_t* checkpoint, double* took, double* bytes) {
  paths_t paths;
  TRY(get_paths(checkpoint, &paths));
  *bytes = let_go(paths.parameters) + let_go(paths.state);
  const double start = seconds();
  TRY(nxd_module_load_safetensors(trained, paths.parameters, 1, NULL));
  TRY(nxd_optimizer_load(optimizer, paths.state));
  *took = seconds() - start;
  return NXD_OK;
}

static int report(nxd_context_t* ctx, nxd_status_t status, const char* what, double took,
                  const char* directory) {
  int32_t rank = 0;
  if (status == NXD_OK) status = nxd_context_get_rank(ctx, &rank);
  if (status == NXD_OK && rank == 0) printf("%-34s %10.1f\n", what, took);
  if (status != NXD_OK) fprintf(stderr, "bench_step: %s: %s\n", directory, nxd_last_error());
  return status == NXD_OK;
}

int load_checkpoint(nxd_context_t* ctx, nxd_module_t* trained, nxd_optimizer_t* optimizer,
                    const char* directory) {
  nxd_checkpoint_t* checkpoint = NULL;
  nxd_status_t status = nxd_checkpoint_open_newest(ctx, directory, 0, &checkpoint);
  double took = 0, bytes = 0;
  if (status == NXD_OK) status = load(trained, optimizer, checkpoint, &took, &bytes);
  char what[64];
  snprintf(what, sizeof what, "loading %.0f MB, s", 1e-6 * bytes);
  const int good = report(ctx, status, what, took, directory);
  nxd_checkpoint_destroy(checkpoint);
  return good;
}

int save_checkpoint(nxd_context_t* ctx, nxd_module_t* trained, nxd_optimizer_t* optimizer,
                    const char* directory) {
  nxd_checkpoint_t* checkpoint = NULL;
  const double start = seconds();
  nxd_status_t status = nxd_checkpoint_create(ctx, directory, 1, &checkpoint);
  if (status == NXD_OK) status = save(trained, optimizer, checkpoint);
  const int good = report(ctx, status, "saving, s", seconds() - start, directory);
  nxd_checkpoint_destroy(checkpoint);
  return good;
}

/* Seconds of saving and loading f32 parameters and AdamW's state of them, those that training
 * stands still for a save in the background, and those of an optimizer's step alone and right after
 * such a save has begun, on rank 0. scripts/bench_checkpoints runs it beside dd.
 *
 *   bench_checkpoints DIRECTORY [MIB [PASSES]]
 *
 * Alone, or under nxdrun, split over the ranks. No PASSES (0) load what another run has saved, as a
 * job that goes on does. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "nxd.h"

#include "number_argument.h"

enum { TENSORS = 8, COLUMNS = 1024, PATH_ROOM = 4096, MOST_MIB = 1 << 20, MOST_PASSES = 1000 };

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

typedef struct {
  nxd_context_t* ctx;
  nxd_module_t* model;
  nxd_optimizer_t* optimizer;
} training_t;

/* The parameters are a third of all bytes: AdamW keeps two values for each. */
static nxd_status_t make_training(training_t* training, int64_t mib) {
  nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
  const int64_t shape[2] = {mib * 1024 * 1024 / (3 * TENSORS * COLUMNS * 4), COLUMNS};
  options.has_shard_dim = 1;
  options.shard_dim = 1;
  options.init = NXD_INIT_UNIFORM;
  options.init_b = 1;
  TRY(nxd_module_create(training->ctx, "Holder", NULL, NULL, NULL, &training->model));
  for (int i = 0; i < TENSORS; ++i) {
    char name[16];
    snprintf(name, sizeof name, "w%d", i);
    TRY(nxd_module_add_parameter(training->model, name, shape, 2, &options, NULL));
  }
  return nxd_optimizer_create_adamw(training->model, NULL, &training->optimizer);
}

/* Gradients are the values themselves. */
static nxd_status_t step(training_t* training, double* seconds) {
  nxd_tensor_t* values[TENSORS] = {NULL};
  nxd_status_t status = NXD_OK;
  for (size_t i = 0; i < TENSORS && !status; ++i) {
    nxd_parameter_t* parameter = NULL;
    status = nxd_module_get_parameter(training->model, i, &parameter, NULL);
    if (!status) status = nxd_parameter_get_tensor(parameter, &values[i]);
  }
  if (!status) status = nxd_backward(values, values, TENSORS, 0);
  const double begin = now();
  if (!status) status = nxd_optimizer_step(training->optimizer, NULL, NULL);
  *seconds = now() - begin;
  return status ? status : nxd_module_zero_grad(training->model);
}

/* A read after this comes from the disk, where the kernel lets go of the pages. */
static void forget_pages(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  close(file);
}

typedef struct {
  double save, background, stall, step, step_meanwhile;
} seconds_t;

static nxd_status_t take(training_t* training, nxd_checkpoint_t* checkpoint) {
  TRY(nxd_module_snapshot(training->model, checkpoint, "model.safetensors"));
  return nxd_optimizer_snapshot(training->optimizer, checkpoint, "optimizer.safetensors");
}

static nxd_status_t save(training_t* training, const char* directory, int64_t number,
                         double* seconds) {
  nxd_checkpoint_t* checkpoint = NULL;
  const double begin = now();
  nxd_status_t status = nxd_checkpoint_create(training->ctx, directory, number, &checkpoint);
  if (!status) status = take(training, checkpoint);
  if (!status) status = nxd_checkpoint_publish(checkpoint, 0);
  *seconds = now() - begin;
  nxd_checkpoint_destroy(checkpoint);
  return status;
}

/* With a step beside it, when meanwhile is not NULL. */
static nxd_status_t save_in_background(training_t* training, const char* directory, int64_t number,
                                       double* stall, double* seconds, double* meanwhile) {
  nxd_checkpoint_t* checkpoint = NULL;
  const double begin = now();
  nxd_status_t status = nxd_checkpoint_create(training->ctx, directory, number, &checkpoint);
  if (!status) status = take(training, checkpoint);
  if (!status) status = nxd_checkpoint_publish_async(checkpoint, 0);
  *stall = now() - begin;
  if (!status && meanwhile) status = step(training, meanwhile);
  if (!status) status = nxd_checkpoint_wait(checkpoint, -1);
  *seconds = now() - begin;
  nxd_checkpoint_destroy(checkpoint);
  return status;
}

static nxd_status_t path_of(nxd_checkpoint_t* checkpoint, const char* name, char* path) {
  size_t needed = 0;
  TRY(nxd_checkpoint_get_path(checkpoint, name, path, PATH_ROOM, &needed));
  forget_pages(path);
  return NXD_OK;
}

static nxd_status_t load(training_t* training, const char* directory, double* of_model,
                         double* of_state) {
  nxd_checkpoint_t* checkpoint = NULL;
  char model[PATH_ROOM], state[PATH_ROOM];
  TRY(nxd_checkpoint_open_newest(training->ctx, directory, 0, &checkpoint));
  nxd_status_t status = path_of(checkpoint, "model.safetensors", model);
  if (!status) status = path_of(checkpoint, "optimizer.safetensors", state);
  double begin = now();
  if (!status) status = nxd_module_load_safetensors(training->model, model, 1, NULL);
  *of_model = now() - begin;
  begin = now();
  if (!status) status = nxd_optimizer_load(training->optimizer, state);
  *of_state = now() - begin;
  nxd_checkpoint_destroy(checkpoint);
  return status;
}

static nxd_status_t measure_pass(training_t* training, const char* directory, int64_t number,
                                 seconds_t* out) {
  double unused = 0;
  TRY(step(training, &out->step));
  TRY(save(training, directory, number, &out->save));
  TRY(save_in_background(training, directory, number + 1, &out->stall, &out->background, NULL));
  return save_in_background(training, directory, number + 2, &unused, &unused,
                            &out->step_meanwhile);
}

static nxd_status_t measure_load(training_t* training, const char* directory, int32_t rank) {
  double of_model = 0, of_state = 0;
  TRY(load(training, directory, &of_model, &of_state));
  if (rank == 0) printf("load_s %.4f load_state_s %.4f\n", of_model, of_state);
  return NXD_OK;
}

static nxd_status_t measure(nxd_context_t* ctx, const char* directory, int64_t mib, int passes) {
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  training_t training = {ctx, NULL, NULL};
  int32_t rank = 0;
  TRY(nxd_context_get_rank(ctx, &rank));
  TRY(nxd_context_get_size(ctx, &parallel.tensor_parallel_size));
  TRY(nxd_init_model_parallel(ctx, &parallel));
  nxd_status_t status = make_training(&training, mib);
  for (int pass = 0; pass < passes && !status; ++pass) {
    seconds_t seconds = {0};
    status = measure_pass(&training, directory, 3 * pass + 1, &seconds);
    if (!status && rank == 0) {
      printf("save_s %.4f background_s %.4f stall_s %.4f step_s %.4f step_meanwhile_s %.4f\n",
             seconds.save, seconds.background, seconds.stall, seconds.step, seconds.step_meanwhile);
    }
  }
  if (!status && passes == 0) status = measure_load(&training, directory, rank);
  nxd_optimizer_destroy(training.optimizer);
  nxd_module_destroy(training.model);
  return status;
}

int main(int argc, char** argv) {
  static const struct option known[] = {{NULL, 0, NULL, 0}};
  long mib = 256, passes = 3;
  int good = getopt_long(argc, argv, "", known, NULL) == -1;
  char** words = argv + optind;
  const int count = argc - optind;
  good = good && count >= 1 && count <= 3;
  if (good && count > 1) good = read_number(words[1], 1, MOST_MIB, &mib);
  if (good && count > 2) good = read_number(words[2], 0, MOST_PASSES, &passes);
  if (!good) {
    fprintf(stderr,
            "usage: bench_checkpoints DIRECTORY [MIB [PASSES]], MIB from 1 to %d, PASSES from 0 "
            "to %d\n",
            MOST_MIB, MOST_PASSES);
    return 2;
  }
  nxd_context_t* ctx = NULL;
  nxd_status_t status = nxd_context_create(NULL, &ctx);
  if (!status) status = measure(ctx, words[0], mib, (int)passes);
  if (!status) status = nxd_context_finalize(ctx);
  if (status) fprintf(stderr, "bench_checkpoints: %s\n", nxd_last_error());
  nxd_context_destroy(ctx);
  return status ? 1 : 0;
}

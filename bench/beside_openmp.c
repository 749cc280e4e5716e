/* A program that has parallel regions of its own beside libnxd's, on the same cores: rounds of its
 * region alone, of libnxd's product alone, and of the two in turns. Neither slows the other where
 * the third is the sum of the first two. The program's region is OpenMP's and goes through as many
 * bytes as the product's operands have. */
#define _GNU_SOURCE
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "nxd.h"
#include "timing.h"

enum { TOKENS = 512, WIDTH = 512, CALLS = 40, ROUNDS = 21, WARM_ROUNDS = 3 };
enum { REGION, PRODUCT, TURNS, WAYS };

#define TRY(call)                          \
  do {                                     \
    const nxd_status_t status_ = (call);   \
    if (status_ != NXD_OK) return status_; \
  } while (0)

typedef struct {
  nxd_context_t* ctx;
  float *x, *w, *y;
  DLTensor tensors[3];
  double sum;
} work_t;

static void run_region(work_t* work) {
  double sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int i = 0; i < TOKENS * WIDTH; ++i) {
    work->x[i] = work->x[i] * 0.5F + 0.25F * work->w[i % (WIDTH * WIDTH)];
    sum += work->x[i];
  }
  work->sum += sum;
}

static nxd_status_t run_product(work_t* work) {
  DLTensor* t = work->tensors;
  return nxd_column_linear_forward(work->ctx, &t[0], &t[1], NULL, NULL, &t[2]);
}

/* Seconds of each way, by medians of rounds in which all ways take turns. */
static nxd_status_t measure(work_t* work, double* seconds) {
  static double rounds[WAYS][ROUNDS];
  for (int round = -WARM_ROUNDS; round < ROUNDS; ++round) {
    for (int way = 0; way < WAYS; ++way) {
      const double start = now();
      for (int call = 0; call < CALLS; ++call) {
        if (way != PRODUCT) run_region(work);
        if (way != REGION) TRY(run_product(work));
      }
      if (round >= 0) rounds[way][round] = now() - start;
    }
  }
  for (int way = 0; way < WAYS; ++way) seconds[way] = median(rounds[way], ROUNDS) / CALLS;
  return NXD_OK;
}

static nxd_status_t make_work(work_t* work) {
  static int64_t shape[2] = {TOKENS, WIDTH}, square[2] = {WIDTH, WIDTH};
  float** arrays[3] = {&work->x, &work->w, &work->y};
  for (int i = 0; i < 3; ++i) {
    const size_t count = (size_t)(i == 1 ? WIDTH : TOKENS) * WIDTH;
    *arrays[i] = malloc(count * sizeof(float));
    if (!*arrays[i]) return NXD_ERROR_OUT_OF_MEMORY;
    for (size_t k = 0; k < count; ++k) (*arrays[i])[k] = (float)(k * 7 % 31) / 31 - 0.5F;
    const DLTensor tensor = {
        *arrays[i], {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, i == 1 ? square : shape, NULL, 0};
    work->tensors[i] = tensor;
  }
  return NXD_OK;
}

int main(void) {
  work_t work = {0};
  double seconds[WAYS] = {0};
  nxd_status_t status = nxd_context_create(NULL, &work.ctx);
  if (!status) status = nxd_init_model_parallel(work.ctx, NULL);
  if (!status) status = make_work(&work);
  if (!status) status = measure(&work, seconds);
  if (!status) {
    const double both = seconds[REGION] + seconds[PRODUCT];
    printf("beside_openmp_threads %d\n", omp_get_max_threads());
    printf("beside_openmp_region_us %.1f\n", 1e6 * seconds[REGION]);
    printf("beside_openmp_product_us %.1f\n", 1e6 * seconds[PRODUCT]);
    printf("beside_openmp_turns_us %.1f\n", 1e6 * seconds[TURNS]);
    printf("beside_openmp_turns_over_sum %.3f\n", seconds[TURNS] / both);
  } else {
    fprintf(stderr, "bench_beside_openmp: %s: %s\n", nxd_status_string(status), nxd_last_error());
  }
  free(work.x);
  free(work.w);
  free(work.y);
  nxd_context_destroy(work.ctx);
  return status != NXD_OK;
}

/* The linear layers of the comparison Llama's MLP over two tensor-parallel ranks, forward and
 * backward: over buffers, in memory of the program's and in the arena, beside the modules of libnxd
 * in the same run. The three take turns in every round. Medians, on rank 0; a share is the median
 * of the rounds' own shares, so that what else the machine does counts less. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "nxd.h"
#include "timing.h"

enum { HIDDEN = 512, INTERMEDIATE = 1408, RANKS = 2, PART = INTERMEDIATE / RANKS, TOKENS = 2048 };
enum { ROUNDS = 21, WARM_ROUNDS = 3, WAYS = 3 };

#define TRY(call)                          \
  do {                                     \
    const nxd_status_t status_ = (call);   \
    if (status_ != NXD_OK) return status_; \
  } while (0)

/* ---- over buffers */

typedef struct {
  int64_t shape[2];
  DLTensor tensor;
} array_t;

enum { X, W1, H, W2, Y, DX, DW1, DH, DW2, DY, ARRAYS };

static nxd_status_t make_arrays(nxd_context_t* ctx, int in_arena, array_t* arrays) {
  const int64_t shapes[ARRAYS][2] = {
      {TOKENS, HIDDEN}, {PART, HIDDEN}, {TOKENS, PART}, {HIDDEN, PART}, {TOKENS, HIDDEN},
      {TOKENS, HIDDEN}, {PART, HIDDEN}, {TOKENS, PART}, {HIDDEN, PART}, {TOKENS, HIDDEN}};
  for (int i = 0; i < ARRAYS; ++i) {
    const size_t count = (size_t)(shapes[i][0] * shapes[i][1]);
    void* data = NULL;
    if (in_arena) {
      TRY(nxd_arena_alloc(ctx, count * sizeof(float), &data));
    } else if (!(data = malloc(count * sizeof(float)))) {
      return NXD_ERROR_OUT_OF_MEMORY;
    }
    float* values = data;
    for (size_t k = 0; k < count; ++k) values[k] = (float)((k * 7 + (size_t)i) % 31) / 31 - 0.5f;
    arrays[i].shape[0] = shapes[i][0];
    arrays[i].shape[1] = shapes[i][1];
    const DLTensor tensor = {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, arrays[i].shape, NULL, 0};
    arrays[i].tensor = tensor;
  }
  return NXD_OK;
}

static void free_arrays(nxd_context_t* ctx, int in_arena, array_t* arrays) {
  for (int i = 0; i < ARRAYS; ++i) {
    if (in_arena) {
      nxd_arena_free(ctx, arrays[i].tensor.data);
    } else {
      free(arrays[i].tensor.data);
    }
  }
}

static nxd_status_t run_buffers(nxd_context_t* ctx, array_t* a) {
  TRY(nxd_column_linear_forward(ctx, &a[X].tensor, &a[W1].tensor, NULL, NULL, &a[H].tensor));
  TRY(nxd_row_linear_forward(ctx, &a[H].tensor, &a[W2].tensor, NULL, NULL, &a[Y].tensor));
  TRY(nxd_row_linear_backward(ctx, &a[H].tensor, &a[W2].tensor, &a[DY].tensor, NULL, &a[DH].tensor,
                              &a[DW2].tensor, NULL));
  return nxd_column_linear_backward(ctx, &a[X].tensor, &a[W1].tensor, &a[DH].tensor, NULL,
                                    &a[DX].tensor, &a[DW1].tensor, NULL);
}

/* ---- by modules */

typedef struct {
  nxd_module_t *column, *row;
  nxd_tensor_t *x, *dy;
} modules_t;

static nxd_status_t make_modules(nxd_context_t* ctx, modules_t* m) {
  nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  linear.bias = NXD_TOGGLE_OFF;
  linear.gather_output = NXD_TOGGLE_OFF;
  TRY(nxd_layer_create_column_parallel_linear(ctx, HIDDEN, INTERMEDIATE, &linear, &m->column));
  nxd_linear_options_t row = NXD_LINEAR_OPTIONS_INIT;
  row.bias = NXD_TOGGLE_OFF;
  row.input_is_parallel = 1;
  TRY(nxd_layer_create_row_parallel_linear(ctx, INTERMEDIATE, HIDDEN, &row, &m->row));
  static float values[TOKENS * HIDDEN];
  for (size_t k = 0; k < TOKENS * HIDDEN; ++k) values[k] = (float)(k * 7 % 31) / 31 - 0.5f;
  const int64_t shape[2] = {TOKENS, HIDDEN};
  TRY(nxd_tensor_from_data(values, sizeof values, shape, 2, NXD_DTYPE_F32, &m->x));
  return nxd_tensor_from_data(values, sizeof values, shape, 2, NXD_DTYPE_F32, &m->dy);
}

static nxd_status_t run_modules(modules_t* m) {
  nxd_tensor_t *x = NULL, *h = NULL, *y = NULL;
  TRY(nxd_module_zero_grad(m->column));
  TRY(nxd_module_zero_grad(m->row));
  TRY(nxd_tensor_detach(m->x, &x)); /* a leaf without a gradient */
  nxd_status_t status = nxd_tensor_set_requires_grad(x, 1);
  if (!status) status = nxd_module_forward(m->column, &x, 1, &h, 1);
  if (!status) status = nxd_module_forward(m->row, &h, 1, &y, 1);
  if (!status) status = nxd_backward(&y, &m->dy, 1, 0);
  nxd_tensor_destroy(x);
  nxd_tensor_destroy(h);
  nxd_tensor_destroy(y);
  return status;
}

static void destroy_modules(modules_t* m) {
  nxd_tensor_destroy(m->x);
  nxd_tensor_destroy(m->dy);
  nxd_module_destroy(m->column);
  nxd_module_destroy(m->row);
}

/* ---- both */

static nxd_status_t measure(nxd_context_t* ctx, array_t arrays[2][ARRAYS], modules_t* modules) {
  static const char* const names[WAYS] = {"modules", "buffers", "arena_buffers"};
  double seconds[WAYS][ROUNDS];
  nxd_group_t* world = NULL;
  int32_t rank = 0;
  TRY(nxd_context_get_world_group(ctx, &world));
  TRY(nxd_context_get_rank(ctx, &rank));
  for (int round = -WARM_ROUNDS; round < ROUNDS; ++round) {
    for (int turn = 0; turn < WAYS; ++turn) {
      const int way = (turn + round + WARM_ROUNDS) % WAYS;
      TRY(nxd_barrier(world));
      const double begin = now();
      TRY(way == 0 ? run_modules(modules) : run_buffers(ctx, arrays[way - 1]));
      if (round >= 0) seconds[way][round] = now() - begin;
    }
  }
  /* Two products forward, four backward. */
  const double flops = 6.0 * 2.0 * TOKENS * HIDDEN * PART;
  for (int way = WAYS - 1; rank == 0 && way >= 0; --way) {
    double shares[ROUNDS];
    for (int i = 0; i < ROUNDS; ++i) shares[i] = seconds[way][i] / seconds[0][i];
    const double share = median(shares, ROUNDS), time = median(seconds[way], ROUNDS);
    printf("mlp_tp2_%s_ms %.3f  %.1f GFLOP/s per rank, %.3f of the modules' time\n", names[way],
           1e3 * time, 1e-9 * flops / time, share);
  }
  return NXD_OK;
}

/* By which scripts/bench_mlp_layers compares others' results: of y and of the gradients of x and of
 * this rank's weights. */
static void print_norms(const array_t* arrays) {
  const int results[] = {Y, DX, DW1, DW2};
  printf("mlp_tp2_norms");
  for (size_t i = 0; i < sizeof results / sizeof *results; ++i) {
    const array_t* a = &arrays[results[i]];
    const float* values = a->tensor.data;
    double sum = 0;
    for (int64_t k = 0; k < a->shape[0] * a->shape[1]; ++k) sum += (double)values[k] * values[k];
    printf(" %.9g", sqrt(sum));
  }
  printf("\n");
}

static nxd_status_t run_rank(void) {
  static array_t arrays[2][ARRAYS];
  modules_t modules = {0};
  nxd_context_t* ctx = NULL;
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  parallel.tensor_parallel_size = RANKS;
  nxd_status_t status = nxd_context_create(NULL, &ctx);
  if (!status) status = nxd_init_model_parallel(ctx, &parallel);
  for (int in_arena = 0; in_arena < 2 && !status; ++in_arena) {
    status = make_arrays(ctx, in_arena, arrays[in_arena]);
  }
  if (!status) status = make_modules(ctx, &modules);
  if (!status) status = measure(ctx, arrays, &modules);
  int32_t rank = 0;
  if (!status) status = nxd_context_get_rank(ctx, &rank);
  if (!status && rank == 0) print_norms(arrays[1]);
  destroy_modules(&modules);
  for (int in_arena = 0; in_arena < 2; ++in_arena) {
    if (ctx) free_arrays(ctx, in_arena, arrays[in_arena]);
  }
  if (!status) status = nxd_context_finalize(ctx);
  nxd_context_destroy(ctx);
  return status;
}

/* INVALID_STATE where a launcher has started this process. */
static nxd_status_t start(void) {
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  nxd_job_t* job = NULL;
  options.num_processes = RANKS;
  TRY(nxd_spawn(&options, &job));
  const nxd_status_t status = nxd_job_wait(job, 300000);
  nxd_job_destroy(job);
  return status;
}

int main(void) {
  nxd_status_t status = start();
  if (status == NXD_ERROR_INVALID_STATE) status = run_rank();
  if (status != NXD_OK) fprintf(stderr, "%s: %s\n", nxd_status_string(status), nxd_last_error());
  return status == NXD_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

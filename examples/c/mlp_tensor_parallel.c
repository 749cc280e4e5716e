/* Two linear layers split over all ranks, the first by columns and the second by rows, and the same
 * computed unsplit with plain operators: both must agree.
 *
 *   NXD_CPU_MODE=1 torchrun --nproc-per-node=2 --no-python ./mlp_tensor_parallel
 *   NXD_CPU_MODE=1 nxdrun -n 2 ./mlp_tensor_parallel
 *   NXD_CPU_MODE=1 ./mlp_tensor_parallel                    (one rank)
 *
 * Built against an installed libnxd, whose place the program remembers:
 *   cc -std=c99 -O2 mlp_tensor_parallel.c -o mlp_tensor_parallel \
 *     $(pkg-config --cflags --libs nxd) -lm \
 *     -Wl,-rpath,$(pkg-config --variable=libdir nxd) */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "nxd.h"

enum { kHidden = 1024, kRows = 4 };

typedef struct {
  nxd_context_t* ctx;
  nxd_module_t *mlp, *column, *row;
  nxd_tensor_t *x, *hidden, *y, *expected_hidden, *expected;
  nxd_op_t* linear;
} example_t;

static int failed(const char* call, nxd_status_t status) {
  if (status == NXD_OK) return 0;
  fprintf(stderr, "mlp_tensor_parallel: %s: %s: %s\n", call, nxd_status_string(status),
          nxd_last_error());
  return 1;
}
#define TRY(call)                        \
  do {                                   \
    if (failed(#call, (call))) return 0; \
  } while (0)

/* The same inputs on every rank, in [0, 1). */
static int make_input(example_t* e) {
  const int64_t shape[2] = {kRows, kHidden};
  static float data[kRows * kHidden];
  uint32_t state = 1;
  for (size_t i = 0; i < kRows * kHidden; ++i) {
    state = state * 1664525u + 1013904223u;
    data[i] = (float)(state >> 8) / 16777216.0f;
  }
  TRY(nxd_tensor_from_data(data, sizeof data, shape, 2, NXD_DTYPE_F32, &e->x));
  return 1;
}

static int make_layers(example_t* e) {
  nxd_linear_options_t column = NXD_LINEAR_OPTIONS_INIT;
  column.name = "0";
  column.bias = NXD_TOGGLE_OFF;
  column.gather_output = NXD_TOGGLE_OFF;
  column.keep_master_weight = 1;
  nxd_linear_options_t row = NXD_LINEAR_OPTIONS_INIT;
  row.name = "1";
  row.bias = NXD_TOGGLE_OFF;
  row.input_is_parallel = 1;
  row.keep_master_weight = 1;
  nxd_device_t device;
  TRY(nxd_get_device(&device));
  TRY(nxd_layer_create_column_parallel_linear(e->ctx, kHidden, kHidden, &column, &e->column));
  TRY(nxd_layer_create_row_parallel_linear(e->ctx, kHidden, kHidden, &row, &e->row));
  TRY(nxd_module_create(e->ctx, "Sequential", NULL, NULL, NULL, &e->mlp));
  TRY(nxd_module_add_child(e->mlp, "0", e->column));
  TRY(nxd_module_add_child(e->mlp, "1", e->row));
  TRY(nxd_move_model_to_device(e->mlp, device));
  return 1;
}

/* x W^T with the whole weight that the layer's shards were cut from. */
static int plain_linear(example_t* e, nxd_module_t* layer, nxd_tensor_t* x, nxd_tensor_t** out) {
  nxd_tensor_t* whole = NULL; /* borrowed */
  TRY(nxd_module_get_master_weight(layer, &whole));
  TRY(nxd_op_set_tensor(e->linear, "input", x));
  TRY(nxd_op_set_tensor(e->linear, "weight", whole));
  TRY(nxd_op_run(e->linear));
  TRY(nxd_op_share_tensor(e->linear, 0, out));
  return 1;
}

/* Prints the output's sum and the largest difference; 1 when the two agree. */
static int compare(example_t* e) {
  static float got[kRows * kHidden], want[kRows * kHidden];
  double sum = 0, largest = 0, difference = 0;
  TRY(nxd_tensor_copy_to_host(e->y, got, sizeof got));
  TRY(nxd_tensor_copy_to_host(e->expected, want, sizeof want));
  for (size_t i = 0; i < kRows * kHidden; ++i) {
    sum += (double)got[i];
    largest = fmax(largest, fabs((double)want[i]));
    const double off = fabs((double)got[i] - (double)want[i]);
    difference = isnan(off) ? INFINITY : fmax(difference, off);
  }
  char line[200];
  snprintf(line, sizeof line,
           "Output sum is %.6f; largest difference to the unsplit MLP %.2g of %.2g", sum,
           difference, largest);
  TRY(nxd_master_print(e->ctx, line));
  return difference <= 1e-5 * largest;
}

static int run(example_t* e) {
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  TRY(nxd_context_create(NULL, &e->ctx));
  TRY(nxd_context_get_size(e->ctx, &parallel.tensor_parallel_size));
  TRY(nxd_init_model_parallel(e->ctx, &parallel));
  if (!make_input(e) || !make_layers(e)) return 0;
  TRY(nxd_module_forward(e->column, &e->x, 1, &e->hidden, 1));
  TRY(nxd_module_forward(e->row, &e->hidden, 1, &e->y, 1));
  TRY(nxd_op_create("aten::linear", NULL, &e->linear));
  if (!plain_linear(e, e->column, e->x, &e->expected_hidden)) return 0;
  if (!plain_linear(e, e->row, e->expected_hidden, &e->expected)) return 0;
  const int same = compare(e);
  TRY(nxd_context_finalize(e->ctx));
  return same;
}

int main(void) {
  example_t e = {0};
  const int good = run(&e);
  nxd_op_destroy(e.linear);
  nxd_tensor_destroy(e.expected);
  nxd_tensor_destroy(e.expected_hidden);
  nxd_tensor_destroy(e.y);
  nxd_tensor_destroy(e.hidden);
  nxd_tensor_destroy(e.x);
  nxd_module_destroy(e.mlp);
  nxd_module_destroy(e.row);
  nxd_module_destroy(e.column);
  nxd_context_destroy(e.ctx);
  return good ? 0 : 1;
}

/* A step through the layers over buffers: embedding, norm, linear layers, dropout, head and loss.
 */
#include <stdint.h>
#include <stdlib.h>

#include "exhaustion/rank.h"
#include "nxd/dlpack.h"

enum { kTokens = 24, kFeatures = 40, kHidden = 64, kClasses = 96, kRanks = 2 };

typedef struct {
  nxd_context_t* ctx;
  float table[kClasses / kRanks * kFeatures], up[kHidden / kRanks * kFeatures];
  float down[kFeatures * kHidden / kRanks], full[kHidden * kFeatures];
  float grad_table[kClasses / kRanks * kFeatures], grad_up[kHidden / kRanks * kFeatures];
  float grad_down[kFeatures * kHidden / kRanks];
  float x[kTokens * kFeatures], normed[kTokens * kFeatures], hidden[kTokens * kHidden / kRanks];
  float dropped[kTokens * kHidden / kRanks], y[kTokens * kFeatures], root[kTokens];
  float grad_y[kTokens * kFeatures], grad_hidden[kTokens * kHidden / kRanks];
  float grad_normed[kTokens * kFeatures], grad_x[kTokens * kFeatures];
  float statistics[2 * kTokens], loss, grad_loss;
  int64_t ids[kTokens];
} step_t;

/* Two dimensions; one where columns is 0; none where rows is 0 too. */
static DLTensor over(void* data, int64_t* shape, int64_t rows, int64_t columns) {
  shape[0] = rows;
  shape[1] = columns;
  const DLTensor tensor = {
      data, {kDLCPU, 0}, rows == 0 ? 0 : columns == 0 ? 1 : 2, {kDLFloat, 32, 1}, shape, NULL, 0};
  return tensor;
}

#define OVER(name, data, rows, columns) \
  int64_t name##_shape[2];              \
  DLTensor name = over(data, name##_shape, rows, columns)

static int make_weights(rank_t* r, step_t* s) {
  const int64_t rows = kHidden / kRanks;
  OVER(table, s->table, kClasses / kRanks, kFeatures);
  OVER(up, s->up, rows, kFeatures);
  OVER(down, s->down, kFeatures, rows);
  OVER(full, s->full, kHidden, kFeatures);
  nxd_shard_options_t by_rows = NXD_SHARD_OPTIONS_INIT, by_columns = NXD_SHARD_OPTIONS_INIT;
  by_rows.has_dim = by_columns.has_dim = by_columns.dim = 1;
  nxd_context_t* ctx = s->ctx;
  TRY(nxd_shard_initialize(ctx, "table", NXD_INIT_NORMAL, 0, 0.5, &by_rows, &table));
  TRY(nxd_shard_initialize(ctx, "up", NXD_INIT_NORMAL, 0, 0.1, &by_rows, &up));
  TRY(nxd_shard_initialize(ctx, "down", NXD_INIT_NORMAL, 0, 0.1, &by_columns, &down));
  TRY(nxd_shard_gather_full(ctx, &up, &by_rows, &full));
  EXPECT(s->full[(int64_t)r->rank * rows * kFeatures] == s->up[0]);
  return 1;
}

static int step_forward(rank_t* r, step_t* s) {
  nxd_context_t* ctx = s->ctx;
  OVER(ids, s->ids, kTokens, 0);
  ids.dtype.code = kDLInt;
  ids.dtype.bits = 64;
  OVER(table, s->table, kClasses / kRanks, kFeatures);
  OVER(up, s->up, kHidden / kRanks, kFeatures);
  OVER(down, s->down, kFeatures, kHidden / kRanks);
  OVER(x, s->x, kTokens, kFeatures);
  OVER(normed, s->normed, kTokens, kFeatures);
  OVER(root, s->root, kTokens, 0);
  OVER(hidden, s->hidden, kTokens, kHidden / kRanks);
  OVER(dropped, s->dropped, kTokens, kHidden / kRanks);
  OVER(y, s->y, kTokens, kFeatures);
  OVER(statistics, s->statistics, 2, kTokens);
  OVER(loss, &s->loss, 0, 0);
  nxd_dropout_options_t dropout = NXD_DROPOUT_OPTIONS_INIT;
  dropout.p = 0.25;
  dropout.has_shard_dim = 1;
  dropout.shard_dim = 1;
  TRY(nxd_vocab_parallel_embedding_forward(ctx, &ids, &table, NULL, &x));
  TRY(nxd_rms_norm_forward(ctx, &x, NULL, NULL, &normed, &root));
  TRY(nxd_column_linear_forward(ctx, &normed, &up, NULL, NULL, &hidden));
  TRY(nxd_dropout_forward(ctx, "hidden", &hidden, &dropout, &dropped));
  TRY(nxd_row_linear_forward(ctx, &dropped, &down, NULL, NULL, &y));
  TRY(nxd_linear_cross_entropy_forward(ctx, &y, &table, NULL, &ids, NULL, &statistics, &loss));
  EXPECT(s->loss > 0 && s->loss < 100);
  return 1;
}

static int step_backward(rank_t* r, step_t* s) {
  nxd_context_t* ctx = s->ctx;
  OVER(ids, s->ids, kTokens, 0);
  ids.dtype.code = kDLInt;
  ids.dtype.bits = 64;
  OVER(table, s->table, kClasses / kRanks, kFeatures);
  OVER(up, s->up, kHidden / kRanks, kFeatures);
  OVER(down, s->down, kFeatures, kHidden / kRanks);
  OVER(x, s->x, kTokens, kFeatures);
  OVER(normed, s->normed, kTokens, kFeatures);
  OVER(root, s->root, kTokens, 0);
  OVER(dropped, s->dropped, kTokens, kHidden / kRanks);
  OVER(y, s->y, kTokens, kFeatures);
  OVER(statistics, s->statistics, 2, kTokens);
  OVER(grad_loss, &s->grad_loss, 0, 0);
  OVER(grad_y, s->grad_y, kTokens, kFeatures);
  OVER(grad_hidden, s->grad_hidden, kTokens, kHidden / kRanks);
  OVER(grad_normed, s->grad_normed, kTokens, kFeatures);
  OVER(grad_x, s->grad_x, kTokens, kFeatures);
  OVER(grad_table, s->grad_table, kClasses / kRanks, kFeatures);
  OVER(grad_up, s->grad_up, kHidden / kRanks, kFeatures);
  OVER(grad_down, s->grad_down, kFeatures, kHidden / kRanks);
  s->grad_loss = 1;
  TRY(nxd_linear_cross_entropy_backward(ctx, &y, &table, NULL, &ids, &statistics, &grad_loss, NULL,
                                        &grad_y, &grad_table, NULL));
  TRY(nxd_row_linear_backward(ctx, &dropped, &down, &grad_y, NULL, &grad_hidden, &grad_down, NULL));
  TRY(nxd_column_linear_backward(ctx, &normed, &up, &grad_hidden, NULL, &grad_normed, &grad_up,
                                 NULL));
  TRY(nxd_rms_norm_backward(ctx, &x, NULL, &root, &grad_normed, NULL, &grad_x, NULL));
  TRY(nxd_vocab_parallel_embedding_backward(ctx, &ids, &grad_x, NULL, &grad_table));
  EXPECT(s->grad_x[0] != 0 && s->grad_up[0] != 0);
  return 1;
}

static int use_layers(rank_t* r, step_t* s) {
  for (int i = 0; i < kTokens; ++i) s->ids[i] = i * 7 % kClasses;
  if (!join(r, kRanks, 1, &s->ctx) || !make_weights(r, s)) return 0;
  if (!step_forward(r, s) || !step_backward(r, s)) return 0;
  TRY(nxd_context_finalize(s->ctx));
  return 1;
}

void layers(void* rank) {
  step_t* s = calloc(1, sizeof *s);
  use_layers(rank, s);
  nxd_context_destroy(s->ctx);
  free(s);
}

/* Ranks that call different things: each is told, nothing is touched, and the group goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/ranks.h"

enum { kCount = 9000 }; /* too many to travel with the header */

static float send_data[4][kCount * 4], recv_data[4][kCount * 4];

static int untouched(int rank) {
  for (size_t i = 0; i < kCount * 4; ++i)
    if (recv_data[rank][i] != -7.0f) return 0;
  return 1;
}

typedef nxd_status_t (*call_t)(nxd_group_t* group, int rank);

static nxd_status_t usual(nxd_group_t* g, int r) {
  return nxd_all_reduce(g, send_data[r], recv_data[r], kCount, NXD_DTYPE_F32, NXD_REDUCE_SUM);
}
static nxd_status_t other_count(nxd_group_t* g, int r) {
  return nxd_all_reduce(g, send_data[r], recv_data[r], kCount - 1, NXD_DTYPE_F32, NXD_REDUCE_SUM);
}
static nxd_status_t small_count(nxd_group_t* g, int r) {
  return nxd_all_reduce(g, send_data[r], recv_data[r], 3, NXD_DTYPE_F32, NXD_REDUCE_SUM);
}
static nxd_status_t no_count(nxd_group_t* g, int r) {
  (void)r;
  return nxd_all_reduce(g, NULL, NULL, 0, NXD_DTYPE_F32, NXD_REDUCE_SUM);
}
static nxd_status_t other_dtype(nxd_group_t* g, int r) {
  return nxd_all_reduce(g, send_data[r], recv_data[r], kCount, NXD_DTYPE_F64, NXD_REDUCE_SUM);
}
static nxd_status_t other_reduce(nxd_group_t* g, int r) {
  return nxd_all_reduce(g, send_data[r], recv_data[r], kCount, NXD_DTYPE_F32, NXD_REDUCE_MAX);
}
static nxd_status_t other_operation(nxd_group_t* g, int r) {
  return nxd_all_gather(g, send_data[r], recv_data[r], kCount, NXD_DTYPE_F32);
}
static nxd_status_t barrier(nxd_group_t* g, int r) {
  (void)r;
  return nxd_barrier(g);
}
static nxd_status_t null_send(nxd_group_t* g, int r) {
  return nxd_all_reduce(g, NULL, recv_data[r], kCount, NXD_DTYPE_F32, NXD_REDUCE_SUM);
}
static nxd_status_t null_recv(nxd_group_t* g, int r) {
  return nxd_all_reduce(g, send_data[r], NULL, kCount, NXD_DTYPE_F32, NXD_REDUCE_SUM);
}
static nxd_status_t bad_dtype(nxd_group_t* g, int r) {
  return nxd_all_reduce(g, send_data[r], recv_data[r], kCount, 99, NXD_REDUCE_SUM);
}
static nxd_status_t irreducible(nxd_group_t* g, int r) {
  return nxd_all_reduce(g, send_data[r], recv_data[r], kCount, NXD_DTYPE_U8, NXD_REDUCE_SUM);
}
static nxd_status_t bad_reduce(nxd_group_t* g, int r) {
  return nxd_all_reduce(g, send_data[r], recv_data[r], kCount, NXD_DTYPE_F32, 17);
}
static nxd_status_t integer_avg(nxd_group_t* g, int r) {
  return nxd_all_reduce(g, send_data[r], recv_data[r], kCount, NXD_DTYPE_I32, NXD_REDUCE_AVG);
}
static nxd_status_t huge_count(nxd_group_t* g, int r) {
  return nxd_all_reduce(g, send_data[r], recv_data[r], SIZE_MAX / 2, NXD_DTYPE_F32, NXD_REDUCE_SUM);
}
static nxd_status_t root_0(nxd_group_t* g, int r) {
  return nxd_broadcast(g, recv_data[r], kCount, NXD_DTYPE_F32, 0);
}
static nxd_status_t root_1(nxd_group_t* g, int r) {
  return nxd_broadcast(g, recv_data[r], kCount, NXD_DTYPE_F32, 1);
}
static nxd_status_t bad_root(nxd_group_t* g, int r) {
  return nxd_broadcast(g, recv_data[r], kCount, NXD_DTYPE_F32, 4);
}
static nxd_status_t overlapping(nxd_group_t* g, int r) {
  return nxd_all_to_all(g, recv_data[r], recv_data[r], 10, NXD_DTYPE_F32);
}
static nxd_status_t end_overlaps(nxd_group_t* g, int r) {
  return nxd_all_to_all(g, recv_data[r], recv_data[r] + 19, 10, NXD_DTYPE_F32);
}
static nxd_status_t overlapping_reduce(nxd_group_t* g, int r) {
  return nxd_all_reduce(g, recv_data[r] + 1, recv_data[r], kCount, NXD_DTYPE_F32, NXD_REDUCE_SUM);
}
static nxd_status_t overlapping_small(nxd_group_t* g, int r) {
  return nxd_all_reduce(g, recv_data[r], recv_data[r] + 2, 3, NXD_DTYPE_F32, NXD_REDUCE_SUM);
}
static nxd_status_t others_part(nxd_group_t* g, int r) {
  return nxd_all_gather(g, recv_data[r] + (r == 0) * kCount, recv_data[r], kCount, NXD_DTYPE_F32);
}
static nxd_status_t scatter(nxd_group_t* g, int r) {
  return nxd_reduce_scatter(g, send_data[r], recv_data[r], kCount, NXD_DTYPE_F32, NXD_REDUCE_SUM);
}
static nxd_status_t scatter_to_others(nxd_group_t* g, int r) {
  return nxd_reduce_scatter(g, recv_data[r], recv_data[r] + (r == 0) * kCount, kCount,
                            NXD_DTYPE_F32, NXD_REDUCE_SUM);
}

static const struct {
  call_t usual, odd;
  const char* everywhere; /* part of every rank's message */
} cases[] = {
    {usual, other_count, "8999"},
    {usual, small_count, "of 3 x f32"},
    {usual, no_count, "of 0 x f32"},
    {small_count, usual, "of 9000 x f32"},
    {usual, other_dtype, "f64"},
    {usual, other_reduce, "(max)"},
    {usual, other_operation, "all_gather"},
    {barrier, usual, "barrier"},
    {usual, barrier, "barrier"},
    {usual, null_send, "send: expected a pointer, got NULL"},
    {usual, null_recv, "receive: expected a pointer, got NULL"},
    {usual, bad_dtype, "dtype: expected an NXD_DTYPE_*, got 99"},
    {usual, irreducible, "got u8"},
    {usual, bad_reduce, "reduce: expected an NXD_REDUCE_*, got 17"},
    {usual, integer_avg, "NXD_REDUCE_AVG"},
    {usual, huge_count, "do not fit"},
    {root_0, root_1, "from root 1"},
    {root_0, bad_root, "root: expected a rank of the group"},
    {other_operation, overlapping, "apart from send"},
    {other_operation, end_overlaps, "apart from send, got one that overlaps it"},
    {usual, overlapping_reduce, "apart from send, or send itself, got one that overlaps it"},
    {small_count, overlapping_small, "apart from send, or send itself"},
    {other_operation, others_part, "or one whose own part is send, got one that overlaps it"},
    {scatter, scatter_to_others, "or send's own part, got one that overlaps it"},
};

static void check_message(int line, int rank, int odd, const char* part) {
  nxd_error_info_t info = {.struct_size = sizeof info};
  NXD_TEST_OK(nxd_last_error_info(&info));
  const char* message = nxd_last_error();
  char name[32];
  snprintf(name, sizeof name, "rank %d", odd);
  if (!strstr(message, part) || (rank != odd && !strstr(message, name)))
    nxd_test_fail(__FILE__, line, "rank %d: expected \"%s\" and \"%s\" in: %s", rank, part, name,
                  message);
  NXD_TEST_CHECK(strcmp(info.group, "world") == 0);
}

static void disagree(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_group_t* world = NULL;
  if (!NXD_TEST_OK(nxd_context_get_world_group(ctx, &world))) return;
  for (size_t i = 0; i < kCount * 4; ++i) {
    send_data[rank][i] = 1.0f;
    recv_data[rank][i] = -7.0f;
  }
  for (size_t c = 0; c < sizeof cases / sizeof *cases; ++c) {
    for (int odd = 0; odd < size; ++odd) {
      const nxd_status_t status = (rank == odd ? cases[c].odd : cases[c].usual)(world, rank);
      if (status != NXD_ERROR_INVALID_ARGUMENT) {
        nxd_test_fail(__FILE__, __LINE__, "case %zu, odd rank %d: status %d: %s", c, odd, status,
                      nxd_last_error());
        return; /* the ranks are out of step */
      }
      check_message(__LINE__, rank, odd, cases[c].everywhere);
      NXD_TEST_CHECK(untouched(rank));
    }
  }
  /* The group goes on, in step. */
  float sum = 0, one = 1;
  NXD_TEST_OK(nxd_all_reduce(world, &one, &sum, 1, NXD_DTYPE_F32, NXD_REDUCE_SUM));
  NXD_TEST_CHECK(sum == (float)size);
  NXD_TEST_OK(usual(world, rank));
  NXD_TEST_CHECK(recv_data[rank][kCount - 1] == (float)size);
}

static void pair(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = NULL;
  if (!NXD_TEST_OK(nxd_context_get_world_group(ctx, &world))) return;
  float* data = recv_data[rank];
  for (size_t i = 0; i < kCount * 4; ++i) data[i] = -7.0f;
  const struct {
    size_t sent, expected;
    nxd_dtype_t sent_dtype, expected_dtype;
    int null_sender, null_receiver;
    const char* part;
  } table[] = {
      {10, 11, NXD_DTYPE_F32, NXD_DTYPE_F32, 0, 0, "11 x f32"},
      {kCount, 10, NXD_DTYPE_F32, NXD_DTYPE_F32, 0, 0, "9000 x f32"},
      {10, kCount, NXD_DTYPE_F32, NXD_DTYPE_F32, 0, 0, "9000 x f32"},
      {kCount, kCount, NXD_DTYPE_F32, NXD_DTYPE_I32, 0, 0, "i32"},
      {10, 10, NXD_DTYPE_F32, NXD_DTYPE_F32, 1, 0, "buffer: expected a pointer, got NULL"},
      {kCount, kCount, NXD_DTYPE_F32, NXD_DTYPE_F32, 0, 1, "buffer: expected a pointer, got NULL"},
      {10, 10, 42, NXD_DTYPE_F32, 0, 0, "got 42"},
      {10, 10, NXD_DTYPE_F32, 43, 0, 0, "got 43"},
  };
  for (size_t t = 0; t < sizeof table / sizeof *table; ++t) {
    for (int sender = 0; sender < 2; ++sender) {
      const nxd_status_t status =
          rank == sender ? nxd_send(world, table[t].null_sender ? NULL : send_data[rank],
                                    table[t].sent, table[t].sent_dtype, 1 - rank, 3)
                         : nxd_receive(world, table[t].null_receiver ? NULL : data,
                                       table[t].expected, table[t].expected_dtype, 1 - rank, 3);
      NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, table[t].part);
      NXD_TEST_CHECK(untouched(rank));
    }
  }
  /* Arguments that name no peer are rejected here alone. */
  NXD_TEST_REFUSED(nxd_send(world, data, 1, NXD_DTYPE_F32, rank, 0), NXD_ERROR_INVALID_ARGUMENT,
                   "to:");
  NXD_TEST_REFUSED(nxd_receive(world, data, 1, NXD_DTYPE_F32, 2, 0), NXD_ERROR_INVALID_ARGUMENT,
                   "from:");
  NXD_TEST_REFUSED(nxd_send(world, data, 1, NXD_DTYPE_F32, 1 - rank, 65536),
                   NXD_ERROR_INVALID_ARGUMENT, "tag:");
  float value = (float)rank + 5;
  if (rank == 0) {
    NXD_TEST_OK(nxd_send(world, &value, 1, NXD_DTYPE_F32, 1, 0));
  } else {
    NXD_TEST_OK(nxd_receive(world, &value, 1, NXD_DTYPE_F32, 0, 0));
    NXD_TEST_CHECK(value == 5);
  }
}

/* One rank has no peer to agree with, but the same rules. */
static void alone(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = NULL;
  if (!NXD_TEST_OK(nxd_context_get_world_group(ctx, &world))) return;
  const call_t bad[] = {null_send,  null_recv,   bad_dtype, irreducible,
                        bad_reduce, integer_avg, bad_root};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i)
    NXD_TEST_REFUSED(bad[i](world, rank), NXD_ERROR_INVALID_ARGUMENT, "expected");
  NXD_TEST_REFUSED(nxd_send(world, send_data[0], 1, NXD_DTYPE_F32, 0, 0),
                   NXD_ERROR_INVALID_ARGUMENT, "to:");
  NXD_TEST_REFUSED(nxd_receive(world, recv_data[0], 1, NXD_DTYPE_F32, 0, 0),
                   NXD_ERROR_INVALID_ARGUMENT, "from:");
}

static void layouts(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_parallel_options_t options = NXD_PARALLEL_OPTIONS_INIT;
  options.tensor_parallel_size = rank == 1 ? 2 : 1;
  NXD_TEST_REFUSED(nxd_init_model_parallel(ctx, &options), NXD_ERROR_INVALID_ARGUMENT, "rank 1");
  nxd_error_info_t info = {.struct_size = sizeof info};
  NXD_TEST_OK(nxd_last_error_info(&info));
  if (rank != 1) NXD_TEST_CHECK(info.root_rank == 1 && strcmp(info.group, "world") == 0);
  if (rank != 1) NXD_TEST_CHECK(strcmp(info.operation, "init_model_parallel") == 0);
  options.tensor_parallel_size = 1;
  options.reduce_dtype = rank == 1 ? NXD_DTYPE_I64 : NXD_DTYPE_F32;
  NXD_TEST_REFUSED(nxd_init_model_parallel(ctx, &options), NXD_ERROR_INVALID_ARGUMENT,
                   "reduce_dtype: expected f32 or bf16, got i64");
  options.reduce_dtype = rank == 1 ? NXD_DTYPE_BF16 : NXD_DTYPE_F32;
  NXD_TEST_REFUSED(nxd_init_model_parallel(ctx, &options), NXD_ERROR_INVALID_ARGUMENT,
                   "reduce_dtype");
  options.reduce_dtype = NXD_DTYPE_F32;
  options.tensor_parallel_size = 3;
  if (NXD_TEST_REFUSED(nxd_init_model_parallel(ctx, &options), NXD_ERROR_INVALID_ARGUMENT, "3"))
    NXD_TEST_CHECK(strchr(nxd_last_error(), '0' + size) != NULL);
  NXD_TEST_CHECK(!nxd_model_parallel_is_initialized(ctx));
  int32_t out = 5;
  NXD_TEST_REFUSED(nxd_parallel_get_size(ctx, NXD_AXIS_TENSOR, &out), NXD_ERROR_INVALID_STATE,
                   "not initialised");
  NXD_TEST_CHECK(out == 0);
  NXD_TEST_REFUSED(nxd_destroy_model_parallel(ctx), NXD_ERROR_INVALID_STATE, "not initialised");
  options.tensor_parallel_size = 2;
  options.pipeline_parallel_size = 2;
  NXD_TEST_OK(nxd_init_model_parallel(ctx, &options));
  NXD_TEST_REFUSED(nxd_init_model_parallel(ctx, &options), NXD_ERROR_INVALID_STATE, "already");
  NXD_TEST_CHECK(nxd_model_parallel_is_initialized(ctx));

  nxd_group_t* tensor = NULL;
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_TENSOR, &tensor));
  nxd_group_destroy(tensor); /* borrowed: left alone */
  int32_t sum = 0;
  NXD_TEST_OK(nxd_all_reduce(tensor, &rank, &sum, 1, NXD_DTYPE_I32, NXD_REDUCE_SUM));
  NXD_TEST_CHECK(sum == (rank < 2 ? 1 : 5));
  nxd_group_t* pipeline = NULL;
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_PIPELINE, &pipeline));
  NXD_TEST_OK(nxd_all_reduce(pipeline, &rank, &sum, 1, NXD_DTYPE_I32, NXD_REDUCE_SUM));
  NXD_TEST_CHECK(sum == 2 * (rank % 2) + 2);
  nxd_group_t* data = NULL;
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_DATA, &data));
  NXD_TEST_OK(nxd_all_reduce(data, &rank, &sum, 1, NXD_DTYPE_I32, NXD_REDUCE_SUM));
  NXD_TEST_CHECK(sum == rank);
  NXD_TEST_OK(nxd_parallel_get_pipeline_next_rank(ctx, &out));
  NXD_TEST_CHECK(out == (rank + 2) % 4);
  NXD_TEST_OK(nxd_parallel_get_pipeline_previous_rank(ctx, &out));
  NXD_TEST_CHECK(out == (rank + 2) % 4);
  NXD_TEST_OK(nxd_parallel_get_source_rank(ctx, NXD_AXIS_TENSOR, &out));
  NXD_TEST_CHECK(out == rank / 2 * 2);
  int32_t ranks[4], count = 0;
  size_t n = 0;
  NXD_TEST_OK(nxd_parallel_get_group_list(ctx, NXD_AXIS_PIPELINE, 1, ranks, 4, &n, &count));
  NXD_TEST_CHECK(n == 2 && count == 2 && ranks[0] == 1 && ranks[1] == 3);

  NXD_TEST_OK(nxd_destroy_model_parallel(ctx));
  NXD_TEST_REFUSED(nxd_barrier(tensor), NXD_ERROR_INVALID_STATE, "destroyed");
  NXD_TEST_OK(nxd_init_model_parallel(ctx, NULL));
  NXD_TEST_OK(nxd_parallel_get_size(ctx, NXD_AXIS_DATA, &out));
  NXD_TEST_CHECK(out == size);
}

#define ON_RANKS(fn, n)                 \
  static void fn##_##n(void** state) {  \
    (void)state;                        \
    nxd_test_run_ranks(n, 0, fn, NULL); \
  }
ON_RANKS(disagree, 2)
ON_RANKS(disagree, 3)
ON_RANKS(disagree, 4)
ON_RANKS(pair, 2)
ON_RANKS(alone, 1)
ON_RANKS(layouts, 4)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(disagree_2), cmocka_unit_test(disagree_3), cmocka_unit_test(disagree_4),
      cmocka_unit_test(pair_2),     cmocka_unit_test(alone_1),    cmocka_unit_test(layouts_4),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

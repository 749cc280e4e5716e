/* Memory that ranks of a host share, and the pool's figures. The pool itself is tested from inside,
 * in tests/core/kernels. */
#include <stdlib.h>
#include <string.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

/* Blocks of an arena: apart, aligned, used anew, and rejected when they are not its own. */
static void blocks(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)rank;
  (void)size;
  (void)unused;
  static const size_t sizes[] = {0, 1, 64, 65, 4095, 4096, 100000, (size_t)3 << 20};
  enum { kBlocks = sizeof sizes / sizeof *sizes };
  unsigned char *data[kBlocks], *first[kBlocks];
  for (int turn = 0; turn < 3; ++turn) {
    for (int b = 0; b < kBlocks; ++b) {
      void* block = NULL;
      NXD_TEST_OK(nxd_arena_alloc(ctx, sizes[b], &block));
      NXD_TEST_CHECK(block != NULL && (uintptr_t)block % 64 == 0);
      data[b] = block;
      if (turn == 0) first[b] = block;
      NXD_TEST_CHECK(data[b] == first[b]); /* all are free again, in one piece */
      memset(data[b], b + 1, sizes[b]);
    }
    for (int b = 0; b < kBlocks; ++b) {
      size_t wrong = 0;
      for (size_t i = 0; i < sizes[b]; ++i) wrong += data[b][i] != b + 1;
      NXD_TEST_CHECK(wrong == 0);
    }
    for (int i = 0; i < kBlocks; ++i)
      NXD_TEST_OK(nxd_arena_free(ctx, data[(i * 3 + turn) % kBlocks]));
  }
  void* whole = NULL; /* what was freed in pieces is one again */
  NXD_TEST_OK(nxd_arena_alloc(ctx, 6 << 20, &whole));
  NXD_TEST_CHECK(whole == first[0]);
  NXD_TEST_OK(nxd_arena_free(ctx, whole));
  NXD_TEST_REFUSED(nxd_arena_free(ctx, data[0]), NXD_ERROR_INVALID_ARGUMENT, "data");
  NXD_TEST_REFUSED(nxd_arena_free(ctx, &data), NXD_ERROR_INVALID_ARGUMENT, "data");
  NXD_TEST_OK(nxd_arena_free(ctx, NULL));
  void* block = &data;
  NXD_TEST_REFUSED(nxd_arena_alloc(ctx, SIZE_MAX / 2, &block), NXD_ERROR_OUT_OF_MEMORY, "arena");
  NXD_TEST_CHECK(block == NULL);
}

static void test_blocks(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, blocks, NULL);
}

static void bad_calls_of_arenas(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)rank;
  (void)size;
  (void)unused;
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
  int place = 0;
  void* data = &place;
  NXD_TEST_REFUSED(nxd_arena_alloc(ctx, 8, NULL), bad, "out_data");
  NXD_TEST_REFUSED(nxd_arena_alloc(NULL, 8, &data), bad, "ctx");
  NXD_TEST_CHECK(data == NULL);
  NXD_TEST_REFUSED(nxd_arena_free(NULL, &place), bad, "ctx");
}

static void test_bad_calls_of_arenas(void** state) {
  (void)state;
  nxd_test_run_ranks(1, 0, bad_calls_of_arenas, NULL);
}

static nxd_memory_stats_t stats(void) {
  nxd_memory_stats_t out = {.struct_size = sizeof out};
  assert_int_equal(nxd_memory_get_stats(&out), NXD_OK);
  return out;
}

static void count_arenas(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)rank;
  (void)size;
  (void)unused;
  const uint64_t before = stats().arena_bytes_in_use;
  void* data = NULL;
  NXD_TEST_OK(nxd_arena_alloc(ctx, 1 << 20, &data));
  const nxd_memory_stats_t during = stats();
  NXD_TEST_CHECK(during.arena_bytes_in_use >= before + (1 << 20));
  NXD_TEST_CHECK(during.arena_bytes_reserved >= during.arena_bytes_in_use);
  NXD_TEST_OK(nxd_arena_free(ctx, data));
  NXD_TEST_CHECK(stats().arena_bytes_in_use == before);
}

static void test_figures(void** state) {
  (void)state;
  assert_int_equal(nxd_memory_set_cap(12345), NXD_OK);
  assert_int_equal(stats().cap_bytes, 12345);
  assert_int_equal(nxd_memory_set_cap(0), NXD_OK);
  assert_int_equal(stats().cap_bytes, 0);
  assert_int_equal(nxd_memory_trim(), NXD_OK);
  assert_true(stats().bytes_reserved <= stats().bytes_in_use);
  nxd_test_run_ranks(1, 0, count_arenas, NULL);
}

/* Callers whose header is older get the fields they know. */
static void test_older_headers(void** state) {
  (void)state;
  nxd_memory_stats_t out;
  memset(&out, 0x55, sizeof out);
  out.struct_size = offsetof(nxd_memory_stats_t, cap_bytes);
  assert_int_equal(nxd_memory_get_stats(&out), NXD_OK);
  assert_int_equal(out.allocations, stats().allocations);
  assert_int_equal(out.cap_bytes, 0x5555555555555555);
  out.struct_size -= 8;
  assert_int_equal(nxd_memory_get_stats(&out), NXD_ERROR_ABI_MISMATCH);
  assert_int_equal(nxd_memory_get_stats(NULL), NXD_ERROR_INVALID_ARGUMENT);
  nxd_memory_stats_t none = {0};
  assert_int_equal(nxd_memory_get_stats(&none), NXD_ERROR_ABI_MISMATCH);
  assert_int_equal(none.allocations, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_blocks),
      cmocka_unit_test(test_bad_calls_of_arenas),
      cmocka_unit_test(test_figures),
      cmocka_unit_test(test_older_headers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A rank that is given bad arguments for a new group: its peers are told at once, by name, and
 * everything stays usable. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/ranks.h"

enum { kRanks = 4 };

static void check_told(int rank, nxd_status_t status, nxd_group_t* group, int bad,
                       const char* part) {
  nxd_error_info_t info = {.struct_size = sizeof info};
  NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, part);
  NXD_TEST_CHECK(group == NULL);
  if (rank == bad) return;
  char name[32];
  snprintf(name, sizeof name, "rank %d rejected", bad);
  NXD_TEST_CHECK(strstr(nxd_last_error(), name) != NULL);
  NXD_TEST_OK(nxd_last_error_info(&info));
  NXD_TEST_CHECK(info.root_rank == bad);
}

static void check_sum(nxd_group_t* group, int32_t value, int32_t expected) {
  int32_t sum = 0;
  NXD_TEST_OK(nxd_all_reduce(group, &value, &sum, 1, NXD_DTYPE_I32, NXD_REDUCE_SUM));
  NXD_TEST_CHECK(sum == expected);
}

/* Lists that show all members who they are, and then the right one. */
static void everybody(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  const int32_t all[kRanks] = {0, 1, 2, 3};
  for (int bad = 0; bad < size; ++bad) {
    const int32_t lists[3][kRanks + 1] = {{0, 1, 2, 3, 0}, {0, 1, 2, 3, 9}, {-1, 0, 1, 2, 3}};
    const char* const parts[3] = {"num_ranks: expected at most 4", "world ranks 0 to 3, got 9",
                                  "-1, which bindings give for arguments that they cannot read"};
    for (int i = 0; i < 3; ++i) {
      nxd_group_t* group = (nxd_group_t*)1;
      const nxd_status_t status = rank == bad
                                      ? nxd_group_create(ctx, lists[i], kRanks + 1, "all", &group)
                                      : nxd_group_create(ctx, all, kRanks, "all", &group);
      check_told(rank, status, group, bad, parts[i]);
    }
    nxd_group_t *group = NULL, *world = NULL;
    if (NXD_TEST_OK(nxd_group_create(ctx, all, kRanks, "all", &group))) check_sum(group, rank, 6);
    nxd_group_destroy(group);
    NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
    check_sum(world, 1, kRanks);
  }
}

/* Ranks that reject one attempt together, of which one is late: the others are at the next one. */
static void together(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  static const int32_t all[kRanks + 1] = {0, 1, 2, 3, 0};
  nxd_group_t* group = NULL;
  for (int late = 0; late < kRanks; ++late) {
    /* All of them, and then all but the rank that is late or the one after it. */
    for (int good = -1; good < 2; ++good) {
      const int is_good = good >= 0 && rank == (late + good) % kRanks;
      if (rank == late) usleep(100000);
      NXD_TEST_REFUSED(nxd_group_create(ctx, all, is_good ? kRanks : kRanks + 1, "all", &group),
                       NXD_ERROR_INVALID_ARGUMENT, "num_ranks: expected at most 4, got more");
      if (!NXD_TEST_OK(nxd_group_create(ctx, all, kRanks, "all", &group))) return;
      check_sum(group, 1, kRanks);
      nxd_group_destroy(group);
    }
  }
}

/* A group of three. The odd list leaves one of them out, who hears of it from the third. */
static void left_out(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  for (int bad = 0; bad < 3; ++bad) {
    const int32_t members[] = {bad, (bad + 1) % 3, (bad + 2) % 3};
    const int32_t twice[] = {bad, (bad + 1) % 3, (bad + 1) % 3};
    nxd_group_t *group = NULL, *world = NULL;
    if (rank < 3) {
      const nxd_status_t status =
          nxd_group_create(ctx, rank == bad ? twice : members, 3, "three", &group);
      check_told(rank, status, group, bad, "each rank once");
    }
    NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
    check_sum(world, 1, size);
  }
}

static void check_refused(nxd_context_t* ctx, int rank, const int32_t* pair, int bad) {
  nxd_group_t* group = (nxd_group_t*)1;
  const nxd_status_t status = nxd_group_create(ctx, pair, 2, "p", &group);
  check_told(rank, status, group, bad, "once");
}

/* The rank refuses before its peers call, or long after they have. */
static void other_moments(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  const int32_t pair[] = {0, 1}, twice[] = {0, 0};
  nxd_group_t *group = NULL, *world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  if (rank == 1) check_refused(ctx, rank, twice, 1);
  NXD_TEST_OK(nxd_barrier(world));
  if (rank == 0) check_refused(ctx, rank, pair, 1);
  if (rank < 2 && NXD_TEST_OK(nxd_group_create(ctx, pair, 2, "p", &group))) {
    check_sum(group, 1, 2);
    nxd_group_destroy(group);
  }
  /* Ranks outside the group go on, even after a rejection of a rank that they share one with. */
  const int32_t others[] = {1, 2, 3};
  if (rank == 0) check_refused(ctx, rank, twice, 0);
  if (rank > 0 && NXD_TEST_OK(nxd_group_create(ctx, others, 3, "o", &group))) {
    check_sum(group, 1, 3);
    nxd_group_destroy(group);
  }
  NXD_TEST_OK(nxd_barrier(world));
}

/* Groups of one rank fail after an abort or a loss as others do. */
static void alone_after_abort(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  const int32_t own = rank;
  nxd_group_t *group = NULL, *world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  if (NXD_TEST_OK(nxd_group_create(ctx, &own, 1, "own", &group))) check_sum(group, 7, 7);
  nxd_group_destroy(group);
  NXD_TEST_OK(nxd_barrier(world));
  if (rank == 0) NXD_TEST_OK(nxd_context_abort(ctx));
  const nxd_status_t expected = rank == 0 ? NXD_ERROR_ABORTED : NXD_ERROR_PEER_LOST;
  if (size > 1) NXD_TEST_REFUSED(nxd_barrier(world), expected, "rank");
  group = (nxd_group_t*)1;
  NXD_TEST_REFUSED(nxd_group_create(ctx, &own, 1, "own", &group), expected, "\"own\"");
  NXD_TEST_CHECK(group == NULL);
  nxd_payloads_t* payloads = NULL;
  NXD_TEST_REFUSED(nxd_group_rendezvous(world, "here", "", 0, &payloads), expected, "\"world\"");
  NXD_TEST_REFUSED(nxd_init_model_parallel(ctx, NULL), expected, "\"world\"");
  NXD_TEST_CHECK(!nxd_model_parallel_is_initialized(ctx));
}

static void test_alone_after_abort(void** state) {
  (void)state;
  nxd_test_run_ranks(1, 0, alone_after_abort, NULL);
  nxd_test_run_ranks(2, 0, alone_after_abort, NULL);
}

/* A rank that has no place for the group. */
static void no_output(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  const int32_t members[] = {2, 0, 1};
  nxd_group_t* group = NULL;
  for (int bad = 0; bad < 3 && rank < 3; ++bad) {
    const nxd_status_t status =
        nxd_group_create(ctx, members, 3, "three", rank == bad ? NULL : &group);
    check_told(rank, status, group, bad, "out_group: expected a pointer, got NULL");
  }
  if (rank < 3 && NXD_TEST_OK(nxd_group_create(ctx, members, 3, "three", &group))) {
    check_sum(group, 1, 3);
    nxd_group_destroy(group);
  }
}

/* A name that takes all the room leaves some for what is wrong, and is cut between characters. */
static void long_name(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)rank;
  (void)size;
  (void)unused;
  const int32_t all[kRanks] = {0, 1, 2, 3};
  static char name[5000];
  nxd_group_t* group = NULL;
  nxd_error_info_t info = {.struct_size = sizeof info};
  for (size_t i = 0; i + 2 < sizeof name; i += 2) memcpy(name + i, "\xc3\xa9", 2);
  if (!NXD_TEST_OK(nxd_group_create(ctx, all, kRanks, name, &group))) return;
  float value = 0;
  NXD_TEST_REFUSED(nxd_send(group, &value, 1, NXD_DTYPE_F32, 9, 0), NXD_ERROR_INVALID_ARGUMENT,
                   "\xc3\xa9...\" (rank ");
  NXD_TEST_CHECK(strstr(nxd_last_error(), "to: expected another rank of the group") != NULL);
  NXD_TEST_OK(nxd_last_error_info(&info));
  NXD_TEST_CHECK(strlen(info.group) == 63 && strstr(info.group, "\xc3\xa9...") != NULL);
  nxd_group_destroy(group);
}

/* All ranks make all groups. A rank outside one is told so, and nobody else is. */
static void make_and_use(nxd_context_t* ctx, int rank, const int32_t* members, int32_t count) {
  nxd_group_t* group = (nxd_group_t*)1;
  int is_member = 0;
  for (int32_t i = 0; i < count; ++i) is_member |= members[i] == rank;
  const nxd_status_t status = nxd_group_create(ctx, members, (size_t)count, "some", &group);
  if (is_member) {
    if (NXD_TEST_OK(status)) check_sum(group, 1, count);
  } else {
    NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, "ranks: expected this rank");
    NXD_TEST_CHECK(group == NULL);
  }
  nxd_group_destroy(group);
}

static void outsiders(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  static const int32_t lists[][kRanks] = {{0, 1}, {0, 1, 2}, {3, 0}, {2, 3}, {1}, {0, 1, 2, 3}};
  static const int32_t counts[] = {2, 3, 2, 2, 1, 4};
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  for (int barriers = 0; barriers < 2; ++barriers) {
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
      make_and_use(ctx, rank, lists[i], counts[i]);
      if (barriers) NXD_TEST_OK(nxd_barrier(world));
    }
  }
  /* A rank that rejects is told of as before. */
  const int32_t pair[] = {0, 1}, twice[] = {0, 0};
  if (rank < 2) check_refused(ctx, rank, rank == 1 ? twice : pair, 1);
  make_and_use(ctx, rank, pair, 2);
}

static void check_transport(nxd_group_t* group, nxd_transport_t expected) {
  nxd_transport_t transport = NXD_TRANSPORT_INVALID;
  NXD_TEST_OK(nxd_group_get_transport(group, &transport));
  NXD_TEST_CHECK(transport == expected);
}

/* Hosts of two ranks and of one: what carries a group follows from its own ranks. */
static void hosts(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  static const int32_t lists[][2] = {{0, 1}, {0, 2}};
  static const nxd_transport_t transports[] = {NXD_TRANSPORT_SHARED_MEMORY, NXD_TRANSPORT_GLOO};
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  check_transport(world, NXD_TRANSPORT_HIERARCHICAL);
  for (int i = 0; i < 2; ++i) {
    nxd_group_t* pair = NULL;
    if (rank != lists[i][0] && rank != lists[i][1]) continue;
    if (NXD_TEST_OK(nxd_group_create(ctx, lists[i], 2, "pair", &pair))) {
      check_transport(pair, transports[i]);
    }
    nxd_group_destroy(pair);
  }
}

static void test_hosts(void** state) {
  (void)state;
  setenv("NXD_TEST_RANKS_PER_HOST", "2", 1);
  nxd_test_run_ranks(3, 0, hosts, NULL);
  unsetenv("NXD_TEST_RANKS_PER_HOST");
}

#define ON_RANKS(fn)                         \
  static void test_##fn(void** state) {      \
    (void)state;                             \
    nxd_test_run_ranks(kRanks, 0, fn, NULL); \
  }
ON_RANKS(everybody)
ON_RANKS(together)
ON_RANKS(left_out)
ON_RANKS(other_moments)
ON_RANKS(no_output)
ON_RANKS(outsiders)
ON_RANKS(long_name)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_everybody),        cmocka_unit_test(test_together),
      cmocka_unit_test(test_left_out),         cmocka_unit_test(test_other_moments),
      cmocka_unit_test(test_no_output),        cmocka_unit_test(test_outsiders),
      cmocka_unit_test(test_long_name),        cmocka_unit_test(test_hosts),
      cmocka_unit_test(test_alone_after_abort)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Rendezvous: every rank gets what each has brought, of any size; different tags and bad arguments
 * fail on all ranks and leave the group usable; a lost rank ends the wait of the others. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

enum { kLargest = 70000 };

static nxd_group_t* world_of(nxd_context_t* ctx) {
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  return world;
}

/* Bytes of a rank: the last one brings nothing, the first one the most. */
static size_t size_of(int rank, int size) {
  return rank == size - 1 ? 0 : (size_t)kLargest >> (4 * rank);
}

static unsigned char byte_of(int rank, size_t i) {
  return (unsigned char)((size_t)rank * 101 + i * 7 + i / 251);
}

static void meet(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  static _Thread_local unsigned char own[kLargest];
  const size_t bytes = size_of(rank, size);
  for (size_t i = 0; i < bytes; ++i) own[i] = byte_of(rank, i);
  nxd_payloads_t* all = NULL;
  NXD_TEST_OK(
      nxd_group_rendezvous(world, "a tag, with \"marks\"", bytes ? own : NULL, bytes, &all));
  for (int r = 0; r < size; ++r) {
    const void* data = NULL;
    size_t found = 0, same = 0;
    NXD_TEST_OK(nxd_payloads_get(all, r, &data, &found));
    if (!NXD_TEST_CHECK(data && found == size_of(r, size))) continue;
    while (same < found && ((const unsigned char*)data)[same] == byte_of(r, same)) ++same;
    NXD_TEST_CHECK(same == found);
  }
  const void* data = own;
  size_t found = 1;
  NXD_TEST_REFUSED(nxd_payloads_get(all, size, &data, &found), NXD_ERROR_INVALID_ARGUMENT,
                   "rank: expected 0 to");
  NXD_TEST_CHECK(!data && found == 0);
  NXD_TEST_REFUSED(nxd_payloads_get(all, -1, &data, &found), NXD_ERROR_INVALID_ARGUMENT, "got -1");
  NXD_TEST_REFUSED(nxd_payloads_get(NULL, 0, &data, &found), NXD_ERROR_INVALID_ARGUMENT,
                   "payloads");
  nxd_payloads_destroy(all);
  nxd_payloads_destroy(NULL);
}

static void disagree(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  nxd_payloads_t* all = NULL;
  const int odd = size - 1;
  nxd_status_t status =
      nxd_group_rendezvous(world, rank == odd ? "evening" : "morning", "x", 1, &all);
  NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, "\"morning\" on rank 0");
  NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, "\"evening\" on rank ");
  nxd_error_info_t info = {.struct_size = sizeof info};
  NXD_TEST_OK(nxd_last_error_info(&info));
  NXD_TEST_CHECK(info.root_rank == odd && strcmp(info.group, "world") == 0);
  NXD_TEST_CHECK(!all);
  /* A rank whose arguments are none takes the others along. */
  status = nxd_group_rendezvous(world, rank == odd ? NULL : "noon", "x", 1, &all);
  NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, "tag: expected a string, got NULL");
  status = nxd_group_rendezvous(world, "noon", rank == odd ? NULL : "x", 1, &all);
  NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, "payload: expected an array of 1");
  status = nxd_group_rendezvous(world, "noon", "x", rank == odd ? SIZE_MAX : 1, &all);
  NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, "payload");
  status = nxd_group_rendezvous(world, "noon", "x", 1, rank == odd ? NULL : &all);
  NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, "out_payloads: expected a pointer");
  NXD_TEST_CHECK(!all);
  /* Another collective on one rank. */
  if (rank == odd) {
    status = nxd_barrier(world);
  } else {
    status = nxd_group_rendezvous(world, "noon", "x", 1, &all);
  }
  if (size > 1) NXD_TEST_CHECK(status == NXD_ERROR_INVALID_ARGUMENT);
  meet(ctx, rank, size, NULL);
}

static void alone(nxd_context_t* ctx, int rank, int size, void* unused) {
  meet(ctx, rank, size, unused);
  nxd_payloads_t* all = NULL;
  NXD_TEST_REFUSED(nxd_group_rendezvous(world_of(ctx), NULL, NULL, 0, &all),
                   NXD_ERROR_INVALID_ARGUMENT, "tag");
  NXD_TEST_REFUSED(nxd_group_rendezvous(NULL, "t", NULL, 0, &all), NXD_ERROR_INVALID_ARGUMENT,
                   "group: expected a group, got NULL");
}

static void lost(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  if (rank == 1) {
    NXD_TEST_OK(nxd_context_abort(ctx));
    return;
  }
  nxd_payloads_t* all = NULL;
  NXD_TEST_REFUSED(nxd_group_rendezvous(world_of(ctx), "noon", "x", 1, &all), NXD_ERROR_PEER_LOST,
                   "rank 1");
  NXD_TEST_CHECK(!all);
}

static void test_over(void** state) {
  static const nxd_transport_t transports[] = {NXD_TRANSPORT_AUTO, NXD_TRANSPORT_GLOO};
  (void)state;
  nxd_test_run_ranks(1, 0, alone, NULL);
  for (int i = 0; i < 2; ++i) {
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    options.transport = transports[i];
    options.timeout_ms = 60000;
    nxd_test_run_ranks_with(&options, 3, 0, meet, NULL);
    nxd_test_run_ranks_with(&options, 3, 0, disagree, NULL);
    nxd_test_run_ranks_with(&options, 3, 0, lost, NULL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_over)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

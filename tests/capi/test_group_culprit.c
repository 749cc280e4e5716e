/* A rank that fails in the middle of a large collective over Gloo: all survivors name it, and never
 * one another. Some of them lose their connection to it while they are in the middle of messages to
 * healthy ranks. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

/* More than the buffers of sockets hold. */
enum { kRanks = 4, kRounds = 6, kCalls = 1000, kCount = 1 << 21 };
static const size_t kSize = kCount * sizeof(float);
static const nxd_dtype_t f32 = NXD_DTYPE_F32;

typedef nxd_status_t (*call_t)(nxd_group_t* world, float* array);

typedef struct {
  call_t call;
  int culprit;
  unsigned abort_after_us; /* 0: its array cannot be written to */
  pthread_barrier_t* start;
} fault_t;

static nxd_status_t broadcast(nxd_group_t* world, float* array) {
  return nxd_broadcast(world, array, kCount, f32, 0);
}

static nxd_status_t all_reduce(nxd_group_t* world, float* array) {
  return nxd_all_reduce(world, array, array, kCount, f32, NXD_REDUCE_SUM);
}

static nxd_status_t all_to_all(nxd_group_t* world, float* array) {
  return nxd_all_to_all(world, array, array + kCount / 2, kCount / 2 / kRanks, f32);
}

typedef struct {
  nxd_context_t* ctx;
  unsigned after_us;
} abort_t;

static void* abort_later(void* arg) {
  const abort_t* a = arg;
  usleep(a->after_us);
  NXD_TEST_OK(nxd_context_abort(a->ctx));
  return NULL;
}

static nxd_status_t call_until_failure(nxd_group_t* world, const fault_t* fault, float* array) {
  nxd_status_t status = NXD_OK;
  for (int i = 0; i < kCalls && status == NXD_OK; ++i) status = fault->call(world, array);
  return status;
}

static void run_rank(nxd_context_t* ctx, int rank, int size, void* arg) {
  (void)size;
  const fault_t* fault = arg;
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  float* array =
      mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (array == MAP_FAILED) abort();
  /* The culprit's abort would be met by ranks that are in a barrier of the group still. */
  NXD_TEST_OK(nxd_barrier(world));
  pthread_barrier_wait(fault->start);
  if (rank != fault->culprit) {
    const nxd_status_t status = call_until_failure(world, fault, array);
    nxd_error_info_t info = {.struct_size = sizeof info};
    nxd_last_error_info(&info);
    if (status != NXD_ERROR_PEER_LOST || info.root_rank != fault->culprit) {
      nxd_test_fail(__FILE__, __LINE__, "rank %d was to lose rank %d, got %s of rank %d: %s", rank,
                    fault->culprit, nxd_status_string(status), info.root_rank, nxd_last_error());
    }
  } else if (fault->abort_after_us > 0) {
    abort_t args = {ctx, fault->abort_after_us};
    pthread_t thread;
    if (pthread_create(&thread, NULL, abort_later, &args) != 0) abort();
    NXD_TEST_REFUSED(call_until_failure(world, fault, array), NXD_ERROR_ABORTED, "aborted");
    pthread_join(thread, NULL);
  } else {
    NXD_TEST_CHECK(mprotect(array, kSize, PROT_READ) == 0);
    NXD_TEST_REFUSED(call_until_failure(world, fault, array), NXD_ERROR_IO, "cannot write");
  }
  munmap(array, kSize);
}

static void run_fault(fault_t fault) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.transport = NXD_TRANSPORT_GLOO;
  options.timeout_ms = 30000;
  pthread_barrier_t start;
  assert_int_equal(pthread_barrier_init(&start, NULL, kRanks), 0);
  fault.start = &start;
  nxd_test_run_ranks_with(&options, kRanks, 0, run_rank, &fault);
  pthread_barrier_destroy(&start);
}

/* The ranks that send to the culprit are in the middle of a message to it, and of others. */
static void fails_to_receive(void** state) {
  (void)state;
  for (int round = 0; round < kRounds; ++round) {
    for (int culprit = 1; culprit < kRanks; ++culprit)
      run_fault((fault_t){broadcast, culprit, 0, NULL});
  }
}

static void aborts(void** state) {
  (void)state;
  static const call_t calls[] = {broadcast, all_reduce, all_to_all};
  unsigned drawn = 1;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 3; ++i) {
      drawn = drawn * 1664525 + 1013904223;
      run_fault((fault_t){calls[i], (round + i) % kRanks, 1 + (drawn >> 8) % 30000, NULL});
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fails_to_receive), cmocka_unit_test(aborts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

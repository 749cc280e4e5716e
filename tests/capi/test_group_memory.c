/* Arrays that a program has protected, for a handler of SIGSEGV to open them up. Over Gloo the
 * kernel reads and writes arrays, and calls no handler: the rank is told so, and its peers do not
 * wait for it. Over shared memory the handler is called. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

/* More than is sent along with a call's header, and than the buffers of sockets hold. */
enum { kCount = 1 << 21 };
static const size_t kSize = kCount * sizeof(float);
static const nxd_dtype_t f32 = NXD_DTYPE_F32;

static _Atomic uintptr_t protected_array;

/* Opens the page up, as a program with lazy or watched memory does. */
static void open_page(int number, siginfo_t* fault, void* unused) {
  (void)unused;
  const uintptr_t page = (uintptr_t)fault->si_addr & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
  const uintptr_t start = atomic_load(&protected_array);
  const int is_ours = page >= start && page < start + kSize;
  if (!is_ours || mprotect((void*)page, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE)) {
    signal(number, SIG_DFL);
  }
}

static float* array_of(int protection) {
  float* array =
      mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (!NXD_TEST_CHECK(array != MAP_FAILED)) return NULL;
  if (protection != (PROT_READ | PROT_WRITE)) atomic_store(&protected_array, (uintptr_t)array);
  NXD_TEST_CHECK(mprotect(array, kSize, protection) == 0);
  return array;
}

/* A call of which rank culprit alone has a protected array. */
typedef struct {
  int culprit, protection;
  nxd_status_t (*call)(nxd_group_t* world, int rank, float* array);
} protected_call_t;

static nxd_status_t message(nxd_group_t* world, int rank, float* array) {
  if (rank == 0) return nxd_send(world, array, kCount, f32, 1, 3);
  if (rank == 1) return nxd_receive(world, array, kCount, f32, 0, 3);
  return nxd_barrier(world);
}

static nxd_status_t broadcast(nxd_group_t* world, int rank, float* array) {
  (void)rank;
  return nxd_broadcast(world, array, kCount, f32, 0);
}

/* Most of the input goes to other ranks, and so does most of the output come from them. */
static nxd_status_t all_reduce(nxd_group_t* world, int rank, float* array) {
  (void)rank;
  return nxd_all_reduce(world, array, array, kCount, f32, NXD_REDUCE_SUM);
}

static void run_call(nxd_context_t* ctx, int rank, int size, void* arg) {
  (void)size;
  const protected_call_t* c = arg;
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_barrier(world));
  float* array = array_of(rank == c->culprit ? c->protection : PROT_READ | PROT_WRITE);
  const nxd_status_t status = c->call(world, rank, array);
  if (rank == c->culprit) {
    NXD_TEST_REFUSED(status, NXD_ERROR_IO, "that the kernel cannot read, or cannot write");
    NXD_TEST_REFUSED(status, NXD_ERROR_IO, strerror(EFAULT));
    NXD_TEST_REFUSED(nxd_barrier(world), NXD_ERROR_IO, "that the kernel cannot read");
  } else { /* which may have had and given all its data before */
    if (status != NXD_OK) NXD_TEST_REFUSED(status, NXD_ERROR_PEER_LOST, "");
    NXD_TEST_REFUSED(nxd_barrier(world), NXD_ERROR_PEER_LOST, "");
  }
  nxd_error_info_t info = {.struct_size = sizeof info};
  nxd_last_error_info(&info);
  NXD_TEST_CHECK(info.root_rank == c->culprit);
  munmap(array, kSize);
}

/* CMocka has a handler of its own while a test runs. */
static void run_over_gloo(protected_call_t c) {
  struct sigaction action = {.sa_sigaction = open_page, .sa_flags = SA_SIGINFO}, before;
  sigaction(SIGSEGV, &action, &before);
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.transport = NXD_TRANSPORT_GLOO;
  options.timeout_ms = 30000;
  nxd_test_run_ranks_with(&options, 3, 0, run_call, &c);
  sigaction(SIGSEGV, &before, NULL);
}

/* The library itself reads and writes here, on threads of its own as well. */
static void run_open(nxd_context_t* ctx, int rank, int size, void* arg) {
  (void)size;
  const protected_call_t* c = arg;
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  float* array = array_of(rank == c->culprit ? c->protection : PROT_READ | PROT_WRITE);
  NXD_TEST_OK(c->call(world, rank, array));
  if (c->call == message && rank < 2) NXD_TEST_OK(nxd_barrier(world)); /* where rank 2 is */
  munmap(array, kSize);
}

static void arrays_over_shared_memory(void** state) {
  (void)state;
  struct sigaction action = {.sa_sigaction = open_page, .sa_flags = SA_SIGINFO}, before;
  sigaction(SIGSEGV, &action, &before);
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.transport = NXD_TRANSPORT_SHARED_MEMORY;
  options.timeout_ms = 30000;
  protected_call_t calls[] = {{0, PROT_NONE, message},    {1, PROT_READ, message},
                              {0, PROT_NONE, broadcast},  {2, PROT_READ, broadcast},
                              {1, PROT_NONE, all_reduce}, {1, PROT_READ, all_reduce}};
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i) {
    nxd_test_run_ranks_with(&options, 3, 0, run_open, &calls[i]);
  }
  sigaction(SIGSEGV, &before, NULL);
}

static void sent_arrays(void** state) {
  (void)state;
  run_over_gloo((protected_call_t){0, PROT_NONE, message});
  run_over_gloo((protected_call_t){0, PROT_NONE, broadcast});
  run_over_gloo((protected_call_t){1, PROT_NONE, all_reduce});
}

static void received_arrays(void** state) {
  (void)state;
  run_over_gloo((protected_call_t){1, PROT_READ, message});
  run_over_gloo((protected_call_t){2, PROT_READ, broadcast});
  run_over_gloo((protected_call_t){1, PROT_READ, all_reduce});
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sent_arrays),
                                     cmocka_unit_test(received_arrays),
                                     cmocka_unit_test(arrays_over_shared_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

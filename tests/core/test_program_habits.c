/* Programs with habits that a library must bear: without standard descriptors, as daemons are; that
 * send signals without a pause, as runtimes do to end a thread; that cut up their arguments; whose
 * first thread ends before the others; whose output goes nowhere. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"
#include "support/part.h"

static char** arguments;

static int standard_descriptors(void) {
  int open_ones = 0;
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) open_ones += fcntl(fd, F_GETFD) != -1;
  return open_ones;
}

/* Each thread's opening of a file may take such a place for a moment; none keeps it. */
static int keeps_standard_descriptors(void) {
  for (int i = 0; i < 60000; ++i) {
    if (standard_descriptors() == 0) return 0;
    usleep(1000);
  }
  return 1;
}

/* All that has descriptors: connections or shared memory, a work's, files of a store. */
static void use_descriptors(nxd_context_t* ctx, int rank, int size, void* arg) {
  (void)size;
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  float data[1000] = {1};
  NXD_TEST_OK(nxd_all_reduce(world, data, data, 1000, NXD_DTYPE_F32, NXD_REDUCE_SUM));
  nxd_work_t* work = NULL;
  int32_t descriptor = -1;
  NXD_TEST_OK(nxd_all_reduce_async(world, data, data, 1000, NXD_DTYPE_F32, NXD_REDUCE_SUM, &work));
  NXD_TEST_OK(nxd_work_get_descriptor(work, &descriptor));
  NXD_TEST_CHECK(descriptor > STDERR_FILENO);
  NXD_TEST_OK(nxd_work_wait(work, -1));
  nxd_work_destroy(work);
  nxd_store_t* store = NULL;
  if (rank == 0) NXD_TEST_OK(nxd_store_create_file(arg, &store));
  NXD_TEST_CHECK(!keeps_standard_descriptors());
  nxd_store_destroy(store);
}

static void closed_descriptors(void** state) {
  (void)state;
  static const char* const transports[] = {"shared_memory", "gloo"};
  for (int i = 0; i < 2; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      char path[] = "/tmp/nxd_habits_XXXXXX";
      const int file = mkstemp(path);
      close(file);
      stderr = fdopen(fcntl(STDERR_FILENO, F_DUPFD, STDERR_FILENO + 1), "w"); /* for failures */
      setlinebuf(stderr);
      for (int fd = 0; fd <= STDERR_FILENO; ++fd) close(fd);
      setenv("NXD_TRANSPORT", transports[i], 1);
      nxd_test_run_ranks(2, 0, use_descriptors, path);
      unlink(path);
      _exit(nxd_test_failures() + standard_descriptors());
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
  }
}

static pthread_t waiting;
static atomic_int stage; /* 1: the call begins, 2: it has ended */

static void ignore(int number) { (void)number; }

static void wait_in_vain(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_barrier(world));
  if (rank != 0) {
    while (atomic_load(&stage) < 2) usleep(10000);
    return;
  }
  waiting = pthread_self();
  atomic_store(&stage, 1);
  NXD_TEST_REFUSED(nxd_barrier(world), NXD_ERROR_TIMEOUT, "rank 1 did not answer");
  atomic_store(&stage, 2);
}

static void* interrupt_it(void* unused) {
  (void)unused;
  while (atomic_load(&stage) < 1) usleep(1000);
  while (atomic_load(&stage) < 2) {
    pthread_kill(waiting, SIGUSR1);
    for (volatile int i = 0; i < 2000; ++i) continue;
  }
  return NULL;
}

static void signals_without_pause(void** state) {
  (void)state;
  struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, NULL);
  static const char* const transports[] = {"shared_memory", "gloo"};
  for (int i = 0; i < 2; ++i) {
    atomic_store(&stage, 0);
    setenv("NXD_TRANSPORT", transports[i], 1);
    pthread_t thread;
    pthread_create(&thread, NULL, interrupt_it, NULL);
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    options.timeout_ms = 2000;
    nxd_test_run_ranks_with(&options, 2, 0, wait_in_vain, NULL);
    pthread_join(thread, NULL);
  }
  unsetenv("NXD_TRANSPORT");
}

/* The ranks have the arguments that this process was started with. */
static void arguments_in_pieces(void** state) {
  (void)state;
  assert_string_equal(strtok(arguments[1], ","), "a");
  assert_string_equal(strtok(NULL, ","), "b");
  nxd_test_run_part("arguments", 2, kNxdTestNone, 0, 60);
}

typedef struct {
  const char* store;
  int rank, late; /* late: the context is made when the first thread has ended */
  nxd_context_t* ctx;
} lone_t;

static void join_two(lone_t* lone) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.rank = lone->rank;
  options.size = 2;
  options.timeout_ms = 30000;
  NXD_TEST_OK(nxd_store_create_file(lone->store, &options.store));
  NXD_TEST_OK(nxd_context_create(&options, &lone->ctx));
  nxd_store_destroy(options.store);
}

/* A zombie's file of what it has mapped is empty. */
static void wait_for_first_thread(void) {
  for (int i = 0, mapped = 1; mapped && i < 60000; ++i) {
    FILE* maps = fopen("/proc/self/maps", "r");
    mapped = maps && fgetc(maps) != EOF;
    if (maps) fclose(maps);
    usleep(1000);
  }
}

static void* go_on_alone(void* arg) {
  lone_t* lone = arg;
  wait_for_first_thread();
  if (lone->late) join_two(lone);
  static const int32_t members[] = {1, 0};
  nxd_group_t* pair = NULL;
  nxd_transport_t transport = NXD_TRANSPORT_AUTO;
  float data[1000] = {1};
  NXD_TEST_OK(nxd_group_create(lone->ctx, members, 2, "pair", &pair));
  NXD_TEST_OK(nxd_group_get_transport(pair, &transport));
  NXD_TEST_CHECK(transport == NXD_TRANSPORT_SHARED_MEMORY);
  NXD_TEST_OK(nxd_all_reduce(pair, data, data, 1000, NXD_DTYPE_F32, NXD_REDUCE_SUM));
  NXD_TEST_CHECK(data[0] == 2);
  nxd_group_destroy(pair);
  NXD_TEST_OK(nxd_context_finalize(lone->ctx));
  nxd_context_destroy(lone->ctx);
  _exit(nxd_test_failures());
}

static void without_first_thread(void** state) {
  (void)state;
  for (int late = 0; late < 2; ++late) {
    static char path[32]; /* not of the thread that ends, no more than the next */
    static lone_t lone;
    strcpy(path, "/tmp/nxd_habits_XXXXXX");
    close(mkstemp(path));
    pid_t children[2];
    for (int rank = 0; rank < 2; ++rank) {
      children[rank] = fork();
      if (children[rank] != 0) continue;
      lone = (lone_t){path, rank, late, NULL};
      if (!late) join_two(&lone);
      pthread_t other;
      if (pthread_create(&other, NULL, go_on_alone, &lone) != 0) _exit(9);
      pthread_exit(NULL);
    }
    for (int rank = 0; rank < 2; ++rank) {
      int status = -1;
      assert_int_equal(waitpid(children[rank], &status, 0), children[rank]);
      assert_int_equal(status, 0);
    }
    unlink(path);
  }
}

/* The program does as it is told by default where a signal comes; the lines here raise none. */
static int write_lines(int output, const struct rlimit* limit) {
  nxd_context_t* ctx = NULL;
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  if (limit) setrlimit(RLIMIT_FSIZE, limit);
  dup2(output, STDERR_FILENO);
  setenv("XLA_USE_BF16", "1", 1); /* warned of */
  if (nxd_context_create(NULL, &ctx) != NXD_OK) return 1;
  dup2(output, STDOUT_FILENO);
  if (nxd_master_print(ctx, "a line") != NXD_ERROR_IO) return 2;
  static char line[200000]; /* more than a buffer */
  memset(line, 'x', sizeof line - 1);
  if (nxd_master_print(ctx, line) != NXD_ERROR_IO) return 3;
  nxd_context_destroy(ctx);
  return fflush(stdout); /* as a program's end does: nothing is left to write */
}

static void output_that_goes_nowhere(void** state) {
  (void)state;
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  close(ends[0]);
  char path[] = "/tmp/nxd_habits_XXXXXX";
  const int file = mkstemp(path);
  unlink(path);
  const struct rlimit none = {0, 0};
  const struct {
    int output;
    const struct rlimit* limit;
  } table[] = {{ends[1], NULL}, {file, &none}};
  for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(write_lines(table[i].output, table[i].limit));
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(table[i].output);
  }
}

/* Destructors of pthread_key_create, like functions of atexit on the first thread, run behind those
 * of a thread's objects, the library's among them. */
typedef struct {
  nxd_context_t* contexts[2];
  DLTensor x, w, y, again;
} late_t;

static pthread_key_t late_key;

static DLTensor square(float value) {
  enum { kSide = 256 };
  DLTensor a = {.device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}};
  a.shape = calloc(2, sizeof *a.shape);
  a.shape[0] = a.shape[1] = kSide;
  float* const data = calloc((size_t)kSide * kSide, sizeof *data);
  for (int i = 0; i < kSide * kSide; ++i) data[i] = value * (float)(i % 7);
  a.data = data;
  return a;
}

static void use_all(late_t* late, DLTensor* y) {
  for (int i = 0; i < 4; ++i) {
    nxd_group_t* world = NULL;
    NXD_TEST_OK(nxd_context_get_world_group(late->contexts[i % 2], &world));
    NXD_TEST_OK(nxd_barrier(world));
  }
  NXD_TEST_OK(nxd_column_linear_forward(late->contexts[0], &late->x, &late->w, NULL, NULL, y));
}

static void use_all_late(void* arg) {
  late_t* const late = arg;
  use_all(late, &late->again);
  for (int i = 0; i < 2; ++i) nxd_context_destroy(late->contexts[i]);
}

static void* end_with_calls(void* arg) {
  late_t* const late = arg;
  pthread_setspecific(late_key, late);
  for (int i = 0; i < 2; ++i) {
    NXD_TEST_OK(nxd_context_create(NULL, &late->contexts[i]));
    NXD_TEST_OK(nxd_init_model_parallel(late->contexts[i], NULL));
  }
  use_all(late, &late->y);
  return NULL;
}

static void calls_behind_a_threads_objects(void** state) {
  (void)state;
  late_t late = {.x = square(1), .w = square(2), .y = square(0), .again = square(0)};
  assert_int_equal(pthread_key_create(&late_key, use_all_late), 0);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, end_with_calls, &late), 0);
  pthread_join(thread, NULL);
  assert_memory_equal(late.y.data, late.again.data, 256 * 256 * sizeof(float));
  DLTensor* const all[] = {&late.x, &late.w, &late.y, &late.again};
  for (int i = 0; i < 4; ++i) free(all[i]->shape), free(all[i]->data);
  assert_int_equal(nxd_test_failures(), 0);
}

/* The stack that docs/embedding.md asks for is enough for a layer in bf16, which takes most. */
static void* train_layer(void* unused) {
  (void)unused;
  enum { kSide = 600 };
  int64_t shape[] = {kSide, kSide};
  DLTensor arrays[5];
  for (int i = 0; i < 5; ++i) {
    arrays[i] =
        (DLTensor){.device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLBfloat, 16, 1}, .shape = shape};
    arrays[i].data = calloc((size_t)kSide * kSide, 2);
  }
  DLTensor *const x = arrays, *const w = x + 1, *const y = x + 2, *const dx = x + 3;
  nxd_context_t* ctx = NULL;
  NXD_TEST_OK(nxd_context_create(NULL, &ctx));
  NXD_TEST_OK(nxd_init_model_parallel(ctx, NULL));
  NXD_TEST_OK(nxd_column_linear_forward(ctx, x, w, NULL, NULL, y));
  NXD_TEST_OK(nxd_column_linear_backward(ctx, x, w, y, NULL, dx, x + 4, NULL));
  nxd_context_destroy(ctx);
  for (int i = 0; i < 5; ++i) free(arrays[i].data);
  return NULL;
}

static void small_stack(void** state) {
  (void)state;
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  assert_int_equal(pthread_attr_setstacksize(&attributes, 64 << 10), 0);
  assert_int_equal(pthread_create(&thread, &attributes, train_layer, NULL), 0);
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
  assert_int_equal(nxd_test_failures(), 0);
}

int main(int argc, char** argv) {
  if (getenv("NXD_TEST_PART")) return argc == 2 && strcmp(argv[1], "a,b") == 0 ? 0 : 9;
  if (argc == 1) {
    execl("/proc/self/exe", argv[0], "a,b", NULL);
    return 1;
  }
  arguments = argv;
  const struct CMUnitTest tests[] = {cmocka_unit_test(closed_descriptors),
                                     cmocka_unit_test(signals_without_pause),
                                     cmocka_unit_test(arguments_in_pieces),
                                     cmocka_unit_test(without_first_thread),
                                     cmocka_unit_test(output_that_goes_nowhere),
                                     cmocka_unit_test(calls_behind_a_threads_objects),
                                     cmocka_unit_test(small_stack)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

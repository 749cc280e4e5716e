/* Jobs: starting processes, how they end, nxdrun and torchrun. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/command.h"
#include "support/part.h"
#include "support/paths.h"
#include "support/ranks.h"

#define OK(call) assert_int_equal(nxd_test_ok(__FILE__, __LINE__, #call, (call)), 1)
#define REFUSED(call, status, part) \
  assert_int_equal(nxd_test_refused(__FILE__, __LINE__, #call, (call), (status), (part)), 1)

static char self[512];

static void remove_and_leave(int signal_number) {
  (void)signal_number;
  _exit(unlink(getenv("NXD_TEST_FILE")));
}

/* A rank's part; prints its failures and ends with their number. */
static int worker(const char* part) {
  const int rank = atoi(getenv("RANK"));
  if (!strcmp(part, "fail")) return rank == 1 ? 37 : 0;
  if (!strcmp(part, "large code")) return 255; /* what -1 becomes */
  if (!strcmp(part, "crash")) return rank == 0 ? raise(SIGABRT) : pause();
  if (!strcmp(part, "sleep")) return pause();
  if (!strcmp(part, "stubborn")) {
    signal(SIGTERM, SIG_IGN);
    for (;;) pause();
  }
  if (!strcmp(part, "stopped")) {
    signal(SIGTERM, remove_and_leave);
    raise(SIGSTOP);
    for (;;) pause();
  }
  /* "work": two worlds, one after the other, what the environment promises, and the name by which
   * top and pkill know the process. */
  char name[16] = "";
  NXD_TEST_CHECK(prctl(PR_GET_NAME, name) == 0 && !strcmp(name, "test_job"));
  for (int turn = 0; turn < 2; ++turn) {
    nxd_context_t* ctx = NULL;
    nxd_group_t* world = NULL;
    int32_t size = 0, local = -1, sum = 0;
    if (!NXD_TEST_OK(nxd_context_create(NULL, &ctx))) return 1;
    NXD_TEST_OK(nxd_context_get_size(ctx, &size));
    NXD_TEST_OK(nxd_context_get_local_rank(ctx, &local));
    NXD_TEST_CHECK(size == atoi(getenv("WORLD_SIZE")) && local == rank);
    NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
    NXD_TEST_OK(nxd_all_reduce(world, &rank, &sum, 1, NXD_DTYPE_I32, NXD_REDUCE_SUM));
    NXD_TEST_CHECK(sum == size * (size - 1) / 2);
    NXD_TEST_OK(nxd_master_print(ctx, "printed once"));
    NXD_TEST_OK(nxd_context_finalize(ctx));
    nxd_context_destroy(ctx);
  }
  nxd_job_t* job = NULL;
  NXD_TEST_REFUSED(nxd_spawn(NULL, &job), NXD_ERROR_INVALID_STATE, "launcher");
  NXD_TEST_CHECK(job == NULL);
  return nxd_test_failures();
}

static int64_t pid_of(nxd_job_t* job, int rank) {
  int64_t pid = 0;
  OK(nxd_job_get_pid(job, rank, &pid));
  return pid;
}

static void check_gone(int64_t pid) {
  assert_int_equal(kill((pid_t)pid, 0), -1);
  assert_int_equal(errno, ESRCH);
}

static void work(void** state) {
  (void)state;
  setenv("NXD_SECRET_FILE", "/nowhere", 1); /* of this process; the job has a secret of its own */
  nxd_job_t* job = nxd_test_start_part("work", 3);
  unsetenv("NXD_SECRET_FILE");
  int32_t n = 0, running = 1, code = 1;
  OK(nxd_job_get_size(job, &n));
  assert_int_equal(n, 3);
  OK(nxd_job_wait(job, 60000));
  OK(nxd_job_wait(job, 0));
  for (int rank = 0; rank < 3; ++rank) {
    OK(nxd_job_get_exit_code(job, rank, &running, &code));
    assert_int_equal(running, 0);
    assert_int_equal(code, 0);
  }
  REFUSED(nxd_job_get_exit_code(job, 3, &running, &code), NXD_ERROR_INVALID_ARGUMENT, "rank");
  REFUSED(nxd_job_get_pid(job, -1, &(int64_t){0}), NXD_ERROR_INVALID_ARGUMENT, "rank");
  REFUSED(nxd_job_kill(job, 0), NXD_ERROR_INVALID_ARGUMENT, "signal_number");
  OK(nxd_job_kill(job, SIGTERM)); /* no process is left to get it */
  nxd_job_destroy(job);
}

static void failing(void** state) {
  (void)state;
  nxd_job_t* job = nxd_test_start_part("fail", 3);
  REFUSED(nxd_job_wait(job, -1), NXD_ERROR_PEER_LOST, "rank 1 of 3 ended with exit code 37");
  nxd_error_info_t info = {.struct_size = sizeof info};
  OK(nxd_last_error_info(&info));
  assert_int_equal(info.root_rank, 1);
  int32_t running, code;
  OK(nxd_job_get_exit_code(job, 1, &running, &code));
  assert_int_equal(code, 37);
  nxd_job_destroy(job);
  /* Beyond 128, as if it were a signal's. */
  job = nxd_test_start_part("large code", 1);
  REFUSED(nxd_job_wait(job, -1), NXD_ERROR_PEER_LOST, "rank 0 of 1 ended with exit code 255");
  OK(nxd_job_get_exit_code(job, 0, &running, &code));
  assert_int_equal(code, 255);
  nxd_job_destroy(job);
}

/* The others of a rank that crashed would wait for ever, and are ended. */
static void crashing(void** state) {
  (void)state;
  nxd_job_t* job = nxd_test_start_part("crash", 2);
  const int64_t other = pid_of(job, 1);
  REFUSED(nxd_job_wait(job, -1), NXD_ERROR_PEER_LOST, "rank 0 of 2 was ended by signal 6");
  check_gone(other);
  int32_t running, code;
  OK(nxd_job_get_exit_code(job, 0, &running, &code));
  assert_int_equal(code, 128 + SIGABRT);
  OK(nxd_job_get_exit_code(job, 1, &running, &code));
  assert_int_equal(code, 128 + SIGTERM);
  nxd_job_destroy(job);
}

/* One who waits in slices can still signal the others of a rank that has failed. */
static void crashing_in_slices(void** state) {
  (void)state;
  nxd_job_t* job = nxd_test_start_part("crash", 2);
  int32_t running = 1, code = 0;
  while (running) {
    OK(nxd_job_get_exit_code(job, 0, &running, &code));
    usleep(1000);
  }
  REFUSED(nxd_job_wait(job, 0), NXD_ERROR_TIMEOUT,
          "are being ended, for rank 0 of 2 was ended by signal 6");
  OK(nxd_job_kill(job, SIGKILL));
  REFUSED(nxd_job_wait(job, -1), NXD_ERROR_PEER_LOST, "rank 0 of 2 was ended by signal 6");
  OK(nxd_job_get_exit_code(job, 1, &running, &code));
  assert_int_equal(code, 128 + SIGKILL);
  nxd_job_destroy(job);
}

static void destroyed(void** state) {
  (void)state;
  nxd_job_t* job = nxd_test_start_part("stubborn", 2);
  const int64_t pids[] = {pid_of(job, 0), pid_of(job, 1)};
  REFUSED(nxd_job_wait(job, 0), NXD_ERROR_TIMEOUT, "still run");
  REFUSED(nxd_job_wait(job, 20), NXD_ERROR_TIMEOUT, "20 ms");
  int32_t running = 0, code = 1;
  OK(nxd_job_get_exit_code(job, 0, &running, &code));
  assert_int_equal(running, 1);
  assert_int_equal(code, 0);
  nxd_job_destroy(job);
  check_gone(pids[0]);
  check_gone(pids[1]);
}

/* One that is stopped hears SIGTERM as others do. */
static void stopped(void** state) {
  (void)state;
  char path[] = "/tmp/nxd-job-XXXXXX";
  close(mkstemp(path));
  setenv("NXD_TEST_FILE", path, 1);
  nxd_job_t* job = nxd_test_start_part("stopped", 1);
  unsetenv("NXD_TEST_FILE");
  char stat_file[64];
  snprintf(stat_file, sizeof stat_file, "/proc/%lld/stat", (long long)pid_of(job, 0));
  for (int is_stopped = 0; !is_stopped; usleep(1000)) {
    char process_state = 0;
    FILE* f = fopen(stat_file, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d (%*[^)]) %c", &process_state), 1);
    fclose(f);
    is_stopped = process_state == 'T';
  }
  nxd_job_destroy(job);
  assert_int_equal(access(path, F_OK), -1);
}

static void signalled(void** state) {
  (void)state;
  nxd_job_t* job = nxd_test_start_part("sleep", 2);
  OK(nxd_job_kill(job, SIGKILL));
  REFUSED(nxd_job_wait(job, -1), NXD_ERROR_PEER_LOST, "signal 9");
  nxd_job_destroy(job);
}

/* The processes end with the one that started them. */
static void orphaned(void** state) {
  (void)state;
  int pipe_ends[2];
  assert_int_equal(pipe(pipe_ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    nxd_job_t* job = NULL;
    nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
    options.num_processes = 2;
    setenv("NXD_TEST_PART", "sleep", 1);
    if (nxd_spawn(&options, &job) != NXD_OK) _exit(1);
    int64_t pids[2];
    nxd_job_get_pid(job, 0, &pids[0]);
    nxd_job_get_pid(job, 1, &pids[1]);
    if (write(pipe_ends[1], pids, sizeof pids) != sizeof pids) _exit(2);
    raise(SIGKILL);
  }
  close(pipe_ends[1]);
  int64_t pids[2];
  assert_int_equal(read(pipe_ends[0], pids, sizeof pids), sizeof pids);
  waitpid(parent, NULL, 0);
  /* They hold the other end of the pipe: it closes when the last of them has ended. */
  char byte;
  assert_int_equal(read(pipe_ends[0], &byte, 1), 0);
  close(pipe_ends[0]);
}

/* Without assertions, which are for the main thread. */
static void* start_two(void* job) {
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  options.num_processes = 2;
  NXD_TEST_OK(nxd_spawn(&options, job));
  return NULL;
}

/* The thread that starts them may end before they do. */
static void short_lived_thread(void** state) {
  (void)state;
  nxd_job_t* job = NULL;
  pthread_t thread;
  setenv("NXD_TEST_PART", "sleep", 1);
  assert_int_equal(pthread_create(&thread, NULL, start_two, &job), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  unsetenv("NXD_TEST_PART");
  assert_non_null(job);
  /* A thread is dead to its children a moment after it was joined. */
  REFUSED(nxd_job_wait(job, 300), NXD_ERROR_TIMEOUT, "still run");
  for (int rank = 0; rank < 2; ++rank) {
    int32_t running = 0, code = 0;
    OK(nxd_job_get_exit_code(job, rank, &running, &code));
    assert_int_equal(running, 1);
  }
  nxd_job_destroy(job);
}

/* A forked child can neither use nor end the parent's job. */
static void forked_child(void** state) {
  (void)state;
  nxd_job_t* job = nxd_test_start_part("sleep", 2);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    int32_t size = 7;
    int bad = nxd_job_wait(job, -1) != NXD_ERROR_INVALID_STATE;
    bad |= nxd_job_kill(job, SIGKILL) != NXD_ERROR_INVALID_STATE;
    bad |= nxd_job_get_size(job, &size) != NXD_ERROR_INVALID_STATE || size != 0;
    nxd_job_destroy(job);
    _exit(bad);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  REFUSED(nxd_job_wait(job, 100), NXD_ERROR_TIMEOUT, "still run");
  nxd_job_destroy(job);
}

static void cannot_start(void** state) {
  (void)state;
  const char* const argv[] = {"/nonexistent/program", NULL};
  const char* const none[] = {NULL};
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  options.num_processes = 3;
  options.argv = argv;
  nxd_job_t* job = (nxd_job_t*)1;
  REFUSED(nxd_spawn(&options, &job), NXD_ERROR_IO, "/nonexistent/program");
  assert_null(job);
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
  assert_int_equal(errno, ECHILD);
  options.argv = none;
  REFUSED(nxd_spawn(&options, &job), NXD_ERROR_INVALID_ARGUMENT, "argv");
  options.argv = argv;
  options.num_processes = -1;
  REFUSED(nxd_spawn(&options, &job), NXD_ERROR_INVALID_ARGUMENT, "num_processes");
  options.num_processes = 65537;
  REFUSED(nxd_spawn(&options, &job), NXD_ERROR_INVALID_ARGUMENT, "expected 0 to 65536, got 65537");
  options.num_processes = 1;
  options.omp_num_threads = -1;
  REFUSED(nxd_spawn(&options, &job), NXD_ERROR_INVALID_ARGUMENT, "omp_num_threads");
  options.struct_size = 1;
  REFUSED(nxd_spawn(&options, &job), NXD_ERROR_ABI_MISMATCH, "struct_size");
  REFUSED(nxd_spawn(NULL, NULL), NXD_ERROR_INVALID_ARGUMENT, "out_job");
  setenv("NEURON_NUM_DEVICES", "many", 1);
  REFUSED(nxd_spawn(NULL, &job), NXD_ERROR_INVALID_ARGUMENT, "NEURON_NUM_DEVICES");
  unsetenv("NEURON_NUM_DEVICES");
  setenv("NEURONCORE_NUM_DEVICES", "65537", 1);
  REFUSED(nxd_spawn(NULL, &job), NXD_ERROR_INVALID_ARGUMENT,
          "NEURONCORE_NUM_DEVICES: expected 1 to 65536");
  unsetenv("NEURONCORE_NUM_DEVICES");
  setenv("RANK", "0", 1);
  REFUSED(nxd_spawn(NULL, &job), NXD_ERROR_INVALID_STATE, "RANK is set");
  unsetenv("RANK");
  setenv("PMI_SIZE", "2", 1);
  REFUSED(nxd_spawn(NULL, &job), NXD_ERROR_INVALID_STATE, "PMI_SIZE is set");
  unsetenv("PMI_SIZE");
  nxd_spawn_options_t filled, initial = NXD_SPAWN_OPTIONS_INIT;
  OK(nxd_spawn_options_init(&filled, sizeof filled));
  assert_memory_equal(&filled, &initial, sizeof filled);
  REFUSED(nxd_job_wait(NULL, 0), NXD_ERROR_INVALID_ARGUMENT, "job");
  nxd_job_destroy(NULL);
}

/* The environment of the processes, as a shell sees it. */
static void environment(void** state) {
  (void)state;
  char path[] = "/tmp/nxd-spawn-XXXXXX";
  close(mkstemp(path));
  const char* const argv[] = {
      "sh", "-c",
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $OMP_NUM_THREADS >> $OUT",
      NULL};
  const struct {
    const char* inherited;
    int n, omp;
    const char* want;
  } table[] = {{NULL, 2, 0, "1 2 1 2 127.0.0.1 1\n"},
               {"3", 2, 0, "1 2 1 2 127.0.0.1 3\n"},
               {"3", 2, 5, "1 2 1 2 127.0.0.1 5\n"},
               {NULL, 1, 0, "0 1 0 1 127.0.0.1\n"}};
  setenv("OUT", path, 1);
  char* old = getenv("OMP_NUM_THREADS") ? strdup(getenv("OMP_NUM_THREADS")) : NULL;
  for (size_t i = 0; i < 4; ++i) {
    truncate(path, 0) == 0 ? (void)0 : fail();
    unsetenv("OMP_NUM_THREADS");
    if (table[i].inherited) setenv("OMP_NUM_THREADS", table[i].inherited, 1);
    nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
    options.argv = argv;
    options.omp_num_threads = table[i].omp;
    char devices[8];
    snprintf(devices, sizeof devices, "%d", table[i].n);
    /* num_processes comes from here; NxD's variable wins over PyTorch/XLA's. */
    setenv(i % 2 ? "NEURON_NUM_DEVICES" : "NEURONCORE_NUM_DEVICES", devices, 1);
    if (i % 2) setenv("NEURONCORE_NUM_DEVICES", "65537", 1);
    nxd_job_t* job = NULL;
    OK(nxd_spawn(&options, &job));
    OK(nxd_job_wait(job, 30000));
    nxd_job_destroy(job);
    unsetenv("NEURON_NUM_DEVICES");
    unsetenv("NEURONCORE_NUM_DEVICES");
    char got[256] = "";
    FILE* f = fopen(path, "r");
    const size_t size = fread(got, 1, sizeof got - 1, f);
    fclose(f);
    got[size] = '\0';
    if (!strstr(got, table[i].want)) fail_msg("expected %s in %s", table[i].want, got);
  }
  if (old) setenv("OMP_NUM_THREADS", old, 1);
  free(old);
  unlink(path);
}

/* A program that has cleared its environment has no array of it at all. */
static void cleared_environment(void** state) {
  (void)state;
  const pid_t child = fork();
  if (child == 0) {
    clearenv();
    const char* const argv[] = {"/bin/sh", "-c", "exit $((RANK + WORLD_SIZE - 1))", NULL};
    nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
    options.num_processes = 1;
    options.argv = argv;
    nxd_job_t* job = NULL;
    if (nxd_spawn(&options, &job) != NXD_OK) _exit(1);
    const nxd_status_t status = nxd_job_wait(job, 60000);
    nxd_job_destroy(job);
    _exit(status == NXD_OK ? 0 : 2);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

static int occurrences(const char* text, const char* part) {
  int n = 0;
  for (; (text = strstr(text, part)); text += strlen(part)) ++n;
  return n;
}

static void nxdrun(void** state) {
  (void)state;
  char command[2048], out[8192];
  snprintf(command, sizeof command, "NXD_TEST_PART=work " NXDRUN " -n 2 %s 2>&1", self);
  const int code = run_command(command, out, sizeof out);
  if (code != 0) fail_msg("exit code %d: %s", code, out);
  assert_int_equal(occurrences(out, "printed once\n"), 2); /* once in each world */
  snprintf(command, sizeof command, "NXD_TEST_PART=fail " NXDRUN " -n 2 %s 2>&1", self);
  assert_int_equal(run_command(command, out, sizeof out), 37);
  assert_non_null(strstr(out, "rank 1"));
  assert_int_equal(run_command(NXDRUN " --help", out, sizeof out), 0);
  assert_non_null(strstr(out, "usage"));
  assert_int_equal(run_command(NXDRUN " -n zero true 2>&1", out, sizeof out), 2);
  assert_non_null(strstr(out, "zero"));
  assert_int_equal(run_command(NXDRUN " 2>&1", out, sizeof out), 2);
  assert_int_equal(run_command(NXDRUN " /nonexistent 2>&1", out, sizeof out), 127);
  /* A signal goes to the processes: the shell's trap answers it. */
  assert_int_equal(
      run_command(NXDRUN " -n 1 sh -c 'trap \"exit 9\" USR1; kill -USR1 $(ps -o ppid= -p $PPID); "
                         "while :; do sleep 0.1; done' 2>&1",
                  out, sizeof out),
      9);
}

/* --- Programs that do not let anybody wait for their children --------------------------------- */

static void check_ends(int with_crash) {
  nxd_job_t* job = nxd_test_start_part("fail", 1); /* rank 0 ends well */
  OK(nxd_job_wait(job, 60000));
  nxd_job_destroy(job);
  job = nxd_test_start_part("fail", 3);
  REFUSED(nxd_job_wait(job, 60000), NXD_ERROR_PEER_LOST, "rank 1 of 3 ended with exit code 37");
  for (int rank = 0; rank < 3; ++rank) {
    int32_t running = 1, code = -1;
    OK(nxd_job_get_exit_code(job, rank, &running, &code));
    assert_int_equal(running, 0);
    assert_int_equal(code, rank == 1 ? 37 : 0);
  }
  nxd_job_destroy(job);
  if (!with_crash) return; /* whose peers are given some seconds to report */
  job = nxd_test_start_part("crash", 2);
  REFUSED(nxd_job_wait(job, 60000), NXD_ERROR_PEER_LOST, "rank 0 of 2 was ended by signal 6");
  nxd_job_destroy(job);
}

static void ignored_sigchld(void** state) {
  (void)state;
  signal(SIGCHLD, SIG_IGN);
  check_ends(1);
  signal(SIGCHLD, SIG_DFL);
  char command[2048], out[8192];
  for (int fails = 0; fails < 2; ++fails) {
    snprintf(command, sizeof command,
             "env --ignore-signal=CHLD NXD_TEST_PART=fail " NXDRUN " -n %d %s 2>&1", fails + 1,
             self);
    assert_int_equal(run_command(command, out, sizeof out), fails ? 37 : 0);
  }
}

static void take_all(int signal_number) {
  (void)signal_number;
  const int before = errno;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
  errno = before;
}

static void waits_for_any_child(void** state) {
  (void)state;
  signal(SIGCHLD, take_all);
  for (int turn = 0; turn < 5; ++turn) check_ends(0);
  signal(SIGCHLD, SIG_DFL);
}

/* The end of the supervisor ends the processes, and the job says so. */
static void killed_supervisor(void** state) {
  (void)state;
  nxd_job_t* job = nxd_test_start_part("sleep", 2);
  const int64_t pid = pid_of(job, 0);
  char command[128], out[64];
  snprintf(command, sizeof command, "ps -o ppid= -p %lld", (long long)pid);
  assert_int_equal(run_command(command, out, sizeof out), 0);
  const pid_t supervisor = atoi(out);
  assert_true(supervisor > 1 && supervisor != getpid());
  assert_int_equal(kill(supervisor, SIGKILL), 0);
  REFUSED(nxd_job_wait(job, 60000), NXD_ERROR_PEER_LOST, "was ended by signal 9");
  nxd_job_destroy(job);
}

static void torchrun(void** state) {
  (void)state;
  char command[2048], out[8192];
  /* The mapping names a rank that does not exist: Debian 12's torchrun cannot parse its default. */
  snprintf(command, sizeof command,
           "NXD_TEST_PART=work timeout 100 /usr/bin/python3 -m torch.distributed.run --standalone "
           "--nproc_per_node 2 -r 9:1 -t 9:1 --no_python %s 2>&1",
           self);
  const int code = run_command(command, out, sizeof out);
  if (code != 0) fail_msg("exit code %d: %s", code, out);
  assert_int_equal(occurrences(out, "printed once"), 2);
}

/* Ranks of a launcher without a store of its own: rank 0 serves it, twice on the same port. */
static void plain_environment(void** state) {
  (void)state;
  nxd_store_t* store = NULL;
  int32_t port = 0;
  OK(nxd_store_create_tcp("127.0.0.1", 0, 1, 1000, &store));
  OK(nxd_store_get_port(store, &port));
  nxd_store_destroy(store);
  char command[2048], out[8192];
  snprintf(command, sizeof command,
           "export NXD_TEST_PART=work WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=%d\n"
           "RANK=1 LOCAL_RANK=1 %s 2>&1 & RANK=0 LOCAL_RANK=0 %s 2>&1 && wait $!",
           port, self, self);
  const int code = run_command(command, out, sizeof out);
  if (code != 0) fail_msg("exit code %d: %s", code, out);
  assert_int_equal(occurrences(out, "printed once\n"), 2);
}

/* With "torchrun" the ranks of an installed torchrun alone, or 77 where there is none. */
int main(int argc, char** argv) {
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n > 0) self[n] = '\0';
  char nxdrun_path[4096];
  snprintf(nxdrun_path, sizeof nxdrun_path, "%s/tools/nxdrun", nxd_test_binaries);
  setenv("NXDRUN", nxdrun_path, 1);
  const char* part = getenv("NXD_TEST_PART");
  if (part && getenv("RANK")) return worker(part);
  if (argc == 2 && !strcmp(argv[1], "torchrun")) {
    if (system("/usr/bin/python3 -c 'import torch.distributed.run' >/dev/null 2>&1") != 0) {
      puts("skip: torchrun: no torch.distributed.run in /usr/bin/python3; install python3-torch");
      return 77;
    }
    /* Debian 13's torch asks its own TCPStore for libuv, which it is built without. */
    if (system("/usr/bin/python3 -c 'from torch.distributed import TCPStore; "
               "TCPStore(\"127.0.0.1\", 0, 1, True)' >/dev/null 2>&1") != 0) {
      puts("skip: torchrun: its TCPStore does not start; install another python3-torch");
      return 77;
    }
    const struct CMUnitTest torch[] = {cmocka_unit_test(torchrun)};
    return cmocka_run_group_tests(torch, NULL, NULL);
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(work),
      cmocka_unit_test(failing),
      cmocka_unit_test(crashing),
      cmocka_unit_test(crashing_in_slices),
      cmocka_unit_test(destroyed),
      cmocka_unit_test(stopped),
      cmocka_unit_test(signalled),
      cmocka_unit_test(orphaned),
      cmocka_unit_test(cannot_start),
      cmocka_unit_test(environment),
      cmocka_unit_test(cleared_environment),
      cmocka_unit_test(nxdrun),
      cmocka_unit_test(plain_environment),
      cmocka_unit_test(ignored_sigchld),
      cmocka_unit_test(short_lived_thread),
      cmocka_unit_test(forked_child),
      cmocka_unit_test(waits_for_any_child),
      cmocka_unit_test(killed_supervisor),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

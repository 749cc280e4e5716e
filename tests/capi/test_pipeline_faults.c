/* Stages that are killed or stopped in the middle of a run: every other rank is told by name and in
 * time, and says which of its tasks waited for whom. Ranks are processes here: the program starts
 * itself again. And a wait that the interrupt callback ends, and a callback that says why it fails.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/part.h"
#include "support/ranks.h"

enum { kRanks = 4, kTimeoutMs = 2000, kMicrobatches = 6, kElements = 5000 };

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Stages that hand on what they get. */
typedef struct {
  int size, runs, lost_stage, lost_microbatch, in_forward, signal_number;
  pthread_barrier_t* meet; /* the first stage waits there */
} stage_t;

/* In place of a signal: this thread computes for ever, others go on; or the callback fails. */
enum { kHang = -1, kFail = -2 };

static nxd_status_t maybe_fail(const stage_t* s, const nxd_pp_call_t* call, int forward) {
  if (s->runs != 1 || forward != s->in_forward || call->stage != s->lost_stage ||
      call->microbatch != s->lost_microbatch)
    return NXD_OK;
  if (s->signal_number == kFail) {
    nxd_set_last_error(NXD_ERROR_USER, "no batch is left");
    return NXD_ERROR_USER;
  }
  while (s->signal_number == kHang) pause();
  if (s->signal_number) raise(s->signal_number);
  return NXD_OK;
}

static void pass(DLTensor* const* from, DLTensor* const* to) {
  memcpy(to[0]->data, from[0]->data, kElements * sizeof(float));
}

static nxd_status_t forward(const nxd_pp_call_t* call, DLTensor* const* in, DLTensor* const* out,
                            double* loss, void* data) {
  stage_t* s = data;
  const nxd_status_t status = maybe_fail(s, call, 1);
  if (status != NXD_OK) return status;
  if (s->meet && call->stage == 0) {
    pthread_barrier_wait(s->meet);
    s->meet = NULL;
  }
  if (loss) {
    *loss = 1;
  } else if (call->stage == 0) {
    for (int i = 0; i < kElements; ++i) ((float*)out[0]->data)[i] = (float)i;
  } else {
    pass(in, out);
  }
  return NXD_OK;
}

static nxd_status_t backward(const nxd_pp_call_t* call, DLTensor* const* in,
                             DLTensor* const* grad_out, DLTensor* const* grad_in, void* data) {
  const stage_t* s = data;
  const nxd_status_t status = maybe_fail(s, call, 0);
  if (status != NXD_OK) return status;
  if (call->stage > 0) pass(call->stage + 1 < s->size ? grad_out : in, grad_in);
  return NXD_OK;
}

static nxd_status_t create(nxd_context_t* ctx, int rank, int size, stage_t* stage,
                           nxd_pp_t** out_pp) {
  stage->size = size;
  nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
  layout.pipeline_parallel_size = size;
  nxd_status_t status = nxd_init_model_parallel(ctx, &layout);
  if (status != NXD_OK) return status;
  static const int64_t shape[] = {kElements};
  const nxd_pp_value_t value = {"h", shape, 1, NXD_DTYPE_F32, 1, 0};
  const size_t n_inputs = rank > 0, n_outputs = rank < size - 1;
  const nxd_pp_stage_callbacks_t callbacks = {sizeof callbacks, stage, NULL, forward,
                                              backward,         NULL,  NULL};
  nxd_pp_callbacks_options_t options = NXD_PP_CALLBACKS_OPTIONS_INIT;
  options.num_microbatches = kMicrobatches;
  return nxd_pp_create_callbacks(ctx, &options, &value, &n_inputs, &value, &n_outputs, &callbacks,
                                 out_pp);
}

/* The message of a rank next to the lost one names it as whom the task waited for, the others'
 * the rank in between; all name the lost one as the cause. */
static int says_all(const char* message, int rank, int lost) {
  char peer[2][48], own[48], cause[32];
  snprintf(peer[0], sizeof peer[0], "stage %d (world rank %d)", rank - 1, rank - 1);
  snprintf(peer[1], sizeof peer[1], "stage %d (world rank %d)", rank + 1, rank + 1);
  snprintf(own, sizeof own, "rank %d of the pipeline, world rank %d", rank, rank);
  snprintf(cause, sizeof cause, "rank %d ", lost);
  const int task = strstr(message, "of microbatch ") && strstr(message, "stage ");
  const int verb = strstr(message, "waited for ") || strstr(message, "were not taken by ");
  return task && verb && strstr(message, own) && strstr(message, cause) &&
         (strstr(message, peer[0]) || strstr(message, peer[1]));
}

static int run_child(nxd_context_t* ctx, int rank, stage_t* stage) {
  nxd_pp_t* pp = NULL;
  if (create(ctx, rank, kRanks, stage, &pp) != NXD_OK) return 3;
  if (nxd_pp_run(pp, 1, NULL) != NXD_OK) return 4;
  stage->runs = 1;
  const double start = now_ms();
  const nxd_status_t status = nxd_pp_run(pp, 1, NULL);
  const double took = now_ms() - start;
  nxd_error_info_t info = {.struct_size = sizeof info};
  nxd_last_error_info(&info);
  const int good = (status == NXD_ERROR_PEER_LOST || status == NXD_ERROR_TIMEOUT) &&
                   info.root_rank == stage->lost_stage && took < 2 * kTimeoutMs &&
                   says_all(nxd_last_error(), rank, stage->lost_stage);
  if (!good || getenv("NXD_TEST_VERBOSE"))
    fprintf(stderr, "rank %d: status %d, root rank %d after %.0f ms: %s\n", rank, status,
            info.root_rank, took, nxd_last_error());
  /* The group does not run again, and says so at once. */
  const int repeats = nxd_pp_run(pp, 1, NULL) == status;
  nxd_pp_destroy(pp);
  return !good ? 5 : repeats ? 0 : 6;
}

static int child(const char* part) {
  stage_t stage = {0};
  if (sscanf(part, "%d %d %d %d", &stage.signal_number, &stage.lost_stage, &stage.lost_microbatch,
             &stage.in_forward) != 4)
    return 2;
  const char* per_host = getenv("NXD_TEST_RANKS_PER_HOST");
  char host[32];
  if (per_host) {
    snprintf(host, sizeof host, "host%d", atoi(getenv("RANK")) / atoi(per_host));
    setenv("NXD_HOST_ID", host, 1);
  }
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = kTimeoutMs;
  nxd_context_t* ctx = NULL;
  if (nxd_context_create(&options, &ctx) != NXD_OK) return 20;
  const int code = run_child(ctx, atoi(getenv("RANK")), &stage);
  if (code) fprintf(stderr, "rank %s: %d: %s\n", getenv("RANK"), code, nxd_last_error());
  nxd_context_destroy(ctx);
  return code;
}

/* All ranks but the lost one must end with 0. */
static void run_part(int signal_number, int stage, int microbatch, int in_forward) {
  char part[64];
  snprintf(part, sizeof part, "%d %d %d %d", signal_number, stage, microbatch, in_forward);
  nxd_test_run_part(part, kRanks, stage, signal_number == SIGKILL ? 128 + SIGKILL : kNxdTestStopped,
                    60);
}

static void killed(void** state) {
  (void)state;
  run_part(SIGKILL, 2, 3, 1);
  run_part(SIGKILL, 3, 0, 0);
  run_part(SIGKILL, 0, 0, 0);
}

static void stopped(void** state) {
  (void)state;
  run_part(SIGSTOP, 1, 2, 1);
  run_part(kHang, 2, 1, 0);
}

/* --- Ranks as threads ----------------------------------------------------------------------- */

static pthread_barrier_t meet;
static atomic_int impatient;

static _Thread_local int own_rank = -1;

static nxd_status_t ask(void* unused) {
  (void)unused;
  return own_rank == 1 && atomic_load(&impatient) ? NXD_ERROR_USER : NXD_OK;
}

static void* lose_patience(void* unused) {
  usleep(50000);
  atomic_store(&impatient, 1);
  return unused;
}

/* Rank 1 waits for rank 0, which computes until rank 1 has given up. */
static void interrupting(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  own_rank = rank;
  stage_t stage = {.meet = &meet};
  nxd_pp_t* pp = NULL;
  if (!NXD_TEST_OK(create(ctx, rank, size, &stage, &pp))) return;
  if (rank == 1) {
    pthread_t thread;
    pthread_create(&thread, NULL, lose_patience, NULL);
    NXD_TEST_REFUSED(nxd_pp_run(pp, 1, NULL), NXD_ERROR_USER, "waited for values from stage 0");
    pthread_join(thread, NULL);
    atomic_store(&impatient, 0);
    pthread_barrier_wait(&meet);
  } else {
    const nxd_status_t status = nxd_pp_run(pp, 1, NULL);
    NXD_TEST_CHECK(status == NXD_ERROR_PEER_LOST || status == NXD_ERROR_USER);
    NXD_TEST_CHECK(strstr(nxd_last_error(), "rank 1") != NULL);
  }
  nxd_pp_destroy(pp);
}

static void interrupted(void** state) {
  (void)state;
  pthread_barrier_init(&meet, NULL, 2);
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  options.interrupt = ask;
  nxd_test_run_ranks_with(&options, 2, 0, interrupting, NULL);
  pthread_barrier_destroy(&meet);
}

static void saying_why(nxd_context_t* ctx, int rank, int size, void* arg) {
  stage_t stage = *(const stage_t*)arg;
  nxd_pp_t* pp = NULL;
  if (!NXD_TEST_OK(create(ctx, rank, size, &stage, &pp))) return;
  NXD_TEST_REFUSED(nxd_pp_run(pp, 1, NULL), NXD_ERROR_USER, "callback: no batch is left");
  NXD_TEST_CHECK(strstr(nxd_last_error(), "of microbatch 2 in stage 1") != NULL);
  nxd_pp_destroy(pp);
}

/* The failing rank and its peers have the callback's own words. */
static void said(void** state) {
  (void)state;
  for (int in_forward = 0; in_forward < 2; ++in_forward) {
    stage_t stage = {.runs = 1,
                     .lost_stage = 1,
                     .lost_microbatch = 2,
                     .in_forward = in_forward,
                     .signal_number = kFail};
    nxd_test_run_ranks(3, 0, saying_why, &stage);
  }
}

int main(void) {
  const char* part = getenv("NXD_TEST_PART");
  if (part) return child(part);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(killed),
      cmocka_unit_test(stopped),
      cmocka_unit_test(interrupted),
      cmocka_unit_test(said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Two fibers of one thread have a group each. The interrupt callback lets the other fiber run, so
 * that calls of the thread begin and end in any order. */
#include <stdlib.h>
#include <ucontext.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

enum { kSums = 20, kStack = 1 << 19 };

typedef struct {
  ucontext_t fibers[2], thread;
  int current;
  int has_ended[2];
  nxd_group_t* groups[2];
  int rank;
} fibers_t;

static _Thread_local fibers_t* own;
static _Atomic int switches; /* of both ranks: one may never have to wait */

static void let_run(fibers_t* f, int which) {
  const int from = f->current;
  f->current = which;
  ++switches;
  swapcontext(&f->fibers[from], &f->fibers[which]);
}

static nxd_status_t interrupt(void* user_data) {
  (void)user_data;
  fibers_t* f = own;
  if (f && !f->has_ended[1 - f->current]) let_run(f, 1 - f->current);
  return NXD_OK;
}

static void run_fiber(int which) {
  fibers_t* f = own;
  for (int i = 0; i < kSums; ++i) {
    const float value = (float)(f->rank + i + 100 * which);
    float out = 0;
    if (!NXD_TEST_OK(
            nxd_all_reduce(f->groups[which], &value, &out, 1, NXD_DTYPE_F32, NXD_REDUCE_SUM)))
      break;
    NXD_TEST_CHECK(out == (float)(1 + 2 * i + 200 * which));
  }
  f->has_ended[which] = 1;
  if (!f->has_ended[1 - which]) {
    f->current = 1 - which;
    setcontext(&f->fibers[1 - which]);
  }
  setcontext(&f->thread);
}

static void make_fiber(fibers_t* f, int which) {
  ucontext_t* fiber = &f->fibers[which];
  getcontext(fiber);
  fiber->uc_stack.ss_sp = malloc(kStack);
  fiber->uc_stack.ss_size = kStack;
  makecontext(fiber, (void (*)(void))run_fiber, 1, which);
}

static void body(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  const int32_t ranks[] = {0, 1};
  fibers_t f = {.rank = rank, .current = rank}; /* the ranks begin with different fibers */
  for (int i = 0; i < 2; ++i) {
    NXD_TEST_OK(nxd_group_create(ctx, ranks, (size_t)size, "fiber's", &f.groups[i]));
    make_fiber(&f, i);
  }
  own = &f;
  swapcontext(&f.thread, &f.fibers[f.current]);
  own = NULL;
  NXD_TEST_CHECK(f.has_ended[0] && f.has_ended[1]);
  for (int i = 0; i < 2; ++i) {
    nxd_group_destroy(f.groups[i]);
    free(f.fibers[i].uc_stack.ss_sp);
  }
}

static void test_two_fibers(void** state) {
  (void)state;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  options.interrupt = interrupt;
  nxd_test_run_ranks_with(&options, 2, 0, body, NULL);
  assert_true(switches > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_fibers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

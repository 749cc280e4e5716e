/* Drawn programs of collectives and messages over drawn groups, which overlap and come and go, on
 * one to five ranks: every result is compared with the same computation on one rank. Calls wait or
 * do not, buffers lie in an arena or on the heap, and now and then a rank makes a call that its
 * peers do not. NXD_TEST_SEED draws other programs, NXD_LONG=1 longer ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/ranks.h"

enum { kMostRanks = 5, kGroups = 6, kPending = 6 };

enum { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll, kBarrier, kMessage, kKinds };
static const char* const names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                    "all_to_all", "barrier",    "message"};

/* The ways in which one rank's call is not that of its peers. */
enum { kNoSlip, kNullBuffer, kBadDtype, kOtherCount, kOtherKey, kOverlap, kRejects, kSlips };

/* A step of the program. All ranks draw the same. */
typedef struct {
  uint64_t id;
  int kind, slot;
  nxd_dtype_t dtype;
  nxd_reduce_t reduce;
  size_t count;
  int in_place;
  int root, to, tag; /* of a message, root sends */
  int slip, culprit; /* places in the group */
} step_t;

/* A call of this rank that may be under way. */
typedef struct {
  step_t step;
  nxd_work_t* work;
  int size, place;
  int32_t ranks[kMostRanks];
  char *send, *receive, *memory;
  size_t bytes;
  int in_arena;
} call_t;

typedef struct {
  nxd_context_t* ctx;
  int rank, size;
  uint64_t program, own; /* states of the draws: of all ranks, and of this one */
  nxd_group_t* groups[kGroups];
  int32_t members[kGroups][kMostRanks];
  int sizes[kGroups];
  call_t pending[kPending];
  int n_pending;
} rank_t;

static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static uint64_t draw(uint64_t* state) { return mix(*state += 0x9e3779b97f4a7c15u); }
static int below(uint64_t* state, int n) { return (int)(draw(state) % (uint64_t)n); }

static int is_float(nxd_dtype_t dtype) { return dtype <= NXD_DTYPE_F16; }

static size_t size_of(nxd_dtype_t dtype) {
  static const size_t sizes[] = {4, 8, 2, 2, 4, 8, 1, 1, 2, 1};
  return sizes[dtype];
}

/* --- Elements: small integers, whose sums and products every dtype holds, and some NaN ---------
 */

/* The bits of a 16-bit float with so many of mantissa; of an integer that it holds, or NaN. */
static uint16_t encode16(double value, int mantissa) {
  const int bias = (1 << (14 - mantissa)) - 1;
  if (isnan(value)) return (uint16_t)(0x7fff - (1 << (mantissa - 1)) + 1);
  if (value == 0) return 0;
  const uint32_t whole = (uint32_t)fabs(value);
  int exponent = 0;
  while (whole >> (exponent + 1)) ++exponent;
  const uint32_t part = (whole - (1u << exponent)) << mantissa >> exponent;
  return (uint16_t)((value < 0 ? 0x8000u : 0) | (uint32_t)(exponent + bias) << mantissa | part);
}

static double decode16(uint16_t bits, int mantissa) {
  const int bias = (1 << (14 - mantissa)) - 1, field = (bits & 0x7fff) >> mantissa;
  if (field == 2 * bias + 1) return NAN;
  if (field == 0) return 0;
  const double value =
      ldexp(1.0 + (bits & ((1 << mantissa) - 1)) / (double)(1 << mantissa), field - bias);
  return bits & 0x8000 ? -value : value;
}

static void store(char* data, size_t i, nxd_dtype_t dtype, double value) {
  switch (dtype) {
    case NXD_DTYPE_F32: ((float*)data)[i] = (float)value; break;
    case NXD_DTYPE_F64: ((double*)data)[i] = value; break;
    case NXD_DTYPE_BF16: ((uint16_t*)data)[i] = encode16(value, 7); break;
    case NXD_DTYPE_F16: ((uint16_t*)data)[i] = encode16(value, 10); break;
    case NXD_DTYPE_I32: ((int32_t*)data)[i] = (int32_t)value; break;
    case NXD_DTYPE_I64: ((int64_t*)data)[i] = (int64_t)value; break;
    case NXD_DTYPE_I16: ((int16_t*)data)[i] = (int16_t)value; break;
    case NXD_DTYPE_BOOL: data[i] = value > 0; break;
    default: data[i] = (char)(int)value;
  }
}

static double load(const char* data, size_t i, nxd_dtype_t dtype) {
  switch (dtype) {
    case NXD_DTYPE_F32: return ((const float*)data)[i];
    case NXD_DTYPE_F64: return ((const double*)data)[i];
    case NXD_DTYPE_BF16: return decode16(((const uint16_t*)data)[i], 7);
    case NXD_DTYPE_F16: return decode16(((const uint16_t*)data)[i], 10);
    case NXD_DTYPE_I32: return ((const int32_t*)data)[i];
    case NXD_DTYPE_I64: return (double)((const int64_t*)data)[i];
    default: return 0;
  }
}

/* Element i of what a place sends. */
static double element(const step_t* step, int place, size_t i, int size) {
  const uint64_t bits = mix(step->id * 1000003u + (uint64_t)place * 8191u + i);
  const int reduces = step->kind == kAllReduce || step->kind == kReduceScatter;
  if (reduces && is_float(step->dtype) && bits % 211 == 0) return NAN;
  if (!reduces) return (double)(bits % 251) - (step->dtype == NXD_DTYPE_U8 ? 0 : 125);
  if (step->reduce == NXD_REDUCE_PROD) return (bits & 1 ? -1.0 : 1.0) * (bits & 2 ? 2 : 1);
  const double value = (double)(bits % 7) - 3;
  return step->reduce == NXD_REDUCE_AVG ? value * size : value;
}

static double combine(double a, double b, nxd_reduce_t reduce) {
  if (isnan(a) || isnan(b)) return NAN;
  switch (reduce) {
    case NXD_REDUCE_MAX: return a > b ? a : b;
    case NXD_REDUCE_MIN: return a < b ? a : b;
    case NXD_REDUCE_PROD: return a * b;
    default: return a + b;
  }
}

static double reduced(const step_t* step, size_t i, int size) {
  double value = element(step, 0, i, size);
  for (int place = 1; place < size; ++place)
    value = combine(value, element(step, place, i, size), step->reduce);
  return step->reduce == NXD_REDUCE_AVG ? value / size : value;
}

/* --- A call's buffers ------------------------------------------------------------------------- */

static size_t parts_sent(const step_t* step, int size) {
  return step->kind == kReduceScatter || step->kind == kAllToAll ? (size_t)size : 1;
}
static size_t parts_received(const step_t* step, int size) {
  return step->kind == kAllGather || step->kind == kAllToAll ? (size_t)size : 1;
}

/* Sent elements, received ones, and a byte behind each for an overlap. */
static void make_buffers(rank_t* self, call_t* call) {
  const step_t* step = &call->step;
  const size_t part = step->count * size_of(step->dtype);
  const size_t sent = part * parts_sent(step, call->size);
  const size_t received = part * parts_received(step, call->size);
  call->bytes = sent + received + 64;
  call->in_arena = below(&self->own, 2);
  void* memory = NULL;
  if (call->in_arena) {
    NXD_TEST_OK(nxd_arena_alloc(self->ctx, call->bytes, &memory));
  } else {
    memory = malloc(call->bytes);
  }
  call->memory = memory;
  memset(call->memory, 0x5a, call->bytes);
  const size_t own = part * (size_t)call->place;
  const size_t gap = (sent + 15) / 16 * 16;
  call->send = call->memory;
  call->receive = call->memory + gap;
  const int shares = step->kind == kBroadcast || step->kind == kMessage;
  if (shares) call->receive = call->send;
  if (step->in_place && step->kind == kAllReduce) call->receive = call->send;
  if (step->in_place && step->kind == kReduceScatter) call->receive = call->send + own;
  if (step->in_place && step->kind == kAllGather) call->send = call->receive + own;
  if (shares && call->place != step->root) return;
  for (size_t i = 0; i < step->count * parts_sent(step, call->size); ++i)
    store(call->send, i, step->dtype, element(step, call->place, i, call->size));
}

static void free_buffers(rank_t* self, call_t* call) {
  if (call->in_arena) {
    NXD_TEST_OK(nxd_arena_free(self->ctx, call->memory));
  } else {
    free(call->memory);
  }
}

static void wrong(const call_t* call, size_t i, const char* what) {
  const step_t* s = &call->step;
  nxd_test_fail(__FILE__, __LINE__,
                "step %llu: %s%s of %zu, dtype %d, reduce %d, place %d of %d, element %zu: %s",
                (unsigned long long)s->id, names[s->kind], s->in_place ? " in place" : "", s->count,
                s->dtype, s->reduce, call->place, call->size, i, what);
}

static int check_reduced(const call_t* call) {
  const step_t* step = &call->step;
  const size_t first = step->kind == kReduceScatter ? step->count * (size_t)call->place : 0;
  for (size_t i = 0; i < step->count; ++i) {
    const double want = reduced(step, first + i, call->size);
    const double got = load(call->receive, i, step->dtype);
    if (got == want || (isnan(got) && isnan(want))) continue;
    wrong(call, i, "another value");
    return 0;
  }
  return 1;
}

/* Copies, byte by byte. */
static int check_copied(const call_t* call) {
  const step_t* step = &call->step;
  const int shares = step->kind == kBroadcast || step->kind == kMessage;
  const size_t item = size_of(step->dtype);
  char want[8];
  for (size_t i = 0; i < step->count * parts_received(step, call->size); ++i) {
    const size_t part = step->count ? i / step->count : 0, at = i - part * step->count;
    const size_t from = step->kind == kAllToAll ? step->count * (size_t)call->place + at : at;
    const int place = shares ? step->root : (int)part;
    store(want, 0, step->dtype, element(step, place, from, call->size));
    if (memcmp(call->receive + i * item, want, item) == 0) continue;
    wrong(call, i, "another value");
    return 0;
  }
  return 1;
}

static void check_result(const call_t* call) {
  const step_t* step = &call->step;
  if (step->slip != kNoSlip) {
    /* A buffer that only receives is as it was. */
    const int receives = call->receive != call->send && !step->in_place;
    const size_t bytes = step->count * size_of(step->dtype) * parts_received(step, call->size);
    for (size_t i = 0; receives && i < bytes; ++i) {
      if (call->receive[i] == 0x5a) continue;
      wrong(call, i, "written although the call was rejected");
      return;
    }
  } else if (step->kind == kAllReduce || step->kind == kReduceScatter) {
    check_reduced(call);
  } else if (step->kind != kBarrier) {
    check_copied(call);
  }
}

/* --- Calls ------------------------------------------------------------------------------------ */

static nxd_status_t start(nxd_group_t* group, const call_t* call, const step_t* s, const char* send,
                          char* receive, int waits, nxd_work_t** work) {
  const size_t n = s->count;
  const nxd_dtype_t t = s->dtype;
  switch (s->kind) {
    case kAllReduce:
      return waits ? nxd_all_reduce(group, send, receive, n, t, s->reduce)
                   : nxd_all_reduce_async(group, send, receive, n, t, s->reduce, work);
    case kAllGather:
      return waits ? nxd_all_gather(group, send, receive, n, t)
                   : nxd_all_gather_async(group, send, receive, n, t, work);
    case kReduceScatter:
      return waits ? nxd_reduce_scatter(group, send, receive, n, t, s->reduce)
                   : nxd_reduce_scatter_async(group, send, receive, n, t, s->reduce, work);
    case kBroadcast:
      return waits ? nxd_broadcast(group, receive, n, t, s->root)
                   : nxd_broadcast_async(group, receive, n, t, s->root, work);
    case kAllToAll:
      return waits ? nxd_all_to_all(group, send, receive, n, t)
                   : nxd_all_to_all_async(group, send, receive, n, t, work);
    case kBarrier: return waits ? nxd_barrier(group) : nxd_barrier_async(group, work);
    default: break;
  }
  if (call->place == s->root) {
    return waits ? nxd_send(group, send, n, t, s->to, s->tag)
                 : nxd_send_async(group, send, n, t, s->to, s->tag, work);
  }
  return waits ? nxd_receive(group, receive, n, t, s->root, s->tag)
               : nxd_receive_async(group, receive, n, t, s->root, s->tag, work);
}

/* The call of the rank that errs. */
static nxd_status_t start_wrong(nxd_group_t* group, const call_t* call, int waits,
                                nxd_work_t** work) {
  step_t wrong_step = call->step;
  const char* send = call->send;
  char* receive = call->receive;
  const char* name = names[call->step.kind];
  const int is_message = call->step.kind == kMessage, sends = call->place == call->step.root;
  const int peer = sends ? call->step.to : call->step.root;
  switch (call->step.slip) {
    case kNullBuffer: send = receive = NULL; break;
    case kBadDtype: wrong_step.dtype = 77; break;
    case kOtherCount: ++wrong_step.count; break;
    case kOtherKey: NXD_TEST_OK(nxd_group_set_next_key(group, call->step.id + 1)); break;
    case kOverlap: receive = call->send + 1; break;
    default:
      if (is_message) name = sends ? "send" : "receive";
      return waits ? nxd_group_reject(group, name, peer, call->step.tag, "drawn")
                   : nxd_group_reject_async(group, name, peer, call->step.tag, "drawn", work);
  }
  return start(group, call, &wrong_step, send, receive, waits, work);
}

static void check_end(rank_t* self, call_t* call, nxd_status_t status) {
  const nxd_status_t expected = call->step.slip != kNoSlip ? NXD_ERROR_INVALID_ARGUMENT : NXD_OK;
  if (status != expected) {
    wrong(call, 0, nxd_status_string(status));
    nxd_test_fail(__FILE__, __LINE__, "%s",
                  status == NXD_OK ? "expected an error" : nxd_last_error());
  } else {
    check_result(call);
  }
  free_buffers(self, call);
}

/* Waits for one of the calls under way, and takes it out. */
static void finish(rank_t* self, int i) {
  call_t call = self->pending[i];
  self->pending[i] = self->pending[--self->n_pending];
  int32_t done = 0;
  if (below(&self->own, 4) == 0) NXD_TEST_OK(nxd_work_test(call.work, &done));
  const nxd_status_t status = nxd_work_wait(call.work, -1);
  check_end(self, &call, status);
  nxd_work_destroy(call.work);
}

static void finish_all_of(rank_t* self, int slot) {
  for (int i = self->n_pending - 1; i >= 0; --i)
    if (slot < 0 || self->pending[i].step.slot == slot) finish(self, i);
}

static int place_in(const rank_t* self, int slot) {
  for (int i = 0; i < self->sizes[slot]; ++i)
    if (self->members[slot][i] == self->rank) return i;
  return -1;
}

static void run_step(rank_t* self, const step_t* step) {
  call_t call = {
      .step = *step, .size = self->sizes[step->slot], .place = place_in(self, step->slot)};
  if (call.place < 0) return;
  if (step->kind == kMessage && call.place != step->root && call.place != step->to) return;
  if (self->n_pending == kPending) finish(self, below(&self->own, kPending));
  make_buffers(self, &call);
  const int waits = below(&self->own, 2);
  nxd_group_t* group = self->groups[step->slot];
  const int errs = step->slip != kNoSlip && call.place == step->culprit;
  const nxd_status_t status =
      errs ? start_wrong(group, &call, waits, &call.work)
           : start(group, &call, step, call.send, call.receive, waits, &call.work);
  if (waits) {
    check_end(self, &call, status);
  } else if (NXD_TEST_OK(status)) {
    self->pending[self->n_pending++] = call;
  }
  while (self->n_pending > 0 && below(&self->own, 3) == 0)
    finish(self, below(&self->own, self->n_pending));
}

/* --- Programs --------------------------------------------------------------------------------- */

/* Another group takes the slot; its members make it together. */
static void make_group(rank_t* self) {
  const int slot = 1 + below(&self->program, kGroups - 1);
  if (self->groups[slot]) {
    finish_all_of(self, slot);
    nxd_group_destroy(self->groups[slot]);
    self->groups[slot] = NULL;
  }
  int32_t all[kMostRanks];
  for (int r = 0; r < self->size; ++r) all[r] = r;
  for (int r = self->size - 1; r > 0; --r) {
    const int other = below(&self->program, r + 1);
    const int32_t kept = all[r];
    all[r] = all[other];
    all[other] = kept;
  }
  self->sizes[slot] = 1 + below(&self->program, self->size);
  memcpy(self->members[slot], all, sizeof all);
  if (place_in(self, slot) < 0) return;
  NXD_TEST_OK(nxd_group_create(self->ctx, self->members[slot], (size_t)self->sizes[slot], "drawn",
                               &self->groups[slot]));
}

static size_t draw_count(uint64_t* state) {
  static const size_t counts[] = {0,   1,   2,    3,    7,    13,   28,    56,    57,   64,
                                  127, 500, 1023, 2049, 4096, 8191, 16385, 33000, 70001};
  const int few = (int)(sizeof counts / sizeof *counts) - 4;
  return counts[below(state, below(state, 6) ? few : few + 4)];
}

static void draw_slip(rank_t* self, step_t* step, int size) {
  if (size < 2 || below(&self->program, 8) != 0) return;
  step->slip = 1 + below(&self->program, kSlips - 1);
  step->culprit = below(&self->program, size);
  if (step->kind == kMessage && step->culprit % 2) step->culprit = step->to;
  if (step->kind == kMessage && step->culprit != step->to) step->culprit = step->root;
  const int has_data = step->kind != kBarrier;
  const int has_two = step->kind != kBroadcast && step->kind != kMessage && has_data;
  if (!has_data && step->slip != kOtherKey) step->slip = kRejects;
  if (step->slip == kNullBuffer && step->count == 0) step->slip = kBadDtype;
  if (step->slip == kOverlap && (!has_two || step->count * size_of(step->dtype) < 2)) {
    step->slip = kOtherKey;
  }
}

static step_t draw_step(rank_t* self, uint64_t id) {
  static const nxd_dtype_t reducible[] = {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16,
                                          NXD_DTYPE_F16, NXD_DTYPE_I32, NXD_DTYPE_I64};
  uint64_t* const state = &self->program;
  step_t step = {.id = id, .kind = below(state, kKinds), .slot = below(state, kGroups)};
  while (self->sizes[step.slot] == 0) step.slot = below(state, kGroups);
  const int size = self->sizes[step.slot];
  if (step.kind == kMessage && size == 1) step.kind = kAllReduce;
  const int reduces = step.kind == kAllReduce || step.kind == kReduceScatter;
  step.dtype = reduces ? reducible[below(state, 6)] : below(state, NXD_DTYPE_BOOL + 1);
  step.reduce = below(state, NXD_REDUCE_PROD + 1);
  if (step.reduce == NXD_REDUCE_AVG && !is_float(step.dtype)) step.reduce = NXD_REDUCE_SUM;
  step.count = draw_count(state);
  step.in_place = below(state, 2);
  step.root = below(state, size);
  step.to = (step.root + 1 + (size > 1 ? below(state, size - 1) : 0)) % size;
  step.tag = below(state, 3);
  draw_slip(self, &step, size);
  return step;
}

static int number_of(const char* variable, int otherwise) {
  const char* value = getenv(variable);
  return value ? atoi(value) : otherwise;
}

static void run_program(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  const uint64_t seed = (uint64_t)number_of("NXD_TEST_SEED", 1);
  rank_t* self = calloc(1, sizeof *self);
  *self = (rank_t){.ctx = ctx, .rank = rank, .size = size};
  self->program = mix(seed) + (uint64_t)size;
  self->own = mix(seed + 77) + (uint64_t)rank;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &self->groups[0]));
  self->sizes[0] = size;
  for (int r = 0; r < size; ++r) self->members[0][r] = r;
  const int steps = number_of("NXD_LONG", 0) ? 5000 : 250;
  const int before = nxd_test_failures();
  for (int i = 0; i < steps && nxd_test_failures() == before; ++i) {
    if (i % 25 == 1) make_group(self);
    const step_t step = draw_step(self, (uint64_t)i);
    run_step(self, &step);
  }
  if (nxd_test_failures() != before) nxd_context_abort(ctx); /* the peers may wait for this rank */
  finish_all_of(self, -1);
  for (int slot = 1; slot < kGroups; ++slot) nxd_group_destroy(self->groups[slot]);
  if (nxd_test_failures() == before) NXD_TEST_OK(nxd_context_finalize(ctx));
  free(self);
}

#define PROGRAMS(name, ranks)                        \
  static void name(void** state) {                   \
    (void)state;                                     \
    nxd_test_run_ranks(ranks, 0, run_program, NULL); \
  }
PROGRAMS(test_one, 1)
PROGRAMS(test_two, 2)
PROGRAMS(test_three, 3)
PROGRAMS(test_four, 4)
PROGRAMS(test_five, 5)

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_one), cmocka_unit_test(test_two),
                                     cmocka_unit_test(test_three), cmocka_unit_test(test_four),
                                     cmocka_unit_test(test_five)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

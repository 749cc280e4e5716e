/* One rank of a fault run. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/fault.h"
#include "support/resource_snapshot.h"

enum { kSmall = 16, kLarge = 1 << 18, kMore = 4, kRecoveryMs = 30000 };

typedef struct {
  nxd_group_t* group;
  int32_t size, place;
  const char* name;
} member_t;

enum { kTensor, kData, kPipeline, kWorld, kGroups };

static fault_cell_t cell;
static int own_rank, report_fd;
static nxd_context_t* context;
static member_t members[kGroups];
static float *send_data, *recv_data;
static double call_started;
static const char* call_group;

/* --- Reports -------------------------------------------------------------------------------- */

static void put_report(fault_report_t* report) {
  report->rank = own_rank;
  report->at_ms = fault_now_ms();
  /* Shorter than what a pipe takes in one piece. */
  if (write(report_fd, report, sizeof *report) != sizeof *report) _exit(90);
}

static void put_event(int event, int64_t number) {
  fault_report_t report = {.event = event, .number = {number, 0, 0}};
  put_report(&report);
}

static void put_failure(int event, nxd_status_t status, const char* what) {
  nxd_error_info_t info = {.struct_size = sizeof info};
  nxd_last_error_info(&info);
  fault_report_t report = {.event = event, .status = status, .root_rank = info.root_rank};
  report.call_ms = fault_now_ms() - call_started;
  snprintf(report.operation, sizeof report.operation, "%s", info.operation);
  snprintf(report.group, sizeof report.group, "%s", call_group ? call_group : "");
  snprintf(report.message, sizeof report.message, "%s: %s", what, nxd_last_error());
  put_report(&report);
}

static int check(nxd_status_t status, const char* what) {
  if (status == NXD_OK) return 1;
  put_failure(kReportWrong, status, what);
  return 0;
}

/* Until the driver says so. */
static void await(nxd_store_t* store, const char* key) {
  char word[8];
  size_t size = 0;
  check(nxd_store_get(store, key, kRecoveryMs, word, sizeof word, &size), key);
}

/* --- The end ------------------------------------------------------------------------------- */

/* A thread that was joined leaves its directory a moment later. */
static void report_end(const resource_snapshot_t* before) {
  fault_report_t report = {.event = kReportEnd};
  for (int i = 0; i < 200; ++i) {
    const resource_snapshot_t now = resource_snapshot();
    report.number[0] = now.threads - before->threads;
    report.number[1] = now.descriptors - before->descriptors;
    report.number[2] = now.mappings - before->mappings;
    if (!report.number[0] && !report.number[1] && !report.number[2]) break;
    usleep(10000);
  }
  put_report(&report);
}

/* --- The collectives ------------------------------------------------------------------------ */

static size_t elements(void) { return cell.large ? kLarge : kSmall; }

/* Even places send first, so that the ring moves whatever its length. */
static nxd_status_t message(const member_t* m, size_t n, nxd_dtype_t dtype) {
  const int32_t to = (m->place + 1) % m->size, from = (m->place + m->size - 1) % m->size;
  nxd_status_t status = NXD_OK;
  for (int step = 0; step < 2 && status == NXD_OK; ++step) {
    status = (m->place + step) % 2 == 0 ? nxd_send(m->group, send_data, n, dtype, to, 7)
                                        : nxd_receive(m->group, recv_data, n, dtype, from, 7);
  }
  return status;
}

static nxd_status_t call(int kind, const member_t* m, size_t n, nxd_dtype_t dtype, int32_t root) {
  const size_t part = n / (size_t)m->size;
  switch (kind) {
    case kFaultAllReduce:
      return nxd_all_reduce(m->group, send_data, recv_data, n, dtype, NXD_REDUCE_SUM);
    case kFaultAllGather: return nxd_all_gather(m->group, send_data, recv_data, part, dtype);
    case kFaultReduceScatter:
      return nxd_reduce_scatter(m->group, send_data, recv_data, part, dtype, NXD_REDUCE_SUM);
    case kFaultBroadcast: return nxd_broadcast(m->group, recv_data, n, dtype, root);
    case kFaultAllToAll: return nxd_all_to_all(m->group, send_data, recv_data, part, dtype);
    case kFaultMessage: return message(m, n, dtype);
    default: return nxd_barrier(m->group);
  }
}

/* The culprit's part, without waiting. It has the sending half of a message: its peer receives. */
static nxd_status_t start(int kind, const member_t* m, nxd_work_t** work) {
  const size_t n = elements(), part = n / (size_t)m->size;
  const nxd_dtype_t f32 = NXD_DTYPE_F32;
  switch (kind) {
    case kFaultAllReduce:
      return nxd_all_reduce_async(m->group, send_data, recv_data, n, f32, NXD_REDUCE_SUM, work);
    case kFaultAllGather:
      return nxd_all_gather_async(m->group, send_data, recv_data, part, f32, work);
    case kFaultReduceScatter:
      return nxd_reduce_scatter_async(m->group, send_data, recv_data, part, f32, NXD_REDUCE_SUM,
                                      work);
    case kFaultBroadcast: return nxd_broadcast_async(m->group, recv_data, n, f32, 0, work);
    case kFaultAllToAll:
      return nxd_all_to_all_async(m->group, send_data, recv_data, part, f32, work);
    case kFaultMessage:
      return nxd_send_async(m->group, send_data, n, f32, (m->place + 1) % m->size, 7, work);
    default: return nxd_barrier_async(m->group, work);
  }
}

/* Rank i contributes i + 1 throughout. */
static int is_right(int kind, const member_t* m, size_t n) {
  const size_t size = (size_t)m->size, part = n / size;
  const float sum = (float)(m->size * (m->size + 1) / 2);
  switch (kind) {
    case kFaultAllReduce: return recv_data[0] == sum && recv_data[n - 1] == sum;
    case kFaultReduceScatter: return recv_data[0] == sum && recv_data[part - 1] == sum;
    case kFaultBroadcast: return recv_data[0] == 1 && recv_data[n - 1] == 1;
    case kFaultMessage: {
      const float from = (float)((m->place + m->size - 1) % m->size + 1);
      return recv_data[0] == from && recv_data[n - 1] == from;
    }
    case kFaultAllGather:
    case kFaultAllToAll:
      for (size_t i = 0; i < size; ++i) {
        const float want = (float)(i + 1);
        if (recv_data[i * part] != want || recv_data[(i + 1) * part - 1] != want) return 0;
      }
      return 1;
    default: return 1;
  }
}

static void begin_call(int kind, const member_t* m) {
  for (size_t i = 0; i < elements(); ++i) {
    send_data[i] = (float)(m->place + 1);
    recv_data[i] = kind == kFaultBroadcast && m->place == 0 ? 1.0f : -1.0f;
  }
  call_started = fault_now_ms();
  call_group = m->name;
}

static nxd_status_t collective(int kind, const member_t* m) {
  const size_t n = elements();
  begin_call(kind, m);
  const nxd_status_t status = call(kind, m, n, NXD_DTYPE_F32, 0);
  if (status == NXD_OK && !is_right(kind, m, n)) put_failure(kReportWrong, status, "wrong values");
  return status;
}

/* The bit by which the ranks of a group along an axis differ. */
static const int axis_bit[] = {[kTensor] = 1, [kData] = 2, [kPipeline] = 4};

/* One turn: the collective on every group, and a message along the pipeline. */
static nxd_status_t turn(void) {
  const int cuts = fault_kinds[cell.fault].cuts_link;
  nxd_status_t status = NXD_OK;
  for (int axis = kTensor; axis <= kPipeline && status == NXD_OK; ++axis) {
    if (cuts && axis_bit[axis] == cell.split && (own_rank & cell.aside)) continue;
    const int kind = axis == kPipeline && !cuts ? kFaultMessage : cell.collective;
    status = collective(kind, &members[axis]);
  }
  if (status == NXD_OK && cell.world) status = collective(cell.collective, &members[kWorld]);
  return status;
}

/* --- Faults the culprit does to itself ------------------------------------------------------ */

static int is_culprit(void) { return own_rank == cell.culprit; }

/* One of the groups that are in use. */
static const member_t* draw_group(uint64_t seed) {
  return &members[fault_draw(&seed, cell.world ? kGroups : kWorld)];
}

static void* abort_later(void* arg) {
  uint64_t seed = cell.seed;
  usleep((useconds_t)fault_draw_pause_us(&seed));
  put_event(kReportFault, 0);
  if (arg) {
    nxd_group_abort(arg);
  } else {
    nxd_context_abort(context);
  }
  return NULL;
}

enum { kOddOperation, kOddDtype, kOddCount, kOddRoot, kOddOrder, kOddWays };

/* A call by which the culprit differs from its peers; all ranks are told, and name it. The halves
 * of an exchanged pair of calls fail both. */
static void mismatch(const member_t* m, int way) {
  const int odd = is_culprit(), kind = cell.collective;
  const size_t n = elements();
  char name[16];
  snprintf(name, sizeof name, "rank %d", cell.culprit);
  for (int half = 0; half < (way == kOddOrder ? 2 : 1); ++half) {
    int called = kind;
    size_t count = n;
    nxd_dtype_t dtype = NXD_DTYPE_F32;
    int32_t root = 0;
    if (odd && way == kOddOperation)
      called = kind == kFaultBarrier ? kFaultAllReduce : kFaultBarrier;
    if (odd && way == kOddDtype) dtype = NXD_DTYPE_I32;
    if (odd && way == kOddCount) count = n / 2;
    if (odd && way == kOddRoot) root = 1;
    if (way == kOddOrder && odd == half) count = n / 2;
    call_started = fault_now_ms();
    call_group = m->name;
    const nxd_status_t status = call(called, m, count, dtype, root);
    const double took = fault_now_ms() - call_started;
    if (status != NXD_ERROR_INVALID_ARGUMENT || !strstr(nxd_last_error(), name) ||
        took > (double)cell.timeout_ms)
      put_failure(kReportWrong, status, "expected INVALID_ARGUMENT naming the culprit");
  }
}

static int is_possible(int way) {
  const int kind = cell.collective;
  if (kind == kFaultBarrier) return way == kOddOperation;
  if (kind == kFaultMessage) return way == kOddDtype || way == kOddCount;
  return way != kOddRoot || kind == kFaultBroadcast;
}

/* True if this rank is a member of the culprit's group along an axis. */
static int shares(int axis) {
  return axis == kWorld || own_rank == cell.culprit || own_rank == (cell.culprit ^ axis_bit[axis]);
}

static void mismatches(void) {
  uint64_t seed = cell.seed;
  /* Both ends of a message of two know of it; in a larger ring the others would wait in vain. */
  const int pairs = cell.collective == kFaultMessage || !cell.world;
  const int axis = (int)fault_draw(&seed, pairs ? kWorld : kGroups);
  if (!shares(axis)) return;
  for (int way = 0; way < kOddWays; ++way) {
    if (is_possible(way)) mismatch(&members[axis], way);
  }
}

/* The last first, so that it may not have begun. */
static void destroy_works(const member_t* m) {
  nxd_work_t* works[2] = {NULL, NULL};
  begin_call(cell.collective, m);
  for (int i = 0; i < 2; ++i) check(start(cell.collective, m, &works[i]), "start");
  uint64_t seed = cell.seed;
  usleep((useconds_t)fault_draw_pause_us(&seed));
  for (int i = 1; i >= 0; --i) nxd_work_destroy(works[i]);
}

/* The culprit destroys works under its peers' calls. Works that had begun end as if it had waited;
 * for the others the peers are told which rank took them back. */
static void works_destroyed(void) {
  uint64_t seed = cell.seed;
  const int message = cell.collective == kFaultMessage;
  const int axis = (int)fault_draw(&seed, message || !cell.world ? kWorld : kGroups);
  if (!shares(axis)) return;
  const member_t* m = &members[axis];
  if (is_culprit()) {
    destroy_works(m);
    return;
  }
  char name[16];
  snprintf(name, sizeof name, "rank %d", cell.culprit);
  for (int i = 0; i < 2; ++i) {
    begin_call(cell.collective, m);
    const int32_t from = (m->place + m->size - 1) % m->size;
    const size_t n = elements();
    const nxd_status_t status = message
                                    ? nxd_receive(m->group, recv_data, n, NXD_DTYPE_F32, from, 7)
                                    : call(cell.collective, m, n, NXD_DTYPE_F32, 0);
    const int right = status == NXD_OK && is_right(cell.collective, m, n);
    const int told = status == NXD_ERROR_INVALID_ARGUMENT && strstr(nxd_last_error(), name);
    if (!right && !told)
      put_failure(kReportWrong, status, "expected a result, or INVALID_ARGUMENT from the culprit");
  }
}

/* A work outlives its context, and is done then. */
static void destroy_context_of_works(void) {
  nxd_work_t* works[2] = {NULL, NULL};
  const member_t* m = draw_group(cell.seed);
  begin_call(cell.collective, m);
  for (int i = 0; i < 2; ++i) check(start(cell.collective, m, &works[i]), "start");
  put_event(kReportFault, 0);
  nxd_context_destroy(context);
  context = NULL;
  for (int i = 0; i < 2; ++i) {
    int32_t done = 0;
    check(nxd_work_test(works[i], &done), "nxd_work_test");
    if (!done) put_failure(kReportWrong, NXD_OK, "a work without a context is not done");
    nxd_work_destroy(works[i]);
  }
}

/* Every call fails at once in a forked child, and destroying leaves the parent's job alone. */
static int call_as_child(void) {
  for (int i = 0; i < kGroups; ++i) {
    if (call(cell.collective, &members[i], elements(), NXD_DTYPE_F32, 0) != NXD_ERROR_INVALID_STATE)
      return 1;
  }
  nxd_group_t* group = NULL;
  const int32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7};
  if (nxd_group_create(context, all, kFaultRanks, "child", &group) != NXD_ERROR_INVALID_STATE)
    return 2;
  if (nxd_init_model_parallel(context, NULL) != NXD_ERROR_INVALID_STATE) return 3;
  if (nxd_context_finalize(context) != NXD_ERROR_INVALID_STATE) return 4;
  nxd_group_abort(members[kTensor].group);
  nxd_context_abort(context);
  nxd_context_destroy(context);
  return 0;
}

static void fork_calls(void) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(call_as_child());
  }
  int status = -1;
  waitpid(child, &status, 0);
  if (status != 0) {
    call_group = "";
    char what[64];
    snprintf(what, sizeof what, "the forked child ended with status %d", status);
    put_failure(kReportWrong, NXD_OK, what);
  }
}

/* The child keeps the parent's descriptors and mappings until the driver ends it. */
static void fork_and_stay(void) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);
    for (;;) pause();
  }
  put_event(kReportForked, child);
}

/* --- The run -------------------------------------------------------------------------------- */

/* The bound that the fault is to be noticed by. */
static int bound_calls(void) {
  for (int i = 0; i < kGroups; ++i) {
    if (!check(nxd_group_set_timeout(members[i].group, cell.timeout_ms), "set_timeout")) return 0;
  }
  return 1;
}

static int join(void) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  /* Meeting takes what a busy machine needs; the cell's timeout is that of the calls. */
  options.timeout_ms = kRecoveryMs;
  if (!check(nxd_context_create(&options, &context), "nxd_context_create")) return 0;
  nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
  layout.tensor_parallel_size = 2;
  layout.pipeline_parallel_size = 2;
  if (!check(nxd_init_model_parallel(context, &layout), "nxd_init_model_parallel")) return 0;
  static const struct {
    nxd_axis_t axis;
    const char* name;
  } axes[kGroups] = {{NXD_AXIS_TENSOR, "tensor"},
                     {NXD_AXIS_DATA, "data"},
                     {NXD_AXIS_PIPELINE, "pipeline"},
                     {NXD_AXIS_WORLD, "world"}};
  for (int i = 0; i < kGroups; ++i) {
    member_t* m = &members[i];
    m->name = axes[i].name;
    if (!check(nxd_parallel_get_group(context, axes[i].axis, &m->group), "get_group")) return 0;
    nxd_group_get_size(m->group, &m->size);
    nxd_group_get_rank(m->group, &m->place);
  }
  if (cell.fault == kFaultDestroyGroup) {
    const int32_t pair[] = {own_rank & ~1, own_rank | 1};
    if (!check(nxd_group_create(context, pair, 2, "own", &members[kTensor].group), "group_create"))
      return 0;
    members[kTensor].name = "own";
  }
  /* A fault strikes when all have joined; who has not left the barrier yet learns of it there. */
  const nxd_status_t status = nxd_barrier(members[kWorld].group);
  if (status != NXD_OK) {
    put_failure(fault_kinds[cell.fault].survivors_fail ? kReportFailed : kReportWrong, status,
                "the first barrier");
    return 0;
  }
  return cell.held || bound_calls();
}

/* The culprit's act before turn n, its fault being due before turn at. True when it does not take
 * part any more. */
static int misbehave(int n, int at) {
  if (n != at || !is_culprit()) return 0;
  switch (cell.fault) {
    case kFaultForkCalls: fork_calls(); return 0;
    case kFaultForkKill: fork_and_stay(); return 0;
    case kFaultDestroyContext:
      put_event(kReportFault, 0);
      nxd_context_destroy(context);
      context = NULL;
      return 1;
    case kFaultDestroyPending: destroy_context_of_works(); return 1;
    case kFaultDestroyGroup:
      put_event(kReportFault, 0);
      nxd_group_destroy(members[kTensor].group);
      members[kTensor].group = NULL;
      return 1;
    default: return 0;
  }
}

/* After a loss every group of the context repeats it, at once. */
static void check_poisoned(int root_rank) {
  for (int i = 0; i < kGroups; ++i) {
    call_started = fault_now_ms();
    call_group = members[i].name;
    const nxd_status_t status = nxd_barrier(members[i].group);
    const double took = fault_now_ms() - call_started;
    nxd_error_info_t info = {.struct_size = sizeof info};
    nxd_last_error_info(&info);
    if ((status != NXD_ERROR_PEER_LOST && status != NXD_ERROR_TIMEOUT) ||
        info.root_rank != root_rank || took > (double)cell.timeout_ms / 2)
      put_failure(kReportWrong, status, "a poisoned group does not repeat its error");
  }
}

/* True if this rank hears of a loss that is not its own doing. */
static int is_survivor(void) { return fault_kinds[cell.fault].survivors_fail && !is_culprit(); }

static void run_turns(nxd_store_t* store) {
  uint64_t seed = cell.seed;
  const int at = (int)fault_draw(&seed, 6);
  const int goes_on = !fault_kinds[cell.fault].survivors_fail;
  const int aborts = cell.fault == kFaultAbortContext || cell.fault == kFaultAbortGroup;
  pthread_t thread;
  if (aborts && is_culprit()) {
    nxd_group_t* group = cell.fault == kFaultAbortGroup ? draw_group(cell.seed)->group : NULL;
    if (pthread_create(&thread, NULL, abort_later, group) != 0) _exit(91);
  }
  nxd_status_t status = NXD_OK;
  for (int n = 0; !goes_on || n < at + kMore; ++n) {
    if (misbehave(n, at)) break;
    if (cell.fault == kFaultMismatch && n == at) mismatches();
    if (cell.fault == kFaultDestroyWorks && n == at) works_destroyed();
    if (cell.held && n == at) {
      bound_calls();
      put_event(kReportReady, 0);
      await(store, "cut");
    }
    status = turn();
    if (status != NXD_OK) break;
  }
  if (status != NXD_OK) {
    put_failure(goes_on ? kReportWrong : kReportFailed, status, "turn");
    nxd_error_info_t info = {.struct_size = sizeof info};
    nxd_last_error_info(&info);
    if (is_survivor()) check_poisoned(info.root_rank);
  }
  if (aborts && is_culprit()) pthread_join(thread, NULL);
}

/* A new world over a store of its own. */
static void recover(nxd_store_t* store, int size, int place) {
  call_group = "";
  call_started = fault_now_ms();
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.store = store;
  options.rank = place;
  options.size = size;
  options.timeout_ms = kRecoveryMs;
  if (!check(nxd_context_create(&options, &context), "a new context")) return;
  member_t world = {NULL, size, place, "new world"};
  nxd_context_get_world_group(context, &world.group);
  check(collective(kFaultAllReduce, &world), "all_reduce in the new world");
  check(collective(cell.collective, &world), "the collective in the new world");
  check(nxd_context_finalize(context), "nxd_context_finalize");
  nxd_context_destroy(context);
  context = NULL;
}

/* Between the driver and the ranks, whatever becomes of their own. */
static nxd_store_t* open_drivers_store(void) {
  nxd_store_t* store = NULL;
  const char* path = getenv("NXD_FAULT_FILE");
  /* The driver is no process of the job, and does not know its secret. */
  setenv("NXD_OPEN_STORE", "1", 1);
  check(path ? nxd_store_create_file(path, &store)
             : nxd_store_create_tcp("127.0.0.1", atoi(getenv("NXD_FAULT_PORT")), 0, kRecoveryMs,
                                    &store),
        "the driver's store");
  unsetenv("NXD_OPEN_STORE");
  return store;
}

static void run_rank(void) {
  nxd_store_t* store = open_drivers_store();
  if (!store) return;
  if (join()) {
    if (!cell.held) put_event(kReportReady, 0);
    run_turns(store);
  }
  const fault_kind_t* kind = &fault_kinds[cell.fault];
  /* A culprit keeps what it has until its peers have noticed by themselves. */
  if (is_culprit() && kind->survivors_fail && !kind->ends_culprit) await(store, "told");
  if (cell.fault == kFaultDestroyGroup) nxd_group_destroy(members[kTensor].group);
  nxd_context_destroy(context);
  context = NULL;
  if (kind->cuts_link) {
    put_event(kReportClosed, 0);
    await(store, "told");
  }
  const int missing = kind->ends_culprit;
  if (!missing || !is_culprit())
    recover(store, kFaultRanks - missing, own_rank - (missing && own_rank > cell.culprit));
  nxd_store_destroy(store);
}

int fault_is_rank(void) { return getenv("NXD_FAULT_CELL") != NULL; }

int fault_rank_main(void) {
  unsigned long long seed = 0;
  long long timeout_ms = 0;
  if (sscanf(getenv("NXD_FAULT_CELL"), "%d %d %d %d %d %llu %lld %d %d %d %d", &cell.fault,
             &cell.collective, &cell.large, &cell.world, &cell.culprit, &seed, &timeout_ms,
             &cell.split, &cell.aside, &cell.held, &report_fd) != 11)
    return 92;
  cell.seed = seed;
  cell.timeout_ms = timeout_ms;
  own_rank = atoi(getenv("RANK"));
  const char* transport = getenv("NXD_TRANSPORT");
  /* Two hosts of four ranks each. */
  if (fault_kinds[cell.fault].cuts_link) {
    if (!fault_link_enter(fault_host(&cell, own_rank))) return 94;
  } else if (transport && !strcmp(transport, "hierarchical")) {
    setenv("NXD_HOST_ID", own_rank < kFaultRanks / 2 ? "left" : "right", 1);
  }
  send_data = malloc(kLarge * sizeof *send_data);
  recv_data = malloc(kLarge * sizeof *recv_data);
  if (!send_data || !recv_data) return 93;
  settle_threads();
  const resource_snapshot_t before = resource_snapshot();
  run_rank();
  free(send_data);
  free(recv_data);
  report_end(&before);
  return 0;
}

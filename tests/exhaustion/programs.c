#define _GNU_SOURCE
#include "exhaustion/programs.h"

#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exhaustion/rank.h"
#include "nxd/dlpack.h"

int join(rank_t* r, int tensor, int pipeline, nxd_context_t** ctx) {
  static const char* const hosts[] = {"one", "two", "three", "four"};
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.rank = r->rank;
  options.size = r->program->ranks;
  options.store = r->store;
  options.timeout_ms = r->timeout_ms;
  options.transport = r->program->transport;
  if (r->program->ranks_per_host) options.host_id = hosts[r->rank / r->program->ranks_per_host];
  TRY(nxd_context_create(&options, ctx));
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  parallel.tensor_parallel_size = tensor;
  parallel.pipeline_parallel_size = pipeline;
  TRY(nxd_init_model_parallel(*ctx, &parallel));
  return 1;
}

/* ---- collectives, works and messages -----------------------------------------------------------
 */

enum { kFew = 100, kMany = 100000, kMessage = 40000 };

typedef struct {
  nxd_context_t* ctx;
  nxd_group_t* group;
  nxd_work_t* works[6];
  void* arena;
  float* in;
  float* out;
} collectives_t;

static int use_collectives(rank_t* r, collectives_t* c) {
  const int n = r->program->ranks;
  const float sum = (float)(n * (n + 1) / 2);
  nxd_group_t* g = c->group;
  for (int count = kFew; count <= kMany; count *= kMany / kFew) {
    const size_t size = (size_t)count;
    TRY(nxd_all_reduce(g, c->in, c->out, size, NXD_DTYPE_F32, NXD_REDUCE_SUM));
    EXPECT(c->out[0] == sum && c->out[count - 1] == sum);
    TRY(nxd_all_gather(g, c->in, c->out, size, NXD_DTYPE_F32));
    EXPECT(c->out[0] == 1 && c->out[n * count - 1] == (float)n);
    TRY(nxd_reduce_scatter(g, c->in, c->out, size, NXD_DTYPE_F32, NXD_REDUCE_SUM));
    EXPECT(c->out[0] == sum && c->out[count - 1] == sum);
    TRY(nxd_all_to_all(g, c->in, c->out, size, NXD_DTYPE_F32));
    EXPECT(c->out[0] == 1 && c->out[n * count - 1] == (float)n);
    c->out[0] = (float)r->rank;
    TRY(nxd_broadcast(g, c->out, size, NXD_DTYPE_F32, n - 1));
    EXPECT(c->out[0] == (float)(n - 1));
  }
  TRY(nxd_arena_alloc(c->ctx, kMany * sizeof(float), &c->arena));
  float* shared = c->arena;
  for (int i = 0; i < kMany; ++i) shared[i] = c->in[i];
  TRY(nxd_all_reduce(g, shared, shared, kMany, NXD_DTYPE_F32, NXD_REDUCE_SUM));
  EXPECT(shared[0] == sum && shared[kMany - 1] == sum);
  return 1;
}

static int use_works(rank_t* r, collectives_t* c) {
  const int n = r->program->ranks;
  const int next = (r->rank + 1) % n, last = (r->rank + n - 1) % n;
  nxd_group_t* g = c->group;
  float *in = c->in, *out = c->out;
  TRY(nxd_receive_async(g, out, kMessage, NXD_DTYPE_F32, last, 1, &c->works[0]));
  TRY(nxd_receive_async(g, out + kMessage, kFew, NXD_DTYPE_F32, last, 2, &c->works[1]));
  TRY(nxd_send_async(g, in, kMessage, NXD_DTYPE_F32, next, 1, &c->works[2]));
  TRY(nxd_send_async(g, in, kFew, NXD_DTYPE_F32, next, 2, &c->works[3]));
  TRY(nxd_all_reduce_async(g, in, out + kMany, kFew, NXD_DTYPE_F32, NXD_REDUCE_MAX, &c->works[4]));
  TRY(nxd_barrier_async(g, &c->works[5]));
  for (int i = 0; i < 6; ++i) TRY(nxd_work_wait(c->works[i], -1));
  EXPECT(out[0] == (float)(last + 1) && out[kMessage - 1] == (float)(last + 1));
  EXPECT(out[kMessage] == (float)(last + 1) && out[kMany] == (float)n);
  if (r->rank % 2 == 0) {
    TRY(nxd_send(g, in, kFew, NXD_DTYPE_F32, next, 3));
    TRY(nxd_receive(g, out, kMessage, NXD_DTYPE_F32, last, 3));
  } else {
    TRY(nxd_receive(g, out, kFew, NXD_DTYPE_F32, last, 3));
    TRY(nxd_send(g, in, kMessage, NXD_DTYPE_F32, next, 3));
  }
  EXPECT(out[0] == (float)(last + 1));
  return 1;
}

static int use_groups(rank_t* r, collectives_t* c) {
  int32_t ranks[kMostRanks];
  char record[65536];
  size_t needed = 0;
  for (int i = 0; i < r->program->ranks; ++i) ranks[i] = i;
  if (!join(r, r->program->ranks, 1, &c->ctx)) return 0;
  TRY(nxd_group_create(c->ctx, ranks, (size_t)r->program->ranks, "all", &c->group));
  if (!use_collectives(r, c) || !use_works(r, c)) return 0;
  nxd_group_t* tensor = NULL;
  TRY(nxd_parallel_get_group(c->ctx, NXD_AXIS_TENSOR, &tensor));
  TRY(nxd_barrier(tensor));
  TRY(nxd_context_get_flight_record(c->ctx, record, sizeof record, &needed));
  TRY(nxd_context_finalize(c->ctx));
  return 1;
}

static void collectives(void* arg) {
  rank_t* r = arg;
  collectives_t c = {0};
  c.in = malloc(kMostRanks * kMany * sizeof *c.in);
  c.out = malloc(kMostRanks * kMany * sizeof *c.out);
  for (int i = 0; i < kMostRanks * kMany; ++i) c.in[i] = (float)(r->rank + 1);
  use_groups(r, &c);
  for (int i = 0; i < 6; ++i) nxd_work_destroy(c.works[i]);
  if (c.arena) nxd_arena_free(c.ctx, c.arena);
  nxd_group_destroy(c.group);
  nxd_context_destroy(c.ctx);
  free(c.in);
  free(c.out);
}

/* ---- data parallelism, ZeRO-1, optimizers and their state --------------------------------------
 */

enum { kParameters = 4, kElements = 1500 };

typedef struct {
  nxd_context_t* ctx;
  nxd_ddp_t* ddp;
  nxd_optimizer_t* optimizer;
  float params[kParameters][kElements], grads[kParameters][kElements];
} training_t;

static int make_ddp(rank_t* r, training_t* t, int zero_stage) {
  static const char* const names[kParameters] = {"a", "b", "c", "d"};
  int64_t shape[2] = {30, 50};
  DLTensor tensors[2 * kParameters];
  DLTensor *params[kParameters], *grads[kParameters];
  for (int i = 0; i < 2 * kParameters; ++i) {
    float* data = i < kParameters ? t->params[i] : t->grads[i - kParameters];
    const DLTensor tensor = {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0};
    tensors[i] = tensor;
    *(i < kParameters ? &params[i] : &grads[i - kParameters]) = &tensors[i];
  }
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.zero_stage = zero_stage;
  options.bucket_bytes = 10000; /* a bucket takes one parameter */
  TRY(nxd_ddp_create_buffers(t->ctx, NULL, names, params, grads, kParameters, &options, &t->ddp));
  return 1;
}

static int train(rank_t* r, training_t* t) {
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  finish.max_norm = 1;
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < kParameters; ++i) {
      for (int k = 0; k < kElements; ++k) t->grads[i][k] = (float)(1 + r->rank);
      TRY(nxd_ddp_mark_ready(t->ddp, (size_t)i));
    }
    TRY(nxd_optimizer_step(t->optimizer, &finish, NULL));
    EXPECT(t->params[0][0] < 0 && t->params[kParameters - 1][kElements - 1] < 0);
  }
  TRY(nxd_optimizer_save(t->optimizer, r->path));
  TRY(nxd_optimizer_load(t->optimizer, r->path));
  return 1;
}

static int use_ddps(rank_t* r, training_t* t) {
  if (!join(r, 1, 1, &t->ctx) || !make_ddp(r, t, 1)) return 0;
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  TRY(nxd_optimizer_create_adamw_ddp(t->ddp, &adamw, &t->optimizer));
  if (!train(r, t)) return 0;
  nxd_optimizer_destroy(t->optimizer);
  t->optimizer = NULL;
  nxd_ddp_destroy(t->ddp);
  t->ddp = NULL;
  if (!make_ddp(r, t, 0)) return 0;
  nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
  sgd.momentum = 0.9;
  TRY(nxd_optimizer_create_sgd_ddp(t->ddp, &sgd, &t->optimizer));
  if (!train(r, t)) return 0;
  TRY(nxd_context_finalize(t->ctx));
  return 1;
}

static void training(void* arg) {
  rank_t* r = arg;
  training_t* t = calloc(1, sizeof *t);
  use_ddps(r, t);
  nxd_optimizer_destroy(t->optimizer);
  nxd_ddp_destroy(t->ddp);
  nxd_context_destroy(t->ctx);
  free(t);
}

/* ---- a pipeline over callbacks -----------------------------------------------------------------
 */

enum { kMicrobatches = 3, kValues = 3000 };

static nxd_status_t forward(const nxd_pp_call_t* call, DLTensor* const* in, DLTensor* const* out,
                            double* out_loss, void* user_data) {
  (void)user_data;
  if (call->stage == 0) {
    for (int i = 0; i < kValues; ++i) ((float*)out[0]->data)[i] = (float)(call->microbatch + 1);
  } else {
    *out_loss = (double)((const float*)in[0]->data)[kValues - 1];
  }
  return NXD_OK;
}

static nxd_status_t backward(const nxd_pp_call_t* call, DLTensor* const* in,
                             DLTensor* const* grad_out, DLTensor* const* grad_in, void* user_data) {
  (void)in, (void)grad_out;
  if (call->stage > 0) {
    for (int i = 0; i < kValues; ++i) ((float*)grad_in[0]->data)[i] = 1;
  } else {
    *(float*)user_data += ((const float*)grad_out[0]->data)[0];
  }
  return NXD_OK;
}

static int use_pipeline(rank_t* r, nxd_context_t** ctx, nxd_pp_t** pp, float* gradient) {
  static const int64_t shape[1] = {kValues};
  const nxd_pp_value_t value = {"h", shape, 1, NXD_DTYPE_F32, 1, 0};
  const size_t n_inputs = r->rank > 0, n_outputs = r->rank == 0;
  const nxd_pp_stage_callbacks_t callbacks = {sizeof callbacks, gradient, NULL, forward,
                                              backward,         NULL,     NULL};
  nxd_pp_callbacks_options_t options = NXD_PP_CALLBACKS_OPTIONS_INIT;
  options.num_microbatches = kMicrobatches;
  options.broadcast_and_average_loss = 1;
  if (!join(r, 1, 2, ctx)) return 0;
  TRY(nxd_pp_create_callbacks(*ctx, &options, &value, &n_inputs, &value, &n_outputs, &callbacks,
                              pp));
  TRY(nxd_pp_set_timeline(*pp, 1));
  for (int turn = 0; turn < 3; ++turn) {
    double loss = 0;
    *gradient = 0;
    TRY(nxd_pp_run(*pp, turn < 2, &loss));
    EXPECT(loss > 1.9 && loss < 2.1);
    EXPECT(turn == 2 || r->rank > 0 || *gradient == kMicrobatches);
  }
  TRY(nxd_pp_write_timeline(*pp, r->path));
  TRY(nxd_context_finalize(*ctx));
  return 1;
}

static void pipeline(void* arg) {
  rank_t* r = arg;
  nxd_context_t* ctx = NULL;
  nxd_pp_t* pp = NULL;
  float gradient = 0;
  use_pipeline(r, &ctx, &pp, &gradient);
  nxd_pp_destroy(pp);
  nxd_context_destroy(ctx);
}

/* ---- stores ------------------------------------------------------------------------------------
 */

static int open_tcp_store(rank_t* r, nxd_store_t** store) {
  if (r->rank == 0) {
    int32_t port = 0;
    TRY(nxd_store_create_tcp("127.0.0.1", 0, 1, r->timeout_ms, store));
    TRY(nxd_store_get_port(*store, &port));
    *r->port = port;
    return 1;
  }
  while (*r->port == 0) sched_yield();
  if (*r->port < 0) return 0;
  TRY(nxd_store_create_tcp("127.0.0.1", *r->port, 0, r->timeout_ms, store));
  return 1;
}

static int use_store(rank_t* r, nxd_store_t* store) {
  int64_t sum = 0;
  char value[64] = "", key[32], large[20000];
  size_t size = 0;
  snprintf(key, sizeof key, "from %d", r->rank);
  TRY(nxd_store_set(store, key, key, strlen(key)));
  TRY(nxd_store_add(store, "sum", r->rank + 1, &sum));
  EXPECT(sum >= r->rank + 1);
  snprintf(key, sizeof key, "from %d", 1 - r->rank);
  TRY(nxd_store_get(store, key, r->timeout_ms, value, sizeof value, &size));
  EXPECT(size == strlen(key) && memcmp(value, key, size) == 0);
  memset(large, r->rank, sizeof large);
  TRY(nxd_store_set(store, "large", large, sizeof large));
  TRY(nxd_store_get(store, "large", 0, large, sizeof large, &size));
  EXPECT(size == sizeof large);
  const nxd_status_t absent = nxd_store_get(store, "absent", 0, value, sizeof value, &size);
  if (absent != NXD_ERROR_TIMEOUT) TRY(absent);
  TRY(nxd_store_add(store, "sum", 0, &sum));
  return 1;
}

static int use_stores(rank_t* r, nxd_store_t** tcp, nxd_store_t** file, nxd_context_t** ctx) {
  TRY(nxd_store_create_file(r->path, file));
  if (!use_store(r, *file)) return 0;
  if (!open_tcp_store(r, tcp)) return 0;
  if (!use_store(r, *tcp)) return 0;
  r->store = *tcp;
  if (!join(r, 2, 1, ctx)) return 0;
  TRY(nxd_context_finalize(*ctx));
  return 1;
}

static void stores(void* arg) {
  rank_t* r = arg;
  nxd_store_t *tcp = NULL, *file = NULL;
  nxd_context_t* ctx = NULL;
  use_stores(r, &tcp, &file, &ctx);
  if (r->rank == 0 && *r->port == 0) *r->port = -1;
  nxd_context_destroy(ctx);
  nxd_store_destroy(tcp);
  nxd_store_destroy(file);
}

/* ---- processes ---------------------------------------------------------------------------------
 */

static int use_job(rank_t* r, nxd_job_t** job) {
  static const char* const argv[] = {"/bin/true", NULL};
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  options.num_processes = 2;
  options.argv = argv;
  TRY(nxd_spawn(&options, job));
  TRY(nxd_job_wait(*job, r->timeout_ms));
  return 1;
}

static void processes(void* arg) {
  nxd_job_t* job = NULL;
  use_job(arg, &job);
  nxd_job_destroy(job);
}

/* ---- one rank: a file of weights, schedules, the planner ---------------------------------------
 */

static int use_alone(rank_t* r, training_t* t, nxd_pp_schedule_t** schedule) {
  if (!join(r, 1, 1, &t->ctx) || !make_ddp(r, t, 0)) return 0;
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  TRY(nxd_optimizer_create_adamw_ddp(t->ddp, &adamw, &t->optimizer));
  if (!train(r, t)) return 0;
  TRY(nxd_pp_schedule_create(NXD_PP_SCHEDULE_1F1B, 4, 1, 8, schedule));
  const char* name = NULL;
  TRY(nxd_pp_schedule_get_name(*schedule, &name));
  EXPECT(strcmp(name, "1F1B") == 0);
  TRY(nxd_context_finalize(t->ctx));
  return 1;
}

static void alone(void* arg) {
  training_t* t = calloc(1, sizeof *t);
  nxd_pp_schedule_t* schedule = NULL;
  use_alone(arg, t, &schedule);
  nxd_pp_schedule_destroy(schedule);
  nxd_optimizer_destroy(t->optimizer);
  nxd_ddp_destroy(t->ddp);
  nxd_context_destroy(t->ctx);
  free(t);
}

/* ---- token files, read ahead -------------------------------------------------------------------
 */

static int use_data(rank_t* r, nxd_context_t** ctx, nxd_data_loader_t** loader) {
  static const char* const paths[] = {"/proc/self/exe"};
  int64_t ids[64] = {-1};
  nxd_data_loader_options_t options = NXD_DATA_LOADER_OPTIONS_INIT;
  options.format = NXD_TOKEN_FORMAT_BYTES;
  if (!join(r, 1, 1, ctx)) return 0;
  TRY(nxd_data_loader_create(*ctx, paths, 1, 2, 16, &options, loader));
  for (int i = 0; i < 4; ++i) TRY(nxd_data_loader_next(*loader, ids, NULL, 64));
  EXPECT(ids[0] >= 0 && ids[0] < 256);
  TRY(nxd_context_finalize(*ctx));
  return 1;
}

static void data(void* arg) {
  nxd_context_t* ctx = NULL;
  nxd_data_loader_t* loader = NULL;
  use_data(arg, &ctx, &loader);
  nxd_data_loader_destroy(loader);
  nxd_context_destroy(ctx);
}

/* ---- checkpoints, and the state of a run as one ------------------------------------------------
 */

typedef struct {
  training_t training;
  nxd_data_loader_t* loader;
  nxd_training_state_t* state;
  nxd_checkpoint_t* checkpoint;
} run_t;

static int make_run(rank_t* r, run_t* run) {
  static const char* const paths[] = {"/proc/self/exe"};
  training_t* t = &run->training;
  nxd_data_loader_options_t options = NXD_DATA_LOADER_OPTIONS_INIT;
  options.format = NXD_TOKEN_FORMAT_BYTES;
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  if (!join(r, 1, 1, &t->ctx) || !make_ddp(r, t, 1)) return 0;
  TRY(nxd_optimizer_create_adamw_ddp(t->ddp, &adamw, &t->optimizer));
  TRY(nxd_data_loader_create(t->ctx, paths, 1, 2, 16, &options, &run->loader));
  TRY(nxd_training_state_create(t->ctx, &run->state));
  TRY(nxd_training_state_add_optimizer(run->state, "optimizer", t->optimizer));
  TRY(nxd_training_state_add_data_loader(run->state, "loader", run->loader));
  TRY(nxd_training_state_set_value(run->state, "note", "of the run"));
  return 1;
}

/* A checkpoint with a file of each rank's own. */
static int publish_files(rank_t* r, run_t* run, int64_t step) {
  char path[4096], name[16];
  size_t needed = 0;
  TRY(nxd_checkpoint_create(run->training.ctx, r->path, step, &run->checkpoint));
  snprintf(name, sizeof name, "part-%d", r->rank);
  TRY(nxd_checkpoint_get_path(run->checkpoint, name, path, sizeof path, &needed));
  FILE* file = fopen(path, "w"); /* none where rank 0 has failed and removed all */
  if (file) fputs(name, file);
  if (file) fclose(file);
  TRY(nxd_checkpoint_set_value(run->checkpoint, "key", "value"));
  TRY(nxd_checkpoint_publish_async(run->checkpoint, 2));
  TRY(nxd_checkpoint_wait(run->checkpoint, -1));
  nxd_checkpoint_destroy(run->checkpoint);
  run->checkpoint = NULL;
  return 1;
}

static int use_state(rank_t* r, run_t* run) {
  int64_t step = 0;
  char value[16] = "";
  size_t needed = 0;
  if (!make_run(r, run)) return 0;
  TRY(nxd_training_state_save(run->state, r->path, 1, 1));
  TRY(nxd_training_state_save_async(run->state, r->path, 2, 1));
  TRY(nxd_training_state_wait(run->state, -1));
  TRY(nxd_training_state_load_newest(run->state, r->path, 1, &step));
  EXPECT(step == 2);
  if (!publish_files(r, run, 3)) return 0;
  TRY(nxd_checkpoint_open_newest(run->training.ctx, r->path, 1, &run->checkpoint));
  TRY(nxd_checkpoint_get_step(run->checkpoint, &step));
  TRY(nxd_checkpoint_get_value(run->checkpoint, "key", value, sizeof value, &needed));
  EXPECT(step == 3 && strcmp(value, "value") == 0);
  TRY(nxd_checkpoint_get_path(run->checkpoint, "part-1", NULL, 0, &needed));
  TRY(nxd_checkpoint_restore_random_state(run->checkpoint));
  TRY(nxd_context_finalize(run->training.ctx));
  return 1;
}

static void state(void* arg) {
  run_t* run = calloc(1, sizeof *run);
  use_state(arg, run);
  nxd_checkpoint_destroy(run->checkpoint);
  nxd_training_state_destroy(run->state);
  nxd_data_loader_destroy(run->loader);
  nxd_optimizer_destroy(run->training.optimizer);
  nxd_ddp_destroy(run->training.ddp);
  nxd_context_destroy(run->training.ctx);
  free(run);
}

/* ---- all of them -------------------------------------------------------------------------------
 */

const program_t programs[] = {
    {"alone", 1, NXD_TRANSPORT_AUTO, 0, alone},
    {"processes", 1, NXD_TRANSPORT_AUTO, 0, processes},
    {"stores", 2, NXD_TRANSPORT_AUTO, 0, stores},
    {"data", 2, NXD_TRANSPORT_AUTO, 0, data},
    {"collectives", 2, NXD_TRANSPORT_AUTO, 0, collectives},
    {"collectives_gloo", 2, NXD_TRANSPORT_GLOO, 0, collectives},
    {"collectives_hosts", 4, NXD_TRANSPORT_AUTO, 2, collectives},
    {"training", 2, NXD_TRANSPORT_AUTO, 0, training},
    {"training_gloo", 2, NXD_TRANSPORT_GLOO, 0, training},
    {"pipeline", 2, NXD_TRANSPORT_AUTO, 0, pipeline},
    {"pipeline_gloo", 2, NXD_TRANSPORT_GLOO, 0, pipeline},
    {"state", 2, NXD_TRANSPORT_AUTO, 0, state},
    {"layers", 2, NXD_TRANSPORT_AUTO, 0, layers},
};
const int n_programs = (int)(sizeof programs / sizeof *programs);

static int remove_entry(const char* path, const struct stat* info, int kind, struct FTW* place) {
  (void)info, (void)kind, (void)place;
  return remove(path);
}

void remove_output(const char* path) { nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

static void* rank_main(void* arg) {
  rank_t* r = arg;
  r->program->body(r);
  return NULL;
}

void run_program(const program_t* program, int64_t timeout_ms, const char* path,
                 rank_end_t ends[kMostRanks]) {
  atomic_int port = 0;
  rank_t ranks[kMostRanks];
  pthread_t threads[kMostRanks];
  nxd_store_t* store = NULL;
  memset(ends, 0, kMostRanks * sizeof *ends);
  remove_output(path);
  /* Also under a limit on memory there is to be room for these. */
  pthread_attr_t small_stacks;
  pthread_attr_init(&small_stacks);
  pthread_attr_setstacksize(&small_stacks, 1 << 20);
  const nxd_status_t status = nxd_store_create_local(&store);
  for (int i = 0; i < program->ranks; ++i) {
    const rank_t rank = {program, i, store, timeout_ms, path, &port, &ends[i]};
    ranks[i] = rank;
    if (status != NXD_OK) {
      note_failure(&ranks[i], "nxd_store_create_local", status);
    } else if (pthread_create(&threads[i], &small_stacks, rank_main, &ranks[i]) != 0) {
      abort();
    }
  }
  for (int i = 0; status == NXD_OK && i < program->ranks; ++i) pthread_join(threads[i], NULL);
  pthread_attr_destroy(&small_stacks);
  nxd_store_destroy(store);
  remove_output(path);
}

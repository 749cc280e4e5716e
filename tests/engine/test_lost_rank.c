/* A rank that dies in the middle of a training step, while ranks compile one, or while a model is
 * padded: every survivor's call fails in time and names it, everything can be released, and the
 * process ends normally. Ranks are processes: the program starts itself again, and ranks find their
 * part in an environment variable. */
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/part.h"
#include "support/paths.h"
#include "support/pjrt.h"
#include "support/ranks.h"

enum {
  kTimeoutMs = 8000,
  kCompiledMs = 150000,
  kLost = 1,
  kLastStep = 2,
  kBatch = 2,
  kSequence = 8,
  kVocabulary = 256
};

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* --- A rank ----------------------------------------------------------------------------------- */

typedef struct {
  nxd_context_t* ctx;
  nxd_module_t *root, *model;
  nxd_ddp_t* ddp; /* or NULL */
  nxd_optimizer_t* optimizer;
  nxd_tensor_t* ids;
  /* Where the lost rank dies; " zero" for ZeRO-1, " async" for a step that is not waited for, and
   * " xla" for the recorded device. */
  const char* part;
  int32_t rank;
  int step;
} training_t;

static void die_at(const training_t* t, const char* part) {
  if (t->rank == kLost && t->step == kLastStep && strncmp(t->part, part, strlen(part)) == 0) {
    raise(SIGKILL);
  }
}

static nxd_status_t forward(nxd_module_t* self, nxd_tensor_t* const* inputs, size_t n_inputs,
                            nxd_tensor_t** outputs, size_t n_outputs, void* user_data) {
  (void)self;
  const training_t* t = user_data;
  die_at(t, "forward");
  return nxd_module_forward(t->model, inputs, n_inputs, outputs, n_outputs);
}

static nxd_status_t on_gradient(nxd_parameter_t* parameter, void* user_data) {
  (void)parameter;
  die_at(user_data, "backward");
  return NXD_OK;
}

static int has(const training_t* t, const char* word) { return strstr(t->part, word) != NULL; }

static int is_through_a_plugin(void) { return getenv("NXD_PJRT_PLUGIN") != NULL; }

/* A plug-in takes seconds to compile four layers. */
static char* read_config(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/llama_tiny/config.json", nxd_test_oracles);
  FILE* file = fopen(path, "rb");
  char* text = calloc(1, 65536);
  if (!file || fread(text, 1, 65535, file) == 0) exit(30);
  fclose(file);
  char* const layers = strstr(text, "\"num_hidden_layers\": 4");
  if (!layers) exit(31);
  if (is_through_a_plugin()) *strchr(layers, '4') = '1';
  return text;
}

static int build_optimizer(training_t* t) {
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  if (!has(t, " zero"))
    return NXD_TEST_OK(nxd_optimizer_create_adamw(t->root, NULL, &t->optimizer));
  options.zero_stage = 1;
  return NXD_TEST_OK(nxd_ddp_create(t->root, &options, &t->ddp)) &&
         NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(t->ddp, NULL, &t->optimizer));
}

static int build(training_t* t) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = kTimeoutMs;
  if (!NXD_TEST_OK(nxd_context_create(&options, &t->ctx))) return 0;
  nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
  layout.tensor_parallel_size = 2;
  char* config = read_config();
  nxd_model_options_t of_model = NXD_MODEL_OPTIONS_INIT;
  if (has(t, " xla")) of_model.device = NXD_DEVICE_XLA;
  const char* const deepest = is_through_a_plugin() ? "model.layers.0.input_layernorm.weight"
                                                    : "model.layers.2.input_layernorm.weight";
  nxd_parameter_t* deep = NULL;
  nxd_tensor_t* on_cpu = NULL;
  const int64_t shape[] = {kBatch, kSequence};
  int64_t ids[kBatch * kSequence];
  for (int i = 0; i < kBatch * kSequence; ++i) ids[i] = (i * 37) % kVocabulary;
  const int ok =
      NXD_TEST_OK(nxd_context_get_rank(t->ctx, &t->rank)) &&
      NXD_TEST_OK(nxd_init_model_parallel(t->ctx, &layout)) &&
      NXD_TEST_OK(nxd_model_create(t->ctx, config, &of_model, &t->model)) &&
      NXD_TEST_OK(nxd_module_create(t->ctx, "Root", forward, t, NULL, &t->root)) &&
      NXD_TEST_OK(nxd_module_add_child(t->root, "llama", t->model)) &&
      NXD_TEST_OK(nxd_module_find_parameter(t->model, deepest, &deep)) &&
      NXD_TEST_OK(nxd_parameter_set_grad_hook(deep, on_gradient, t, NULL)) && build_optimizer(t) &&
      NXD_TEST_OK(nxd_tensor_from_data(ids, sizeof ids, shape, 2, NXD_DTYPE_I64, &on_cpu)) &&
      NXD_TEST_OK(nxd_tensor_to_device(on_cpu, of_model.device, &t->ids));
  nxd_tensor_destroy(on_cpu);
  free(config);
  return ok;
}

/* The update is a part of the step's graph, which nxd_mark_step runs. */
static int is_updated_in_graph(const training_t* t) {
  return has(t, " xla") && (has(t, "update") || has(t, "compile"));
}

/* --- Compilation ------------------------------------------------------------------------------ */

/* Files of the compile cache whose names end so. */
static int count_files(const char* ending) {
  const char* directory = getenv("NEURON_COMPILE_CACHE_URL");
  DIR* const open = directory ? opendir(directory) : NULL;
  int count = 0;
  for (const struct dirent* entry; open && (entry = readdir(open)) != NULL;) {
    const size_t length = strlen(entry->d_name), wanted = strlen(ending);
    count += length >= wanted && strcmp(entry->d_name + length - wanted, ending) == 0;
  }
  if (open) closedir(open);
  return count;
}

/* A program that is being compiled has a file that is locked. */
static void await_compilation(void) {
  const double start = now_ms();
  while (count_files(".lock") == 0 && now_ms() - start < kTimeoutMs) usleep(1000);
}

static void* die_while_compiling(void* unused) {
  (void)unused;
  await_compilation();
  usleep(20000);
  kill(getpid(), SIGKILL);
  return NULL;
}

/* The first to come compiles, and the other waits for its program. */
static void enter_compilation(const training_t* t) {
  const int first = has(t, " first") ? kLost : !kLost;
  pthread_t killer;
  if (!has(t, "compile") || has(t, " alive")) return;
  if (t->rank != first) await_compilation();
  if (t->rank != kLost) return;
  if (pthread_create(&killer, NULL, die_while_compiling, NULL) != 0) exit(32);
  pthread_detach(killer);
}

/* The end of a step. One that is not waited for fails in the next call that waits. */
static nxd_status_t mark(const training_t* t, nxd_tensor_t* loss) {
  double value = 0;
  if (t->step < kLastStep || !has(t, " async")) return nxd_mark_step(1);
  if (!NXD_TEST_OK(nxd_mark_step(0))) return NXD_ERROR_INTERNAL;
  return has(t, " read") ? nxd_tensor_get_item(loss, &value) : nxd_mark_step(1);
}

static nxd_status_t step(training_t* t) {
  nxd_tensor_t* const inputs[] = {t->ids, t->ids};
  nxd_tensor_t* loss = NULL;
  double norm = 0;
  nxd_status_t status = nxd_module_zero_grad(t->root);
  if (status == NXD_OK) status = nxd_module_forward(t->root, inputs, 2, &loss, 1);
  NXD_TEST_CHECK((loss != NULL) == (status == NXD_OK));
  if (status == NXD_OK) status = nxd_backward(&loss, NULL, 1, 0);
  if (status == NXD_OK) die_at(t, "finish");
  if (status == NXD_OK && is_updated_in_graph(t)) {
    status = nxd_optimizer_step(t->optimizer, NULL, NULL);
    if (status == NXD_OK) die_at(t, "update");
    if (status == NXD_OK) enter_compilation(t);
    if (status == NXD_OK) status = mark(t, loss);
  } else {
    if (status == NXD_OK) status = nxd_finish_grads(t->root, NULL, &norm);
    if (status == NXD_OK) status = nxd_optimizer_update(t->optimizer);
  }
  nxd_tensor_destroy(loss);
  return status;
}

/* A plug-in updates in place whenever it is done with the old values. */
static void check_parameters(training_t* t) {
  const int partial = is_through_a_plugin();
  nxd_parameter_state_t state = NXD_PARAMETER_STATE_NEW;
  NXD_TEST_OK(nxd_optimizer_get_parameter_state(t->optimizer, &state, NULL));
  NXD_TEST_CHECK(state == (partial ? NXD_PARAMETER_STATE_PARTIAL : NXD_PARAMETER_STATE_OLD));
}

/* A call that failed by the lost rank. */
static void check_lost(const training_t* t, nxd_status_t status, double took) {
  char name[32];
  /* Compiling has no bound. */
  const double most = has(t, "compile") ? kCompiledMs : 2 * kTimeoutMs;
  snprintf(name, sizeof name, "rank %d ", kLost);
  nxd_error_info_t info = {.struct_size = sizeof info};
  NXD_TEST_OK(nxd_last_error_info(&info));
  if (!((status == NXD_ERROR_PEER_LOST || status == NXD_ERROR_TIMEOUT) && info.root_rank == kLost &&
        strstr(nxd_last_error(), name) && took < most)) {
    nxd_test_fail(__FILE__, __LINE__, "rank %d: status %d, root rank %d after %.0f ms: %s", t->rank,
                  status, info.root_rank, took, nxd_last_error());
  }
}

/* The failed step, and that every later call of the groups gives the same. */
static void check_told(training_t* t, nxd_status_t status, double took) {
  check_lost(t, status, took);
  if (is_updated_in_graph(t)) check_parameters(t);
  /* Parameters that may be partial are lost. */
  const int has_lost = is_updated_in_graph(t) && is_through_a_plugin();
  NXD_TEST_CHECK(step(t) == (has_lost ? NXD_ERROR_INVALID_STATE : status));
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(t->ctx, &world));
  NXD_TEST_CHECK(nxd_barrier(world) == status);
}

/* A step after that of ranks one of which died: its program is there. */
static void check_loaded(nxd_status_t status) {
  nxd_device_metrics_t m = {.struct_size = sizeof m};
  NXD_TEST_CHECK(status == NXD_OK);
  NXD_TEST_OK(nxd_device_get_metrics(&m));
  NXD_TEST_CHECK(m.compiles == 0 && m.loads == 1);
}

/* --- Heads are padded ------------------------------------------------------------------------ */

enum { kFeatures = 12 };

static int build_pair(training_t* t) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
  nxd_linear_options_t split = NXD_LINEAR_OPTIONS_INIT;
  nxd_module_t* layers[2] = {NULL, NULL};
  options.timeout_ms = kTimeoutMs;
  layout.tensor_parallel_size = 2;
  split.gather_output = NXD_TOGGLE_OFF;
  split.input_is_parallel = 1;
  const int ok = NXD_TEST_OK(nxd_context_create(&options, &t->ctx)) &&
                 NXD_TEST_OK(nxd_context_get_rank(t->ctx, &t->rank)) &&
                 NXD_TEST_OK(nxd_init_model_parallel(t->ctx, &layout)) &&
                 NXD_TEST_OK(nxd_layer_create_column_parallel_linear(t->ctx, kFeatures, kFeatures,
                                                                     &split, &layers[0])) &&
                 NXD_TEST_OK(nxd_layer_create_row_parallel_linear(t->ctx, kFeatures, kFeatures,
                                                                  &split, &layers[1])) &&
                 NXD_TEST_OK(nxd_module_create_sequential(t->ctx, layers, 2, &t->root));
  nxd_module_destroy(layers[0]);
  nxd_module_destroy(layers[1]);
  return ok;
}

/* Children first: the root's is the last call. */
static nxd_status_t on_pad(nxd_module_t* module, int64_t heads, int64_t padded, void* user_data) {
  (void)heads;
  (void)padded;
  const training_t* t = user_data;
  const char* name = NULL;
  NXD_TEST_OK(nxd_module_get_class_name(module, &name));
  if (name && strcmp(name, "Sequential") == 0) die_at(t, "pad hook");
  return NXD_OK;
}

/* Each rank has half of the features that there were. */
static void check_not_padded(const training_t* t) {
  const struct {
    const char* name;
    int dim;
  } weights[] = {{"0.weight", 0}, {"1.weight", 1}};
  for (int i = 0; i < 2; ++i) {
    nxd_parameter_t* parameter = NULL;
    nxd_tensor_t* shard = NULL;
    int64_t shape[2] = {0, 0};
    size_t ndim = 0;
    NXD_TEST_OK(nxd_module_find_parameter(t->root, weights[i].name, &parameter));
    NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &shard));
    NXD_TEST_OK(nxd_tensor_get_shape(shard, shape, 2, &ndim));
    NXD_TEST_CHECK(ndim == 2 && shape[weights[i].dim] == kFeatures / 2);
  }
}

static void pad(training_t* t) {
  t->step = kLastStep;
  die_at(t, "pad call");
  double start = now_ms();
  nxd_status_t status = nxd_pad_model(t->root, 2, 3, NULL, 0, on_pad, t);
  check_lost(t, status, now_ms() - start);
  check_not_padded(t);
  start = now_ms();
  status = nxd_pad_model(t->root, 2, 3, NULL, 0, NULL, NULL);
  check_lost(t, status, now_ms() - start);
  check_not_padded(t);
}

static int child(const char* part) {
  training_t t = {.part = part};
  if (strncmp(part, "pad", 3) == 0) {
    if (build_pair(&t)) pad(&t);
  } else if (build(&t)) {
    nxd_status_t status = NXD_OK;
    if (has(&t, "compile")) t.step = kLastStep;
    for (; t.step < kLastStep && status == NXD_OK; ++t.step) status = step(&t);
    if (NXD_TEST_OK(status)) {
      const double start = now_ms();
      status = step(&t);
      if (has(&t, " alive")) {
        check_loaded(status);
      } else {
        check_told(&t, status, now_ms() - start);
      }
    }
  }
  nxd_optimizer_destroy(t.optimizer);
  nxd_ddp_destroy(t.ddp);
  nxd_module_destroy(t.root);
  nxd_module_destroy(t.model);
  nxd_tensor_destroy(t.ids);
  nxd_context_destroy(t.ctx);
  return nxd_test_failures();
}

/* --- The test --------------------------------------------------------------------------------- */

static void run_part(const char* part, int size) {
  nxd_test_run_part(part, size, kLost, 128 + SIGKILL, 2 * kCompiledMs / 1000);
}

static void in_forward(void** state) {
  (void)state;
  run_part("forward", 2);
  run_part("forward", 4);
}
static void in_backward(void** state) {
  (void)state;
  run_part("backward", 2);
  run_part("backward", 4);
}
static void before_finish(void** state) {
  (void)state;
  run_part("finish", 4);
}
static void while_padding(void** state) {
  (void)state;
  run_part("pad call", 2);
  run_part("pad hook", 2);
}
/* The lost rank never runs the step's graph; the others are in the middle of it. */
static void in_recorded_steps(void** state) {
  (void)state;
  run_part("forward xla", 2);
  run_part("backward xla", 4);
  run_part("finish xla", 2);
}

static void in_recorded_updates(void** state) {
  (void)state;
  run_part("update xla", 2);
}

static void in_steps_that_are_not_waited_for(void** state) {
  (void)state;
  run_part("update async xla", 2);
  run_part("update async read xla", 2);
}

static void in_updates_of_a_grid(void** state) {
  (void)state;
  run_part("update zero xla", 4);
}

static void remove_directory(const char* path) {
  DIR* const open = opendir(path);
  char file[4096];
  for (const struct dirent* entry; open && (entry = readdir(open)) != NULL;) {
    snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
    unlink(file); /* fails for . and .. */
  }
  if (open) closedir(open);
  assert_int_equal(rmdir(path), 0);
}

/* The rank that compiles, and one that waits for its program; then both have it. */
static void while_compiling(void** state) {
  (void)state;
  const char* const others = getenv("NEURON_COMPILE_CACHE_URL");
  char* const kept = others ? strdup(others) : NULL;
  const char* const parts[] = {"compile first xla", "compile second xla"};
  for (int i = 0; i < 2; ++i) {
    char path[] = "/tmp/nxd_lost_rank_XXXXXX";
    assert_non_null(mkdtemp(path));
    setenv("NEURON_COMPILE_CACHE_URL", path, 1);
    run_part(parts[i], 2);
    assert_int_equal(count_files(".lock"), 0);
    nxd_test_run_part("compile alive xla", 2, kNxdTestNone, 0, 2 * kCompiledMs / 1000);
    remove_directory(path);
  }
  unsetenv("NEURON_COMPILE_CACHE_URL");
  if (kept) setenv("NEURON_COMPILE_CACHE_URL", kept, 1);
  free(kept);
}

int main(void) {
  const int skipped = nxd_test_set_pjrt_plugin();
  const char* part = getenv("NXD_TEST_PART");
  if (skipped) return skipped;
  if (part) return child(part);
  const struct CMUnitTest through_a_plugin[] = {
      cmocka_unit_test(in_recorded_updates), cmocka_unit_test(in_steps_that_are_not_waited_for),
      cmocka_unit_test(in_updates_of_a_grid), cmocka_unit_test(while_compiling)};
  if (is_through_a_plugin()) return cmocka_run_group_tests(through_a_plugin, NULL, NULL);
  const struct CMUnitTest tests[] = {cmocka_unit_test(in_forward),
                                     cmocka_unit_test(in_backward),
                                     cmocka_unit_test(before_finish),
                                     cmocka_unit_test(while_padding),
                                     cmocka_unit_test(in_recorded_steps),
                                     cmocka_unit_test(in_recorded_updates),
                                     cmocka_unit_test(in_steps_that_are_not_waited_for),
                                     cmocka_unit_test(in_updates_of_a_grid)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

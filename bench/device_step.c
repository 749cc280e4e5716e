/* The cost of the recorded device: training steps of a tiny Llama and of the comparison Llama,
 * eager ones and recorded and replayed ones in turns; then operators of libtorch by themselves. The
 * least of the rounds, of the processor's time, which other programs disturb less than the clock's:
 * the host's share of an operator that is recorded, and a step's ratio to the eager one.
 *   device_step [ROUNDS] */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nxd.h"

#include "number_argument.h"

enum { MOST_ROUNDS = 1000, WARM_ROUNDS = 3, OPERATORS = 500 };

#define TRY(call)                          \
  do {                                     \
    const nxd_status_t status_ = (call);   \
    if (status_ != NXD_OK) return status_; \
  } while (0)

typedef struct {
  const char* name;
  const char* config;
  int tokens;
} model_t;

static const model_t kModels[] = {
    {"tiny",
     "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2,"
     " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 160,"
     " \"vocab_size\": 256, \"max_position_embeddings\": 512}",
     64},
    {"comparison",
     "{\"model_type\": \"llama\", \"hidden_size\": 512, \"num_hidden_layers\": 8,"
     " \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"intermediate_size\": 1408,"
     " \"vocab_size\": 8192, \"max_position_embeddings\": 512}",
     128},
};

typedef struct {
  nxd_module_t* model;
  nxd_optimizer_t* optimizer;
  nxd_tensor_t* ids;
} trained_t;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The least so far, from round 0 on. */
static void take(double* least, double value, int round) {
  if (round == 0 || (round > 0 && value < *least)) *least = value;
}

static nxd_status_t make(nxd_context_t* ctx, const model_t* of, nxd_device_t device,
                         trained_t* out) {
  nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;
  const int64_t shape[] = {1, of->tokens};
  int64_t ids[512];
  nxd_tensor_t* here;
  for (int i = 0; i < of->tokens; ++i) ids[i] = (i * i * 17 + 7 * i) % 251;
  options.device = device;
  TRY(nxd_model_create(ctx, of->config, &options, &out->model));
  TRY(nxd_optimizer_create_adamw(out->model, NULL, &out->optimizer));
  TRY(nxd_tensor_from_data(ids, (size_t)of->tokens * sizeof *ids, shape, 2, NXD_DTYPE_I64, &here));
  TRY(nxd_tensor_to_device(here, device, &out->ids));
  nxd_tensor_destroy(here);
  return NXD_OK;
}

static void destroy(trained_t* it) {
  nxd_tensor_destroy(it->ids);
  nxd_optimizer_destroy(it->optimizer);
  nxd_module_destroy(it->model);
}

/* A training step without its end. */
static nxd_status_t step(const trained_t* it) {
  nxd_tensor_t* inputs[] = {it->ids, it->ids};
  nxd_tensor_t* loss;
  TRY(nxd_module_forward(it->model, inputs, 2, &loss, 1));
  TRY(nxd_backward(&loss, NULL, 1, 0));
  TRY(nxd_optimizer_step(it->optimizer, NULL, NULL));
  TRY(nxd_module_zero_grad(it->model));
  nxd_tensor_destroy(loss);
  return NXD_OK;
}

static nxd_status_t measure(nxd_context_t* ctx, const model_t* of, int rounds) {
  double eager = 0, recorded = 0, replayed = 0, both = 0;
  trained_t here, there;
  nxd_device_metrics_t m = {0};
  TRY(make(ctx, of, NXD_DEVICE_CPU, &here));
  TRY(make(ctx, of, NXD_DEVICE_XLA, &there));
  for (int round = -WARM_ROUNDS; round < rounds; ++round) {
    const double begin = seconds();
    TRY(step(&here));
    const double middle = seconds();
    TRY(nxd_device_reset_metrics());
    TRY(step(&there));
    const double marked = seconds();
    TRY(nxd_mark_step(1));
    const double end = seconds();
    take(&eager, middle - begin, round);
    take(&recorded, marked - middle, round);
    take(&replayed, end - marked, round);
    take(&both, end - middle, round);
  }
  m.struct_size = sizeof m;
  TRY(nxd_device_get_metrics(&m));
  printf(
      "%-10s  eager %8.3f ms  recorded %7.3f ms  replayed %8.3f ms  ratio %.3f  %llu operators, "
      "%.2f us each\n",
      of->name, 1e3 * eager, 1e3 * recorded, 1e3 * replayed, both / eager,
      (unsigned long long)m.recorded, 1e6 * recorded / (double)m.recorded);
  fflush(stdout);
  destroy(&there);
  destroy(&here);
  return NXD_OK;
}

/* Calls of one operator on a tensor of the device that needs no gradient. */
static nxd_status_t measure_operator(const char* name, const char* overload, int rounds) {
  const float values[64] = {0};
  const int64_t shape[] = {8, 8}, flat[] = {64};
  double least = 0;
  nxd_tensor_t *here, *x;
  nxd_op_t* op;
  TRY(nxd_tensor_from_data(values, sizeof values, shape, 2, NXD_DTYPE_F32, &here));
  TRY(nxd_tensor_to_device(here, NXD_DEVICE_XLA, &x));
  TRY(nxd_op_create(name, overload, &op));
  TRY(nxd_op_set_tensor(op, "self", x));
  if (strcmp(name, "aten::mul") == 0) TRY(nxd_op_set_tensor(op, "other", x));
  if (strcmp(name, "aten::view") == 0) TRY(nxd_op_set_ints(op, "size", flat, 1));
  for (int round = -WARM_ROUNDS; round < rounds; ++round) {
    const double begin = seconds();
    for (int i = 0; i < OPERATORS; ++i) TRY(nxd_op_run(op));
    take(&least, seconds() - begin, round);
    TRY(nxd_mark_step(1));
  }
  printf("%-10s  %.2f us each\n", name, 1e6 * least / OPERATORS);
  nxd_op_destroy(op);
  nxd_tensor_destroy(x);
  nxd_tensor_destroy(here);
  return NXD_OK;
}

static nxd_status_t run(int rounds) {
  nxd_context_t* ctx;
  const nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  TRY(nxd_context_create(NULL, &ctx));
  TRY(nxd_init_model_parallel(ctx, &parallel));
  for (size_t i = 0; i < sizeof kModels / sizeof *kModels; ++i) {
    TRY(measure(ctx, &kModels[i], rounds));
  }
  TRY(measure_operator("aten::mul", "Tensor", rounds));
  TRY(measure_operator("aten::relu", "", rounds));
  TRY(measure_operator("aten::view", "", rounds));
  TRY(nxd_context_finalize(ctx));
  nxd_context_destroy(ctx);
  return NXD_OK;
}

int main(int argc, char** argv) {
  static const struct option known[] = {{NULL, 0, NULL, 0}};
  long rounds = 11;
  int good = getopt_long(argc, argv, "", known, NULL) == -1 && argc - optind <= 1;
  if (good && optind < argc) good = read_number(argv[optind], 1, MOST_ROUNDS, &rounds);
  if (!good) {
    fprintf(stderr, "usage: device_step [ROUNDS], from 1 to %d\n", MOST_ROUNDS);
    return 2;
  }
  setenv("NXD_XLA_BACKEND", "replay", 1);
  if (run((int)rounds) != NXD_OK) {
    fprintf(stderr, "device_step: %s\n", nxd_last_error());
    return 1;
  }
  return 0;
}

#include "step_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMostSteps = 10000 };

static int refuse(const char* name, const char* value) {
  fprintf(stderr,
          "bench_step: cannot understand %s %s\n"
          "usage: bench_step [--tp N] [--threads N] [--dtype f32|bf16] [--steps N]\n"
          "  [--batch N] [--sequence N] [--microbatches N] [--sequence-parallel] [--plain]\n"
          "  [--ddp | --zero1] [--stochastic]\n"
          "  [--pp N [--virtual N] [--schedule 1f1b|interleaved|gpipe|zero-bubble] [--cost]]\n"
          "  [--config FILE | --hidden N --layers N --heads N --kv-heads N --intermediate N "
          "--vocab N]\n",
          name, value ? value : "");
  return 0;
}

static nxd_pp_schedule_kind_t schedule_of(const char* name) {
  if (strcmp(name, "1f1b") == 0) return NXD_PP_SCHEDULE_1F1B;
  if (strcmp(name, "interleaved") == 0) return NXD_PP_SCHEDULE_INTERLEAVED;
  if (strcmp(name, "gpipe") == 0) return NXD_PP_SCHEDULE_GPIPE;
  if (strcmp(name, "zero-bubble") == 0) return NXD_PP_SCHEDULE_ZERO_BUBBLE;
  return NXD_PP_SCHEDULE_INVALID;
}

/* The number of arguments taken. */
static int read_option(step_options_t* o, const char* name, const char* value) {
  struct {
    const char* name;
    int* narrow;
    int64_t* wide;
  } numbers[] = {{"--tp", &o->tp, NULL},
                 {"--threads", &o->threads, NULL},
                 {"--pp", &o->pp, NULL},
                 {"--virtual", &o->chunks, NULL},
                 {"--steps", &o->steps, NULL},
                 {"--microbatches", &o->microbatches, NULL},
                 {"--hidden", NULL, &o->hidden},
                 {"--layers", NULL, &o->layers},
                 {"--heads", NULL, &o->heads},
                 {"--kv-heads", NULL, &o->kv_heads},
                 {"--intermediate", NULL, &o->intermediate},
                 {"--vocab", NULL, &o->vocab},
                 {"--sequence", NULL, &o->sequence},
                 {"--batch", NULL, &o->batch}};
  if (strcmp(name, "--sequence-parallel") == 0) return o->sequence_parallel = 1;
  if (strcmp(name, "--plain") == 0) return o->plain = 1;
  if (strcmp(name, "--ddp") == 0) return o->ddp = 1;
  if (strcmp(name, "--cost") == 0) return o->cost = 1;
  if (strcmp(name, "--zero1") == 0) return o->zero1 = 1;
  if (strcmp(name, "--stochastic") == 0) return o->stochastic = 1;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers && value; ++i) {
    if (strcmp(name, numbers[i].name) != 0) continue;
    char* end = NULL;
    const long number = strtol(value, &end, 10);
    if (*end || number < 1 || number > 1000000) break;
    if (numbers[i].narrow) *numbers[i].narrow = (int)number;
    if (numbers[i].wide) *numbers[i].wide = number;
    return 2;
  }
  if (strcmp(name, "--schedule") == 0 && value) {
    o->schedule = schedule_of(value);
    if (o->schedule != NXD_PP_SCHEDULE_INVALID) return 2;
  }
  if (strcmp(name, "--config") == 0 && value) {
    o->config = value;
    return 2;
  }
  if (strcmp(name, "--dtype") == 0 && value) {
    o->dtype = strcmp(value, "bf16") == 0 ? NXD_DTYPE_BF16 : NXD_DTYPE_F32;
    if (o->dtype == NXD_DTYPE_BF16 || strcmp(value, "f32") == 0) return 2;
  }
  return refuse(name, value);
}

int read_step_options(step_options_t* options, int argc, char** argv) {
  const step_options_t defaults = {.tp = 1,
                                   .steps = 12,
                                   .microbatches = 1,
                                   .hidden = 512,
                                   .layers = 8,
                                   .heads = 8,
                                   .kv_heads = 4,
                                   .intermediate = 1408,
                                   .vocab = 8192,
                                   .sequence = 512,
                                   .batch = 4,
                                   .dtype = NXD_DTYPE_F32};
  *options = defaults;
  for (int i = 1; i < argc;) {
    const int taken = read_option(options, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
    if (!taken) return 0;
    i += taken;
  }
  if (options->steps > kMostSteps) options->steps = kMostSteps;
  return 1;
}

static int read_file(const char* path, char* text, size_t room) {
  FILE* file = fopen(path, "rb");
  const size_t size = file ? fread(text, 1, room - 1, file) : 0;
  text[size] = 0;
  if (file) fclose(file);
  if (size > 0 && size < room - 1) return 1;
  fprintf(stderr, "bench_step: cannot read a configuration of at most %zu bytes from %s\n",
          room - 2, path);
  return 0;
}

int make_config(step_options_t* o, char* config, size_t room) {
  if (!o->config) {
    snprintf(config, room,
             "{\"model_type\": \"llama\", \"hidden_size\": %lld, \"num_hidden_layers\": %lld,"
             " \"num_attention_heads\": %lld, \"num_key_value_heads\": %lld,"
             " \"intermediate_size\": %lld, \"vocab_size\": %lld,"
             " \"max_position_embeddings\": %lld}",
             (long long)o->hidden, (long long)o->layers, (long long)o->heads,
             (long long)o->kv_heads, (long long)o->intermediate, (long long)o->vocab,
             (long long)o->sequence);
    return 1;
  }
  if (!read_file(o->config, config, room)) return 0;
  const char* field = strstr(config, "\"vocab_size\"");
  field = field ? strchr(field, ':') : NULL;
  o->vocab = field ? strtoll(field + 1, NULL, 10) : 0;
  if (o->vocab > 0) return 1;
  fprintf(stderr, "bench_step: no vocab_size in %s\n", o->config);
  return 0;
}

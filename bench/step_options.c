#include "step_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "number_argument.h"

enum { kMostSteps = 10000 };

static void usage(FILE* out) {
  fputs(
      "usage: bench_step [--tp N] [--threads N] [--dtype f32|bf16] [--steps N]\n"
      "  [--batch N] [--sequence N] [--microbatches N] [--sequence-parallel] [--plain]\n"
      "  [--ddp | --zero1] [--stochastic] [--recompute] [--memory] [--recorded] [--small-peak]\n"
      "  [--reduce-bf16]\n"
      "  [--pp N [--virtual N] [--schedule 1f1b|interleaved|gpipe|zero-bubble] [--cost]]\n"
      "  [--checkpoint DIRECTORY]\n"
      "  [--config FILE | --hidden N --layers N --heads N --kv-heads N --intermediate N "
      "--vocab N]\n",
      out);
}

static nxd_pp_schedule_kind_t schedule_of(const char* name) {
  if (strcmp(name, "1f1b") == 0) return NXD_PP_SCHEDULE_1F1B;
  if (strcmp(name, "interleaved") == 0) return NXD_PP_SCHEDULE_INTERLEAVED;
  if (strcmp(name, "gpipe") == 0) return NXD_PP_SCHEDULE_GPIPE;
  if (strcmp(name, "zero-bubble") == 0) return NXD_PP_SCHEDULE_ZERO_BUBBLE;
  return NXD_PP_SCHEDULE_INVALID;
}

/* A number from 1 to a million, in one of two places. */
static int store_number(const char* value, int* narrow, int64_t* wide) {
  long number = 0;
  if (!read_number(value, 1, 1000000, &number)) return 0;
  if (narrow) *narrow = (int)number;
  if (wide) *wide = number;
  return 1;
}

static int store_word(step_options_t* o, int option, const char* value) {
  if (option == 'c') o->config = value;
  if (option == 'k') o->checkpoint = value;
  if (option == 's') return (o->schedule = schedule_of(value)) != NXD_PP_SCHEDULE_INVALID;
  if (option != 'd') return 1;
  o->dtype = strcmp(value, "bf16") == 0 ? NXD_DTYPE_BF16 : NXD_DTYPE_F32;
  return o->dtype == NXD_DTYPE_BF16 || strcmp(value, "f32") == 0;
}

static int parse(step_options_t* o, int argc, char** argv) {
  const struct {
    const char* name;
    int* narrow;
    int64_t* wide;
  } numbers[] = {{"tp", &o->tp, NULL},
                 {"threads", &o->threads, NULL},
                 {"pp", &o->pp, NULL},
                 {"virtual", &o->chunks, NULL},
                 {"steps", &o->steps, NULL},
                 {"microbatches", &o->microbatches, NULL},
                 {"hidden", NULL, &o->hidden},
                 {"layers", NULL, &o->layers},
                 {"heads", NULL, &o->heads},
                 {"kv-heads", NULL, &o->kv_heads},
                 {"intermediate", NULL, &o->intermediate},
                 {"vocab", NULL, &o->vocab},
                 {"sequence", NULL, &o->sequence},
                 {"batch", NULL, &o->batch}};
  enum { kNumbers = sizeof numbers / sizeof *numbers, kOthers = 15, kFirst = 256 };
  struct option known[kNumbers + kOthers + 1] = {
      [kNumbers] = {"sequence-parallel", no_argument, &o->sequence_parallel, 1},
      {"plain", no_argument, &o->plain, 1},
      {"reduce-bf16", no_argument, &o->reduce_bf16, 1},
      {"ddp", no_argument, &o->ddp, 1},
      {"cost", no_argument, &o->cost, 1},
      {"zero1", no_argument, &o->zero1, 1},
      {"stochastic", no_argument, &o->stochastic, 1},
      {"recompute", no_argument, &o->recompute, 1},
      {"memory", no_argument, &o->memory, 1},
      {"recorded", no_argument, &o->recorded, 1},
      {"small-peak", no_argument, &o->small_peak, 1},
      {"schedule", required_argument, NULL, 's'},
      {"config", required_argument, NULL, 'c'},
      {"checkpoint", required_argument, NULL, 'k'},
      {"dtype", required_argument, NULL, 'd'}};
  for (int i = 0; i < kNumbers; ++i) {
    known[i] = (struct option){numbers[i].name, required_argument, NULL, kFirst + i};
  }
  for (int c, i = 0; (c = getopt_long(argc, argv, "", known, &i)) != -1;) {
    if (c == 0) continue;
    if (c == '?') return 0;
    const int good =
        c >= kFirst ? store_number(optarg, numbers[c - kFirst].narrow, numbers[c - kFirst].wide)
                    : store_word(o, c, optarg);
    if (good) continue;
    fprintf(stderr, "bench_step: --%s: cannot understand %s\n", known[i].name, optarg);
    return 0;
  }
  return optind == argc;
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
  if (!parse(options, argc, argv)) {
    usage(stderr);
    return 0;
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

/* nxdplan: predicts what layouts of a model cost, and finds the best. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nxd.h"
#include "standard_output.h"

typedef struct settings {
  nxd_plan_machine_t machine;
  nxd_plan_layout_t layout;
  nxd_plan_search_options_t search;
  int32_t batch, top;
  int measure, one_layout;
  const char* config;
} settings_t;

/* An option and where its value goes: a double times a unit, a number, or one of a list of words.
 */
typedef struct plan_option {
  const char* name;
  const char* help;
  enum { FIGURE, NUMBER, WORD, FLAG } sort;
  size_t offset;
  double unit;
  const char* words;                 /* of values 0, 1 and so on, as "f32 - bf16" */
  enum { BOTH, SEARCH, LAYOUT } use; /* of the search alone, or asks for one layout */
} option_t;

#define PLACE(field) offsetof(settings_t, field)
static const option_t options[] = {
    {"ranks", "ranks of the whole world; by default 1", NUMBER, PLACE(search.world_size), 0, 0,
     SEARCH},
    {"batch", "sequences of a step over all ranks; by default 8 for each", NUMBER, PLACE(batch), 0,
     0, SEARCH},
    {"sequence", "tokens of a sequence; by default 512", NUMBER, PLACE(search.sequence_length), 0,
     0, BOTH},
    {"dtype", "f32 or bf16 (with F32 masters)", WORD, PLACE(search.dtype), 0, "f32 - bf16", BOTH},
    {"max-virtual", "chunks of a rank that are tried; by default 4", NUMBER,
     PLACE(search.max_virtual_size), 0, 0, SEARCH},
    {"top", "rows of the table; by default 10", NUMBER, PLACE(top), 0, 0, SEARCH},
    {"measure", "measure products and copies on this host instead of taking defaults", FLAG,
     PLACE(measure), 0, 0, BOTH},
    {"ranks-per-host", "by default all", NUMBER, PLACE(machine.ranks_per_host), 0, 0, BOTH},
    {"memory", "GiB of a rank; by default no bound", FIGURE, PLACE(machine.memory_bytes),
     1073741824.0, 0, BOTH},
    {"gemm-f32", "GFLOP/s of a rank", FIGURE, PLACE(machine.gemm_rate_f32), 1e9, 0, BOTH},
    {"gemm-bf16", "GFLOP/s of a rank", FIGURE, PLACE(machine.gemm_rate_bf16), 1e9, 0, BOTH},
    {"memory-bandwidth", "GB/s of a rank", FIGURE, PLACE(machine.memory_bandwidth), 1e9, 0, BOTH},
    {"host-bandwidth", "GB/s between ranks of a host", FIGURE, PLACE(machine.host_bandwidth), 1e9,
     0, BOTH},
    {"host-latency", "us", FIGURE, PLACE(machine.host_latency), 1e-6, 0, BOTH},
    {"link-bandwidth", "GB/s of a host to others", FIGURE, PLACE(machine.link_bandwidth), 1e9, 0,
     BOTH},
    {"link-latency", "us", FIGURE, PLACE(machine.link_latency), 1e-6, 0, BOTH},
    {"tp", "tensor-parallel ranks", NUMBER, PLACE(layout.tensor_parallel_size), 0, 0, LAYOUT},
    {"pp", "pipeline ranks", NUMBER, PLACE(layout.pipeline_parallel_size), 0, 0, LAYOUT},
    {"dp", "data-parallel ranks", NUMBER, PLACE(layout.data_parallel_size), 0, 0, LAYOUT},
    {"virtual", "chunks of each rank", NUMBER, PLACE(layout.virtual_size), 0, 0, LAYOUT},
    {"schedule", "1f1b, interleaved, gpipe or zero-bubble", WORD, PLACE(layout.schedule), 0,
     "default 1f1b interleaved gpipe zero-bubble", LAYOUT},
    {"microbatches", "of each data-parallel rank", NUMBER, PLACE(layout.num_microbatches), 0, 0,
     LAYOUT},
    {"microbatch-size", "sequences", NUMBER, PLACE(layout.microbatch_size), 0, 0, LAYOUT},
    {"partition", "even or cost", WORD, PLACE(layout.partition), 0, "default even cost", LAYOUT},
    {"zero", "shard the optimizer's state", FLAG, PLACE(layout.zero_stage), 0, 0, LAYOUT},
    {"sequence-parallel", "slices of the sequence between layers", FLAG,
     PLACE(layout.sequence_parallel), 0, 0, LAYOUT},
    {"recompute", "keep the inputs of layers alone", FLAG, PLACE(layout.recompute), 0, 0, LAYOUT},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static void usage(FILE* out) {
  fputs(
      "usage: nxdplan [OPTION...] CONFIG\n"
      "\n"
      "CONFIG is a Hugging Face config.json of a model that nxd_model_create knows. Prints the\n"
      "layouts of --ranks ranks that train it fastest, or, with any of the last options, what "
      "that\n"
      "one layout costs. Times are predictions: docs/planner.md says how far off they are.\n"
      "\n",
      out);
  for (int i = 0; i < N_OPTIONS; ++i) {
    if (options[i].use == LAYOUT && options[i - 1].use != LAYOUT) fputs("\n  one layout:\n", out);
    fprintf(out, "  --%-18s %s\n", options[i].name, options[i].help);
  }
  fputs("  -h, --help           this text\n", out);
}

/* Index of a word in a list of them, or -1. */
static int32_t find_word(const char* words, const char* word) {
  const size_t length = strlen(word);
  int32_t index = 0;
  for (const char* at = words; *at; ++index) {
    const size_t here = strcspn(at, " ");
    if (here == length && length > 0 && *word != '-' && !strncmp(at, word, here)) return index;
    at += here + (at[here] == ' ');
  }
  return -1;
}

/* Figures of an option, in its unit: with others, predictions would overflow. */
static double least_figure(const option_t* option) {
  return option->offset == PLACE(machine.memory_bytes) ? 1e-9 : 1e-100;
}

static double most_figure(const option_t* option) {
  return option->offset == PLACE(machine.memory_bytes) ? 9e8 : 1e100;
}

static void say_values(const option_t* option, const char* got) {
  fprintf(stderr, "nxdplan: --%s: expected ", option->name);
  if (option->sort == WORD) fputs(option->help, stderr);
  if (option->sort == NUMBER) fprintf(stderr, "a whole number from 1 to %d", INT32_MAX);
  if (option->sort == FIGURE) {
    fprintf(stderr, "a number from %g to %g", least_figure(option), most_figure(option));
  }
  fprintf(stderr, ", got %s\n", got);
}

/* True if the text is a value of the option, which is then set. */
static int set_value(settings_t* settings, const option_t* option, const char* text) {
  char* place = (char*)settings + option->offset;
  char* end = NULL;
  if (option->sort == FLAG) {
    const int32_t on = 1;
    memcpy(place, &on, sizeof on);
    return 1;
  }
  if (!*text) return 0;
  if (option->sort == WORD) {
    const int32_t index = find_word(option->words, text);
    memcpy(place, &index, sizeof index);
    return index >= 0;
  }
  if (option->sort == NUMBER) {
    errno = 0;
    const long number = strtol(text, &end, 10);
    const int32_t value = (int32_t)number;
    memcpy(place, &value, sizeof value);
    return !*end && !errno && number > 0 && number <= INT32_MAX;
  }
  double figure = strtod(text, &end);
  if (*end || !(figure >= least_figure(option)) || figure > most_figure(option)) return 0;
  figure *= option->unit;
  if (option->offset == PLACE(machine.memory_bytes)) {
    settings->machine.memory_bytes = (uint64_t)figure;
  } else {
    memcpy(place, &figure, sizeof figure);
  }
  return 1;
}

/* 0, 1 after --help, -1 when the arguments are wrong. */
static int parse(int argc, char** argv, settings_t* settings) {
  enum { FIRST = 256 }; /* values of options, beyond any letter */
  struct option known[N_OPTIONS + 2] = {{"help", no_argument, NULL, 'h'}};
  for (int i = 0; i < N_OPTIONS; ++i) {
    const int wants = options[i].sort == FLAG ? no_argument : required_argument;
    known[i + 1] = (struct option){options[i].name, wants, NULL, FIRST + i};
  }
  const option_t *of_search = NULL, *of_layout = NULL;
  for (int c; (c = getopt_long(argc, argv, "h", known, NULL)) != -1;) {
    if (c == 'h') return 1;
    if (c == '?') return -1;
    const option_t* option = &options[c - FIRST];
    if (!set_value(settings, option, optarg)) {
      say_values(option, optarg);
      return -1;
    }
    if (option->use == SEARCH) of_search = option;
    if (option->use == LAYOUT) of_layout = option;
  }
  settings->one_layout = of_layout != NULL;
  if (of_search && of_layout) {
    fprintf(stderr, "nxdplan: --%s is of the search, and --%s asks for one layout\n",
            of_search->name, of_layout->name);
    return -1;
  }
  if (argc - optind == 1) {
    settings->config = argv[optind];
    return 0;
  }
  if (optind == argc) {
    fputs("nxdplan: no configuration was given\n", stderr);
  } else {
    fprintf(stderr, "nxdplan: expected one configuration, got also %s\n", argv[optind + 1]);
  }
  return -1;
}

static char* read_file(const char* path) {
  FILE* file = fopen(path, "rb");
  char* text = NULL;
  size_t size = 0, capacity = 0;
  int whole = 0;
  while (file) {
    if (size + 4096 > capacity) {
      capacity = 2 * capacity + 8192;
      char* more = realloc(text, capacity);
      if (!more) break;
      text = more;
    }
    const size_t got = fread(text + size, 1, capacity - size - 1, file);
    size += got;
    text[size] = '\0';
    whole = got == 0 && !ferror(file);
    if (got == 0) break;
  }
  const int cut = whole && strlen(text) < size;
  if (!whole || cut) {
    fprintf(stderr, "nxdplan: %s: %s\n", path,
            cut ? "expected text, got a byte that is 0" : strerror(errno));
    free(text);
    text = NULL;
  }
  if (file) fclose(file);
  return text;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Bytes that a copy of large arrays writes in a second; the best of a few. */
static double copy_bandwidth(void) {
  const size_t bytes = (size_t)64 << 20;
  char* from = malloc(bytes);
  char* to = malloc(bytes);
  double best = 0;
  if (from && to) {
    memset(from, 1, bytes);
    memset(to, 2, bytes);
    for (int i = 0; i < 8; ++i) {
      from[i] = (char)i;
      const double start = now();
      memcpy(to, from, bytes);
      const double rate = (double)bytes / (now() - start);
      if (to[i] == (char)i && rate > best) best = rate;
    }
  }
  free(from);
  free(to);
  return best;
}

/* Figures that were given stay as they are. */
static int measure(nxd_plan_machine_t* machine) {
  const double copy = copy_bandwidth();
  if (machine->memory_bandwidth == 0) machine->memory_bandwidth = 2 * copy;
  if (machine->host_bandwidth == 0) machine->host_bandwidth = copy;
  const nxd_dtype_t dtypes[] = {NXD_DTYPE_F32, NXD_DTYPE_BF16};
  double* const peaks[] = {&machine->gemm_rate_f32, &machine->gemm_rate_bf16};
  for (int i = 0; i < 2; ++i) {
    if (*peaks[i] == 0 && nxd_measure_gemm_peak(dtypes[i], 0, peaks[i]) != NXD_OK) return 0;
  }
  printf("measured: %.0f GFLOP/s f32, %.0f bf16; memory %.1f GB/s, copies %.1f GB/s\n",
         machine->gemm_rate_f32 / 1e9, machine->gemm_rate_bf16 / 1e9,
         machine->memory_bandwidth / 1e9, machine->host_bandwidth / 1e9);
  return 1;
}

static const char* schedule_name(nxd_pp_schedule_kind_t kind) {
  static const char* const names[] = {"1F1B", "1F1B", "interleaved", "GPipe", "ZB-H1"};
  return kind >= 0 && kind < 5 ? names[kind] : "?";
}

static void print_table(const nxd_plan_layout_t* layouts, const nxd_plan_prediction_t* predictions,
                        size_t count) {
  puts(
      "    tp    pp    dp virtual  schedule     microbatches  cuts  zero  sp  recompute      step s"
      "    tokens/s  GEMM  bubble     GiB");
  for (size_t i = 0; i < count; ++i) {
    const nxd_plan_layout_t* l = &layouts[i];
    const nxd_plan_prediction_t* p = &predictions[i];
    /* Blanks of their own: a number that is wider than its column stays apart from others. */
    printf(
        "%6d %5d %5d %7d  %-11s %6d x %-5d %5s %5d %3d %10d %11.4g %11.4g %4.0f%% %6.1f%% %7.2f\n",
        l->tensor_parallel_size, l->pipeline_parallel_size, l->data_parallel_size, l->virtual_size,
        schedule_name(l->schedule), l->num_microbatches, l->microbatch_size,
        l->partition == NXD_PP_PARTITION_COST ? "cost" : "even", l->zero_stage,
        l->sequence_parallel, l->recompute, p->step_seconds, p->tokens_per_second,
        100 * p->gemm_share, 100 * p->bubble_share, (double)p->total_bytes / 1073741824.0);
  }
}

static void print_prediction(const nxd_plan_prediction_t* p) {
  const double mb = 1048576.0;
  printf("step                %12.6f s   %.0f tokens/s, %.1f %% of the GEMM peak\n",
         p->step_seconds, p->tokens_per_second, 100 * p->gemm_share);
  printf("pipeline            %12.6f s   bubble %.1f %%, a transfer %.6f s\n", p->pipeline_seconds,
         100 * p->bubble_share, p->transfer_seconds);
  printf("rank %d, which computes longest\n", p->busiest_rank);
  printf("  products          %12.6f s\n", p->gemm_seconds);
  printf("  attention         %12.6f s\n", p->attention_seconds);
  printf("  elementwise       %12.6f s\n", p->elementwise_seconds);
  printf("  tensor parallel   %12.6f s\n", p->tensor_parallel_seconds);
  printf("  data parallel     %12.6f s   of which %.6f beside nothing else\n",
         p->data_parallel_seconds, p->exposed_seconds);
  printf("  optimizer         %12.6f s\n", p->optimizer_seconds);
  printf("rank %d, which keeps most: %.1f MiB%s\n", p->fullest_rank, (double)p->total_bytes / mb,
         p->fits ? "" : ", more than there is");
  printf("  parameters        %12.1f MiB\n", (double)p->parameter_bytes / mb);
  printf("  gradients         %12.1f MiB\n", (double)p->grad_bytes / mb);
  printf("  optimizer         %12.1f MiB\n", (double)p->optimizer_bytes / mb);
  printf("  activations       %12.1f MiB\n", (double)p->activation_bytes / mb);
  printf("  buffers           %12.1f MiB\n", (double)p->buffer_bytes / mb);
}

static int predict_one(settings_t* settings, const nxd_plan_model_t* model) {
  nxd_plan_prediction_t prediction = {.struct_size = sizeof prediction};
  settings->layout.sequence_length = settings->search.sequence_length;
  settings->layout.dtype = settings->search.dtype;
  if (nxd_plan_predict(model, &settings->machine, &settings->layout, &prediction) != NXD_OK) {
    return 0;
  }
  print_prediction(&prediction);
  return 1;
}

/* Finds at most cap layouts and prints them: those are all, or as many as are wanted, unless *full
 * is set; nothing is printed then. */
static int search_up_to(size_t cap, const nxd_plan_search_options_t* wanted,
                        const settings_t* settings, const nxd_plan_model_t* model, int* full) {
  nxd_plan_layout_t* layouts = calloc(cap, sizeof *layouts);
  nxd_plan_prediction_t* predictions = calloc(cap, sizeof *predictions);
  size_t count = 0;
  for (size_t i = 0; layouts && predictions && i < cap; ++i) {
    layouts[i].struct_size = sizeof *layouts;
    predictions[i].struct_size = sizeof *predictions;
  }
  const int good = layouts && predictions &&
                   nxd_plan_search(model, &settings->machine, wanted, layouts, predictions, cap,
                                   &count) == NXD_OK;
  *full = good && count == cap && cap < (size_t)settings->top;
  if (good && !*full) print_table(layouts, predictions, count);
  free(layouts);
  free(predictions);
  return good;
}

/* However many rows are allowed, the memory is that of those that there are, by and large. */
static int search(const settings_t* settings, const nxd_plan_model_t* model) {
  nxd_plan_search_options_t wanted = settings->search;
  wanted.batch_size = settings->batch ? settings->batch : INT64_C(8) * wanted.world_size;
  const size_t top = (size_t)settings->top;
  size_t cap = 4096;
  int full = 0;
  do {
    if (!search_up_to(cap < top ? cap : top, &wanted, settings, model, &full)) return 0;
    cap *= 8;
  } while (full);
  return 1;
}

int main(int argc, char** argv) {
  settings_t settings = {
      NXD_PLAN_MACHINE_INIT, NXD_PLAN_LAYOUT_INIT, NXD_PLAN_SEARCH_OPTIONS_INIT, 0, 10, 0, 0, NULL};
  settings.search.world_size = 1;
  settings.search.sequence_length = 512;
  const int parsed = parse(argc, argv, &settings);
  if (parsed != 0) {
    usage(parsed > 0 ? stdout : stderr);
    return parsed > 0 ? end_output("nxdplan", 0) : 2;
  }
  char* text = read_file(settings.config);
  if (!text) return 1;
  nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
  const int known = nxd_plan_model_from_config(text, &model) == NXD_OK;
  const int good =
      known && (!settings.measure || measure(&settings.machine)) &&
      (settings.one_layout ? predict_one(&settings, &model) : search(&settings, &model));
  const char* why = nxd_last_error();
  if (!good) {
    fprintf(stderr, "nxdplan: %s%s%s\n", known ? "" : settings.config, known ? "" : ": ",
            *why ? why : "--top: no memory for so many rows");
  }
  free(text);
  return good ? end_output("nxdplan", 0) : 1;
}

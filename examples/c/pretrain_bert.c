/* Pre-trains a BERT on masked words and next sentences (Devlin et al. 2019), tensor- and
 * data-parallel, with the optimizer's state split over the copies (--zero1). It starts one process
 * per rank itself; under torchrun, nxdrun, mpirun or srun it joins the ranks that are there, and
 * more ranks than --tp train data-parallel copies.
 *
 *   pretrain_bert --tp 2 --dp 2 --zero1 --text my.txt --out bert
 *   pretrain_bert --data corpus.u16 --vocab 30522 --cls 101 --sep 102 --mask 103
 *
 * A row is [CLS] first [SEP] second [SEP]. In half of the rows the second part goes on where the
 * first one ends, in the others it is from anywhere; the model tells which. It also guesses 15 % of
 * the words: of these 80 % are hidden by [MASK], 10 % are other words, 10 % stay as they are.
 *
 * The words are the bytes of a text, or with --data 16-bit ids of a tokenizer, the least byte
 * first. The three special ids follow the words where they are not given. --out gets what Hugging
 * Face's BertForPreTraining loads: config.json and model.safetensors.
 *
 * Built against an installed libnxd, whose place the program remembers:
 *   cc -std=c99 -O2 pretrain_bert.c output_directory.c sampling.c text.c -o pretrain_bert \
 *     $(pkg-config --cflags --libs nxd) -lm \
 *     -Wl,-rpath,$(pkg-config --variable=libdir nxd) */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <float.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nxd.h"
#include "output_directory.h"
#include "sampling.h"
#include "text.h"

enum { kSpecials = 3 }; /* of a row: [CLS] and two [SEP] */

/* Numbers are doubles, as options are read; all but the rate are whole. */
typedef struct {
  double tp, dp, steps, warmup, batch, sequence, hidden, layers, heads, intermediate, vocabulary;
  double cls, sep, mask, seed, learning_rate;
  int zero1, sequence_parallel;
  nxd_dtype_t dtype, autocast;
  const char *text, *data, *config, *out;
} arguments_t;

/* Everything of one rank; released by close_rank in any state. */
typedef struct {
  nxd_context_t* ctx;
  nxd_module_t* model;
  nxd_ddp_t* ddp; /* with --zero1 */
  nxd_optimizer_t* optimizer;
  nxd_group_t* data_group; /* borrowed */
  int32_t rank, copies, copy;
  char* config;
  int64_t* words;
  size_t count;
} rank_t;

static int failed(const char* call, nxd_status_t status) {
  if (status == NXD_OK) return 0;
  fprintf(stderr, "pretrain_bert: %s: %s: %s\n", call, nxd_status_string(status), nxd_last_error());
  return 1;
}
/* Leaves the calling function, which gives 0 for failure. */
#define TRY(call)                        \
  do {                                   \
    if (failed(#call, (call))) return 0; \
  } while (0)

static void usage(void) {
  fputs(
      "usage: pretrain_bert [--text FILE | --data FILE --vocab N] [--out DIR]\n"
      "  [--config FILE | [--hidden N] [--layers N] [--heads N] [--intermediate N]]\n"
      "  [--cls ID] [--sep ID] [--mask ID] [--tp N] [--dp N] [--zero1] [--sequence-parallel]\n"
      "  [--dtype f32|bf16|autocast] [--steps N] [--warmup N] [--batch N] [--seq N] [--lr X]\n"
      "  [--seed N]     a batch of --batch rows is shared by all copies\n",
      stderr);
}

static int set_dtype(arguments_t* a, const char* name) {
  const int casts = strcmp(name, "autocast") == 0;
  a->dtype = strcmp(name, "bf16") == 0 ? NXD_DTYPE_BF16 : NXD_DTYPE_F32;
  a->autocast = casts ? NXD_DTYPE_BF16 : NXD_DTYPE_INVALID;
  return casts || a->dtype == NXD_DTYPE_BF16 || strcmp(name, "f32") == 0;
}

static int set_number(double* place, double least, int is_whole, const char* value) {
  char* end = NULL;
  *place = strtod(value, &end);
  if (!*value || *end || !(*place >= least && *place <= 1e9)) return 0;
  return !is_whole || *place == (double)(int64_t)*place;
}

static const arguments_t defaults = {.tp = 1,
                                     .dp = 1,
                                     .steps = 300,
                                     .warmup = -1,
                                     .batch = 16,
                                     .sequence = 64,
                                     .hidden = 128,
                                     .layers = 2,
                                     .heads = 4,
                                     .intermediate = 512,
                                     .vocabulary = -1,
                                     .cls = -1,
                                     .sep = -1,
                                     .mask = -1,
                                     .seed = 1,
                                     .learning_rate = 1e-3,
                                     .dtype = NXD_DTYPE_F32,
                                     .autocast = NXD_DTYPE_INVALID};

static int read_arguments(arguments_t* a, int argc, char** argv) {
  *a = defaults;
  const struct {
    const char* name;
    double* number;
    double least;
    const char** word;
  } places[] = {{"tp", &a->tp, 1, NULL},
                {"dp", &a->dp, 1, NULL},
                {"steps", &a->steps, 1, NULL},
                {"warmup", &a->warmup, 0, NULL},
                {"batch", &a->batch, 1, NULL},
                {"seq", &a->sequence, kSpecials + 2, NULL},
                {"hidden", &a->hidden, 1, NULL},
                {"layers", &a->layers, 1, NULL},
                {"heads", &a->heads, 1, NULL},
                {"intermediate", &a->intermediate, 1, NULL},
                {"vocab", &a->vocabulary, 1, NULL},
                {"cls", &a->cls, 0, NULL},
                {"sep", &a->sep, 0, NULL},
                {"mask", &a->mask, 0, NULL},
                {"seed", &a->seed, 0, NULL},
                {"lr", &a->learning_rate, DBL_MIN, NULL},
                {"text", NULL, 0, &a->text},
                {"data", NULL, 0, &a->data},
                {"config", NULL, 0, &a->config},
                {"out", NULL, 0, &a->out}};
  enum { kPlaces = sizeof places / sizeof *places, kFirst = 256 };
  struct option known[kPlaces + 4] = {{"dtype", required_argument, NULL, 'd'},
                                      {"zero1", no_argument, NULL, 'z'},
                                      {"sequence-parallel", no_argument, NULL, 's'}};
  for (int i = 0; i < kPlaces; ++i) {
    known[i + 3] = (struct option){places[i].name, required_argument, NULL, kFirst + i};
  }
  for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
    int good = c != '?';
    if (c == 'z') a->zero1 = 1;
    if (c == 's') a->sequence_parallel = 1;
    if (c == 'd') good = set_dtype(a, optarg);
    if (c >= kFirst && places[c - kFirst].word) *places[c - kFirst].word = optarg;
    if (c >= kFirst && places[c - kFirst].number) {
      double* const place = places[c - kFirst].number;
      good = set_number(place, places[c - kFirst].least, place != &a->learning_rate, optarg);
    }
    if (!good) return 0;
  }
  if (a->vocabulary < 0 && a->data) return 0; /* ids of words would serve as [CLS] and others */
  if (a->vocabulary < 0) a->vocabulary = 256; /* bytes */
  if (a->cls < 0) a->cls = a->vocabulary;
  if (a->sep < 0) a->sep = a->vocabulary + 1;
  if (a->mask < 0) a->mask = a->vocabulary + 2;
  if (a->warmup < 0) a->warmup = (double)(int64_t)(a->steps / 20 + 1);
  return optind == argc && !(a->text && a->data);
}

/* A Hugging Face configuration: a file's, or one made of the sizes given. */
static char* make_config(const arguments_t* a) {
  if (a->config) return read_whole_file(a->config, NULL);
  const size_t room = 1024;
  char* config = malloc(room);
  if (!config) return NULL;
  snprintf(config, room,
           "{\"model_type\": \"bert\", \"architectures\": [\"BertForPreTraining\"],"
           " \"hidden_size\": %.0f, \"num_hidden_layers\": %.0f, \"num_attention_heads\": %.0f,"
           " \"intermediate_size\": %.0f, \"vocab_size\": %.0f, \"max_position_embeddings\": %.0f,"
           " \"type_vocab_size\": 2, \"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.1,"
           " \"attention_probs_dropout_prob\": 0.1, \"initializer_range\": 0.02,"
           " \"layer_norm_eps\": 1e-12, \"pad_token_id\": null}\n",
           a->hidden, a->layers, a->heads, a->intermediate, a->vocabulary + kSpecials, a->sequence);
  return config;
}

/* The ids of a corpus: those of a file, or the bytes of texts. */
static int read_words(rank_t* r, const arguments_t* a) {
  text_t text = {NULL, 0};
  if (a->data) {
    r->words = ids_read(a->data, 2, &r->count);
  } else if (text_read(a->text, &text)) {
    r->words = ids_of_bytes(text.bytes, text.size, 1, &r->count);
  }
  text_free(&text);
  if (!r->words) return 0;
  if (r->count >= 2 * (size_t)a->sequence) return 1;
  fprintf(stderr, "pretrain_bert: expected at least %.0f words, got %zu\n", 2 * a->sequence,
          r->count);
  return 0;
}

static int make_optimizer(rank_t* r, const arguments_t* a) {
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  adamw.learning_rate = a->learning_rate;
  adamw.weight_decay = 0.01;
  if (a->zero1) {
    nxd_ddp_options_t ddp = NXD_DDP_OPTIONS_INIT;
    ddp.zero_stage = 1;
    ddp.reduce = NXD_REDUCE_AVG;
    TRY(nxd_ddp_create(r->model, &ddp, &r->ddp));
    TRY(nxd_optimizer_create_adamw_ddp(r->ddp, &adamw, &r->optimizer));
  } else {
    TRY(nxd_optimizer_create_adamw(r->model, &adamw, &r->optimizer));
  }
  nxd_lr_schedule_options_t schedule = NXD_LR_SCHEDULE_OPTIONS_INIT;
  schedule.kind = NXD_LR_SCHEDULE_LINEAR;
  schedule.warmup_steps = (int64_t)a->warmup;
  schedule.total_steps = (int64_t)(a->warmup + a->steps);
  TRY(nxd_optimizer_set_lr_schedule(r->optimizer, &schedule));
  return 1;
}

static int open_rank(rank_t* r, const arguments_t* a) {
  nxd_context_options_t context = NXD_CONTEXT_OPTIONS_INIT;
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  nxd_model_options_t model = NXD_MODEL_OPTIONS_INIT;
  context.seed = (uint64_t)a->seed;
  parallel.tensor_parallel_size = (int32_t)a->tp;
  model.dtype = a->dtype;
  model.sequence_parallel = a->sequence_parallel;
  TRY(nxd_context_create(&context, &r->ctx));
  TRY(nxd_context_get_rank(r->ctx, &r->rank));
  if (a->out && !make_output_directory(r->ctx, a->out)) return 0;
  TRY(nxd_init_model_parallel(r->ctx, &parallel));
  TRY(nxd_parallel_get_group(r->ctx, NXD_AXIS_DATA, &r->data_group));
  TRY(nxd_group_get_size(r->data_group, &r->copies));
  TRY(nxd_group_get_rank(r->data_group, &r->copy));
  if ((int64_t)a->batch % r->copies != 0) {
    fprintf(stderr, "pretrain_bert: --batch: expected a multiple of the %d copies, got %.0f\n",
            r->copies, a->batch);
    return 0;
  }
  TRY(nxd_model_create(r->ctx, r->config, &model, &r->model));
  return make_optimizer(r, a);
}

static void close_rank(rank_t* r) {
  nxd_optimizer_destroy(r->optimizer);
  nxd_ddp_destroy(r->ddp);
  nxd_module_destroy(r->model);
  nxd_context_destroy(r->ctx);
  free(r->config);
  free(r->words);
}

/* Draws of one row, which hang on the row's number in all of the training alone: any number of
 * copies sees the same rows. */
typedef struct {
  uint64_t seed, next;
} draws_t;

static size_t draw(draws_t* d, size_t below) { return random_bits(d->seed, d->next++) % below; }

/* Both parts of a row; 0 where the second one follows the first, 1 where it does not. */
static int64_t make_pair(const rank_t* r, const arguments_t* a, draws_t* d, int64_t* ids,
                         int64_t* types) {
  const size_t sequence = (size_t)a->sequence, room = sequence - kSpecials;
  const size_t first = 1 + draw(d, room - 1), second = room - first;
  const size_t at = draw(d, r->count - room + 1);
  const int is_other = draw(d, 2) == 1;
  const size_t from = is_other ? draw(d, r->count - second + 1) : at + first;
  ids[0] = (int64_t)a->cls;
  memcpy(ids + 1, r->words + at, first * sizeof *ids);
  ids[1 + first] = (int64_t)a->sep;
  memcpy(ids + 2 + first, r->words + from, second * sizeof *ids);
  ids[sequence - 1] = (int64_t)a->sep;
  for (size_t i = 0; i < sequence; ++i) types[i] = i > 1 + first;
  return is_other;
}

/* Hides words, whose labels they become. Each row has as many, so that the mean over copies of
 * their mean losses is the mean over all hidden words. */
static void hide_words(const arguments_t* a, draws_t* d, int64_t* ids, const int64_t* types,
                       int64_t* labels) {
  const size_t sequence = (size_t)a->sequence, wanted = (sequence * 15 + 99) / 100;
  for (size_t i = 0; i < sequence; ++i) labels[i] = -100;
  for (size_t hidden = 0; hidden < wanted;) {
    const size_t at = 1 + draw(d, sequence - 2);
    const int is_separator = types[at] != types[at + 1];
    if (labels[at] != -100 || is_separator) continue;
    labels[at] = ids[at];
    const size_t kind = draw(d, 10);
    if (kind < 8) ids[at] = (int64_t)a->mask;
    if (kind == 8) ids[at] = (int64_t)draw(d, (size_t)a->vocabulary);
    ++hidden;
  }
}

/* A model's inputs, and their values. */
typedef struct {
  int64_t *ids, *labels, *types, *next;
  nxd_tensor_t* inputs[5];
} batch_t;

static int fill_batch(const rank_t* r, const arguments_t* a, int step, batch_t* b) {
  const size_t rows = (size_t)a->batch / (size_t)r->copies, sequence = (size_t)a->sequence;
  const size_t words = rows * sequence;
  b->ids = malloc(words * sizeof *b->ids);
  b->labels = malloc(words * sizeof *b->labels);
  b->types = malloc(words * sizeof *b->types);
  b->next = malloc(rows * sizeof *b->next);
  if (!b->ids || !b->labels || !b->types || !b->next) return 0;
  for (size_t i = 0; i < rows; ++i) {
    const uint64_t row = (uint64_t)step * (uint64_t)a->batch + (uint64_t)r->copy * rows + i;
    draws_t draws = {(uint64_t)a->seed, row << 32}; /* far more than a row needs */
    b->next[i] = make_pair(r, a, &draws, b->ids + i * sequence, b->types + i * sequence);
    hide_words(a, &draws, b->ids + i * sequence, b->types + i * sequence, b->labels + i * sequence);
  }
  const int64_t shape[2] = {(int64_t)rows, (int64_t)sequence};
  const size_t bytes = words * sizeof *b->ids;
  TRY(nxd_tensor_from_data(b->ids, bytes, shape, 2, NXD_DTYPE_I64, &b->inputs[0]));
  TRY(nxd_tensor_from_data(b->labels, bytes, shape, 2, NXD_DTYPE_I64, &b->inputs[1]));
  /* Every row is full: there is no attention mask. */
  TRY(nxd_tensor_from_data(b->types, bytes, shape, 2, NXD_DTYPE_I64, &b->inputs[3]));
  TRY(nxd_tensor_from_data(b->next, rows * sizeof *b->next, shape, 1, NXD_DTYPE_I64,
                           &b->inputs[4]));
  return 1;
}

static void free_batch(batch_t* b) {
  for (int i = 0; i < 5; ++i) nxd_tensor_destroy(b->inputs[i]);
  free(b->ids);
  free(b->labels);
  free(b->types);
  free(b->next);
}

/* Forward and backward; the loss is the mean over all copies. */
static int run_model(rank_t* r, const arguments_t* a, batch_t* b, double* out_loss) {
  nxd_tensor_t* loss = NULL;
  TRY(nxd_set_autocast(a->autocast, NULL));
  const nxd_status_t status = nxd_module_forward(r->model, b->inputs, 5, &loss, 1);
  TRY(nxd_set_autocast(NXD_DTYPE_INVALID, NULL));
  TRY(status);
  const int good = !failed("nxd_backward", nxd_backward(&loss, NULL, 1, 0)) &&
                   !failed("nxd_tensor_get_item", nxd_tensor_get_item(loss, out_loss));
  nxd_tensor_destroy(loss);
  if (!good) return 0;
  TRY(nxd_all_reduce(r->data_group, out_loss, out_loss, 1, NXD_DTYPE_F64, NXD_REDUCE_AVG));
  return 1;
}

static int train_step(rank_t* r, const arguments_t* a, int step) {
  batch_t batch = {0};
  double loss = 0;
  TRY(nxd_module_zero_grad(r->model));
  const int good = fill_batch(r, a, step, &batch) && run_model(r, a, &batch, &loss);
  free_batch(&batch);
  if (!good) return 0;
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  finish.max_norm = 1.0;
  finish.data_parallel_reduce = NXD_REDUCE_AVG;
  TRY(nxd_optimizer_step(r->optimizer, &finish, NULL));
  const int every = a->steps > 20 ? (int)(a->steps / 20) : 1;
  if (r->rank == 0 && ((step + 1) % every == 0 || step == 0)) {
    printf("step %d/%.0f  loss %.6f\n", step + 1, a->steps, loss);
    fflush(stdout);
  }
  return 1;
}

/* With --zero1 a rank keeps its share of the state alone. */
static int print_state(const rank_t* r, const arguments_t* a) {
  uint64_t bytes = 0;
  TRY(nxd_optimizer_get_state_bytes(r->optimizer, &bytes));
  if (r->rank != 0) return 1;
  printf("rank 0 keeps %llu bytes of the optimizer's state", (unsigned long long)bytes);
  if (a->zero1) printf(" (ZeRO-1 over %d copies)", r->copies);
  printf("\n");
  return 1;
}

static int write_directory(rank_t* r, const arguments_t* a) {
  char path[4096];
  if (r->rank == 0) {
    snprintf(path, sizeof path, "%s/config.json", a->out);
    FILE* file = fopen(path, "wb");
    int good = file && fputs(r->config, file) >= 0;
    if (file && fclose(file) != 0) good = 0; /* a full disk shows here at the latest */
    if (!good) {
      fprintf(stderr, "pretrain_bert: cannot write %s: %s\n", path, strerror(errno));
      return 0;
    }
  }
  snprintf(path, sizeof path, "%s/model.safetensors", a->out);
  TRY(nxd_module_save_safetensors(r->model, path)); /* written by rank 0, whole */
  if (r->rank == 0) printf("wrote %s\n", a->out);
  return 1;
}

/* Starts one process per rank, waits for them and tells how they ended. 0 where this process is a
 * rank itself, by a launcher too. */
static int spawn_ranks(int n, int* good) {
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  nxd_job_t* job = NULL;
  options.num_processes = n;
  nxd_status_t status = nxd_spawn(&options, &job);
  if (status == NXD_ERROR_INVALID_STATE) return 0;
  if (status == NXD_OK) status = nxd_job_wait(job, -1);
  *good = !failed("the ranks", status);
  nxd_job_destroy(job);
  return 1;
}

int main(int argc, char** argv) {
  arguments_t a;
  rank_t r = {0};
  if (!read_arguments(&a, argc, argv)) {
    usage();
    return 2;
  }
  const double ranks = a.tp * a.dp;
  int good = 0;
  if (ranks > INT_MAX) {
    fprintf(stderr, "pretrain_bert: expected at most %d ranks, got %g\n", INT_MAX, ranks);
    return 2;
  }
  if (ranks > 1 && spawn_ranks((int)ranks, &good)) return good ? 0 : 1;
  good = read_words(&r, &a) && (r.config = make_config(&a)) != NULL && open_rank(&r, &a);
  for (int step = 0; good && step < a.steps; ++step) good = train_step(&r, &a, step);
  if (good) good = print_state(&r, &a);
  if (good && a.out) good = write_directory(&r, &a);
  if (good) good = !failed("nxd_context_finalize", nxd_context_finalize(r.ctx));
  close_rank(&r);
  return good ? 0 : 1;
}

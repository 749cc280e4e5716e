/* Fine-tunes a model of a Hugging Face directory and writes one that Hugging Face's libraries load:
 * weights under their names, and config.json, tokenizer and other files beside it as they were.
 * Weights in other formats, directories, and names with a dot in front, such as tf_model.h5, onnx/
 * and .git, stay behind: what they have is of the weights that were.
 *
 *   finetune_hf --model gpt2/ --ids corpus.u16 --out gpt2-tuned/ --tp 2
 *
 * The ids are those of the model's own tokenizer, as 16-bit numbers, the least byte first. With
 * --text the bytes of a file are the ids. It starts one process per rank itself; under torchrun,
 * nxdrun, mpirun or srun it joins the ranks that are there, and more ranks than --tp train
 * data-parallel copies.
 *
 * Built against an installed libnxd, whose place the program remembers:
 *   cc -std=c99 -O2 finetune_hf.c output_directory.c sampling.c text.c -o finetune_hf \
 *     $(pkg-config --cflags --libs nxd) -lm \
 *     -Wl,-rpath,$(pkg-config --variable=libdir nxd) */
#define _DEFAULT_SOURCE
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "nxd.h"
#include "output_directory.h"
#include "sampling.h"
#include "text.h"

enum { kPathRoom = 4096 };

typedef struct {
  const char *model, *out, *ids, *text;
  int tp, dp, steps, batch, sequence;
  double learning_rate;
} arguments_t;

/* Everything of one rank; released by close_rank in any state. */
typedef struct {
  nxd_context_t* ctx;
  nxd_module_t* model;
  nxd_optimizer_t* optimizer;
  nxd_group_t* data_group; /* borrowed */
  int32_t rank, copies, copy;
  int64_t* corpus;
  size_t count;
} rank_t;

static int failed(const char* call, nxd_status_t status) {
  if (status == NXD_OK) return 0;
  fprintf(stderr, "finetune_hf: %s: %s: %s\n", call, nxd_status_string(status), nxd_last_error());
  return 1;
}
/* Leaves the calling function, which gives 0 for failure. */
#define TRY(call)                        \
  do {                                   \
    if (failed(#call, (call))) return 0; \
  } while (0)

static int number(const char* text, double* out) {
  char* end = NULL;
  *out = strtod(text, &end);
  return *text && !*end && *out > 0 && *out <= 1e9;
}

static int read_arguments(arguments_t* a, int argc, char** argv) {
  static const struct option known[] = {{"model", required_argument, NULL, 'm'},
                                        {"out", required_argument, NULL, 'o'},
                                        {"ids", required_argument, NULL, 'i'},
                                        {"text", required_argument, NULL, 't'},
                                        {"tp", required_argument, NULL, 'p'},
                                        {"dp", required_argument, NULL, 'd'},
                                        {"steps", required_argument, NULL, 's'},
                                        {"batch", required_argument, NULL, 'b'},
                                        {"seq", required_argument, NULL, 'q'},
                                        {"lr", required_argument, NULL, 'l'},
                                        {NULL, 0, NULL, 0}};
  *a = (arguments_t){
      .tp = 1, .dp = 1, .steps = 20, .batch = 4, .sequence = 32, .learning_rate = 1e-4};
  for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
    double value = 0;
    const int is_number = strchr("pdsbql", c) != NULL;
    if (c == '?' || (is_number && !number(optarg, &value))) return 0;
    /* One token has no next one to learn. */
    if (is_number && c != 'l' && (value != (int)value || value < (c == 'q' ? 2 : 1))) return 0;
    if (c == 'm') a->model = optarg;
    if (c == 'o') a->out = optarg;
    if (c == 'i') a->ids = optarg;
    if (c == 't') a->text = optarg;
    if (c == 'p') a->tp = (int)value;
    if (c == 'd') a->dp = (int)value;
    if (c == 's') a->steps = (int)value;
    if (c == 'b') a->batch = (int)value;
    if (c == 'q') a->sequence = (int)value;
    if (c == 'l') a->learning_rate = value;
  }
  if (a->ids && a->text) {
    fputs("finetune_hf: --text has no effect beside --ids\n", stderr);
    return 0;
  }
  return optind == argc && a->model && a->out && (a->ids || a->text);
}

/* The ids of the corpus, from either kind of file. */
static int read_corpus(rank_t* r, const arguments_t* a) {
  r->corpus = a->ids ? ids_read(a->ids, 2, &r->count) : ids_read(a->text, 1, &r->count);
  if (!r->corpus) return 0;
  if (r->count > (size_t)a->sequence) return 1;
  fprintf(stderr, "finetune_hf: expected more than %d ids, got %zu\n", a->sequence, r->count);
  return 0;
}

static int open_rank(rank_t* r, const arguments_t* a) {
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  parallel.tensor_parallel_size = a->tp;
  TRY(nxd_context_create(NULL, &r->ctx));
  TRY(nxd_context_get_rank(r->ctx, &r->rank));
  if (!make_output_directory(r->ctx, a->out)) return 0;
  TRY(nxd_init_model_parallel(r->ctx, &parallel));
  TRY(nxd_parallel_get_group(r->ctx, NXD_AXIS_DATA, &r->data_group));
  TRY(nxd_group_get_size(r->data_group, &r->copies));
  TRY(nxd_group_get_rank(r->data_group, &r->copy));
  TRY(nxd_model_from_pretrained(r->ctx, a->model, NULL, &r->model));
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  adamw.learning_rate = a->learning_rate;
  TRY(nxd_optimizer_create_adamw(r->model, &adamw, &r->optimizer));
  return 1;
}

static void close_rank(rank_t* r) {
  nxd_optimizer_destroy(r->optimizer);
  nxd_module_destroy(r->model);
  nxd_context_destroy(r->ctx);
  free(r->corpus);
}

/* Random windows of the corpus; copies of the model take different ones. */
static int make_batch(const rank_t* r, const arguments_t* a, int step, nxd_tensor_t** out_ids) {
  const int64_t shape[2] = {a->batch, a->sequence};
  const size_t row_bytes = (size_t)a->sequence * sizeof(int64_t);
  char* ids = malloc(row_bytes * (size_t)a->batch);
  if (!ids) return 0;
  for (int row = 0; row < a->batch; ++row) {
    const uint64_t draw =
        ((uint64_t)step * (uint64_t)r->copies + (uint64_t)r->copy) * (uint64_t)a->batch +
        (uint64_t)row;
    const size_t at = random_bits(1, draw) % (r->count - (size_t)a->sequence);
    memcpy(ids + row_bytes * (size_t)row, r->corpus + at, row_bytes);
  }
  const nxd_status_t status =
      nxd_tensor_from_data(ids, row_bytes * (size_t)a->batch, shape, 2, NXD_DTYPE_I64, out_ids);
  free(ids);
  return !failed("nxd_tensor_from_data", status);
}

static int train_step(rank_t* r, const arguments_t* a, int step) {
  nxd_tensor_t *ids = NULL, *loss = NULL;
  double value = 0;
  if (!make_batch(r, a, step, &ids)) return 0;
  nxd_tensor_t* inputs[2] = {ids, ids}; /* the model shifts its labels itself */
  const nxd_status_t status = nxd_module_forward(r->model, inputs, 2, &loss, 1);
  nxd_tensor_destroy(ids);
  TRY(status);
  const int good = !failed("nxd_backward", nxd_backward(&loss, NULL, 1, 0)) &&
                   !failed("nxd_tensor_get_item", nxd_tensor_get_item(loss, &value));
  nxd_tensor_destroy(loss);
  if (!good) return 0;
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  finish.max_norm = 1.0;
  finish.data_parallel_reduce = NXD_REDUCE_AVG;
  TRY(nxd_optimizer_step(r->optimizer, &finish, NULL));
  TRY(nxd_module_zero_grad(r->model));
  TRY(nxd_all_reduce(r->data_group, &value, &value, 1, NXD_DTYPE_F64, NXD_REDUCE_AVG));
  if (r->rank == 0) printf("step %d/%d  loss %.6f\n", step + 1, a->steps, value);
  return 1;
}

static int ends_with(const char* name, const char* end) {
  const size_t length = strlen(name), of_end = strlen(end);
  return length >= of_end && strcmp(name + length - of_end, end) == 0;
}

/* Weights of any program's, and indices of them: repositories have them in several formats, and
 * each would be the old ones. */
static int is_weights(const char* name) {
  static const char* const endings[] = {
      ".safetensors", ".index.json", ".bin", ".ckpt", ".gguf", ".h5",    ".msgpack",
      ".onnx",        ".onnx_data",  ".ot",  ".pt",   ".pth",  ".tflite"};
  for (size_t i = 0; i < sizeof endings / sizeof *endings; ++i) {
    if (ends_with(name, endings[i])) return 1;
  }
  return 0;
}

/* All but the weights, which are new. */
static int is_kept(const struct dirent* entry) {
  return *entry->d_name != '.' && !is_weights(entry->d_name);
}

static int is_directory(const char* parent, const char* name) {
  char path[kPathRoom];
  struct stat found;
  snprintf(path, sizeof path, "%s/%s", parent, name);
  return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

static int copy_file(const char* from, const char* to, const char* name) {
  char path[kPathRoom];
  size_t size = 0;
  snprintf(path, sizeof path, "%s/%s", from, name);
  char* content = read_whole_file(path, &size);
  snprintf(path, sizeof path, "%s/%s", to, name);
  FILE* file = content ? fopen(path, "wb") : NULL;
  int good = file && fwrite(content, 1, size, file) == size;
  if (file && fclose(file) != 0) good = 0; /* a full disk shows here at the latest */
  if (!good) fprintf(stderr, "finetune_hf: cannot write %s: %s\n", path, strerror(errno));
  free(content);
  return good;
}

static int copy_other_files(const char* from, const char* to) {
  struct dirent** entries = NULL;
  const int count = scandir(from, &entries, is_kept, alphasort);
  int good = count > 0;
  for (int i = 0; i < count; ++i) {
    const char* name = entries[i]->d_name;
    good = good && (is_directory(from, name) || copy_file(from, to, name));
    free(entries[i]);
  }
  free(entries);
  return good;
}

/* The weights come first: they are not lost to another file that cannot be copied. */
static int write_directory(rank_t* r, const arguments_t* a) {
  char path[kPathRoom];
  snprintf(path, sizeof path, "%s/model.safetensors", a->out);
  TRY(nxd_module_save_safetensors(r->model, path)); /* written by rank 0, whole */
  if (r->rank == 0 && !copy_other_files(a->model, a->out)) return 0;
  if (r->rank == 0) printf("wrote %s\n", a->out);
  TRY(nxd_context_finalize(r->ctx));
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
    fputs(
        "usage: finetune_hf --model DIR --out DIR (--ids FILE | --text FILE) [--tp N] [--dp N]\n"
        "  [--steps N] [--batch N] [--seq N] [--lr X]\n"
        "--out gets the weights, and copies of the other files of --model, but no directories and\n"
        "no names with a dot in front.\n",
        stderr);
    return 2;
  }
  const double ranks = (double)a.tp * a.dp;
  int good = 0;
  if (ranks > INT_MAX) {
    fprintf(stderr, "finetune_hf: expected at most %d ranks, got %g\n", INT_MAX, ranks);
    return 2;
  }
  if (ranks > 1 && spawn_ranks((int)ranks, &good)) return good ? 0 : 1;
  good = read_corpus(&r, &a) && open_rank(&r, &a);
  for (int step = 0; good && step < a.steps; ++step) good = train_step(&r, &a, step);
  good = good && write_directory(&r, &a);
  close_rank(&r);
  return good ? 0 : 1;
}

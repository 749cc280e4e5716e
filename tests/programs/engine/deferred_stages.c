/* Makes a Llama of half a gigabyte without values, cuts it over all ranks, and prints how much this
 * process has grown at most, the parameters of its stage, and those of the whole model, in bytes.
 *   deferred_stages */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nxd.h"

static void check(nxd_status_t status, int line) {
  if (status == NXD_OK) return;
  fprintf(stderr, "deferred_stages: line %d: %s\n", line, nxd_last_error());
  exit(1);
}
#define CHECK(call) check(call, __LINE__)

static const char* const kConfig =
    "{\"model_type\": \"llama\", \"hidden_size\": 1024, \"num_hidden_layers\": 8,"
    " \"num_attention_heads\": 16, \"intermediate_size\": 2816, \"vocab_size\": 8000,"
    " \"max_position_embeddings\": 128, \"tie_word_embeddings\": false}";

/* The most memory that the process ever had, in bytes. */
static long long peak_memory(void) {
  FILE* status = fopen("/proc/self/status", "r");
  char line[256];
  long long kib = -1;
  while (status && fgets(line, sizeof line, status)) {
    if (sscanf(line, "VmHWM: %lld", &kib) == 1) break;
  }
  if (status) fclose(status);
  return kib * 1024;
}

static long long parameter_bytes(nxd_module_t* module) {
  size_t count = 0;
  long long bytes = 0;
  CHECK(nxd_module_get_parameter_count(module, &count));
  for (size_t i = 0; i < count; ++i) {
    nxd_parameter_t* parameter = NULL;
    int64_t shape[4], elements = 1;
    size_t dims = 0;
    CHECK(nxd_module_get_parameter(module, i, &parameter, NULL));
    CHECK(nxd_parameter_get_global_shape(parameter, shape, 4, &dims));
    for (size_t d = 0; d < dims; ++d) elements *= shape[d];
    bytes += 4 * elements;
  }
  return bytes;
}

int main(void) {
  nxd_context_t* ctx = NULL;
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  nxd_model_options_t model = NXD_MODEL_OPTIONS_INIT;
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  nxd_module_t *whole = NULL, *stage = NULL;
  nxd_tensor_t* ids = NULL;
  nxd_pp_t* pipeline = NULL;
  const int64_t shape[2] = {2, 64};
  char line[160];
  CHECK(nxd_context_create(NULL, &ctx));
  CHECK(nxd_context_get_size(ctx, &parallel.pipeline_parallel_size));
  CHECK(nxd_init_model_parallel(ctx, &parallel));
  CHECK(nxd_tensor_create(shape, 2, NXD_DTYPE_I64, NXD_DEVICE_META, &ids));
  const long long before = peak_memory();
  model.device = NXD_DEVICE_META;
  CHECK(nxd_model_create(ctx, kConfig, &model, &whole));
  const long long all = parameter_bytes(whole);
  nxd_tensor_t* inputs[2] = {ids, ids};
  options.num_microbatches = 2;
  CHECK(nxd_pp_create(whole, inputs, 2, &options, &pipeline));
  CHECK(nxd_pp_get_local_module(pipeline, &stage));
  snprintf(line, sizeof line, "grown %lld stage %lld whole %lld\n", peak_memory() - before,
           parameter_bytes(stage), all);
  fputs(line, stdout);
  nxd_pp_destroy(pipeline);
  nxd_module_destroy(whole);
  nxd_tensor_destroy(ids);
  CHECK(nxd_context_finalize(ctx));
  nxd_context_destroy(ctx);
  return 0;
}

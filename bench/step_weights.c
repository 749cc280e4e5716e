/* Writes the initial weights that bench_step starts from, so that others can start from them too.
 *
 *   bench_step_weights CONFIG OUT        Hugging Face's config.json; a safetensors file */
#include <getopt.h>
#include <stdio.h>

#include "nxd.h"

static int failed(const char* call, nxd_status_t status) {
  if (status == NXD_OK) return 0;
  fprintf(stderr, "bench_step_weights: %s: %s: %s\n", call, nxd_status_string(status),
          nxd_last_error());
  return 1;
}

int main(int argc, char** argv) {
  static const struct option known[] = {{NULL, 0, NULL, 0}};
  char config[16384];
  const int good_words = getopt_long(argc, argv, "", known, NULL) == -1 && argc - optind == 2;
  char** words = argv + optind;
  FILE* file = good_words ? fopen(words[0], "rb") : NULL;
  const size_t size = file ? fread(config, 1, sizeof config - 1, file) : 0;
  if (file) fclose(file);
  if (size == 0 || size == sizeof config - 1) {
    fprintf(stderr, "usage: bench_step_weights CONFIG OUT, with a CONFIG below %zu bytes\n",
            sizeof config - 1);
    return 2;
  }
  config[size] = 0;
  nxd_context_t* ctx = NULL;
  nxd_module_t* model = NULL;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.seed = 1; /* bench_step's */
  const int good =
      !failed("nxd_context_create", nxd_context_create(&options, &ctx)) &&
      !failed("nxd_init_model_parallel", nxd_init_model_parallel(ctx, NULL)) &&
      !failed("nxd_model_create", nxd_model_create(ctx, config, NULL, &model)) &&
      !failed("nxd_module_save_safetensors", nxd_module_save_safetensors(model, words[1])) &&
      !failed("nxd_context_finalize", nxd_context_finalize(ctx));
  nxd_module_destroy(model);
  nxd_context_destroy(ctx);
  return good ? 0 : 1;
}

/* Trains a Llama for ten steps on the device of nxd_get_device, with all ranks as one
 * tensor-parallel group under sequence parallelism, or as data-parallel ones with ZeRO-1, and
 * prints losses and the device's counts.
 *   llama_on_device DIRECTORY [zero] */
#include <stdio.h>
#include <stdlib.h>

#include "nxd.h"

static void check(nxd_status_t status, int line) {
  if (status == NXD_OK) return;
  fprintf(stderr, "llama_on_device: line %d: %s\n", line, nxd_last_error());
  exit(1);
}
#define CHECK(call) check(call, __LINE__)

enum { kSteps = 10, kTokens = 64 };

static void train(nxd_context_t* ctx, nxd_module_t* llama, nxd_tensor_t* ids, int zero) {
  nxd_optimizer_t* adamw;
  nxd_ddp_t* ddp = NULL;
  if (zero) {
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = 1;
    options.bucket_bytes = 100000;
    options.reduce = NXD_REDUCE_AVG;
    CHECK(nxd_ddp_create(llama, &options, &ddp));
    CHECK(nxd_optimizer_create_adamw_ddp(ddp, NULL, &adamw));
  } else {
    CHECK(nxd_optimizer_create_adamw(llama, NULL, &adamw));
  }
  for (int step = 0; step < kSteps; ++step) {
    nxd_tensor_t* inputs[] = {ids, ids};
    nxd_tensor_t* loss;
    double value;
    char line[80];
    CHECK(nxd_module_forward(llama, inputs, 2, &loss, 1));
    CHECK(nxd_backward(&loss, NULL, 1, 0));
    CHECK(nxd_optimizer_step(adamw, NULL, NULL));
    CHECK(nxd_module_zero_grad(llama));
    CHECK(nxd_mark_step(1));
    CHECK(nxd_tensor_get_item(loss, &value));
    snprintf(line, sizeof line, "step %d loss %.6f", step, value);
    CHECK(nxd_master_print(ctx, line));
    nxd_tensor_destroy(loss);
  }
  nxd_optimizer_destroy(adamw);
  nxd_ddp_destroy(ddp);
}

int main(int argc, char** argv) {
  int64_t tokens[kTokens];
  const int64_t shape[] = {2, kTokens / 2};
  char report[4096];
  size_t needed;
  int32_t rank, ranks;
  int zero;
  nxd_device_t device;
  nxd_context_t* ctx;
  nxd_module_t* llama;
  nxd_tensor_t *ids, *there;
  nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
  nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;

  if (argc != 2 && argc != 3) return 2;
  zero = argc == 3;
  CHECK(nxd_get_device(&device));
  CHECK(nxd_context_create(NULL, &ctx));
  CHECK(nxd_context_get_size(ctx, &ranks));
  CHECK(nxd_context_get_rank(ctx, &rank));
  for (int i = 0; i < kTokens; ++i) tokens[i] = (i * 7 + i * i + (zero ? rank : 0)) % 100;
  layout.tensor_parallel_size = zero ? 1 : ranks;
  CHECK(nxd_init_model_parallel(ctx, &layout));
  options.device = device;
  options.sequence_parallel = !zero;
  CHECK(nxd_model_from_pretrained(ctx, argv[1], &options, &llama));
  CHECK(nxd_tensor_from_data(tokens, sizeof tokens, shape, 2, NXD_DTYPE_I64, &ids));
  CHECK(nxd_tensor_to_device(ids, device, &there));
  train(ctx, llama, there, zero);
  CHECK(nxd_device_get_report(report, sizeof report, &needed));
  CHECK(nxd_master_print(ctx, report));
  nxd_tensor_destroy(there);
  nxd_tensor_destroy(ids);
  nxd_module_destroy(llama);
  CHECK(nxd_context_finalize(ctx));
  nxd_context_destroy(ctx);
  return 0;
}

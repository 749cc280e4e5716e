/* The structs of nxd/engine.h as compiled programs know them; see
 * tests/core/test_abi_layout.c. */
#define _GNU_SOURCE
#include <stdio.h>

#include "support/abi.h"

#include "support/tensor_check.h"

SIZE(nxd_function_options_t, 64);
FIELD(nxd_function_options_t, struct_size, 0);
FIELD(nxd_function_options_t, name, 8);
FIELD(nxd_function_options_t, num_outputs, 16);
FIELD(nxd_function_options_t, forward, 24);
FIELD(nxd_function_options_t, backward, 32);
FIELD(nxd_function_options_t, shape, 40);
FIELD(nxd_function_options_t, user_data, 48);
FIELD(nxd_function_options_t, destroy, 56);

SIZE(nxd_device_metrics_t, 128);
FIELD(nxd_device_metrics_t, struct_size, 0);
FIELD(nxd_device_metrics_t, recorded, 8);
FIELD(nxd_device_metrics_t, steps, 16);
FIELD(nxd_device_metrics_t, graphs, 24);
FIELD(nxd_device_metrics_t, compiles, 32);
FIELD(nxd_device_metrics_t, cache_hits, 40);
FIELD(nxd_device_metrics_t, executions, 48);
FIELD(nxd_device_metrics_t, implicit_syncs, 56);
FIELD(nxd_device_metrics_t, fallbacks, 64);
FIELD(nxd_device_metrics_t, compile_seconds, 72);
FIELD(nxd_device_metrics_t, execute_seconds, 80);
FIELD(nxd_device_metrics_t, loads, 88);
FIELD(nxd_device_metrics_t, load_seconds, 96);
FIELD(nxd_device_metrics_t, argument_bytes, 104);
FIELD(nxd_device_metrics_t, result_bytes, 112);
FIELD(nxd_device_metrics_t, copied_bytes, 120);

SIZE(nxd_parameter_options_t, 48);
FIELD(nxd_parameter_options_t, struct_size, 0);
FIELD(nxd_parameter_options_t, dtype, 8);
FIELD(nxd_parameter_options_t, has_shard_dim, 12);
FIELD(nxd_parameter_options_t, sequence_parallel, 16);
FIELD(nxd_parameter_options_t, init, 20);
FIELD(nxd_parameter_options_t, init_a, 24);
FIELD(nxd_parameter_options_t, init_b, 32);
FIELD(nxd_parameter_options_t, device, 40);
FIELD(nxd_parameter_options_t, shard_dim, 44);

SIZE(nxd_embedding_options_t, 72);
FIELD(nxd_embedding_options_t, struct_size, 0);
FIELD(nxd_embedding_options_t, name, 8);
FIELD(nxd_embedding_options_t, dtype, 16);
FIELD(nxd_embedding_options_t, device, 20);
FIELD(nxd_embedding_options_t, init, 24);
FIELD(nxd_embedding_options_t, has_padding_idx, 28);
FIELD(nxd_embedding_options_t, init_a, 32);
FIELD(nxd_embedding_options_t, init_b, 40);
FIELD(nxd_embedding_options_t, padding_idx, 48);
FIELD(nxd_embedding_options_t, shard_across_embedding, 56);
FIELD(nxd_embedding_options_t, sequence_parallel, 60);
FIELD(nxd_embedding_options_t, sequence_dim, 64);
FIELD(nxd_embedding_options_t, reserved, 68);

SIZE(nxd_linear_options_t, 88);
FIELD(nxd_linear_options_t, struct_size, 0);
FIELD(nxd_linear_options_t, name, 8);
FIELD(nxd_linear_options_t, dtype, 16);
FIELD(nxd_linear_options_t, device, 20);
FIELD(nxd_linear_options_t, bias, 24);
FIELD(nxd_linear_options_t, gather_output, 28);
FIELD(nxd_linear_options_t, reduce_output, 32);
FIELD(nxd_linear_options_t, input_is_parallel, 36);
FIELD(nxd_linear_options_t, sequence_parallel, 40);
FIELD(nxd_linear_options_t, sequence_dim, 44);
FIELD(nxd_linear_options_t, skip_bias_add, 48);
FIELD(nxd_linear_options_t, keep_master_weight, 52);
FIELD(nxd_linear_options_t, stride, 56);
FIELD(nxd_linear_options_t, init, 60);
FIELD(nxd_linear_options_t, init_a, 64);
FIELD(nxd_linear_options_t, init_b, 72);
FIELD(nxd_linear_options_t, pad, 80);
FIELD(nxd_linear_options_t, reserved, 84);

SIZE(nxd_norm_options_t, 48);
FIELD(nxd_norm_options_t, struct_size, 0);
FIELD(nxd_norm_options_t, name, 8);
FIELD(nxd_norm_options_t, dtype, 16);
FIELD(nxd_norm_options_t, device, 20);
FIELD(nxd_norm_options_t, eps, 24);
FIELD(nxd_norm_options_t, affine, 32);
FIELD(nxd_norm_options_t, bias, 36);
FIELD(nxd_norm_options_t, sequence_parallel, 40);
FIELD(nxd_norm_options_t, reserved, 44);

SIZE(nxd_rope_options_t, 80);
FIELD(nxd_rope_options_t, struct_size, 0);
FIELD(nxd_rope_options_t, type, 8);
FIELD(nxd_rope_options_t, rotary_dim, 12);
FIELD(nxd_rope_options_t, theta, 16);
FIELD(nxd_rope_options_t, factor, 24);
FIELD(nxd_rope_options_t, low_freq_factor, 32);
FIELD(nxd_rope_options_t, high_freq_factor, 40);
FIELD(nxd_rope_options_t, beta_fast, 48);
FIELD(nxd_rope_options_t, beta_slow, 56);
FIELD(nxd_rope_options_t, attention_factor, 64);
FIELD(nxd_rope_options_t, original_max_position_embeddings, 72);

SIZE(nxd_attention_options_t, 88);
FIELD(nxd_attention_options_t, struct_size, 0);
FIELD(nxd_attention_options_t, name, 8);
FIELD(nxd_attention_options_t, dtype, 16);
FIELD(nxd_attention_options_t, device, 20);
FIELD(nxd_attention_options_t, num_kv_heads, 24);
FIELD(nxd_attention_options_t, head_dim, 32);
FIELD(nxd_attention_options_t, rope, 40);
FIELD(nxd_attention_options_t, causal, 48);
FIELD(nxd_attention_options_t, qkv_bias, 52);
FIELD(nxd_attention_options_t, output_bias, 56);
FIELD(nxd_attention_options_t, sequence_parallel, 60);
FIELD(nxd_attention_options_t, init, 64);
FIELD(nxd_attention_options_t, reserved, 68);
FIELD(nxd_attention_options_t, init_a, 72);
FIELD(nxd_attention_options_t, init_b, 80);

SIZE(nxd_qkv_options_t, 72);
FIELD(nxd_qkv_options_t, struct_size, 0);
FIELD(nxd_qkv_options_t, name, 8);
FIELD(nxd_qkv_options_t, dtype, 16);
FIELD(nxd_qkv_options_t, device, 20);
FIELD(nxd_qkv_options_t, num_kv_heads, 24);
FIELD(nxd_qkv_options_t, head_dim, 32);
FIELD(nxd_qkv_options_t, fusion, 40);
FIELD(nxd_qkv_options_t, bias, 44);
FIELD(nxd_qkv_options_t, sequence_parallel, 48);
FIELD(nxd_qkv_options_t, init, 52);
FIELD(nxd_qkv_options_t, init_a, 56);
FIELD(nxd_qkv_options_t, init_b, 64);

SIZE(nxd_save_options_t, 40);
FIELD(nxd_save_options_t, struct_size, 0);
FIELD(nxd_save_options_t, master_only, 8);
FIELD(nxd_save_options_t, each_host, 12);
FIELD(nxd_save_options_t, keys, 16);
FIELD(nxd_save_options_t, values, 24);
FIELD(nxd_save_options_t, num_values, 32);
SIZE(nxd_mlp_options_t, 56);
FIELD(nxd_mlp_options_t, struct_size, 0);
FIELD(nxd_mlp_options_t, name, 8);
FIELD(nxd_mlp_options_t, dtype, 16);
FIELD(nxd_mlp_options_t, device, 20);
FIELD(nxd_mlp_options_t, activation, 24);
FIELD(nxd_mlp_options_t, bias, 28);
FIELD(nxd_mlp_options_t, sequence_parallel, 32);
FIELD(nxd_mlp_options_t, init, 36);
FIELD(nxd_mlp_options_t, init_a, 40);
FIELD(nxd_mlp_options_t, init_b, 48);

SIZE(nxd_cross_entropy_options_t, 40);
FIELD(nxd_cross_entropy_options_t, struct_size, 0);
FIELD(nxd_cross_entropy_options_t, label_smoothing, 8);
FIELD(nxd_cross_entropy_options_t, smoothing, 16);
FIELD(nxd_cross_entropy_options_t, reduction, 20);
FIELD(nxd_cross_entropy_options_t, has_ignore_index, 24);
FIELD(nxd_cross_entropy_options_t, reserved, 28);
FIELD(nxd_cross_entropy_options_t, ignore_index, 32);

SIZE(nxd_model_options_t, 24);
FIELD(nxd_model_options_t, struct_size, 0);
FIELD(nxd_model_options_t, dtype, 8);
FIELD(nxd_model_options_t, device, 12);
FIELD(nxd_model_options_t, sequence_parallel, 16);
FIELD(nxd_model_options_t, reserved, 20);

SIZE(nxd_pp_options_t, 184);
FIELD(nxd_pp_options_t, struct_size, 0);
FIELD(nxd_pp_options_t, num_microbatches, 8);
FIELD(nxd_pp_options_t, virtual_size, 12);
FIELD(nxd_pp_options_t, schedule, 16);
FIELD(nxd_pp_options_t, partition, 20);
FIELD(nxd_pp_options_t, custom_schedule, 24);
FIELD(nxd_pp_options_t, transformer_layer_class, 32);
FIELD(nxd_pp_options_t, pipeline_cuts, 40);
FIELD(nxd_pp_options_t, num_cuts, 48);
FIELD(nxd_pp_options_t, leaf_modules, 56);
FIELD(nxd_pp_options_t, num_leaf_modules, 64);
FIELD(nxd_pp_options_t, input_names, 72);
FIELD(nxd_pp_options_t, num_input_names, 80);
FIELD(nxd_pp_options_t, num_outputs, 88);
FIELD(nxd_pp_options_t, loss_output, 92);
FIELD(nxd_pp_options_t, loss, 96);
FIELD(nxd_pp_options_t, has_labels_input, 100);
FIELD(nxd_pp_options_t, labels_input, 104);
FIELD(nxd_pp_options_t, has_ignore_index, 108);
FIELD(nxd_pp_options_t, ignore_index, 112);
FIELD(nxd_pp_options_t, labels_shifted, 120);
FIELD(nxd_pp_options_t, broadcast_and_average_loss, 124);
FIELD(nxd_pp_options_t, return_mb_loss, 128);
FIELD(nxd_pp_options_t, keep_outputs, 132);
FIELD(nxd_pp_options_t, param_init, 136);
FIELD(nxd_pp_options_t, param_init_data, 144);
FIELD(nxd_pp_options_t, trace_file_path, 152);
FIELD(nxd_pp_options_t, leaf_rule, 160);
FIELD(nxd_pp_options_t, leaf_rule_data, 168);
FIELD(nxd_pp_options_t, loss_path, 176);

static nxd_context_t* ctx;
static nxd_module_t *container, *linear;
static nxd_tensor_t *logits, *labels;

static int set_up(void** state) {
  (void)state;
  const float values[] = {0, 1, 2, 3};
  const int64_t label = 1, shape[] = {1, 4};
  return nxd_context_create(NULL, &ctx) || nxd_init_model_parallel(ctx, NULL) ||
         nxd_module_create(ctx, "Container", NULL, NULL, NULL, &container) ||
         nxd_layer_create_column_parallel_linear(ctx, 4, 4, NULL, &linear) ||
         nxd_tensor_from_data(values, sizeof values, shape, 2, NXD_DTYPE_F32, &logits) ||
         nxd_tensor_from_data(&label, sizeof label, shape, 1, NXD_DTYPE_I64, &labels);
}

static int tear_down(void** state) {
  (void)state;
  nxd_tensor_destroy(labels);
  nxd_tensor_destroy(logits);
  nxd_module_destroy(linear);
  nxd_module_destroy(container);
  nxd_context_destroy(ctx);
  return 0;
}

static void test_macros(void** state) {
  (void)state;
#define CHECK_INIT(name, NAME)                                      \
  do {                                                              \
    const nxd_##name##_options_t macro = NXD_##NAME##_OPTIONS_INIT; \
    check_init("nxd_" #name "_options_init", &macro, sizeof macro); \
  } while (0)
  CHECK_INIT(function, FUNCTION);
  CHECK_INIT(parameter, PARAMETER);
  CHECK_INIT(embedding, EMBEDDING);
  CHECK_INIT(linear, LINEAR);
  CHECK_INIT(norm, NORM);
  CHECK_INIT(rope, ROPE);
  CHECK_INIT(attention, ATTENTION);
  CHECK_INIT(qkv, QKV);
  CHECK_INIT(mlp, MLP);
  CHECK_INIT(cross_entropy, CROSS_ENTROPY);
  CHECK_INIT(model, MODEL);
  CHECK_INIT(pp, PP);
  CHECK_INIT(device_loader, DEVICE_LOADER);
}

/* The module is read after the call that made it, whichever argument is evaluated first. */
static nxd_status_t released(nxd_status_t status, nxd_module_t** module) {
  nxd_module_destroy(*module);
  return status;
}

static nxd_status_t use_embedding(const void* options) {
  nxd_module_t* out = NULL;
  return released(nxd_layer_create_parallel_embedding(ctx, 8, 4, options, &out), &out);
}
static nxd_status_t use_column(const void* options) {
  nxd_module_t* out = NULL;
  return released(nxd_layer_create_column_parallel_linear(ctx, 4, 4, options, &out), &out);
}
static nxd_status_t use_row(const void* options) {
  nxd_module_t* out = NULL;
  return released(nxd_layer_create_row_parallel_linear(ctx, 4, 4, options, &out), &out);
}
static nxd_status_t use_layer_norm(const void* options) {
  nxd_module_t* out = NULL;
  return released(nxd_layer_create_layer_norm(ctx, 4, options, &out), &out);
}
static nxd_status_t use_rms_norm(const void* options) {
  nxd_module_t* out = NULL;
  return released(nxd_layer_create_rms_norm(ctx, 4, options, &out), &out);
}
static nxd_status_t use_rope(const void* options) {
  nxd_module_t* out = NULL;
  return released(nxd_layer_create_rotary_embedding(ctx, 4, options, &out), &out);
}
static nxd_status_t use_attention(const void* options) {
  nxd_module_t* out = NULL;
  return released(nxd_layer_create_attention(ctx, 8, 2, options, &out), &out);
}
static nxd_status_t use_nested_rope(const void* rope) {
  nxd_attention_options_t options = NXD_ATTENTION_OPTIONS_INIT;
  options.rope = rope;
  return use_attention(&options);
}
static nxd_status_t use_mlp(const void* options) {
  nxd_module_t* out = NULL;
  return released(nxd_layer_create_gated_mlp(ctx, 4, 8, options, &out), &out);
}
static nxd_status_t no_batch(nxd_tensor_t** outputs, size_t num_outputs, int32_t* out_end,
                             void* user_data) {
  (void)outputs;
  (void)num_outputs;
  (void)user_data;
  *out_end = 1;
  return NXD_OK;
}
static nxd_status_t use_device_loader(const void* options) {
  nxd_device_loader_t* out = NULL;
  const nxd_status_t status =
      nxd_device_loader_create_callback(no_batch, NULL, NULL, 1, NXD_DEVICE_CPU, options, &out);
  nxd_device_loader_destroy(out);
  return status;
}
static nxd_status_t use_model(const void* options) {
  static const char config[] =
      "{\"model_type\": \"llama\", \"vocab_size\": 8, \"hidden_size\": 8, "
      "\"intermediate_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
      "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 8}";
  nxd_module_t* out = NULL;
  return released(nxd_model_create(ctx, config, options, &out), &out);
}

static nxd_status_t use_parameter(const void* options) {
  static int number = 0;
  char name[32];
  snprintf(name, sizeof name, "p%d", number++);
  const int64_t size = 4;
  return nxd_module_add_parameter(container, name, &size, 1, options, NULL);
}

static nxd_status_t fill_nothing(nxd_function_call_t* call, nxd_tensor_t* const* inputs,
                                 size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs,
                                 void* user_data) {
  (void)call;
  (void)inputs;
  (void)num_inputs;
  (void)outputs;
  (void)num_outputs;
  (void)user_data;
  return NXD_ERROR_USER;
}
static nxd_status_t use_function(const void* options) {
  nxd_function_t* function = NULL;
  const nxd_status_t status = nxd_function_create(options, &function);
  nxd_function_destroy(function);
  return status;
}

static nxd_status_t use_cross_entropy(const void* options) {
  nxd_tensor_t* loss = NULL;
  const nxd_status_t status = nxd_parallel_cross_entropy(ctx, logits, labels, options, &loss);
  nxd_tensor_destroy(loss);
  return status;
}

static nxd_status_t use_finish(const void* options) {
  return nxd_finish_grads(linear, options, NULL);
}

/* Rejected before the struct's size matters, unless that is what is wrong. */
static nxd_status_t use_pipeline(const void* options) {
  nxd_pp_t* pp = NULL;
  const nxd_status_t status = nxd_pp_create(linear, NULL, 0, options, &pp);
  nxd_pp_destroy(pp);
  return status == NXD_ERROR_INVALID_ARGUMENT ? NXD_OK : status;
}

/* The structs of data parallelism, over a module. */
static nxd_status_t use_adamw(const void* options) {
  nxd_optimizer_t* optimizer = NULL;
  const nxd_status_t status = nxd_optimizer_create_adamw(linear, options, &optimizer);
  nxd_optimizer_destroy(optimizer);
  return status;
}
static nxd_status_t use_sgd(const void* options) {
  nxd_optimizer_t* optimizer = NULL;
  const nxd_status_t status = nxd_optimizer_create_sgd(linear, options, &optimizer);
  nxd_optimizer_destroy(optimizer);
  return status;
}
static nxd_status_t update_nothing(const nxd_update_t* update, void* user_data) {
  (void)update;
  (void)user_data;
  return NXD_OK;
}
static nxd_status_t use_custom(const void* options) {
  nxd_optimizer_t* optimizer = NULL;
  const nxd_status_t status = nxd_optimizer_create_custom(linear, options, &optimizer);
  nxd_optimizer_destroy(optimizer);
  return status;
}
static nxd_status_t use_step(const void* options) {
  nxd_optimizer_t* optimizer = NULL;
  OK(nxd_optimizer_create_sgd(linear, NULL, &optimizer));
  const nxd_status_t status = nxd_optimizer_step(optimizer, options, NULL);
  nxd_optimizer_destroy(optimizer);
  return status;
}
static nxd_status_t use_set_schedule(const void* options) {
  nxd_optimizer_t* optimizer = NULL;
  OK(nxd_optimizer_create_sgd(linear, NULL, &optimizer));
  const nxd_status_t status = nxd_optimizer_set_lr_schedule(optimizer, options);
  nxd_optimizer_destroy(optimizer);
  return status;
}
static nxd_status_t use_ddp(const void* options) {
  nxd_ddp_t* ddp = NULL;
  const nxd_status_t status = nxd_ddp_create(linear, options, &ddp);
  nxd_ddp_destroy(ddp);
  return status;
}

static void test_struct_sizes(void** state) {
  (void)state;
#define CHECK_SIZE(use, type, NAME)                                \
  do {                                                             \
    const nxd_##type##_options_t good = NXD_##NAME##_OPTIONS_INIT; \
    check_struct_size(use, &good, sizeof good);                    \
  } while (0)
  CHECK_SIZE(use_embedding, embedding, EMBEDDING);
  CHECK_SIZE(use_column, linear, LINEAR);
  nxd_linear_options_t row = NXD_LINEAR_OPTIONS_INIT;
  row.input_is_parallel = 1;
  check_struct_size(use_row, &row, sizeof row);
  CHECK_SIZE(use_layer_norm, norm, NORM);
  CHECK_SIZE(use_rms_norm, norm, NORM);
  CHECK_SIZE(use_rope, rope, ROPE);
  CHECK_SIZE(use_nested_rope, rope, ROPE);
  CHECK_SIZE(use_attention, attention, ATTENTION);
  CHECK_SIZE(use_mlp, mlp, MLP);
  CHECK_SIZE(use_model, model, MODEL);
  CHECK_SIZE(use_device_loader, device_loader, DEVICE_LOADER);
  CHECK_SIZE(use_parameter, parameter, PARAMETER);
  nxd_function_options_t function = NXD_FUNCTION_OPTIONS_INIT;
  function.name = "test::nothing";
  function.forward = fill_nothing;
  check_struct_size(use_function, &function, sizeof function);
  CHECK_SIZE(use_cross_entropy, cross_entropy, CROSS_ENTROPY);
  CHECK_SIZE(use_finish, finish, FINISH);
  CHECK_SIZE(use_adamw, adamw, ADAMW);
  CHECK_SIZE(use_sgd, sgd, SGD);
  nxd_custom_optimizer_options_t custom = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;
  custom.update = update_nothing;
  check_struct_size(use_custom, &custom, sizeof custom);
  CHECK_SIZE(use_step, finish, FINISH);
  CHECK_SIZE(use_set_schedule, lr_schedule, LR_SCHEDULE);
  CHECK_SIZE(use_ddp, ddp, DDP);
  CHECK_SIZE(use_pipeline, pp, PP);
}

/* The first struct ended before the formula. */
static void test_first_adamw_options(void** state) {
  (void)state;
  nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
  options.struct_size = offsetof(nxd_adamw_options_t, formula);
  options.formula = 99;
  OK(use_adamw(&options));
  options.struct_size -= 1;
  REFUSED(use_adamw(&options), NXD_ERROR_ABI_MISMATCH, "struct_size");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_macros),
                                     cmocka_unit_test(test_struct_sizes),
                                     cmocka_unit_test(test_first_adamw_options)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* The structs of nxd/core.h as compiled programs know them: sizes and offsets of
 * every field, and that a macro initialises as its function does. Only growth at the end is ever
 * right; then a line is added here, and none is changed. */
#define _GNU_SOURCE
#include <stdio.h>

#include "support/abi.h"

SIZE(nxd_error_info_t, 56);
FIELD(nxd_error_info_t, struct_size, 0);
FIELD(nxd_error_info_t, status, 8);
FIELD(nxd_error_info_t, root_rank, 12);
FIELD(nxd_error_info_t, sequence, 16);
FIELD(nxd_error_info_t, group, 24);
FIELD(nxd_error_info_t, operation, 32);
FIELD(nxd_error_info_t, step, 40);
FIELD(nxd_error_info_t, parameters, 48);
FIELD(nxd_error_info_t, reserved, 52);

SIZE(nxd_store_callbacks_t, 48);
FIELD(nxd_store_callbacks_t, struct_size, 0);
FIELD(nxd_store_callbacks_t, user_data, 8);
FIELD(nxd_store_callbacks_t, destroy, 16);
FIELD(nxd_store_callbacks_t, set, 24);
FIELD(nxd_store_callbacks_t, get, 32);
FIELD(nxd_store_callbacks_t, add, 40);

SIZE(nxd_context_options_t, 88);
FIELD(nxd_context_options_t, struct_size, 0);
FIELD(nxd_context_options_t, rendezvous, 8);
FIELD(nxd_context_options_t, rank, 12);
FIELD(nxd_context_options_t, size, 16);
FIELD(nxd_context_options_t, local_rank, 20);
FIELD(nxd_context_options_t, store, 24);
FIELD(nxd_context_options_t, timeout_ms, 32);
FIELD(nxd_context_options_t, interface_name, 40);
FIELD(nxd_context_options_t, seed, 48);
FIELD(nxd_context_options_t, plain_kernels, 56);
FIELD(nxd_context_options_t, transport, 60);
FIELD(nxd_context_options_t, host_id, 64);
FIELD(nxd_context_options_t, interrupt, 72);
FIELD(nxd_context_options_t, interrupt_data, 80);

SIZE(nxd_parallel_options_t, 40);
FIELD(nxd_parallel_options_t, struct_size, 0);
FIELD(nxd_parallel_options_t, tensor_parallel_size, 8);
FIELD(nxd_parallel_options_t, pipeline_parallel_size, 12);
FIELD(nxd_parallel_options_t, context_parallel_size, 16);
FIELD(nxd_parallel_options_t, expert_parallel_size, 20);
FIELD(nxd_parallel_options_t, platform, 24);
FIELD(nxd_parallel_options_t, lnc_size, 28);
FIELD(nxd_parallel_options_t, local_world_size, 32);
FIELD(nxd_parallel_options_t, reduce_dtype, 36);

SIZE(nxd_spawn_options_t, 24);
FIELD(nxd_spawn_options_t, struct_size, 0);
FIELD(nxd_spawn_options_t, num_processes, 8);
FIELD(nxd_spawn_options_t, omp_num_threads, 12);
FIELD(nxd_spawn_options_t, argv, 16);

SIZE(nxd_memory_stats_t, 72);
FIELD(nxd_memory_stats_t, struct_size, 0);
FIELD(nxd_memory_stats_t, bytes_in_use, 8);
FIELD(nxd_memory_stats_t, bytes_reserved, 16);
FIELD(nxd_memory_stats_t, peak_bytes_in_use, 24);
FIELD(nxd_memory_stats_t, allocations, 32);
FIELD(nxd_memory_stats_t, system_allocations, 40);
FIELD(nxd_memory_stats_t, cap_bytes, 48);
FIELD(nxd_memory_stats_t, arena_bytes_in_use, 56);
FIELD(nxd_memory_stats_t, arena_bytes_reserved, 64);

SIZE(nxd_phase_stats_t, 48);
FIELD(nxd_phase_stats_t, struct_size, 0);
FIELD(nxd_phase_stats_t, name, 8);
FIELD(nxd_phase_stats_t, seconds, 16);
FIELD(nxd_phase_stats_t, operations, 24);
FIELD(nxd_phase_stats_t, calls, 32);
FIELD(nxd_phase_stats_t, waiting_seconds, 40);

SIZE(nxd_data_loader_options_t, 48);
FIELD(nxd_data_loader_options_t, struct_size, 0);
FIELD(nxd_data_loader_options_t, vocab_size, 8);
FIELD(nxd_data_loader_options_t, seed, 16);
FIELD(nxd_data_loader_options_t, has_seed, 24);
FIELD(nxd_data_loader_options_t, format, 28);
FIELD(nxd_data_loader_options_t, shuffle, 32);
FIELD(nxd_data_loader_options_t, next_labels, 36);
FIELD(nxd_data_loader_options_t, prefetch, 40);
FIELD(nxd_data_loader_options_t, reserved, 44);

SIZE(nxd_column_linear_options_t, 48);
FIELD(nxd_column_linear_options_t, struct_size, 0);
FIELD(nxd_column_linear_options_t, gather_output, 8);
FIELD(nxd_column_linear_options_t, sequence_parallel, 12);
FIELD(nxd_column_linear_options_t, sequence_dim, 16);
FIELD(nxd_column_linear_options_t, transposed_weight, 20);
FIELD(nxd_column_linear_options_t, accumulate_grads, 24);
FIELD(nxd_column_linear_options_t, reserved, 28);
FIELD(nxd_column_linear_options_t, workspace, 32);
FIELD(nxd_column_linear_options_t, workspace_bytes, 40);

SIZE(nxd_row_linear_options_t, 48);
FIELD(nxd_row_linear_options_t, struct_size, 0);
FIELD(nxd_row_linear_options_t, input_is_parallel, 8);
FIELD(nxd_row_linear_options_t, sequence_parallel, 12);
FIELD(nxd_row_linear_options_t, sequence_dim, 16);
FIELD(nxd_row_linear_options_t, transposed_weight, 20);
FIELD(nxd_row_linear_options_t, accumulate_grads, 24);
FIELD(nxd_row_linear_options_t, reserved, 28);
FIELD(nxd_row_linear_options_t, workspace, 32);
FIELD(nxd_row_linear_options_t, workspace_bytes, 40);

SIZE(nxd_vocab_parallel_embedding_options_t, 56);
FIELD(nxd_vocab_parallel_embedding_options_t, struct_size, 0);
FIELD(nxd_vocab_parallel_embedding_options_t, num_embeddings, 8);
FIELD(nxd_vocab_parallel_embedding_options_t, padding_idx, 16);
FIELD(nxd_vocab_parallel_embedding_options_t, has_padding_idx, 24);
FIELD(nxd_vocab_parallel_embedding_options_t, sequence_parallel, 28);
FIELD(nxd_vocab_parallel_embedding_options_t, sequence_dim, 32);
FIELD(nxd_vocab_parallel_embedding_options_t, accumulate_grads, 36);
FIELD(nxd_vocab_parallel_embedding_options_t, workspace, 40);
FIELD(nxd_vocab_parallel_embedding_options_t, workspace_bytes, 48);

SIZE(nxd_parallel_cross_entropy_options_t, 64);
FIELD(nxd_parallel_cross_entropy_options_t, struct_size, 0);
FIELD(nxd_parallel_cross_entropy_options_t, label_smoothing, 8);
FIELD(nxd_parallel_cross_entropy_options_t, smoothing, 16);
FIELD(nxd_parallel_cross_entropy_options_t, reduction, 20);
FIELD(nxd_parallel_cross_entropy_options_t, vocab_size, 24);
FIELD(nxd_parallel_cross_entropy_options_t, ignore_index, 32);
FIELD(nxd_parallel_cross_entropy_options_t, has_ignore_index, 40);
FIELD(nxd_parallel_cross_entropy_options_t, reserved, 44);
FIELD(nxd_parallel_cross_entropy_options_t, workspace, 48);
FIELD(nxd_parallel_cross_entropy_options_t, workspace_bytes, 56);

SIZE(nxd_lr_schedule_options_t, 40);
FIELD(nxd_lr_schedule_options_t, struct_size, 0);
FIELD(nxd_lr_schedule_options_t, kind, 8);
FIELD(nxd_lr_schedule_options_t, reserved, 12);
FIELD(nxd_lr_schedule_options_t, warmup_steps, 16);
FIELD(nxd_lr_schedule_options_t, total_steps, 24);
FIELD(nxd_lr_schedule_options_t, final_factor, 32);

SIZE(nxd_ddp_options_t, 40);
FIELD(nxd_ddp_options_t, struct_size, 0);
FIELD(nxd_ddp_options_t, bucket_bytes, 8);
FIELD(nxd_ddp_options_t, reduce, 16);
FIELD(nxd_ddp_options_t, zero_stage, 20);
FIELD(nxd_ddp_options_t, fp32_grads, 24);
FIELD(nxd_ddp_options_t, overlap, 28);
FIELD(nxd_ddp_options_t, broadcast, 32);
FIELD(nxd_ddp_options_t, reserved, 36);

SIZE(nxd_finish_options_t, 40);
FIELD(nxd_finish_options_t, struct_size, 0);
FIELD(nxd_finish_options_t, scale, 8);
FIELD(nxd_finish_options_t, max_norm, 16);
FIELD(nxd_finish_options_t, norm_type, 24);
FIELD(nxd_finish_options_t, data_parallel_reduce, 32);
FIELD(nxd_finish_options_t, check_finite, 36);

SIZE(nxd_adamw_options_t, 56);
FIELD(nxd_adamw_options_t, struct_size, 0);
FIELD(nxd_adamw_options_t, learning_rate, 8);
FIELD(nxd_adamw_options_t, beta1, 16);
FIELD(nxd_adamw_options_t, beta2, 24);
FIELD(nxd_adamw_options_t, eps, 32);
FIELD(nxd_adamw_options_t, weight_decay, 40);
FIELD(nxd_adamw_options_t, formula, 48);
FIELD(nxd_adamw_options_t, bf16_update, 52);

SIZE(nxd_sgd_options_t, 48);
FIELD(nxd_sgd_options_t, struct_size, 0);
FIELD(nxd_sgd_options_t, learning_rate, 8);
FIELD(nxd_sgd_options_t, momentum, 16);
FIELD(nxd_sgd_options_t, dampening, 24);
FIELD(nxd_sgd_options_t, weight_decay, 32);
FIELD(nxd_sgd_options_t, nesterov, 40);
FIELD(nxd_sgd_options_t, bf16_update, 44);

SIZE(nxd_update_t, 96);
FIELD(nxd_update_t, struct_size, 0);
FIELD(nxd_update_t, parameter, 8);
FIELD(nxd_update_t, begin, 16);
FIELD(nxd_update_t, count, 24);
FIELD(nxd_update_t, dtype, 32);
FIELD(nxd_update_t, grad_dtype, 36);
FIELD(nxd_update_t, param, 40);
FIELD(nxd_update_t, grad, 48);
FIELD(nxd_update_t, grad_scale, 56);
FIELD(nxd_update_t, states, 64);
FIELD(nxd_update_t, learning_rate, 72);
FIELD(nxd_update_t, weight_decay, 80);
FIELD(nxd_update_t, step, 88);

SIZE(nxd_custom_optimizer_options_t, 56);
FIELD(nxd_custom_optimizer_options_t, struct_size, 0);
FIELD(nxd_custom_optimizer_options_t, update, 8);
FIELD(nxd_custom_optimizer_options_t, user_data, 16);
FIELD(nxd_custom_optimizer_options_t, destroy, 24);
FIELD(nxd_custom_optimizer_options_t, learning_rate, 32);
FIELD(nxd_custom_optimizer_options_t, weight_decay, 40);
FIELD(nxd_custom_optimizer_options_t, num_states, 48);
FIELD(nxd_custom_optimizer_options_t, bf16_update, 52);

SIZE(nxd_step_report_t, 40);
FIELD(nxd_step_report_t, struct_size, 0);
FIELD(nxd_step_report_t, norm, 8);
FIELD(nxd_step_report_t, learning_rate, 16);
FIELD(nxd_step_report_t, updates, 24);
FIELD(nxd_step_report_t, skipped, 32);
FIELD(nxd_step_report_t, reserved, 36);

SIZE(nxd_pp_task_t, 12);
FIELD(nxd_pp_task_t, kind, 0);
FIELD(nxd_pp_task_t, microbatch, 4);
FIELD(nxd_pp_task_t, chunk, 8);

SIZE(nxd_pp_costs_t, 40);
FIELD(nxd_pp_costs_t, struct_size, 0);
FIELD(nxd_pp_costs_t, forward, 8);
FIELD(nxd_pp_costs_t, backward_input, 16);
FIELD(nxd_pp_costs_t, backward_weight, 24);
FIELD(nxd_pp_costs_t, transfer, 32);

SIZE(nxd_pp_report_t, 40);
FIELD(nxd_pp_report_t, struct_size, 0);
FIELD(nxd_pp_report_t, makespan, 8);
FIELD(nxd_pp_report_t, critical_path, 16);
FIELD(nxd_pp_report_t, bubble_share, 24);
FIELD(nxd_pp_report_t, peak_activations, 32);
FIELD(nxd_pp_report_t, fullest_rank, 36);

SIZE(nxd_pp_value_t, 32);
FIELD(nxd_pp_value_t, name, 0);
FIELD(nxd_pp_value_t, shape, 8);
FIELD(nxd_pp_value_t, ndim, 16);
FIELD(nxd_pp_value_t, dtype, 20);
FIELD(nxd_pp_value_t, needs_grad, 24);
FIELD(nxd_pp_value_t, reserved, 28);

SIZE(nxd_pp_call_t, 24);
FIELD(nxd_pp_call_t, stage, 0);
FIELD(nxd_pp_call_t, chunk, 4);
FIELD(nxd_pp_call_t, microbatch, 8);
FIELD(nxd_pp_call_t, last, 12);
FIELD(nxd_pp_call_t, loss_weight, 16);

SIZE(nxd_pp_stage_callbacks_t, 56);
FIELD(nxd_pp_stage_callbacks_t, struct_size, 0);
FIELD(nxd_pp_stage_callbacks_t, user_data, 8);
FIELD(nxd_pp_stage_callbacks_t, destroy, 16);
FIELD(nxd_pp_stage_callbacks_t, forward, 24);
FIELD(nxd_pp_stage_callbacks_t, backward, 32);
FIELD(nxd_pp_stage_callbacks_t, backward_input, 40);
FIELD(nxd_pp_stage_callbacks_t, backward_weight, 48);

SIZE(nxd_pp_callbacks_options_t, 32);
FIELD(nxd_pp_callbacks_options_t, struct_size, 0);
FIELD(nxd_pp_callbacks_options_t, num_microbatches, 8);
FIELD(nxd_pp_callbacks_options_t, virtual_size, 12);
FIELD(nxd_pp_callbacks_options_t, schedule, 16);
FIELD(nxd_pp_callbacks_options_t, broadcast_and_average_loss, 20);
FIELD(nxd_pp_callbacks_options_t, custom_schedule, 24);

SIZE(nxd_plan_model_t, 112);
FIELD(nxd_plan_model_t, struct_size, 0);
FIELD(nxd_plan_model_t, hidden_size, 8);
FIELD(nxd_plan_model_t, num_layers, 16);
FIELD(nxd_plan_model_t, num_heads, 24);
FIELD(nxd_plan_model_t, num_kv_heads, 32);
FIELD(nxd_plan_model_t, head_dim, 40);
FIELD(nxd_plan_model_t, intermediate_size, 48);
FIELD(nxd_plan_model_t, vocab_size, 56);
FIELD(nxd_plan_model_t, max_positions, 64);
FIELD(nxd_plan_model_t, gated_mlp, 72);
FIELD(nxd_plan_model_t, attention_bias, 76);
FIELD(nxd_plan_model_t, mlp_bias, 80);
FIELD(nxd_plan_model_t, norm_bias, 84);
FIELD(nxd_plan_model_t, tied_embeddings, 88);
FIELD(nxd_plan_model_t, num_token_types, 92);
FIELD(nxd_plan_model_t, sliding_window, 96);
FIELD(nxd_plan_model_t, num_window_layers, 104);

SIZE(nxd_plan_machine_t, 96);
FIELD(nxd_plan_machine_t, struct_size, 0);
FIELD(nxd_plan_machine_t, ranks_per_host, 8);
FIELD(nxd_plan_machine_t, reserved, 12);
FIELD(nxd_plan_machine_t, memory_bytes, 16);
FIELD(nxd_plan_machine_t, gemm_rate_f32, 24);
FIELD(nxd_plan_machine_t, gemm_rate_bf16, 32);
FIELD(nxd_plan_machine_t, attention_share_f32, 40);
FIELD(nxd_plan_machine_t, attention_share_bf16, 48);
FIELD(nxd_plan_machine_t, memory_bandwidth, 56);
FIELD(nxd_plan_machine_t, host_bandwidth, 64);
FIELD(nxd_plan_machine_t, host_latency, 72);
FIELD(nxd_plan_machine_t, link_bandwidth, 80);
FIELD(nxd_plan_machine_t, link_latency, 88);

SIZE(nxd_plan_layout_t, 64);
FIELD(nxd_plan_layout_t, struct_size, 0);
FIELD(nxd_plan_layout_t, tensor_parallel_size, 8);
FIELD(nxd_plan_layout_t, pipeline_parallel_size, 12);
FIELD(nxd_plan_layout_t, data_parallel_size, 16);
FIELD(nxd_plan_layout_t, virtual_size, 20);
FIELD(nxd_plan_layout_t, schedule, 24);
FIELD(nxd_plan_layout_t, num_microbatches, 28);
FIELD(nxd_plan_layout_t, microbatch_size, 32);
FIELD(nxd_plan_layout_t, sequence_length, 36);
FIELD(nxd_plan_layout_t, dtype, 40);
FIELD(nxd_plan_layout_t, zero_stage, 44);
FIELD(nxd_plan_layout_t, sequence_parallel, 48);
FIELD(nxd_plan_layout_t, recompute, 52);
FIELD(nxd_plan_layout_t, partition, 56);
FIELD(nxd_plan_layout_t, reserved, 60);

SIZE(nxd_plan_prediction_t, 176);
FIELD(nxd_plan_prediction_t, struct_size, 0);
FIELD(nxd_plan_prediction_t, step_seconds, 8);
FIELD(nxd_plan_prediction_t, tokens_per_second, 16);
FIELD(nxd_plan_prediction_t, gemm_share, 24);
FIELD(nxd_plan_prediction_t, bubble_share, 32);
FIELD(nxd_plan_prediction_t, pipeline_seconds, 40);
FIELD(nxd_plan_prediction_t, busiest_rank, 48);
FIELD(nxd_plan_prediction_t, fits, 52);
FIELD(nxd_plan_prediction_t, gemm_seconds, 56);
FIELD(nxd_plan_prediction_t, attention_seconds, 64);
FIELD(nxd_plan_prediction_t, elementwise_seconds, 72);
FIELD(nxd_plan_prediction_t, tensor_parallel_seconds, 80);
FIELD(nxd_plan_prediction_t, transfer_seconds, 88);
FIELD(nxd_plan_prediction_t, data_parallel_seconds, 96);
FIELD(nxd_plan_prediction_t, exposed_seconds, 104);
FIELD(nxd_plan_prediction_t, optimizer_seconds, 112);
FIELD(nxd_plan_prediction_t, fullest_rank, 120);
FIELD(nxd_plan_prediction_t, reserved, 124);
FIELD(nxd_plan_prediction_t, parameter_bytes, 128);
FIELD(nxd_plan_prediction_t, grad_bytes, 136);
FIELD(nxd_plan_prediction_t, optimizer_bytes, 144);
FIELD(nxd_plan_prediction_t, activation_bytes, 152);
FIELD(nxd_plan_prediction_t, buffer_bytes, 160);
FIELD(nxd_plan_prediction_t, total_bytes, 168);

SIZE(nxd_plan_search_options_t, 32);
FIELD(nxd_plan_search_options_t, struct_size, 0);
FIELD(nxd_plan_search_options_t, world_size, 8);
FIELD(nxd_plan_search_options_t, sequence_length, 12);
FIELD(nxd_plan_search_options_t, batch_size, 16);
FIELD(nxd_plan_search_options_t, dtype, 24);
FIELD(nxd_plan_search_options_t, max_virtual_size, 28);

static void test_context_options(void** state) {
  (void)state;
  const nxd_context_options_t macro = NXD_CONTEXT_OPTIONS_INIT;
  check_init("nxd_context_options_init", &macro, sizeof macro);
}

static void test_parallel_options(void** state) {
  (void)state;
  const nxd_parallel_options_t macro = NXD_PARALLEL_OPTIONS_INIT;
  check_init("nxd_parallel_options_init", &macro, sizeof macro);
}

static void test_spawn_options(void** state) {
  (void)state;
  const nxd_spawn_options_t macro = NXD_SPAWN_OPTIONS_INIT;
  check_init("nxd_spawn_options_init", &macro, sizeof macro);
}

static void test_optimizer_options(void** state) {
  (void)state;
#define CHECK_INIT(name, NAME)                                      \
  do {                                                              \
    const nxd_##name##_options_t macro = NXD_##NAME##_OPTIONS_INIT; \
    check_init("nxd_" #name "_options_init", &macro, sizeof macro); \
  } while (0)
  CHECK_INIT(lr_schedule, LR_SCHEDULE);
  CHECK_INIT(ddp, DDP);
  CHECK_INIT(finish, FINISH);
  CHECK_INIT(adamw, ADAMW);
  CHECK_INIT(sgd, SGD);
  CHECK_INIT(custom_optimizer, CUSTOM_OPTIMIZER);
  CHECK_INIT(column_linear, COLUMN_LINEAR);
  CHECK_INIT(row_linear, ROW_LINEAR);
  CHECK_INIT(vocab_parallel_embedding, VOCAB_PARALLEL_EMBEDDING);
  CHECK_INIT(parallel_cross_entropy, PARALLEL_CROSS_ENTROPY);
  CHECK_INIT(normalization, NORMALIZATION);
  CHECK_INIT(dropout, DROPOUT);
  CHECK_INIT(linear_cross_entropy, LINEAR_CROSS_ENTROPY);
  CHECK_INIT(shard, SHARD);
  CHECK_INIT(data_loader, DATA_LOADER);
}

static void test_pp_costs(void** state) {
  (void)state;
  const nxd_pp_costs_t macro = NXD_PP_COSTS_INIT;
  check_init("nxd_pp_costs_init", &macro, sizeof macro);
  const nxd_pp_callbacks_options_t callbacks = NXD_PP_CALLBACKS_OPTIONS_INIT;
  check_init("nxd_pp_callbacks_options_init", &callbacks, sizeof callbacks);
}

static void test_plan_structs(void** state) {
  (void)state;
  const nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
  check_init("nxd_plan_model_init", &model, sizeof model);
  const nxd_plan_machine_t machine = NXD_PLAN_MACHINE_INIT;
  check_init("nxd_plan_machine_init", &machine, sizeof machine);
  const nxd_plan_layout_t layout = NXD_PLAN_LAYOUT_INIT;
  check_init("nxd_plan_layout_init", &layout, sizeof layout);
  const nxd_plan_search_options_t search = NXD_PLAN_SEARCH_OPTIONS_INIT;
  check_init("nxd_plan_search_options_init", &search, sizeof search);
}

static nxd_status_t use_context(const void* options) {
  nxd_context_t* ctx = NULL;
  const nxd_status_t status = nxd_context_create(options, &ctx);
  nxd_context_destroy(ctx);
  return status;
}

static nxd_status_t use_parallel(const void* options) {
  int32_t count = 0;
  return nxd_layout_get_group_count(options, 8, NXD_AXIS_DATA, &count);
}

static nxd_status_t use_spawn(const void* options) {
  nxd_job_t* job = NULL;
  const nxd_status_t status = nxd_spawn(options, &job);
  nxd_job_destroy(job);
  return status;
}

static nxd_status_t use_schedule(const void* options) {
  double factor = 0;
  return nxd_lr_schedule_get_factor(options, 3, &factor);
}

static nxd_status_t use_costs(const void* costs) {
  nxd_pp_schedule_t* schedule = NULL;
  nxd_pp_report_t report = {.struct_size = sizeof report};
  nxd_status_t status = nxd_pp_schedule_create(NXD_PP_SCHEDULE_1F1B, 2, 1, 2, &schedule);
  if (status == NXD_OK) status = nxd_pp_schedule_get_report(schedule, costs, &report);
  nxd_pp_schedule_destroy(schedule);
  return status;
}

static nxd_plan_model_t plan_model(void) {
  nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
  model.hidden_size = model.intermediate_size = model.vocab_size = 8;
  model.num_layers = model.num_heads = 1;
  return model;
}

static nxd_plan_layout_t plan_layout(void) {
  nxd_plan_layout_t layout = NXD_PLAN_LAYOUT_INIT;
  layout.sequence_length = 4;
  return layout;
}

static nxd_status_t use_plan_model(const void* model) {
  const nxd_plan_layout_t layout = plan_layout();
  nxd_plan_prediction_t prediction = {.struct_size = sizeof prediction};
  return nxd_plan_predict(model, NULL, &layout, &prediction);
}

static nxd_status_t use_plan_machine(const void* machine) {
  const nxd_plan_model_t model = plan_model();
  const nxd_plan_layout_t layout = plan_layout();
  nxd_plan_prediction_t prediction = {.struct_size = sizeof prediction};
  return nxd_plan_predict(&model, machine, &layout, &prediction);
}

static nxd_status_t use_plan_layout(const void* layout) {
  const nxd_plan_model_t model = plan_model();
  nxd_plan_prediction_t prediction = {.struct_size = sizeof prediction};
  return nxd_plan_predict(&model, NULL, layout, &prediction);
}

static nxd_status_t use_plan_search(const void* options) {
  const nxd_plan_model_t model = plan_model();
  size_t count = 0;
  return nxd_plan_search(&model, NULL, options, NULL, NULL, 1, &count);
}

static nxd_status_t set_value(const char* key, const uint8_t* value, size_t size, void* user_data) {
  (void)key;
  (void)value;
  (void)size;
  (void)user_data;
  return NXD_OK;
}
static nxd_status_t get_value(const char* key, uint8_t* buf, size_t cap, size_t* out_size,
                              int32_t* out_found, void* user_data) {
  (void)key;
  (void)buf;
  (void)cap;
  (void)user_data;
  *out_size = 0;
  *out_found = 0;
  return NXD_OK;
}
static nxd_status_t add_value(const char* key, int64_t amount, int64_t* out_value,
                              void* user_data) {
  (void)key;
  (void)user_data;
  *out_value = amount;
  return NXD_OK;
}

static nxd_status_t use_callbacks(const void* options) {
  nxd_store_t* store = NULL;
  const nxd_status_t status = nxd_store_create_callbacks(options, &store);
  nxd_store_destroy(store);
  return status;
}

static void test_struct_sizes(void** state) {
  (void)state;
  const nxd_context_options_t context = NXD_CONTEXT_OPTIONS_INIT;
  check_struct_size(use_context, &context, sizeof context);
  const nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  check_struct_size(use_parallel, &parallel, sizeof parallel);
  nxd_spawn_options_t spawn = NXD_SPAWN_OPTIONS_INIT;
  const char* const argv[] = {"/bin/true", NULL};
  spawn.num_processes = 1;
  spawn.argv = argv;
  check_struct_size(use_spawn, &spawn, sizeof spawn);
  const nxd_store_callbacks_t callbacks = {
      .struct_size = sizeof callbacks, .set = set_value, .get = get_value, .add = add_value};
  check_struct_size(use_callbacks, &callbacks, sizeof callbacks);
  const nxd_lr_schedule_options_t schedule = NXD_LR_SCHEDULE_OPTIONS_INIT;
  check_struct_size(use_schedule, &schedule, sizeof schedule);
  const nxd_pp_costs_t costs = NXD_PP_COSTS_INIT;
  check_struct_size(use_costs, &costs, sizeof costs);
  const nxd_plan_model_t model = plan_model();
  check_struct_size(use_plan_model, &model, sizeof model);
  const nxd_plan_machine_t machine = NXD_PLAN_MACHINE_INIT;
  check_struct_size(use_plan_machine, &machine, sizeof machine);
  const nxd_plan_layout_t layout = plan_layout();
  check_struct_size(use_plan_layout, &layout, sizeof layout);
  nxd_plan_search_options_t search = NXD_PLAN_SEARCH_OPTIONS_INIT;
  search.world_size = search.sequence_length = 1;
  search.batch_size = 1;
  check_struct_size(use_plan_search, &search, sizeof search);
}

static void test_version(void** state) {
  (void)state;
  assert_int_equal(nxd_abi_version(), NXD_ABI_VERSION);
  int major = 0, minor = 0, patch = 0;
  assert_int_equal(sscanf(nxd_version(), "%d.%d.%d", &major, &minor, &patch), 3);
  assert_int_equal(major, NXD_VERSION_MAJOR);
  assert_int_equal(minor, NXD_VERSION_MINOR);
  assert_int_equal(patch, NXD_VERSION_PATCH);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_context_options), cmocka_unit_test(test_parallel_options),
      cmocka_unit_test(test_spawn_options),   cmocka_unit_test(test_optimizer_options),
      cmocka_unit_test(test_pp_costs),        cmocka_unit_test(test_plan_structs),
      cmocka_unit_test(test_struct_sizes),    cmocka_unit_test(test_version)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Structs that calls fill, of callers whose header is older or newer: what the caller's struct
 * reaches is filled, nothing behind it is written, and what this library does not know is zero. */
#include <stdlib.h>
#include <string.h>

#include "nxd.h"
#include "support/check.h"

enum { NEWER = 24, ROOM = 512, CANARY = 0xab };

/* Calls the function with the struct, always in the same circumstances. */
typedef nxd_status_t (*fill_fn)(void* out);

typedef union {
  size_t struct_size;
  unsigned char bytes[ROOM];
} Buffer;

static nxd_status_t fill(fill_fn call, Buffer* out, size_t size) {
  memset(out->bytes, CANARY, ROOM);
  out->struct_size = size;
  return call(out);
}

static void check_only(const Buffer* out, size_t written) {
  for (size_t i = written; i < ROOM; ++i)
    if (out->bytes[i] != CANARY) fail_msg("byte %zu is written, of %zu", i, written);
}

/* first: bytes of the struct in the first release that had it. */
static void check_output(fill_fn call, size_t first, size_t size) {
  Buffer whole, out;
  assert_int_equal(fill(call, &whole, size), NXD_OK);
  check_only(&whole, size);

  const size_t sizes[] = {first, (first + size) / 2, size, size + 1, size + NEWER};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const size_t given = sizes[i], known = given < size ? given : size;
    if (fill(call, &out, given) != NXD_OK) fail_msg("%zu bytes: %s", given, nxd_last_error());
    assert_int_equal(out.struct_size, given);
    assert_memory_equal(out.bytes + sizeof given, whole.bytes + sizeof given, known - sizeof given);
    for (size_t byte = known; byte < given; ++byte) assert_int_equal(out.bytes[byte], 0);
    check_only(&out, given);
  }
  const size_t refused[] = {0, sizeof(size_t), first - 1, 5000, SIZE_MAX};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i) {
    assert_int_equal(fill(call, &out, refused[i]), NXD_ERROR_ABI_MISMATCH);
    assert_non_null(strstr(nxd_last_error(), "struct_size"));
    check_only(&out, sizeof(size_t));
  }
}

static nxd_status_t last_error_info(void* out) {
  nxd_store_get_port(NULL, NULL);
  return nxd_last_error_info(out);
}

static nxd_status_t memory_stats(void* out) { return nxd_memory_get_stats(out); }

static nxd_status_t phase_stats(void* out) {
  return nxd_profile_get_phase(NXD_PHASE_COMMUNICATION, out);
}

static nxd_status_t pp_report(void* out) {
  nxd_pp_schedule_t* schedule = NULL;
  nxd_status_t status = nxd_pp_schedule_create(NXD_PP_SCHEDULE_1F1B, 2, 1, 4, &schedule);
  if (status == NXD_OK) status = nxd_pp_schedule_get_report(schedule, NULL, out);
  nxd_pp_schedule_destroy(schedule);
  return status;
}

static nxd_plan_model_t model(void) {
  nxd_plan_model_t sizes = NXD_PLAN_MODEL_INIT;
  sizes.hidden_size = sizes.intermediate_size = sizes.vocab_size = 8;
  sizes.num_layers = sizes.num_heads = 2;
  return sizes;
}

static nxd_status_t plan_model(void* out) {
  return nxd_plan_model_from_config(
      "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": 2, "
      "\"num_attention_heads\": 2, \"intermediate_size\": 8, \"vocab_size\": 8}",
      out);
}

static nxd_status_t plan_prediction(void* out) {
  const nxd_plan_model_t sizes = model();
  nxd_plan_layout_t layout = NXD_PLAN_LAYOUT_INIT;
  layout.sequence_length = 4;
  return nxd_plan_predict(&sizes, NULL, &layout, out);
}

static nxd_context_t* ctx;
static nxd_work_t* work; /* which is done, and whose names the infos point to */

static int join_world_of_one(void** state) {
  (void)state;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  nxd_status_t status = nxd_store_create_local(&options.store);
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.size = 1;
  if (status == NXD_OK) status = nxd_context_create(&options, &ctx);
  nxd_store_destroy(options.store);
  nxd_group_t* world = NULL;
  if (status == NXD_OK) status = nxd_context_get_world_group(ctx, &world);
  if (status == NXD_OK) status = nxd_barrier_async(world, &work);
  if (status == NXD_OK) status = nxd_work_wait(work, -1);
  return status;
}

static int leave_world(void** state) {
  (void)state;
  nxd_work_destroy(work);
  const nxd_status_t status = nxd_context_finalize(ctx);
  nxd_context_destroy(ctx);
  return status;
}

static nxd_status_t work_error_info(void* out) { return nxd_work_get_error_info(work, out); }

static nxd_status_t step_report(void* out) {
  float values[4] = {1, 2, 3, 4}, gradients[4] = {3, 0, 0, 4};
  int64_t shape[] = {4};
  DLTensor param = {values, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, NULL, 0};
  DLTensor grad = param;
  grad.data = gradients;
  DLTensor *params[] = {&param}, *grads[] = {&grad};
  nxd_ddp_t* ddp = NULL;
  nxd_optimizer_t* sgd = NULL;
  nxd_status_t status = nxd_ddp_create_buffers(ctx, NULL, NULL, params, grads, 1, NULL, &ddp);
  if (status == NXD_OK) status = nxd_optimizer_create_sgd_ddp(ddp, NULL, &sgd);
  if (status == NXD_OK) status = nxd_optimizer_step(sgd, NULL, out);
  nxd_optimizer_destroy(sgd);
  nxd_ddp_destroy(ddp);
  return status;
}

static void test_sizes(void** state) {
  (void)state;
  check_output(last_error_info, 40, sizeof(nxd_error_info_t));
  check_output(work_error_info, 40, sizeof(nxd_error_info_t));
  check_output(memory_stats, 48, sizeof(nxd_memory_stats_t));
  check_output(phase_stats, 40, sizeof(nxd_phase_stats_t));
  check_output(step_report, 40, sizeof(nxd_step_report_t));
  check_output(pp_report, 40, sizeof(nxd_pp_report_t));
  check_output(plan_model, 96, sizeof(nxd_plan_model_t));
  check_output(plan_prediction, 176, sizeof(nxd_plan_prediction_t));
}

enum { ROWS = 3 };

/* Rows of an array lie as far apart as the caller's header says. */
static size_t search(unsigned char* layouts, size_t layout_size, unsigned char* predictions,
                     size_t prediction_size) {
  const nxd_plan_model_t sizes = model();
  nxd_plan_search_options_t options = NXD_PLAN_SEARCH_OPTIONS_INIT;
  options.world_size = 2;
  options.batch_size = 2;
  options.sequence_length = 4;
  memset(layouts, CANARY, ROWS * ROOM);
  memset(predictions, CANARY, ROWS * ROOM);
  for (size_t i = 0; i < ROWS; ++i) {
    memcpy(layouts + i * layout_size, &layout_size, sizeof layout_size);
    memcpy(predictions + i * prediction_size, &prediction_size, sizeof prediction_size);
  }
  size_t count = 0;
  const nxd_status_t status =
      nxd_plan_search(&sizes, NULL, &options, (void*)layouts, (void*)predictions, ROWS, &count);
  if (status != NXD_OK) fail_msg("%s", nxd_last_error());
  return count;
}

static void test_arrays(void** state) {
  (void)state;
  static unsigned char layouts[ROWS * ROOM], predictions[ROWS * ROOM];
  static unsigned char newer_layouts[ROWS * ROOM], newer_predictions[ROWS * ROOM];
  const size_t layout = sizeof(nxd_plan_layout_t), prediction = sizeof(nxd_plan_prediction_t);
  assert_int_equal(search(layouts, layout, predictions, prediction), ROWS);
  assert_int_equal(search(newer_layouts, layout + NEWER, newer_predictions, prediction + 8), ROWS);
  for (size_t i = 0; i < ROWS; ++i) {
    assert_memory_equal(newer_layouts + i * (layout + NEWER) + sizeof(size_t),
                        layouts + i * layout + sizeof(size_t), layout - sizeof(size_t));
    assert_memory_equal(newer_predictions + i * (prediction + 8) + sizeof(size_t),
                        predictions + i * prediction + sizeof(size_t), prediction - sizeof(size_t));
  }
  assert_int_equal(newer_layouts[ROWS * (layout + NEWER)], CANARY);
  assert_int_equal(newer_predictions[ROWS * (prediction + 8)], CANARY);

  nxd_plan_layout_t rows[2] = {NXD_PLAN_LAYOUT_INIT, NXD_PLAN_LAYOUT_INIT};
  rows[1].struct_size += 8;
  const nxd_plan_model_t sizes = model();
  size_t count = 0;
  assert_int_equal(nxd_plan_search(&sizes, NULL, NULL, rows, NULL, 2, &count),
                   NXD_ERROR_ABI_MISMATCH);
  assert_non_null(strstr(nxd_last_error(), "layouts[1].struct_size"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes), cmocka_unit_test(test_arrays)};
  return cmocka_run_group_tests(tests, join_world_of_one, leave_world);
}

/* Callbacks that destroy the handle of the call that they are part of: a store's, a pipeline's and
 * an optimizer's. The call goes on with what it has, and user_data is let go of behind it. */
#include <string.h>

#include "nxd.h"
#include "support/check.h"
#include "support/destroyed.h"

static nxd_context_t* ctx;
static nxd_store_t* store;
static nxd_pp_t* pp;
static int forwards;

static void destroy_store(void) {
  nxd_store_destroy(store);
  store = NULL;
}

static nxd_status_t set(const char* key, const uint8_t* value, size_t size, void* user_data) {
  (void)key, (void)value, (void)size, (void)user_data;
  destroy_store();
  return nxd_test_destroyed == 0 ? NXD_OK : NXD_ERROR_USER;
}

static nxd_status_t get(const char* key, uint8_t* buf, size_t cap, size_t* out_size,
                        int32_t* out_found, void* user_data) {
  (void)key, (void)user_data;
  destroy_store();
  /* Larger than the room at first: it is asked for again. */
  *out_size = 1000;
  *out_found = 1;
  if (cap >= 1000) memset(buf, 7, 1000);
  return nxd_test_destroyed == 0 ? NXD_OK : NXD_ERROR_USER;
}

static nxd_status_t add(const char* key, int64_t amount, int64_t* out_value, void* user_data) {
  (void)key, (void)user_data;
  destroy_store();
  *out_value = amount + 1;
  return nxd_test_destroyed == 0 ? NXD_OK : NXD_ERROR_USER;
}

static void make_store(void) {
  nxd_store_callbacks_t callbacks = {
      sizeof callbacks, NULL, nxd_test_count_destroyed, set, get, add};
  nxd_test_destroyed = 0;
  assert_int_equal(nxd_store_create_callbacks(&callbacks, &store), NXD_OK);
}

static void stores(void** state) {
  (void)state;
  static uint8_t value[1000];
  size_t size = 0;
  int64_t sum = 0;
  make_store();
  assert_int_equal(nxd_store_set(store, "key", "value", 5), NXD_OK);
  assert_int_equal(nxd_test_destroyed, 1);
  make_store();
  assert_int_equal(nxd_store_get(store, "key", 1000, value, sizeof value, &size), NXD_OK);
  assert_int_equal(nxd_test_destroyed, 1);
  assert_int_equal(size, 1000);
  assert_int_equal(value[999], 7);
  make_store();
  assert_int_equal(nxd_store_add(store, "key", 4, &sum), NXD_OK);
  assert_int_equal(nxd_test_destroyed, 1);
  assert_int_equal(sum, 5);
}

static nxd_status_t forward(const nxd_pp_call_t* call, DLTensor* const* inputs,
                            DLTensor* const* outputs, double* out_loss, void* user_data) {
  (void)call, (void)inputs, (void)outputs, (void)user_data;
  nxd_pp_destroy(pp);
  pp = NULL;
  *out_loss = ++forwards;
  return nxd_test_destroyed == 0 ? NXD_OK : NXD_ERROR_USER;
}

static nxd_status_t backward(const nxd_pp_call_t* call, DLTensor* const* inputs,
                             DLTensor* const* grad_outputs, DLTensor* const* grad_inputs,
                             void* user_data) {
  (void)call, (void)inputs, (void)grad_outputs, (void)grad_inputs, (void)user_data;
  return nxd_test_destroyed == 0 ? NXD_OK : NXD_ERROR_USER;
}

static void pipelines(void** state) {
  (void)state;
  const size_t none = 0;
  nxd_pp_stage_callbacks_t callbacks = {.struct_size = sizeof callbacks,
                                        .destroy = nxd_test_count_destroyed,
                                        .forward = forward,
                                        .backward = backward};
  nxd_pp_callbacks_options_t options = NXD_PP_CALLBACKS_OPTIONS_INIT;
  options.num_microbatches = 3;
  nxd_test_destroyed = 0;
  assert_int_equal(
      nxd_pp_create_callbacks(ctx, &options, NULL, &none, NULL, &none, &callbacks, &pp), NXD_OK);
  double loss = 0;
  assert_int_equal(nxd_pp_run(pp, 1, &loss), NXD_OK);
  assert_true(loss == 2); /* the mean of 1, 2 and 3 */
  assert_int_equal(nxd_test_destroyed, 1);
}

static int set_up(void** state) {
  (void)state;
  return nxd_context_create(NULL, &ctx) == NXD_OK && nxd_init_model_parallel(ctx, NULL) == NXD_OK
             ? 0
             : 1;
}

static int tear_down(void** state) {
  (void)state;
  nxd_context_destroy(ctx);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(stores), cmocka_unit_test(pipelines)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

// A step closure and the function of a device loader run on threads of the library, and use a store
// of callbacks there as any thread of the program does: it calls back on that very thread.
#include <thread>

#include "support/device.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

struct Used {
  nxd_store_t* store = nullptr;
  std::thread::id user, called;
  nxd_status_t status = NXD_ERROR_INTERNAL;
};

nxd_status_t set(const char*, const uint8_t*, size_t, void* user_data) {
  static_cast<Used*>(user_data)->called = std::this_thread::get_id();
  return NXD_OK;
}

nxd_status_t get(const char*, uint8_t*, size_t, size_t*, int32_t* out_found, void*) {
  *out_found = 0;
  return NXD_OK;
}

nxd_status_t add(const char*, int64_t, int64_t* out_value, void*) {
  *out_value = 0;
  return NXD_OK;
}

nxd_status_t use_store(void* user_data) {
  auto& used = *static_cast<Used*>(user_data);
  used.user = std::this_thread::get_id();
  used.status = nxd_store_set(used.store, "done", reinterpret_cast<const uint8_t*>("1"), 1);
  return NXD_OK;
}

nxd_status_t read_none(nxd_tensor_t**, size_t, int32_t* out_end, void* user_data) {
  *out_end = 1;
  return use_store(user_data);
}

template <class Run>
void run_with_store(Run&& run) {
  Used used;
  const nxd_store_callbacks_t callbacks = {.struct_size = sizeof callbacks,
                                           .user_data = &used,
                                           .destroy = nullptr,
                                           .set = set,
                                           .get = get,
                                           .add = add};
  assert_int_equal(nxd_store_create_callbacks(&callbacks, &used.store), NXD_OK);
  run(used);
  nxd_store_destroy(used.store);
  assert_int_equal(used.status, NXD_OK);
  assert_true(used.user != std::this_thread::get_id() && used.called == used.user);
}

void a_step_closure(void**) {
  run_with_store([](Used& used) {
    assert_int_equal(nxd_add_step_closure_async(use_store, &used, nullptr), NXD_OK);
    assert_int_equal(nxd_mark_step(0), NXD_OK);
    assert_int_equal(nxd_wait_step_closures(), NXD_OK);
  });
}

void a_function_of_a_loader(void**) {
  run_with_store([](Used& used) {
    nxd_device_loader_t* loader = nullptr;
    nxd_tensor_t* out = nullptr;
    int32_t end = 0;
    assert_int_equal(nxd_device_loader_create_callback(read_none, &used, nullptr, 1, NXD_DEVICE_CPU,
                                                       nullptr, &loader),
                     NXD_OK);
    assert_int_equal(nxd_device_loader_next(loader, &out, 1, &end), NXD_OK);
    assert_int_equal(end, 1);
    nxd_device_loader_destroy(loader);
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(a_step_closure),
                              cmocka_unit_test(a_function_of_a_loader)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

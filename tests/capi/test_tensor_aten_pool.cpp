// ATen's memory from the pool: what moves there, back again, and who decides. This program links
// libnxd and nothing else that needs libtorch, so that the pool is on at first.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <thread>

#include "support/tensor.h"

extern "C" {
#include <cmocka.h>
}

#include "support/tensor_check.h"

using namespace nxd_test;

namespace {

constexpr uint64_t kBytes = 4 * 100000;

int32_t is_on() {
  int32_t on = -1;
  OK(nxd_memory_get_aten_pool(&on));
  return on;
}

uint64_t in_use() {
  nxd_memory_stats_t stats = {};
  stats.struct_size = sizeof(stats);
  OK(nxd_memory_get_stats(&stats));
  return stats.bytes_in_use;
}

// A tensor that an ATen operator made.
Tensor made_by_aten() {
  const int64_t shape[] = {100000};
  Tensor zeros;
  OK(nxd_tensor_create(shape, 1, NXD_DTYPE_F32, NXD_DEVICE_CPU, zeros.out()));
  return op("add", "Scalar", {{"self", zeros}, {"other", 1.0}});
}

int end(void**) { return nxd_memory_set_cap(0) || nxd_memory_set_aten_pool(1); }

void on_at_first(void**) { assert_int_equal(is_on(), 1); }

void on_and_off(void**) {
  const uint64_t before = in_use();
  Tensor pooled = made_by_aten();
  assert_true(in_use() >= before + kBytes);
  OK(nxd_memory_set_aten_pool(0));
  assert_int_equal(is_on(), 0);
  OK(nxd_memory_set_aten_pool(0));
  const uint64_t with_one = in_use();
  Tensor plain = made_by_aten();
  assert_true(in_use() == with_one);
  // Each goes back to where it came from, whichever is on by then.
  pooled = Tensor();
  assert_true(in_use() == before);
  OK(nxd_memory_set_aten_pool(1));
  assert_int_equal(is_on(), 1);
  assert_true(values(plain)[99999] == 1);
  plain = Tensor();
  assert_true(in_use() == before);
}

void other_threads_give_back(void**) {
  const uint64_t before = in_use();
  Tensor pooled = made_by_aten();
  std::thread([moved = std::move(pooled)]() mutable { moved = Tensor(); }).join();
  assert_true(in_use() == before);
}

void forked_children_allocate_and_give_back(void**) {
  const Tensor pooled = made_by_aten();
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    Tensor own = made_by_aten();
    const bool good = values(own)[0] == 1;
    const uint64_t with_own = in_use();
    own = Tensor();
    _exit(good && in_use() + kBytes <= with_own ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_true(values(pooled)[99999] == 1);
}

void a_cap_ends_in_out_of_memory(void**) {
  const int64_t shape[] = {100000};
  nxd_tensor_t* tensor = nullptr;
  OK(nxd_memory_set_cap(in_use() + 1000));
  REFUSED(nxd_tensor_create(shape, 1, NXD_DTYPE_F32, NXD_DEVICE_CPU, &tensor),
          NXD_ERROR_OUT_OF_MEMORY, "400000");
  assert_null(tensor);
  OK(nxd_memory_set_cap(0));
  OK(nxd_tensor_create(shape, 1, NXD_DTYPE_F32, NXD_DEVICE_CPU, &tensor));
  nxd_tensor_destroy(tensor);
}

void bad_arguments_are_refused(void**) {
  REFUSED(nxd_memory_set_aten_pool(2), NXD_ERROR_INVALID_ARGUMENT, "on: expected 0 or 1, got 2");
  REFUSED(nxd_memory_set_aten_pool(-1), NXD_ERROR_INVALID_ARGUMENT, "got -1");
  REFUSED(nxd_memory_get_aten_pool(nullptr), NXD_ERROR_INVALID_ARGUMENT, "out_on");
}

Tensor outlives_main;

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(on_at_first),
      cmocka_unit_test_teardown(on_and_off, end),
      cmocka_unit_test(other_threads_give_back),
      cmocka_unit_test(forked_children_allocate_and_give_back),
      cmocka_unit_test_teardown(a_cap_ends_in_out_of_memory, end),
      cmocka_unit_test_teardown(bad_arguments_are_refused, end),
  };
  outlives_main = made_by_aten();
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

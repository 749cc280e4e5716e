// Values that a plug-in's device has: when the host's memory follows them, and what may have a copy
// at all. The device is one of the test's own, which counts how often it is read.
#include <ATen/ATen.h>

#include <cmath>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "engine/device/device_copy.h"
#include "engine/tensor/pooled_tensor.h"

#include "support/check.h"

namespace {

using namespace nxd;

class CountingCopy final : public DeviceCopy {
 public:
  CountingCopy(double value, int* reads) : value_(value), reads_(reads) {}
  void copy_to(at::Tensor& host) const override {
    ++*reads_;
    host.fill_(value_);
  }

 private:
  double value_;
  int* reads_;
};

bool is_all(const at::Tensor& tensor, double value) { return tensor.eq(value).all().item<bool>(); }

void a_read_keeps_the_copy(void**) {
  int reads = 0;
  const at::Tensor tensor = at::ones({3, 4});
  assert_true(!device_copy_of(tensor));
  const auto copy = std::make_shared<CountingCopy>(2, &reads);
  set_device_copy(tensor, copy, false);
  read_from_device(tensor);
  assert_true(reads == 0 && is_all(tensor, 1) && device_copy_of(tensor) == copy);
  set_device_copy(tensor, copy, true);
  read_from_device(tensor);
  read_from_device(tensor);
  assert_true(reads == 1 && is_all(tensor, 2) && device_copy_of(tensor) == copy);
}

// The memory has not got the values: the next read must not take it for them.
void a_read_that_fails_is_made_again(void**) {
  class FailingOnce final : public DeviceCopy {
   public:
    void copy_to(at::Tensor& host) const override {
      if (!std::exchange(has_failed_, true)) throw Error(NXD_ERROR_IO, "no copy this time");
      host.fill_(2);
    }

   private:
    mutable bool has_failed_ = false;
  };
  for (const bool leaves : {false, true}) {
    const at::Tensor tensor = at::ones({3});
    set_device_copy(tensor, std::make_shared<FailingOnce>(), true);
    const auto read = [&] { leaves ? void(on_host(tensor)) : read_from_device(tensor); };
    try {
      read();
      fail_msg("the first read failed, and nobody heard of it");
    } catch (const Error& error) {
      assert_int_equal(error.status(), NXD_ERROR_IO);
    }
    assert_true(device_copy_of(tensor) != nullptr);
    read();
    assert_true(is_all(tensor, 2));
  }
}

// Afterwards the host may write, and a program takes what it has written.
void what_leaves_the_device_has_no_copy(void**) {
  int reads = 0;
  const at::Tensor tensor = at::ones({5});
  set_device_copy(tensor, std::make_shared<CountingCopy>(7, &reads), true);
  assert_true(is_all(on_host(tensor), 7));
  assert_true(!device_copy_of(tensor));
  at::Tensor(tensor).fill_(3);
  read_from_device(tensor);
  assert_true(reads == 1 && is_all(tensor, 3));
  assert_false(on_host(at::Tensor()).defined());
}

void lost_values_are_no_numbers(void**) {
  int reads = 0;
  const at::Tensor lost = at::ones({2}), known = at::ones({2});
  const at::Tensor integers = at::ones({2}, at::kLong);
  set_device_copy(lost, std::make_shared<CountingCopy>(7, &reads), true);
  set_device_copy(integers, std::make_shared<CountingCopy>(7, &reads), true);
  set_device_copy(known, std::make_shared<CountingCopy>(7, &reads), false);
  for (const at::Tensor& tensor : {lost, integers, known}) {
    lose_device_copy(tensor);
    assert_true(!device_copy_of(tensor));
  }
  assert_true(std::isnan(on_host(lost)[0].item<double>()));
  assert_true(is_all(on_host(integers), 0) && is_all(on_host(known), 1) && reads == 0);
}

void memory_that_others_write_has_no_copy(void**) {
  const at::Tensor whole = at::ones({4, 4});
  assert_true(may_have_device_copy(whole));
  assert_true(may_have_device_copy(pooled_empty({3}, at::kFloat)));
  {
    const at::Tensor view = whole[1];
    assert_false(may_have_device_copy(view));
    assert_false(may_have_device_copy(whole));
  }
  float memory[4] = {};
  assert_false(may_have_device_copy(at::from_blob(memory, {4})));
  assert_false(may_have_device_copy(at::empty({0})));
}

void shared_memory_keeps_its_owner(void**) {
  int reads = 0;
  const auto owner = std::make_shared<std::vector<float>>(4, 1.0F);
  {
    const at::Tensor tensor = over_shared_memory(owner->data(), owner, {4}, at::kFloat);
    assert_true(may_have_device_copy(tensor) && owner.use_count() == 2);
    set_device_copy(tensor, std::make_shared<CountingCopy>(7, &reads), true);
    assert_true((*owner)[3] == 1);
    on_host(tensor);
    assert_true((*owner)[3] == 7);
  }
  assert_true(owner.use_count() == 1);
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_read_keeps_the_copy),
      cmocka_unit_test(a_read_that_fails_is_made_again),
      cmocka_unit_test(what_leaves_the_device_has_no_copy),
      cmocka_unit_test(lost_values_are_no_numbers),
      cmocka_unit_test(memory_that_others_write_has_no_copy),
      cmocka_unit_test(shared_memory_keeps_its_owner),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

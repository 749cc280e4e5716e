// Beside a thread that computes on the same core, yields are left out for a while. Each change of a
// Futex wakes its sleepers.
#include "core/base/yield.h"

#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/base/futex.h"

#include "support/check.h"

namespace {

using nxd::Futex;
using nxd::try_yield;

// This thread and those that it makes have one core until the end of the scope.
class OneCore {
 public:
  OneCore() {
    assert_int_equal(sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_;
};

// How often this thread let go of its core.
long turns() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw + usage.ru_nivcsw;
}

void beside_a_thread_that_computes(void**) {
  const OneCore one_core;
  std::atomic<bool> stop{false};
  std::thread computing([&] {
    while (!stop.load(std::memory_order_relaxed)) {
    }
  });
  while (try_yield()) {
  }
  // No yields, unless this thread has no core meanwhile for as long as the pause.
  constexpr int kCalls = 1000;
  const long before = turns();
  for (int i = 0; i < kCalls; ++i) try_yield();
  const long after = turns();
  stop.store(true);
  computing.join();
  assert_true(after - before < kCalls / 10);
}

void sleepers_are_woken(void**) {
  constexpr uint32_t kChanges = 2000;
  Futex number, answers;
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 3; ++i) {
    sleepers.emplace_back([&] {
      for (uint32_t seen = 0; seen < kChanges; ++seen) {
        while (number.value.load(std::memory_order_acquire) == seen) number.sleep(seen);
        answers.value.fetch_add(1, std::memory_order_seq_cst);
        answers.wake_sleepers();
      }
    });
  }
  for (uint32_t change = 1; change <= kChanges; ++change) {
    number.value.store(change, std::memory_order_seq_cst);
    number.wake_sleepers();
    uint32_t came = answers.value.load(std::memory_order_acquire);
    for (; came < 3 * change; came = answers.value.load(std::memory_order_acquire))
      answers.sleep(came);
  }
  for (std::thread& sleeper : sleepers) sleeper.join();
  assert_int_equal(number.sleepers.load(), 0);
  assert_int_equal(answers.sleepers.load(), 0);
}

void a_bounded_sleep_ends(void**) {
  Futex number;
  number.sleep(0, 1);
  number.sleep(7, -1);  // another value
  assert_int_equal(number.sleepers.load(), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(beside_a_thread_that_computes),
      cmocka_unit_test(sleepers_are_woken),
      cmocka_unit_test(a_bounded_sleep_ends),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Who shares a core with whom: a rank that is awaited there gets it at once, any other is looked
// for first.
#include <sched.h>

#include <thread>
#include <vector>

#include "core/comm/shared_counter.h"

#include "support/check.h"

namespace {

using nxd::SharedCounter;

std::vector<int> available_cores() {
  cpu_set_t all;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &all)) cores.push_back(core);
  }
  return cores;
}

template <class Body>
void on_core(int core, const Body& body) {
  std::thread thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(core), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    body();
  });
  thread.join();
}

void test_is_behind_us(void**) {
  const std::vector<int> cores = available_cores();
  if (cores.size() < 2) skip();
  SharedCounter counter;
  bool before = true, same = false, other = true, moved = false;
  on_core(cores[0], [&] { before = counter.is_behind_us(); });
  on_core(cores[0], [&] { counter.advance_to(1); });
  on_core(cores[0], [&] { same = counter.is_behind_us(); });
  on_core(cores[1], [&] { other = counter.is_behind_us(); });
  on_core(cores[1], [&] { counter.advance_to(2); });
  on_core(cores[1], [&] { moved = counter.is_behind_us(); });
  assert_false(before);
  assert_true(same);
  assert_false(other);
  assert_true(moved);
}

// Wherever the other runs, a value that comes is seen, and one that does not ends the wait.
void test_await_briefly(void**) {
  for (const bool cores_for_all : {true, false}) {
    for (const int core : available_cores()) {
      SharedCounter counter;
      on_core(core, [&] { counter.advance_to(3); });
      assert_true(counter.await_briefly(3, cores_for_all));
      assert_false(counter.await_briefly(4, cores_for_all));
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_is_behind_us),
                              cmocka_unit_test(test_await_briefly)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

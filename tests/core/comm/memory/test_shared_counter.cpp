// Ranks that share a core: a rank that waits for a peer on its own core yields at once; it polls
// first for any other.
#include <sched.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/memory/shared_counter.h"

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
  bool moved = false;  // assertions are for the main thread
  std::thread thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(core), &one);
    moved = sched_setaffinity(0, sizeof one, &one) == 0;
    body();
  });
  thread.join();
  assert_true(moved);
}

void test_is_behind_us(void**) {
  const std::vector<int> cores = available_cores();
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

// With "two_cores" that part alone, or 77 where there is one core.
int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "two_cores") {
    if (available_cores().size() < 2) {
      std::puts("skip: a counter over two cores: this process may run on one; give it two");
      return 77;
    }
    const CMUnitTest tests[] = {cmocka_unit_test(test_is_behind_us)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
  }
  const CMUnitTest tests[] = {cmocka_unit_test(test_await_briefly)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// The threads of kernels: every task is done once for any caller, failures reach the caller, and
// nothing depends on threads that are late, ended or left behind by a fork.
#include <dlfcn.h>
#include <omp.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "core/kernel_support.h"
#include "core/kernels/parallel.h"

using namespace nxd::kernels;

namespace {

constexpr int64_t kMuch = 1 << 20;  // work that is worth a team whatever the count

// How often each of count items was covered by a range.
std::vector<int> coverage(int64_t count) {
  std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
  parallel_ranges(count, kMuch, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)].fetch_add(1);
  });
  return {seen.begin(), seen.end()};
}

void each_item_once(void**) {
  for (const int threads : {1, 2, 3, 8, 2}) {
    omp_set_num_threads(threads);
    for (const int64_t count : {1, 2, 3, 17, 64, 1000}) {
      for (int repeat = 0; repeat < 20; ++repeat) {
        for (const int seen : coverage(count)) assert_int_equal(seen, 1);
      }
    }
    assert_int_equal(omp_get_max_threads(), threads);
  }
}

void little_work_stays_here(void**) {
  omp_set_num_threads(2);
  const auto here = std::this_thread::get_id();
  // Counted, as assertions are for the main thread.
  std::atomic<int> calls{0}, wrong{0}, for_nothing{0};
  parallel_ranges(100, 1, [&](int64_t begin, int64_t end) {
    ++calls;
    wrong += begin != 0 || end != 100 || std::this_thread::get_id() != here;
  });
  parallel_ranges(0, kMuch, [&](int64_t, int64_t) { ++for_nothing; });
  assert_int_equal(calls.load(), 1);
  assert_int_equal(wrong.load(), 0);
  assert_int_equal(for_nothing.load(), 0);
}

void callers_at_once(void**) {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&wrong] {
      omp_set_num_threads(3);
      for (int repeat = 0; repeat < 200; ++repeat) {
        for (const int seen : coverage(50)) wrong += seen != 1;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  assert_int_equal(wrong.load(), 0);
}

void no_team_in_a_team(void**) {
  omp_set_num_threads(2);
  std::atomic<int> more{0}, inner{0};
  parallel_ranges(16, kMuch, [&](int64_t begin, int64_t end) {
    more += team_size() != 1 || omp_get_max_threads() != 1;
    parallel_ranges(end - begin, kMuch,
                    [&](int64_t b, int64_t e) { inner += static_cast<int>(e - b); });
  });
  assert_int_equal(more.load(), 0);
  assert_int_equal(inner.load(), 16);
  assert_int_equal(team_size(), 2);
#pragma omp parallel num_threads(2)
  more += team_size() != 1;
  assert_int_equal(more.load(), 0);
}

void failures_reach_the_caller(void**) {
  omp_set_num_threads(2);
  std::atomic<int> done{0};
  for (int repeat = 0; repeat < 50; ++repeat) {
    done = 0;
    bool caught = false;
    try {
      parallel_ranges(16, kMuch, [&](int64_t begin, int64_t) {
        ++done;
        if (begin == 7) throw std::runtime_error("seven");
      });
    } catch (const nxd::Error& error) {  // by value, from whichever thread
      caught = std::strstr(error.what(), "seven");
    }
    assert_true(caught);
    assert_int_equal(done.load(), 16);  // the others are not left out
  }
}

void after_release(void**) {
  omp_set_num_threads(2);
  for (int repeat = 0; repeat < 10; ++repeat) {
    for (const int seen : coverage(40)) assert_int_equal(seen, 1);
    release_team();
    release_team();  // nothing to end
  }
}

// A region with a task for each thread. The caller ends its own and waits; threads of the team's
// own have no core for a while then, as beside threads of OpenMP's that poll for their next region.
void region_without_cores(int threads) {
  const auto here = std::this_thread::get_id();
  std::atomic<int> begun{0};
  std::atomic<bool> waits{false};
  parallel_ranges(threads, kMuch, [&](int64_t begin, int64_t end) {
    begun += static_cast<int>(end - begin);
    while (begun < threads) sched_yield();
    if (std::this_thread::get_id() == here) {
      waits = true;
      return;
    }
    while (!waits) sched_yield();
    usleep(5000);
  });
}

// Teams look for runtimes by name, so that a second libgomp, as PyTorch's packages have one, hears
// too.
void openmp_hears_of_crowded_cores(void**) {
  const int cores = omp_get_num_procs();
  if (cores < 2) {
    print_message("skip: test_team: threads that share cores: one core; install another\n");
    skip();
  }
  void* const runtime = dlopen(NXD_LIBGOMP_COUNTED, RTLD_NOW | RTLD_LOCAL);
  assert_non_null(runtime);
  const auto& regions = *static_cast<const int*>(dlsym(runtime, "counted_regions"));
  const auto& threads = *static_cast<const unsigned*>(dlsym(runtime, "counted_threads"));
  omp_set_num_threads(cores);
  release_team();
  coverage(40);
  for (int i = 0; i < 20; ++i) region_without_cores(cores);
  release_team();  // joins the thread that counts
  assert_int_equal(regions, 1);
  assert_int_equal(threads, 2);  // the thread itself and one more, which is one more than cores
  dlclose(runtime);
}

#ifndef __SANITIZE_THREAD__  // which knows no threads of a child that was forked beside others
// The child has no thread of its parent's team, and ends without waiting for one.
void in_a_forked_child(void**) {
  omp_set_num_threads(2);
  coverage(40);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    bool right = true;
    for (const int seen : coverage(40)) right = right && seen == 1;
#ifdef __SANITIZE_ADDRESS__  // would take for a leak what OpenMP holds for the parent's threads
    _exit(right ? 0 : 1);
#else
    exit(right ? 0 : 1);
#endif
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(each_item_once),
      cmocka_unit_test(little_work_stays_here),
      cmocka_unit_test(callers_at_once),
      cmocka_unit_test(no_team_in_a_team),
      cmocka_unit_test(after_release),
      cmocka_unit_test(failures_reach_the_caller),
      cmocka_unit_test(openmp_hears_of_crowded_cores),
#ifndef __SANITIZE_THREAD__
      cmocka_unit_test(in_a_forked_child),
#endif
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// The process keeps a number of graphs, here four: the least recently used leave, are compiled
// again when they come back, and give what they gave before.
#include <ATen/ATen.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/proc_file.h"
#include "engine/device/device_metrics.h"
#include "engine/device/recorder.h"
#include "engine/device/recording.h"
#include "engine/device/replay_plan.h"
#include "engine/stablehlo/device_backend.h"
#include "engine/stablehlo/kept_programs.h"

#include "support/pjrt.h"

#include "support/check.h"

namespace {

using namespace nxd;
using at::Tensor;

constexpr size_t kMost = 4;
constexpr int kShapes = 6;
constexpr const char* kVariable = "XLA_COMPILATION_CACHE_SIZE";
const at::Device kXla(at::kXLA, 0);

Tensor numbers(int64_t count) { return at::arange(count, at::kFloat) / 7; }

Tensor formula(const Tensor& x) { return (x * 3 + 1).tanh() - x; }

// A step whose graph no other shape has. True if it gives what the CPU does, and few are kept.
bool run_shape(int64_t count) {
  const Tensor result = formula(numbers(count).to(kXla));
  Recording::current()->mark_step(true);
  return at::allclose(result.to(at::kCPU), formula(numbers(count)), 1e-5, 1e-6) &&
         plan_count() <= kMost && KeptPrograms::count() <= kMost;
}

// A program may come from the disk.
uint64_t graphs_made() {
  const auto counts = device_metrics::counts();
  return counts.compiles + counts.loads;
}

std::vector<std::string> warnings;

void keep_warnings(bool are_kept) {
  const auto keep = [](nxd_log_level_t level, const char* line, void*) {
    if (level == NXD_LOG_WARN) warnings.push_back(line);
  };
  set_log_callback(are_kept ? +keep : nullptr, nullptr, nullptr);
}

int warnings_with(const std::string& text) {
  int found = 0;
  for (const std::string& line : warnings) found += line.find(text) != std::string::npos ? 1 : 0;
  return found;
}

// Before the device is there.
void test_bad_numbers_are_refused(void**) {
  for (const char* const bad : {"0", "-1", "many", "1e3", "99999999999999999999"}) {
    assert_int_equal(setenv(kVariable, bad, 1), 0);
    std::string message;
    try {
      use_xla_device();
    } catch (const Error& error) {
      assert_int_equal(error.status(), NXD_ERROR_INVALID_ARGUMENT);
      message = error.what();
    }
    for (const char* const part : {kVariable, "expected", bad}) {
      if (message.find(part) == std::string::npos) fail_msg("no %s in %s", part, message.c_str());
    }
  }
  assert_int_equal(setenv(kVariable, std::to_string(kMost).c_str(), 1), 0);
  use_xla_device();
}

// Shape 100 is used between all the others, and stays.
void test_the_least_recently_used_leave(void**) {
  device_metrics::reset();
  keep_warnings(true);
  for (int round = 0; round < 2; ++round) {
    for (int shape = 1; shape <= kShapes; ++shape) {
      assert_true(run_shape(100));
      assert_true(run_shape(shape));
    }
    // The first two graphs of a thread's steps are expected. One that comes back is not another.
    assert_int_equal(warnings_with("a step was compiled again"), kShapes - 1);
    assert_int_equal(warnings_with(kVariable), round);
  }
  keep_warnings(false);
  const auto counts = device_metrics::counts();
  const uint64_t made = counts.compiles + counts.loads;
  assert_int_equal(made, 1 + 2 * kShapes);
  if (!has_graph_compiler()) assert_int_equal(counts.loads, 0);
  assert_int_equal(counts.cache_hits, 2 * kShapes - 1);
  assert_int_equal(counts.evictions, made - kMost);
  assert_int_equal(counts.implicit_syncs, 0);
  assert_int_equal(plan_count(), kMost);
  if (has_graph_compiler()) assert_int_equal(KeptPrograms::count(), kMost);
  assert_true(device_metrics::report().find("\nevictions 9\n") != std::string::npos);
}

// A step that is not waited for stands in its graph while others take the graph's place.
void test_a_graph_leaves_while_it_runs(void**) {
  std::promise<void> started, gate;
  const auto waits = [&](const Tensor& x) {
    RecordedCall call{"test::waits"};
    call.results = {at::empty(x.sizes(), at::TensorOptions(at::kMeta).dtype(at::kFloat))};
    call.function = [&, passes = gate.get_future().share()](const std::vector<Tensor>& in) {
      started.set_value();
      passes.wait();
      return std::vector<Tensor>{in[0] * 2};
    };
    return formula(record_call(std::move(call), {x})[0]);
  };
  const Tensor result = waits(numbers(50).to(kXla));
  Recording::current()->mark_step(false);
  started.get_future().wait();
  device_metrics::reset();
  int good = 0;
  std::thread other([&good] {
    for (int shape = 1; shape <= kShapes; ++shape) good += run_shape(shape) ? 1 : 0;
  });
  other.join();
  const auto evictions = device_metrics::counts().evictions;
  gate.set_value();
  Recording::current()->wait();
  assert_int_equal(good, kShapes);
  assert_true(evictions >= kMost);
  assert_true(at::allclose(result.to(at::kCPU), formula(numbers(50) * 2), 1e-5, 1e-6));
  const uint64_t made = graphs_made();
  started = {};
  gate = {};
  const Tensor again = waits(numbers(50).to(kXla));
  gate.set_value();
  Recording::current()->mark_step(true);
  assert_true(at::equal(again.to(at::kCPU), result.to(at::kCPU)));
  assert_true(graphs_made() > made);
}

// Threads let go of one another's graphs.
void test_threads_share_the_number(void**) {
  constexpr int kThreads = 3, kSteps = 2 * kShapes;
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&good, t] {
      for (int i = 0; i < kSteps; ++i) good += run_shape(1 + i * (t + 1) % (kShapes + 1)) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  assert_int_equal(good, kThreads * kSteps);
}

// Memory whose pages differ from their neighbours: each is a mapping.
class ManyMappings {
 public:
  explicit ManyMappings(size_t count) : bytes_(count * page()) {
    start_ = static_cast<char*>(
        mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    assert_true(start_ != MAP_FAILED);
    for (size_t at = 0; at < bytes_; at += 2 * page()) {
      assert_int_equal(mprotect(start_ + at, page(), PROT_NONE), 0);
    }
  }
  ~ManyMappings() { munmap(start_, bytes_); }
  ManyMappings(const ManyMappings&) = delete;
  ManyMappings& operator=(const ManyMappings&) = delete;

 private:
  static size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

  size_t bytes_;
  char* start_ = nullptr;
};

// A plug-in that finds no mapping would end the process.
void test_programs_leave_when_mappings_are_scarce(void**) {
  if (!has_graph_compiler()) return;  // replayed graphs have none
  const auto limit = read_proc("/proc/sys/vm/max_map_count");
  const auto most = env::parse_int(limit ? limit->substr(0, limit->find('\n')) : "");
  if (!most || *most > 1 << 18) {
    printf("skip: memory mappings: vm.max_map_count is more than a test can take\n");
    skip();
  }
  const ManyMappings taken(static_cast<size_t>(*most / 4 * 3));
  warnings.clear();
  keep_warnings(true);
  size_t fewest = kMost;
  for (int shape = 0; shape < 2 * kShapes; ++shape) {
    assert_true(run_shape(1 + shape % kShapes));
    fewest = std::min(fewest, KeptPrograms::count());
  }
  keep_warnings(false);
  assert_int_equal(warnings_with("vm.max_map_count"), 1);
  assert_in_range(fewest, 1, kMost - 1);
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bad_numbers_are_refused),
      cmocka_unit_test(test_the_least_recently_used_leave),
      cmocka_unit_test(test_a_graph_leaves_while_it_runs),
      cmocka_unit_test(test_threads_share_the_number),
      cmocka_unit_test(test_programs_leave_when_mappings_are_scarce),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

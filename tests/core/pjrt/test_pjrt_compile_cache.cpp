// Processes that compile the same programs with a real plug-in: each program is compiled once. The
// parent makes no client, since its children could not have one then.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/pjrt/pjrt_client.h"
#include "pjrt_support.h"
#include "support/pjrt.h"

#include "support/check.h"
#include "support/temp_dir.h"

namespace {

using namespace nxd_test;

struct Counts {
  int compiled = -1, loaded = -1, right = -1;
};

std::string scaled_by(const std::string& factor) {
  return module_of("%a: tensor<16xf32>", "tensor<16xf32>",
                   "    %k = stablehlo.constant dense<" + factor +
                       "> : tensor<16xf32>\n    %0 = stablehlo.multiply %a, %k : tensor<16xf32>\n"
                       "    func.return %0 : tensor<16xf32>");
}

const std::vector<std::string> kFactors = {"2.0", "3.0"};

// Compiles and runs both programs.
Counts train(const nxd::PjrtOptions& options) {
  const auto client = nxd::PjrtClient::load(plugin_path());
  Counts counts;
  counts.right = 0;
  for (const std::string& factor : kFactors) {
    const auto program = client->compile(scaled_by(factor), options);
    AlignedFloats ones(std::vector<float>(16, 1));
    nxd::PjrtBuffer a = client->import_host(ones.data(), f32({16}), nxd::HostMemory::kShared);
    const auto execution = run(*program, {&a});
    counts.right +=
        values_of(execution->outputs().at(0)) == std::vector<float>(16, std::stof(factor));
  }
  counts.compiled = static_cast<int>(client->compiled());
  counts.loaded = static_cast<int>(client->loaded());
  return counts;
}

// The counts of processes that run body at the same time.
std::vector<Counts> processes(int number, const std::function<Counts()>& body) {
  int ends[2];
  assert_int_equal(::pipe(ends), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < number; ++i) {
    children.push_back(::fork());
    if (children.back() == 0) {
      Counts counts;
      try {
        counts = body();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      ::_exit(::write(ends[1], &counts, sizeof counts) == sizeof counts ? 0 : 1);
    }
  }
  ::close(ends[1]);  // so that a child that dies is the end of what can be read
  std::vector<Counts> all(children.size());
  for (size_t i = 0; i < children.size(); ++i) {
    assert_int_equal(::read(ends[0], &all[i], sizeof all[i]), sizeof all[i]);
    int status = -1;
    assert_int_equal(::waitpid(children[i], &status, 0), children[i]);
    assert_int_equal(status, 0);
  }
  ::close(ends[0]);
  return all;
}

Counts one_process(const nxd::PjrtOptions& options = fast()) {
  return processes(1, [&] { return train(options); }).at(0);
}

void expect_counts(const Counts& counts, int compiled, int loaded) {
  assert_int_equal(counts.right, 2);
  assert_int_equal(counts.compiled, compiled);
  assert_int_equal(counts.loaded, loaded);
}

void compiles_once(void**) {
  const TempDir dir;
  ::setenv("NEURON_COMPILE_CACHE_URL", dir.path().c_str(), 1);
  expect_counts(one_process(), 2, 0);
  expect_counts(one_process(), 0, 2);
  nxd::PjrtOptions other = fast();
  other.flags["xla_cpu_enable_fast_math"] = "false";
  expect_counts(one_process(other), 2, 0);
  expect_counts(one_process(), 0, 2);
  ::setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true", 1);
  expect_counts(one_process(), 2, 0);
  ::unsetenv("XLA_FLAGS");
  ::setenv("NEURON_CC_FLAGS", "--no_cache", 1);
  expect_counts(one_process(), 2, 0);
  ::unsetenv("NEURON_CC_FLAGS");
  expect_counts(one_process(), 0, 2);
}

void ranks_compile_once(void**) {
  const TempDir dir;
  ::setenv("NEURON_COMPILE_CACHE_URL", dir.path().c_str(), 1);
  int compiled = 0, loaded = 0;
  for (const Counts& counts : processes(3, [] { return train(fast()); })) {
    assert_int_equal(counts.right, 2);
    compiled += counts.compiled;
    loaded += counts.loaded;
  }
  assert_int_equal(compiled, 2);
  assert_int_equal(loaded, 4);
}

// A byte of machine code: the plug-in itself would run it.
void compiles_damaged_programs_again(void**) {
  const TempDir dir;
  ::setenv("NEURON_COMPILE_CACHE_URL", dir.path().c_str(), 1);
  one_process();
  int damaged = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    if (entry.file_size() < 1000) continue;  // the digest of the plug-in
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    const auto middle = static_cast<std::streamoff>(entry.file_size() / 2);
    file.seekg(middle);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(middle);
    file.put(byte);
    ++damaged;
  }
  assert_int_equal(damaged, 2);
  const Counts counts = processes(1, [] {
                          static int warnings = 0;
                          nxd::set_log_callback(
                              [](nxd_log_level_t, const char* line, void*) {
                                warnings +=
                                    std::string(line).find("is damaged") != std::string::npos;
                              },
                              nullptr, nullptr);
                          Counts own = train(fast());
                          if (warnings != 2) own.right = -1;
                          return own;
                        }).at(0);
  expect_counts(counts, 2, 0);
  expect_counts(one_process(), 0, 2);
}

void keeps_failures(void**) {
  const TempDir dir;
  ::setenv("NEURON_COMPILE_CACHE_URL", dir.path().c_str(), 1);
  // right: whether the error says that it was known.
  const auto attempt = [] {
    Counts counts;
    const auto client = nxd::PjrtClient::load(plugin_path());
    try {
      client->compile("no module", fast());
    } catch (const nxd::Error& error) {
      if (error.status() != NXD_ERROR_INTERNAL) return counts;
      counts.right =
          std::string(error.what()).find("--retry_failed_compilation") != std::string::npos;
    }
    return counts;
  };
  assert_int_equal(processes(1, attempt).at(0).right, 0);
  assert_int_equal(processes(1, attempt).at(0).right, 1);
  ::setenv("NEURON_CC_FLAGS", "--retry_failed_compilation", 1);
  assert_int_equal(processes(1, attempt).at(0).right, 0);
  ::unsetenv("NEURON_CC_FLAGS");
}

}  // namespace

int main() {
  if (!nxd_test_pjrt_plugin()) return kNoPjrtPlugin;
  const CMUnitTest tests[] = {
      cmocka_unit_test(compiles_once),
      cmocka_unit_test(ranks_compile_once),
      cmocka_unit_test(compiles_damaged_programs_again),
      cmocka_unit_test(keeps_failures),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

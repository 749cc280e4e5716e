// A program that has computed with several threads of OpenMP, and forks: the child computes in
// contexts of its own, and so does its child, with the same bits. Another process, since OpenMP
// reads the number of threads once.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "support/model_support.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

struct ContextDestroyer {
  void operator()(nxd_context_t* ctx) const { nxd_context_destroy(ctx); }
};

// A step of a model whose products, and whose copies, threads share; on the thread that forks.
double step() {
  nxd_context_t* joined = nullptr;
  if (!NXD_TEST_OK(nxd_context_create(nullptr, &joined))) return 0;
  const std::unique_ptr<nxd_context_t, ContextDestroyer> ctx(joined);
  NXD_TEST_OK(nxd_init_model_parallel(joined, nullptr));
  const char* const config =
      R"({"model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": 1024, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false})";
  nxd_module_t* made = nullptr;
  if (!NXD_TEST_OK(nxd_model_create(joined, config, nullptr, &made))) return 0;
  const Module model(made);
  std::vector<int64_t> numbers(8 * 128);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i * 37 % 1024);
  const int64_t shape[] = {8, 128};
  nxd_tensor_t *ids = nullptr, *out = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(numbers.data(), numbers.size() * sizeof numbers[0], shape, 2,
                                   NXD_DTYPE_I64, &ids));
  const Tensor held(ids);
  nxd_tensor_t* inputs[] = {ids, ids};
  NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 2, &out, 1));
  const Tensor result(out);
  NXD_TEST_OK(nxd_backward(&out, nullptr, 1, 0));
  return item(result.get());
}

// True if the child of a fork ends well within a minute.
template <class Function>
bool in_child(Function function) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(function() ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

void children_compute(void**) {
  const double loss = step();
  assert_true(loss > 0);
  assert_true(in_child([&] { return step() == loss && in_child([&] { return step() == loss; }); }));
  assert_true(step() == loss);
}

}  // namespace

int main(int, char** argv) {
  const char* const threads = std::getenv("OMP_NUM_THREADS");
  if (!threads || std::strcmp(threads, "2") != 0) {
    ::setenv("OMP_NUM_THREADS", "2", 1);
    ::execv("/proc/self/exe", argv);
    return 1;
  }
  const CMUnitTest tests[] = {cmocka_unit_test(children_compute)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

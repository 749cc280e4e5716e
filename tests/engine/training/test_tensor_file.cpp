// Files of a caller's tensors: a rank that is tracing has no values to write, and tells its peers.
#include "engine/training/tensor_file.h"

#include <ATen/ATen.h>

#include <filesystem>

#include "capi/handles.h"
#include "engine/tensor/call_tracer.h"
#include "support/ranks.h"
#include "support/temp_dir.h"
#include "support/told.h"

#include "support/check.h"

namespace {

class NoValues : public nxd::CallTracer {
 public:
  std::vector<at::Tensor> call_module(
      nxd::Module&, const std::vector<at::Tensor>&,
      const std::function<std::vector<at::Tensor>()>& run) override {
    return run();
  }
  std::vector<at::Tensor> call_function(const char*, const std::vector<at::Tensor>& inputs,
                                        const nxd::OpaqueFunction& function) override {
    return function(inputs);
  }
  void reject_read(const std::string& operation) override {
    throw nxd::Error(NXD_ERROR_INVALID_STATE, "no values for " + operation);
  }
  void check_access(const at::Tensor&, Access, const char* operation) override {
    reject_read(operation);
  }
};

void saves(nxd_context_t* ctx, int rank, int, void* user_data) {
  const std::string path = *static_cast<std::string*>(user_data) + "/a";
  const nxd::TensorFileContent content{{{"a", at::ones({2})}}, {}};
  for (const int tracing : {0, 1}) {
    NoValues tracer;
    const nxd_test::Told told = nxd_test::told_by([&] {
      const nxd::TracingScope scope(rank == tracing ? &tracer : nullptr);
      nxd::save_tensors(*ctx->value, path, content, {}, {});
    });
    NXD_TEST_CHECK(told.status == NXD_ERROR_INVALID_STATE);
    NXD_TEST_CHECK(told.message.find("no values for saving tensors") != std::string::npos);
  }
  NXD_TEST_CHECK(!std::filesystem::exists(path));
}

void one_rank_traces(void**) {
  const nxd_test::TempDir directory;
  std::string path = directory.path();
  nxd_test_run_ranks(2, 0, saves, &path);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(one_rank_traces)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

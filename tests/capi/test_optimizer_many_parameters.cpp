// The state of very many parameters is saved without a look at all of them for each, and loaded
// without a comparison of every name with every other.
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "support/buffer_model.h"
#include "support/temp_dir.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

// One element each, all of which steps move alike.
class ManyParameters {
 public:
  ManyParameters(nxd_context_t* ctx, size_t count) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < count; ++i) {
      texts.push_back(text("model.layers.", i, ".mlp.experts.gate_proj.weight"));
      params_.push_back(std::make_unique<Array>(std::vector<int64_t>{1}, NXD_DTYPE_F32));
      grads_.push_back(std::make_unique<Array>(std::vector<int64_t>{1}, NXD_DTYPE_F32));
      grads_.back()->set(0, 1);
    }
    std::vector<const char*> names;
    std::vector<DLTensor*> params, grads;
    for (size_t i = 0; i < count; ++i) {
      names.push_back(texts[i].c_str());
      params.push_back(params_[i]->tensor());
      grads.push_back(grads_[i]->tensor());
    }
    nxd_ddp_t* ddp = nullptr;
    NXD_TEST_OK(nxd_ddp_create_buffers(ctx, nullptr, names.data(), params.data(), grads.data(),
                                       count, nullptr, &ddp));
    ddp_.reset(ddp);
    nxd_sgd_options_t options = NXD_SGD_OPTIONS_INIT;
    options.learning_rate = 1;
    options.momentum = 0.5;
    nxd_optimizer_t* optimizer = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp, &options, &optimizer));
    optimizer_.reset(optimizer);
  }

  nxd_optimizer_t* optimizer() { return optimizer_.get(); }
  // The value that all have.
  double moved_to() {
    for (const auto& param : params_) NXD_TEST_CHECK(param->get(0) == params_.back()->get(0));
    return params_.back()->get(0);
  }

 private:
  template <class... Parts>
  static std::string text(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
  }

  std::vector<std::unique_ptr<Array>> params_, grads_;
  Ddp ddp_;
  Optimizer optimizer_;
};

void a_state_of_many_parameters_is_saved_and_loaded(void**) {
  static const TempDir directory;
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        const std::string path = directory.path() + "/state";
        ManyParameters before(ctx, 50000), after(ctx, 50000);
        NXD_TEST_OK(nxd_optimizer_step(before.optimizer(), nullptr, nullptr));
        NXD_TEST_OK(nxd_optimizer_save(before.optimizer(), path.c_str()));
        NXD_TEST_OK(nxd_optimizer_load(after.optimizer(), path.c_str()));
        NXD_TEST_OK(nxd_optimizer_step(after.optimizer(), nullptr, nullptr));
        NXD_TEST_CHECK(before.moved_to() == -1 && after.moved_to() == -1.5);
      },
      nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_state_of_many_parameters_is_saved_and_loaded),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

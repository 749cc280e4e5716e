// Parameters of another layout than the context has: its ranks are no copies of one another, and
// do not have all parts of a shard. Nothing is finished, updated, saved or made a ddp of over them.
#include <unistd.h>

#include "capi/pipeline_support.h"
#include "support/temp_dir.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

using Ddp = std::unique_ptr<nxd_ddp_t, Destroyer<nxd_ddp_destroy>>;
using Checkpoint = std::unique_ptr<nxd_checkpoint_t, Destroyer<nxd_checkpoint_destroy>>;

const PipelineLayout kHalves{2, 1, 1};
constexpr const char* kReason = "another layout";

void lay_out(nxd_context_t* ctx, int tensor) {
  nxd_parallel_options_t options = NXD_PARALLEL_OPTIONS_INIT;
  options.tensor_parallel_size = tensor;
  NXD_TEST_OK(nxd_init_model_parallel(ctx, &options));
}

void lay_out_anew(nxd_context_t* ctx, int tensor) {
  NXD_TEST_OK(nxd_destroy_model_parallel(ctx));
  lay_out(ctx, tensor);
}

// One parameter, of which each rank has a half.
struct Halves {
  explicit Halves(nxd_context_t* ctx) {
    nxd_module_t* made = nullptr;
    NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, &made));
    module.reset(made);
    nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
    options.has_shard_dim = 1;
    options.init = NXD_INIT_NORMAL;
    options.init_b = 1;
    constexpr int64_t kShape = 4;
    NXD_TEST_OK(nxd_module_add_parameter(made, "w", &kShape, 1, &options, &parameter));
    NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor));
  }

  void set_grad(float first, float second) const {
    const float grad[] = {first, second};
    constexpr int64_t kShape = 2;
    nxd_tensor_t* made = nullptr;
    NXD_TEST_OK(nxd_tensor_from_data(grad, sizeof grad, &kShape, 1, NXD_DTYPE_F32, &made));
    NXD_TEST_OK(nxd_tensor_set_grad(tensor, Tensor(made).get()));
  }

  std::vector<double> grad() const {
    nxd_tensor_t* shared = nullptr;
    NXD_TEST_OK(nxd_tensor_share_grad(tensor, &shared));
    return values(Tensor(shared).get());
  }

  std::vector<double> value() const { return values(tensor); }

  Module module;
  nxd_parameter_t* parameter = nullptr;  // borrowed, as the next
  nxd_tensor_t* tensor = nullptr;
};

Optimizer make_sgd(const Halves& model, nxd_ddp_t* ddp = nullptr) {
  nxd_sgd_options_t options = NXD_SGD_OPTIONS_INIT;
  options.learning_rate = 0.5;
  options.momentum = 0.9;
  nxd_optimizer_t* made = nullptr;
  NXD_TEST_OK(ddp ? nxd_optimizer_create_sgd_ddp(ddp, &options, &made)
                  : nxd_optimizer_create_sgd(model.module.get(), &options, &made));
  return Optimizer(made);
}

void finishes_nothing(void**) {
  on_pipeline_ranks(kHalves, [](nxd_context_t* ctx, int rank) {
    const Halves model(ctx);
    const Optimizer sgd = make_sgd(model);
    const std::vector<double> before = model.value();
    lay_out_anew(ctx, 1);
    model.set_grad(1, static_cast<float>(rank));
    NXD_TEST_REFUSED(nxd_finish_grads(model.module.get(), nullptr, nullptr),
                     NXD_ERROR_INVALID_STATE, kReason);
    NXD_TEST_REFUSED(nxd_optimizer_step(sgd.get(), nullptr, nullptr), NXD_ERROR_INVALID_STATE,
                     kReason);
    NXD_TEST_CHECK((model.grad() == std::vector<double>{1, static_cast<double>(rank)}));
    NXD_TEST_CHECK(model.value() == before);
    // Its own layout again.
    lay_out_anew(ctx, 2);
    nxd_step_report_t report = {};
    report.struct_size = sizeof report;
    NXD_TEST_OK(nxd_optimizer_step(sgd.get(), nullptr, &report));
    NXD_TEST_CHECK(std::abs(report.norm - std::sqrt(3.0)) < 1e-6);
  });
}

void saves_nothing(void**) {
  const TempDir directory;
  const std::string before = directory.path() + "/before", after = directory.path() + "/after";
  on_pipeline_ranks(kHalves, [&](nxd_context_t* ctx, int rank) {
    const Halves model(ctx);
    const Optimizer sgd = make_sgd(model);
    model.set_grad(1, static_cast<float>(2 + rank));
    NXD_TEST_OK(nxd_optimizer_step(sgd.get(), nullptr, nullptr));
    NXD_TEST_OK(nxd_optimizer_save(sgd.get(), before.c_str()));
    lay_out_anew(ctx, 1);
    NXD_TEST_REFUSED(nxd_optimizer_save(sgd.get(), after.c_str()), NXD_ERROR_INVALID_STATE,
                     kReason);
    NXD_TEST_CHECK(access(after.c_str(), F_OK) != 0);
    nxd_checkpoint_t* made = nullptr;
    NXD_TEST_OK(nxd_checkpoint_create(ctx, directory.path().c_str(), 1, &made));
    const Checkpoint checkpoint(made);
    NXD_TEST_REFUSED(nxd_optimizer_snapshot(sgd.get(), made, "sgd.safetensors"),
                     NXD_ERROR_INVALID_STATE, kReason);
    // A rank's part of a file is of its shard, whichever layout there is.
    NXD_TEST_OK(nxd_optimizer_load(sgd.get(), before.c_str()));
    lay_out_anew(ctx, 2);
    NXD_TEST_OK(nxd_optimizer_save(sgd.get(), after.c_str()));
    NXD_TEST_CHECK(read_file(after) == read_file(before));
  });
}

void makes_no_ddp(void**) {
  on_pipeline_ranks(kHalves, [](nxd_context_t* ctx, int) {
    const Halves model(ctx);
    const std::vector<double> before = model.value();
    lay_out_anew(ctx, 1);
    for (const int stage : {0, 1}) {
      nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
      options.zero_stage = stage;
      nxd_ddp_t* ddp = nullptr;
      NXD_TEST_REFUSED(nxd_ddp_create(model.module.get(), &options, &ddp), NXD_ERROR_INVALID_STATE,
                       kReason);
    }
    NXD_TEST_CHECK(model.value() == before);
  });
}

// A ddp keeps the groups of the layout that it was made in, for its optimizers as well.
void goes_on_with_a_ddp(void**) {
  const TempDir directory;
  const std::string before = directory.path() + "/before", after = directory.path() + "/after";
  on_pipeline_ranks(kHalves, [&](nxd_context_t* ctx, int rank) {
    const Halves model(ctx);
    nxd_ddp_t* made = nullptr;
    NXD_TEST_OK(nxd_ddp_create(model.module.get(), nullptr, &made));
    const Ddp ddp(made);
    const Optimizer sgd = make_sgd(model, made);
    model.set_grad(1, static_cast<float>(rank));
    NXD_TEST_OK(nxd_optimizer_step(sgd.get(), nullptr, nullptr));
    NXD_TEST_OK(nxd_optimizer_save(sgd.get(), before.c_str()));
    lay_out_anew(ctx, 1);
    NXD_TEST_OK(nxd_optimizer_save(sgd.get(), after.c_str()));
    NXD_TEST_CHECK(read_file(after) == read_file(before));
    NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
    model.set_grad(1, static_cast<float>(rank));
    nxd_step_report_t report = {};
    report.struct_size = sizeof report;
    NXD_TEST_OK(nxd_optimizer_step(sgd.get(), nullptr, &report));
    NXD_TEST_CHECK(std::abs(report.norm - std::sqrt(3.0)) < 1e-6);
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(finishes_nothing), cmocka_unit_test(saves_nothing),
                              cmocka_unit_test(makes_no_ddp), cmocka_unit_test(goes_on_with_a_ddp)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

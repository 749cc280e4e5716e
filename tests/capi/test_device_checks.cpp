// Values that layers reject, on the recorded device: all ranks hear of them, nothing of the step
// has run, and training goes on.
#include "support/device.h"
#include "support/model_support.h"
#include "support/pjrt.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr int64_t kLength = 16;
constexpr int64_t kOutside = 100000;

struct Setting {
  int tp, dp, stage;  // of ZeRO; -1: no ddp
  bool bad_label;     // else it is an id
};

// A step, which may have a bad value on this rank. Gives the status of its end.
nxd_status_t run_step(nxd_module_t* model, nxd_optimizer_t* optimizer, const Setting& setting,
                      bool is_bad) {
  std::vector<int64_t> ids(kLength), labels(kLength);
  for (int64_t i = 0; i < kLength; ++i) {
    ids[static_cast<size_t>(i)] = labels[static_cast<size_t>(i)] = (i * i * 17 + 7 * i) % 64;
  }
  if (is_bad) (setting.bad_label ? labels : ids)[5] = kOutside;
  std::vector<Tensor> given;
  given.push_back(make_i64(ids, {1, kLength}));
  given.push_back(make_i64(labels, {1, kLength}));
  const std::vector<Tensor> inputs = moved(given, NXD_DEVICE_XLA);
  nxd_tensor_t* loss = nullptr;
  if (!NXD_TEST_OK(nxd_module_forward(model, handles(inputs).data(), 2, &loss, 1))) {
    return NXD_ERROR_INTERNAL;
  }
  const Tensor owner(loss);
  NXD_TEST_OK(nxd_backward(&loss, nullptr, 1, 0));
  NXD_TEST_OK(nxd_optimizer_step(optimizer, nullptr, nullptr));
  NXD_TEST_OK(nxd_module_zero_grad(model));
  return nxd_mark_step(1);
}

void train(nxd_context_t* ctx, int rank, const Setting& setting) {
  Layout layout{setting.tp, false, NXD_DTYPE_F32};
  layout.device = NXD_DEVICE_XLA;
  const Module model = create_model(ctx, LlamaOracle().config, layout);
  if (!model) return;
  nxd_ddp_t* ddp = nullptr;
  if (setting.stage >= 0) {
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = setting.stage;
    if (!NXD_TEST_OK(nxd_ddp_create(model.get(), &options, &ddp))) return;
  }
  const std::unique_ptr<nxd_ddp_t, Destroyer<nxd_ddp_destroy>> ddp_owner(ddp);
  nxd_optimizer_t* made = nullptr;
  NXD_TEST_OK(ddp ? nxd_optimizer_create_adamw_ddp(ddp, nullptr, &made)
                  : nxd_optimizer_create_adamw(model.get(), nullptr, &made));
  const Optimizer optimizer(made);
  for (int step = 0; step < 3; ++step) {
    NXD_TEST_OK(run_step(model.get(), optimizer.get(), setting, false));
  }
  const Named before = whole_parameters(model.get());
  const bool is_bad = rank == setting.tp * setting.dp - 1;
  const nxd_status_t status = run_step(model.get(), optimizer.get(), setting, is_bad);
  NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, " 0 to 255");
  NXD_TEST_CHECK(whole_parameters(model.get()) == before);
  NXD_TEST_OK(run_step(model.get(), optimizer.get(), setting, false));
  const Named after = whole_parameters(model.get());
  NXD_TEST_CHECK(!after.empty() && after != before);
}

void check(const Setting& setting) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  nxd_test_run_ranks_with(
      &options, setting.tp * setting.dp, setting.tp,
      [](nxd_context_t* ctx, int rank, int, void* user_data) {
        train(ctx, rank, *static_cast<const Setting*>(user_data));
      },
      const_cast<Setting*>(&setting));
}

void one_rank(void**) {
  check({1, 1, -1, false});
  check({1, 1, -1, true});
}

void tensor_parallel_ranks(void**) {
  check({2, 1, -1, false});
  check({2, 1, -1, true});
}

// Graphs of such ranks run together, so that all fail; where they are replayed, one alone does.
void data_parallel_ranks(void**) {
  if (!through_a_plugin()) return;
  check({1, 2, 0, false});
  check({1, 2, 1, true});
  check({2, 2, 1, false});
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_rank),
      cmocka_unit_test(tensor_parallel_ranks),
      cmocka_unit_test(data_parallel_ranks),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

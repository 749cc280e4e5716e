// Norms of a part of a model are rejected, and so are axes that training does not reduce over.
// Gradients too large for F32 are no update.
#include <cfloat>
#include <cmath>
#include <limits>

#include "support/buffer_model.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr nxd_status_t kUnsupported = NXD_ERROR_UNSUPPORTED;

struct Sizes {
  int32_t tensor = 1, pipeline = 1, context = 1, expert = 1;
};

bool init_layout(nxd_context_t* ctx, const Sizes& sizes) {
  nxd_parallel_options_t options = NXD_PARALLEL_OPTIONS_INIT;
  options.tensor_parallel_size = sizes.tensor;
  options.pipeline_parallel_size = sizes.pipeline;
  options.context_parallel_size = sizes.context;
  options.expert_parallel_size = sizes.expert;
  return NXD_TEST_OK(nxd_init_model_parallel(ctx, &options));
}

Ddp ddp_over(nxd_context_t* ctx, nxd_group_t* group, BufferModel& model, int32_t zero_stage) {
  DLTensor* params[] = {model.params[0]->tensor()};
  DLTensor* grads[] = {model.grads[0]->tensor()};
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.zero_stage = zero_stage;
  nxd_ddp_t* out = nullptr;
  NXD_TEST_OK(nxd_ddp_create_buffers(ctx, group, nullptr, params, grads, 1, &options, &out));
  return Ddp(out);
}

Optimizer sgd_over(const Ddp& ddp) {
  nxd_sgd_options_t options = NXD_SGD_OPTIONS_INIT;
  options.learning_rate = 1;
  nxd_optimizer_t* out = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &options, &out));
  return Optimizer(out);
}

nxd_finish_options_t clipped(double max_norm) {
  nxd_finish_options_t options = NXD_FINISH_OPTIONS_INIT;
  options.max_norm = max_norm;
  return options;
}

nxd_group_t* world_of(nxd_context_t* ctx) {
  nxd_group_t* group = nullptr;
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_WORLD, &group));
  return group;
}

// The norm of a data-parallel group is not that of a model whose other parameters are elsewhere.
void clipping_a_part(void**) {
  for (const auto& [sizes, axis] : {std::pair(Sizes{2, 1}, "2 tensor-parallel"),
                                    std::pair(Sizes{1, 2}, "2 pipeline-parallel")}) {
    for (const int32_t zero_stage : {0, 1}) {
      on_ranks<int>(4, [&](nxd_context_t* ctx, int, int) {
        if (!init_layout(ctx, sizes)) return 0;
        BufferModel model({{5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
        const Ddp ddp = ddp_over(ctx, nullptr, model, zero_stage);
        const Optimizer optimizer = sgd_over(ddp);
        model.set_gradients(0, 1);
        const std::vector<char> before = model.bytes();
        const nxd_finish_options_t clip = clipped(1e-3), plain = clipped(0);
        nxd_step_report_t report = {};
        report.struct_size = sizeof report;
        NXD_TEST_REFUSED(nxd_optimizer_step(optimizer.get(), &clip, &report), kUnsupported, axis);
        NXD_TEST_REFUSED(nxd_optimizer_step(optimizer.get(), &clip, &report), kUnsupported,
                         "max_norm");
        NXD_TEST_CHECK(model.bytes() == before && report.norm == 0);
        if (zero_stage == 0) {
          double norm = 1;
          NXD_TEST_REFUSED(nxd_ddp_finish(ddp.get(), &clip, &norm), kUnsupported, axis);
          NXD_TEST_CHECK(norm == 0);
        }
        // The step may be finished without.
        NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), &plain, &report));
        NXD_TEST_CHECK(report.norm > 0 && model.bytes() != before);
        return 0;
      });
    }
  }
}

// Where every rank has every parameter the norm is the model's.
void clipping_the_whole(void**) {
  const auto trained = [](const Sizes& sizes, bool with_layout) {
    return on_ranks<std::vector<double>>(2, [&](nxd_context_t* ctx, int rank, int) {
      if (with_layout && !init_layout(ctx, sizes)) return std::vector<double>();
      BufferModel model({{5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
      const Ddp ddp = ddp_over(ctx, with_layout ? world_of(ctx) : nullptr, model, 0);
      const Optimizer optimizer = sgd_over(ddp);
      model.set_gradients(rank, rank + 1);
      const nxd_finish_options_t clip = clipped(1e-2);
      NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), &clip, nullptr));
      return model.values();
    })[0];
  };
  const std::vector<double> expected = trained({}, false);
  assert_true(trained({}, true) == expected);
  assert_true(trained({2, 1}, true) == expected);
  assert_true(trained({1, 2}, true) == expected);
}

// Stages that compute nothing.
nxd_pp_stage_callbacks_t idle_stages() {
  nxd_pp_stage_callbacks_t callbacks = {};
  callbacks.struct_size = sizeof callbacks;
  callbacks.forward = [](const nxd_pp_call_t*, DLTensor* const*, DLTensor* const*, double*,
                         void*) -> nxd_status_t { return NXD_OK; };
  callbacks.backward = [](const nxd_pp_call_t*, DLTensor* const*, DLTensor* const*,
                          DLTensor* const*, void*) -> nxd_status_t { return NXD_OK; };
  return callbacks;
}

void axes_that_training_ignores(void**) {
  for (const auto& [sizes, option] :
       {std::pair(Sizes{1, 1, 2, 1}, "context_parallel_size 1, got 2"),
        std::pair(Sizes{1, 1, 1, 2}, "expert_parallel_size 1, got 2")}) {
    on_ranks<int>(2, [&](nxd_context_t* ctx, int, int) {
      if (!init_layout(ctx, sizes)) return 0;
      BufferModel model({{5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
      Ddp ddp;
      const nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
      NXD_TEST_REFUSED(model.create_ddp(ctx, options, ddp), kUnsupported, option);
      // A group of the caller's own says itself which ranks are copies.
      const Ddp own = ddp_over(ctx, world_of(ctx), model, 0);
      const size_t none[] = {0};
      const nxd_pp_callbacks_options_t pipeline = NXD_PP_CALLBACKS_OPTIONS_INIT;
      const nxd_pp_stage_callbacks_t callbacks = idle_stages();
      nxd_pp_t* pp = nullptr;
      NXD_TEST_REFUSED(
          nxd_pp_create_callbacks(ctx, &pipeline, nullptr, none, nullptr, none, &callbacks, &pp),
          kUnsupported, option);
      NXD_TEST_CHECK(pp == nullptr);
      return 0;
    });
  }
}

// A rank whose arguments are bad beside that is not left waiting for peers that do not come.
void bad_arguments_in_such_a_layout(void**) {
  on_ranks<int>(4, [&](nxd_context_t* ctx, int rank, int) {
    if (!init_layout(ctx, {1, 2, 2, 1})) return 0;
    const size_t none[] = {0};
    nxd_pp_callbacks_options_t options = NXD_PP_CALLBACKS_OPTIONS_INIT;
    const nxd_pp_stage_callbacks_t callbacks = idle_stages();
    for (const bool unread : {false, true}) {
      // Options that cannot be read, and values that are none.
      options.broadcast_and_average_loss = rank == 1 && unread ? 2 : 0;
      const size_t* const counts = rank == 1 && !unread ? nullptr : none;
      nxd_pp_t* pp = nullptr;
      const nxd_status_t status =
          nxd_pp_create_callbacks(ctx, &options, nullptr, counts, nullptr, none, &callbacks, &pp);
      NXD_TEST_CHECK(pp == nullptr);
      NXD_TEST_CHECK(status == kUnsupported || status == NXD_ERROR_INVALID_ARGUMENT);
    }
    nxd_group_t* pipeline = nullptr;
    NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_PIPELINE, &pipeline));
    NXD_TEST_OK(nxd_barrier(pipeline));
    return 0;
  });
}

// A factor or a product beyond F32 is no update, whatever the norm is in F64.
void beyond_f32(void**) {
  for (const int32_t zero_stage : {0, 1}) {
    on_ranks<int>(2, [&](nxd_context_t* ctx, int, int) {
      BufferModel model({{5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
      const Ddp ddp = ddp_over(ctx, nullptr, model, zero_stage);
      const Optimizer optimizer = sgd_over(ddp);
      const std::vector<char> before = model.bytes();
      const auto step = [&](double scale, double max_norm, nxd_step_report_t& report) {
        for (int64_t i = 0; i < 5; ++i) model.grads[0]->set(i, 1e10);
        nxd_finish_options_t options = clipped(max_norm);
        options.scale = scale;
        report = {};
        report.struct_size = sizeof report;
        return nxd_optimizer_step(optimizer.get(), &options, &report);
      };
      nxd_step_report_t report;
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      for (const double scale : {1e39, -1e39, 1e-39, -1e-50, kInfinity, -kInfinity, std::nan("")}) {
        NXD_TEST_REFUSED(step(scale, 0, report), NXD_ERROR_INVALID_ARGUMENT, "scale: expected");
        NXD_TEST_CHECK(model.bytes() == before);
      }
      NXD_TEST_OK(step(FLT_MAX, 0, report));
      NXD_TEST_CHECK(report.skipped == 1 && report.norm > FLT_MAX && model.bytes() == before);
      // The factor, 2e-41, has lost digits in F32.
      NXD_TEST_OK(step(1, 1e-30, report));
      NXD_TEST_CHECK(report.skipped == 1 && report.norm > 1e10 && model.bytes() == before);
      // Clipped, they fit.
      NXD_TEST_OK(step(FLT_MAX, 1, report));
      NXD_TEST_CHECK(report.skipped == 0 && report.norm > FLT_MAX);
      for (const double value : model.values()) NXD_TEST_CHECK(std::isfinite(value));
      return 0;
    });
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(clipping_a_part),
      cmocka_unit_test(clipping_the_whole),
      cmocka_unit_test(axes_that_training_ignores),
      cmocka_unit_test(bad_arguments_in_such_a_layout),
      cmocka_unit_test(beyond_f32),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Buffers that stages of a pipeline write to.
#include "capi/callback_model.h"
#include "capi/pipeline_support.h"

using namespace nxd_test;

namespace {

Tensor number(float value) {
  nxd_tensor_t* out = nullptr;
  const int64_t shape[] = {1};
  NXD_TEST_OK(nxd_tensor_from_data(&value, sizeof value, shape, 1, NXD_DTYPE_F32, &out));
  return Tensor(out);
}

// Counts its calls in a buffer, which it gives.
Module counter(nxd_context_t* ctx) {
  Module module = callback_module(
      ctx, "Counter", [](nxd_module_t* self, const Handles&, nxd_tensor_t** outputs, size_t) {
        nxd_tensor_t* calls = nullptr;
        NXD_TEST_TRY(nxd_module_share_buffer(self, "calls", &calls));
        const Tensor owned(calls), one = number(1);
        Tensor written;
        NXD_TEST_TRY(call_op("add_", "Tensor", {calls, one.get()}, written));
        outputs[0] = written.release();
        return nxd_status_t{NXD_OK};
      });
  NXD_TEST_OK(nxd_module_add_buffer(module.get(), "calls", number(0).get(), 1));
  return module;
}

// The loss is the mean of what the counter gives, which is an output, too.
Module counting_model(nxd_context_t* ctx) {
  Module root = callback_module(
      ctx, "Root", [](nxd_module_t* self, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
        Tensor count, loss;
        NXD_TEST_TRY(call_child(self, "counter", {inputs[0]}, count));
        NXD_TEST_TRY(call_op("mean", "", {count.get()}, loss));
        outputs[0] = loss.release();
        outputs[1] = count.release();
        return nxd_status_t{NXD_OK};
      });
  add_child(root, "counter", counter(ctx));
  return root;
}

std::vector<Tensor> batch() {
  const float rows[4] = {1, 2, 3, 4};
  const int64_t shape[] = {4, 1};
  nxd_tensor_t* x = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(rows, sizeof rows, shape, 2, NXD_DTYPE_F32, &x));
  std::vector<Tensor> out;
  out.emplace_back(x);
  return out;
}

// Each microbatch has the value that its own write left, behind a cut and as an output of the
// model.
void values_of_a_written_buffer(void**) {
  for (const PipelineLayout& layout :
       {PipelineLayout{1, 1, 1, 1}, PipelineLayout{1, 1, 1, 2}, PipelineLayout{1, 2, 1, 1}}) {
    on_pipeline_ranks(layout, [&](nxd_context_t* ctx, int) {
      static const char* const cuts[] = {"counter"};
      const Module root = counting_model(ctx);
      nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
      options.num_microbatches = 4;
      options.virtual_size = layout.chunks;
      options.schedule = NXD_PP_SCHEDULE_GPIPE;
      options.num_outputs = 2;
      options.broadcast_and_average_loss = 1;
      options.pipeline_cuts = cuts;
      options.num_cuts = layout.chunks * layout.pp > 1 ? 1 : 0;
      const Pipeline pp = make_pipeline(root.get(), batch(), options);
      if (!pp) return;
      double loss = 0;
      nxd_tensor_t* got[2] = {nullptr, nullptr};
      const std::vector<Tensor> given = batch();
      NXD_TEST_OK(nxd_pp_run_eval(pp.get(), handles(given).data(), 1, &loss, got, 2));
      const Tensor losses(got[0]), counts(got[1]);
      check_loss(layout.name().c_str(), loss, 2.5, 0);
      if (counts) check_values("counts", values(counts.get()), {1, 2, 3, 4}, 0);
    });
  }
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {cmocka_unit_test(values_of_a_written_buffer)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

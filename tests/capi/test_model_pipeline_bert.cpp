// A BERT in a pipeline: its tied decoder is on the last stage, the embedding on the first. With
// tensor and data parallelism fixed, no cut or schedule changes a bit of losses, gradients and
// trained parameters.
#include "capi/pipeline_support.h"

using namespace nxd_test;

namespace {

std::vector<Tensor> rows(int step, int dp_rank, int dp, int64_t length) {
  const int64_t own = 8 / dp;
  std::vector<int64_t> ids, labels, mask, types, next;
  for (int64_t row = dp_rank * own; row < (dp_rank + 1) * own; ++row) {
    for (int64_t t = 0; t < length; ++t) {
      ids.push_back((row * 37 + t * t * 11 + step * 5 + 3) % 101);
      labels.push_back((t + row) % 3 == 0 ? (ids.back() + 7) % 101 : -100);
      mask.push_back(t < length - row % 4);
      types.push_back(t >= length / 2);
    }
    next.push_back(row % 2);
  }
  const std::vector<int64_t> shape{own, length};
  std::vector<Tensor> out;
  for (const auto& values : {ids, labels, mask, types}) out.push_back(make_i64(values, shape));
  out.push_back(make_i64(next, {own}));
  return out;
}

PipelineTask task(bool sequence_parallel, int64_t length = 16) {
  PipelineTask out;
  out.make = [sequence_parallel](nxd_context_t* ctx) {
    const Layout layout{1, sequence_parallel};
    return create_model(ctx, read_file(oracles() + "/bert_tiny/config.json"), layout);
  };
  out.batch = [length](int step, int dp_rank, int dp) { return rows(step, dp_rank, dp, length); };
  out.options.num_microbatches = 4;
  return out;
}

void check_cuts(int tp, int dp, bool sequence_parallel, int64_t length = 16) {
  const PipelineTask bert = task(sequence_parallel, length);
  const PipelineRun want = train_pipeline({tp, 1, dp}, bert);
  assert_true(want.losses.back() < want.losses.front());
  for (const auto schedule : {NXD_PP_SCHEDULE_1F1B, NXD_PP_SCHEDULE_ZERO_BUBBLE}) {
    for (const bool recompute : {false, true}) {
      const PipelineLayout layout{tp, 2, dp, 1, schedule, recompute};
      check_equal(layout, train_pipeline(layout, bert), want);
    }
  }
}

void one_tensor_rank(void**) { check_cuts(1, 1, false); }

void two_tensor_ranks(void**) {
  check_cuts(2, 1, false);
  check_cuts(2, 1, true);
  check_cuts(2, 1, true, 15);
}

void two_data_ranks(void**) { check_cuts(1, 2, false); }

// Across layouts sums are made in another order.
void layouts_agree(void**) {
  const PipelineRun want = train_pipeline({}, task(false));
  for (const PipelineLayout& layout :
       {PipelineLayout{2, 2, 1}, PipelineLayout{2, 1, 1}, PipelineLayout{4, 1, 1}}) {
    const PipelineRun got = train_pipeline(layout, task(layout.tp == 2 && layout.pp == 1));
    for (size_t i = 0; i < want.losses.size(); ++i) {
      check_loss(layout.name().c_str(), got.losses.at(i), want.losses[i], 1e-5);
    }
  }
}

// A BERT's labels are not shifted: a row's first one counts as all others do. Without labels of
// next sentences the loss is the mean over all masked tokens, as that of the undivided model.
void first_labels_count(void**) {
  on_pipeline_ranks({1, 2, 1}, [](nxd_context_t* ctx, int) {
    const PipelineTask bert = task(false);
    std::vector<Tensor> batch = bert.batch(0, 0, 1);
    batch[4] = make_i64(std::vector<int64_t>(8, -100), {8});
    const Module whole = bert.make(ctx), model = bert.make(ctx);
    NXD_TEST_OK(nxd_module_set_training(whole.get(), 0));
    nxd_tensor_t* out = nullptr;
    NXD_TEST_OK(nxd_module_forward(whole.get(), handles(batch).data(), 5, &out, 1));
    const Tensor want(out);
    nxd_pp_options_t options = bert.options;
    options.broadcast_and_average_loss = 1;
    const Pipeline pp = make_pipeline(model.get(), batch, options);
    if (!pp) return;
    double loss = NAN;
    NXD_TEST_OK(nxd_pp_run_eval(pp.get(), handles(batch).data(), 5, &loss, nullptr, 0));
    check_loss("first labels", loss, item(want.get()), 1e-6);
  });
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(one_tensor_rank),    cmocka_unit_test(two_tensor_ranks),
      cmocka_unit_test(two_data_ranks),     cmocka_unit_test(layouts_agree),
      cmocka_unit_test(first_labels_count),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// The microbatches that a rank keeps in a run, of a caller's own stages.
#include <algorithm>

#include "support/pipeline_model.h"
#include "support/ranks.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

// Counts microbatches whose weight gradients are not made yet.
class CountingNet : public SkipNet {
 public:
  using SkipNet::SkipNet;
  nxd_status_t forward(const nxd_pp_call_t& call, DLTensor* const* in, DLTensor* const* out,
                       double* loss) override {
    most = std::max(most, ++kept_);
    return SkipNet::forward(call, in, out, loss);
  }
  nxd_status_t backward(const nxd_pp_call_t& call, DLTensor* const* in, DLTensor* const* grad_out,
                        DLTensor* const* grad_in, bool weights) override {
    if (weights) --kept_;
    return SkipNet::backward(call, in, grad_out, grad_in, weights);
  }
  int most = 0;

 private:
  int kept_ = 0;
};

std::vector<int> kept_in_run(nxd_pp_schedule_kind_t kind, int ranks, int microbatches) {
  const Cut cut{ranks, 1, microbatches};
  return on_ranks<int>(ranks, [&](nxd_context_t* ctx, int rank, int) {
    if (!NXD_TEST_OK(make_parallel(ctx, ranks))) return -1;
    CountingNet net(cut);
    const Boundaries boundaries(cut, rank, SkipNet::kLayers, SkipNet::values_before);
    nxd_pp_callbacks_options_t options = NXD_PP_CALLBACKS_OPTIONS_INIT;
    options.num_microbatches = microbatches;
    options.schedule = kind;
    const bool splits = kind == NXD_PP_SCHEDULE_ZERO_BUBBLE;
    Pp pp;
    if (!NXD_TEST_OK(boundaries.create(ctx, options, net.callbacks(splits), pp))) return -1;
    double loss = 0;
    NXD_TEST_OK(nxd_pp_run(pp.get(), 1, &loss));
    return net.most;
  });
}

// Zero bubble keeps more than 1F1B, the more the later the rank.
void kept_microbatches(void**) {
  for (const auto& [ranks, microbatches] : {std::pair{2, 4}, std::pair{4, 8}, std::pair{4, 3}}) {
    const std::vector<int> one = kept_in_run(NXD_PP_SCHEDULE_1F1B, ranks, microbatches),
                           zero = kept_in_run(NXD_PP_SCHEDULE_ZERO_BUBBLE, ranks, microbatches);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto r = static_cast<size_t>(rank);
      assert_int_equal(one[r], std::min(ranks - rank, microbatches));
      const int more = std::max(0, std::min(rank, microbatches - (ranks - rank)));
      assert_int_equal(zero[r], one[r] + more);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(kept_microbatches)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

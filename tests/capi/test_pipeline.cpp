// Pipelines over callbacks: against recorded losses, and one network cut and scheduled in every
// way, to the last bit; losses that are shared, evaluation, buffers that are bounded; ranks that do
// not agree, and callbacks that fail.
#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "support/pipeline_model.h"
#include "support/ranks.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

struct Shape {
  int ranks, chunks, microbatches;
  nxd_pp_schedule_kind_t schedule;
  bool custom = false;
};

std::string describe(const Shape& s) {
  return "ranks " + std::to_string(s.ranks) + ", chunks " + std::to_string(s.chunks) +
         ", microbatches " + std::to_string(s.microbatches) + ", schedule " +
         (s.custom ? "of the caller" : std::to_string(s.schedule));
}

nxd_pp_callbacks_options_t options_of(const Shape& shape) {
  nxd_pp_callbacks_options_t options = NXD_PP_CALLBACKS_OPTIONS_INIT;
  options.num_microbatches = shape.microbatches;
  options.virtual_size = shape.chunks;
  options.schedule = shape.schedule;
  return options;
}

// --- Recorded losses ----------------------------------------------------------------------------

// Eight linear layers of four features without biases, cross entropy, and plain SGD: values of NxD
// Core, PyTorch and numpy alike.
class LinearNet : public StageCode {
 public:
  static constexpr int kLayers = 8, kWidth = 4, kBatch = 4, kSteps = 4;

  LinearNet(const Cut& cut, int batch_begin) : cut_(cut), batch_begin_(batch_begin) {
    for (size_t l = 0; l < kLayers; ++l) {
      for (size_t k = 0; k < 16; ++k) {
        weights[l][k] = (k % 5 == 0 ? 1 : 0) + 0.3 * std::sin(0.7 * double(k) + double(l));
      }
    }
  }
  int rows() const { return kBatch / cut_.microbatches; }

  nxd_status_t forward(const nxd_pp_call_t& call, DLTensor* const* in, DLTensor* const* out,
                       double* loss) override {
    const auto acts = run(call, in);
    const size_t n = acts.back().size();
    if (!loss) {
      std::memcpy(out[0]->data, acts.back().data(), n * sizeof(double));
    } else {
      *loss = loss_of(call, acts.back(), nullptr);
    }
    return NXD_OK;
  }
  nxd_status_t backward(const nxd_pp_call_t& call, DLTensor* const* in, DLTensor* const* grad_out,
                        DLTensor* const* grad_in, bool adds) override {
    const auto acts = run(call, in);
    const int begin = cut_.first(call.stage, kLayers), end = cut_.first(call.stage + 1, kLayers);
    std::vector<double> d(acts.back().size());
    if (end == kLayers) {
      static_cast<void>(loss_of(call, acts.back(), &d));
      for (double& v : d) v *= call.loss_weight;
    } else {
      std::memcpy(d.data(), grad_out[0]->data, d.size() * sizeof(double));
    }
    for (int layer = end - 1; layer >= begin; --layer) {
      const auto l = static_cast<size_t>(layer);
      const std::vector<double>& x = acts[static_cast<size_t>(layer - begin)];
      std::vector<double> dx(d.size());
      for (size_t i = 0; i < d.size(); ++i) {
        const size_t row = i / kWidth, o = i % kWidth;
        for (size_t j = 0; j < kWidth; ++j) {
          if (adds) grads[l][o * kWidth + j] += d[i] * x[row * kWidth + j];
          dx[row * kWidth + j] += d[i] * weights[l][o * kWidth + j];
        }
      }
      d = dx;
    }
    if (grad_in && begin > 0) std::memcpy(grad_in[0]->data, d.data(), d.size() * sizeof(double));
    return NXD_OK;
  }

  int step = 0;
  std::array<std::array<double, 16>, kLayers> weights{}, grads{};

 private:
  std::vector<std::vector<double>> run(const nxd_pp_call_t& call, DLTensor* const* in) const {
    const int begin = cut_.first(call.stage, kLayers), end = cut_.first(call.stage + 1, kLayers);
    std::vector<std::vector<double>> acts(1);
    acts[0].resize(static_cast<size_t>(rows() * kWidth));
    if (begin > 0) {
      std::memcpy(acts[0].data(), in[0]->data, acts[0].size() * sizeof(double));
    } else {
      const int first = 4 * (batch_begin_ + call.microbatch * rows());
      for (size_t i = 0; i < acts[0].size(); ++i) {
        acts[0][i] = std::cos(0.3 * (first + static_cast<int>(i)) + step);
      }
    }
    for (int layer = begin; layer < end; ++layer) {
      const auto& w = weights[static_cast<size_t>(layer)];
      const std::vector<double> x = acts.back();
      std::vector<double> y(x.size());
      for (size_t i = 0; i < y.size(); ++i) {
        for (size_t j = 0; j < kWidth; ++j) {
          y[i] += w[i % kWidth * kWidth + j] * x[i / kWidth * kWidth + j];
        }
      }
      acts.push_back(y);
    }
    return acts;
  }

  double loss_of(const nxd_pp_call_t& call, const std::vector<double>& y,
                 std::vector<double>* gradient) const {
    double sum = 0;
    for (int r = 0; r < rows(); ++r) {
      const double* row = &y[static_cast<size_t>(r * kWidth)];
      const int label = (batch_begin_ + call.microbatch * rows() + r) * (step + 3) % 4;
      double total = 0;
      for (int j = 0; j < kWidth; ++j) total += std::exp(row[j]);
      sum += std::log(total) - row[label];
      for (int j = 0; gradient && j < kWidth; ++j) {
        (*gradient)[static_cast<size_t>(r * kWidth + j)] =
            (std::exp(row[j]) / total - (j == label ? 1 : 0)) / rows();
      }
    }
    return sum / rows();
  }

  const Cut cut_;
  const int batch_begin_;
};

std::vector<double> train_linear(nxd_context_t* ctx, int rank, const Shape& shape, int dp) {
  std::vector<double> losses;
  if (!NXD_TEST_OK(make_parallel(ctx, shape.ranks))) return losses;
  const Cut cut{shape.ranks, shape.chunks, shape.microbatches};
  LinearNet net(cut, rank % dp * LinearNet::kBatch);
  const std::array<int64_t, 2> sizes{net.rows(), LinearNet::kWidth};
  const Boundaries boundaries(cut, rank / dp, LinearNet::kLayers, [&](int) {
    return std::vector<nxd_pp_value_t>{{"y", sizes.data(), 2, NXD_DTYPE_F64, 1, 0}};
  });
  nxd_pp_callbacks_options_t options = options_of(shape);
  options.broadcast_and_average_loss = 1;
  Pp pp;
  if (!NXD_TEST_OK(boundaries.create(ctx, options, net.callbacks(true), pp))) return losses;
  nxd_group_t* data = nullptr;
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_DATA, &data));
  for (net.step = 0; net.step < LinearNet::kSteps; ++net.step) {
    double loss = 0;
    net.grads = {};
    if (!NXD_TEST_OK(nxd_pp_run(pp.get(), 1, &loss))) break;
    losses.push_back(loss);
    NXD_TEST_OK(nxd_all_reduce(data, &net.grads, &net.grads, sizeof net.grads / sizeof(double),
                               NXD_DTYPE_F64, NXD_REDUCE_AVG));
    for (size_t i = 0; i < 128; ++i) {
      net.weights[i / 16][i % 16] -= 0.1 * net.grads[i / 16][i % 16];
    }
  }
  return losses;
}

void against_recorded_losses(void**) {
  const std::array<std::array<double, 4>, 2> want{
      {{1.730898, 2.248688, 1.510330, 1.426008}, {1.707247, 1.961451, 1.403578, 1.501397}}};
  for (const int dp : {1, 2}) {
    for (const Shape shape :
         {Shape{1, 1, 1, NXD_PP_SCHEDULE_DEFAULT}, Shape{1, 2, 4, NXD_PP_SCHEDULE_GPIPE},
          Shape{2, 1, 2, NXD_PP_SCHEDULE_1F1B}, Shape{2, 2, 4, NXD_PP_SCHEDULE_INTERLEAVED},
          Shape{4, 1, 1, NXD_PP_SCHEDULE_GPIPE}, Shape{4, 1, 4, NXD_PP_SCHEDULE_ZERO_BUBBLE}}) {
      const auto losses = on_ranks<std::vector<double>>(
          shape.ranks * dp,
          [&](nxd_context_t* ctx, int rank, int) { return train_linear(ctx, rank, shape, dp); });
      for (const auto& of_rank : losses) {
        assert_int_equal(of_rank.size(), 4);
        for (size_t t = 0; t < 4; ++t) {
          const double expected = want[static_cast<size_t>(dp - 1)][t];
          if (std::fabs(of_rank[t] - expected) <= 1e-6) continue;
          fail_msg("%s, data parallel %d: step %zu: expected %f, got %f", describe(shape).c_str(),
                   dp, t, expected, of_rank[t]);
        }
      }
    }
  }
}

// --- One network, cut in every way --------------------------------------------------------------

struct Outcome {
  double loss = 0;
  std::vector<double> grads;  // of this rank's layers
};

// An order that none of the library's schedules has: backwards in pairs.
PpSchedule caller_schedule(const Shape& shape) {
  std::vector<nxd_pp_task_t> tasks;
  std::vector<size_t> counts;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const size_t before = tasks.size();
    const auto add = [&](nxd_pp_task_kind_t kind, int first, int last) {
      for (int mb = first; mb < last; ++mb) tasks.push_back({kind, mb, 0});
    };
    const int half = shape.microbatches / 2;
    add(NXD_PP_TASK_FORWARD, 0, shape.microbatches);
    add(NXD_PP_TASK_INPUT_GRAD, 0, half);
    add(NXD_PP_TASK_WEIGHT_GRAD, 0, half);
    add(NXD_PP_TASK_BACKWARD, half, shape.microbatches);
    counts.push_back(tasks.size() - before);
  }
  nxd_pp_schedule_t* schedule = nullptr;
  NXD_TEST_OK(nxd_pp_schedule_create_tasks(shape.ranks, 1, shape.microbatches, tasks.data(),
                                           counts.data(), &schedule));
  return PpSchedule(schedule);
}

// Two runs, the first of which also fills buffers, so that the second finds none clean.
Outcome run_skip_net(nxd_context_t* ctx, int rank, const Shape& shape) {
  Outcome outcome;
  if (!NXD_TEST_OK(make_parallel(ctx, shape.ranks))) return outcome;
  const Cut cut{shape.ranks, shape.chunks, shape.microbatches};
  SkipNet net(cut);
  const Boundaries boundaries(cut, rank, SkipNet::kLayers, SkipNet::values_before);
  nxd_pp_callbacks_options_t options = options_of(shape);
  PpSchedule custom;
  if (shape.custom) custom = caller_schedule(shape);
  options.custom_schedule = custom.get();
  options.broadcast_and_average_loss = 1;
  Pp pp;
  if (!NXD_TEST_OK(boundaries.create(ctx, options, net.callbacks(true), pp))) return outcome;
  custom.reset();
  uint64_t bytes = 0, after = 0;
  double first = 0, evaluated = 0;
  NXD_TEST_OK(nxd_pp_get_buffer_bytes(pp.get(), &bytes));
  NXD_TEST_OK(nxd_pp_run(pp.get(), 1, &first));
  NXD_TEST_OK(nxd_pp_run(pp.get(), 0, &evaluated));
  NXD_TEST_CHECK(net.knew_the_last(1));
  std::fill(net.grads.begin(), net.grads.end(), 0);
  NXD_TEST_OK(nxd_pp_run(pp.get(), 1, &outcome.loss));
  NXD_TEST_OK(nxd_pp_get_buffer_bytes(pp.get(), &after));
  NXD_TEST_CHECK(bytes == after || shape.chunks > 1);
  NXD_TEST_CHECK(first == outcome.loss && first == evaluated);
  outcome.grads = net.grads;
  return outcome;
}

Outcome run_on(const Shape& shape) {
  const auto outcomes = on_ranks<Outcome>(shape.ranks, [&](nxd_context_t* ctx, int rank, int) {
    return run_skip_net(ctx, rank, shape);
  });
  Outcome all = outcomes[0];
  for (size_t rank = 1; rank < outcomes.size(); ++rank) {
    assert_true(outcomes[rank].loss == all.loss);
    for (size_t i = 0; i < all.grads.size(); ++i) {
      // A parameter has one owner.
      assert_true(all.grads[i] == 0 || outcomes[rank].grads[i] == 0);
      all.grads[i] += outcomes[rank].grads[i];
    }
  }
  return all;
}

void every_cut_and_schedule(void**) {
  for (const int microbatches : {1, 4, 8}) {
    const Outcome want = run_on({1, 1, microbatches, NXD_PP_SCHEDULE_1F1B});
    assert_true(std::isfinite(want.loss) && want.loss > 0);
    for (const int ranks : {1, 2, 4}) {
      for (const int chunks : {1, 2}) {
        std::vector<Shape> shapes;
        shapes.push_back({ranks, chunks, microbatches, NXD_PP_SCHEDULE_GPIPE});
        if (chunks == 1) {
          shapes.push_back({ranks, chunks, microbatches, NXD_PP_SCHEDULE_1F1B});
          shapes.push_back({ranks, chunks, microbatches, NXD_PP_SCHEDULE_ZERO_BUBBLE});
          shapes.push_back({ranks, chunks, microbatches, 0, true});
        } else if (microbatches % ranks == 0) {
          shapes.push_back({ranks, chunks, microbatches, NXD_PP_SCHEDULE_INTERLEAVED});
        }
        for (const Shape& shape : shapes) {
          const Outcome got = run_on(shape);
          if (got.loss != want.loss || got.grads != want.grads) {
            fail_msg("%s: loss %.17g, expected %.17g; gradients %s", describe(shape).c_str(),
                     got.loss, want.loss, got.grads == want.grads ? "equal" : "differ");
          }
        }
      }
    }
  }
}

// The network's own backward pass, against differences of losses.
void gradients_of_the_network(void**) {
  const Shape shape{1, 1, 2, NXD_PP_SCHEDULE_1F1B};
  on_ranks<int>(1, [&](nxd_context_t* ctx, int, int) {
    if (!NXD_TEST_OK(make_parallel(ctx, 1))) return 0;
    const Cut cut{1, 1, 2};
    SkipNet net(cut);
    const Boundaries boundaries(cut, 0, SkipNet::kLayers, SkipNet::values_before);
    Pp pp;
    if (!NXD_TEST_OK(boundaries.create(ctx, options_of(shape), net.callbacks(false), pp))) return 0;
    double loss = 0;
    NXD_TEST_OK(nxd_pp_run(pp.get(), 1, &loss));
    for (size_t i = 0; i < SkipNet::kParameters; i += 7) {
      const double at = net.params[i], h = 1e-5;
      double above = 0, below = 0;
      net.params[i] = at + h;
      NXD_TEST_OK(nxd_pp_run(pp.get(), 0, &above));
      net.params[i] = at - h;
      NXD_TEST_OK(nxd_pp_run(pp.get(), 0, &below));
      net.params[i] = at;
      NXD_TEST_CHECK(std::fabs((above - below) / (2 * h) - net.grads[i]) < 1e-8);
    }
    return 0;
  });
}

// --- Losses, schedules and memory ---------------------------------------------------------------

void losses_stay_or_are_shared(void**) {
  const Shape shape{2, 1, 2, NXD_PP_SCHEDULE_DEFAULT};
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    if (!NXD_TEST_OK(make_parallel(ctx, 2))) return 0;
    const Cut cut{2, 1, 2};
    SkipNet net(cut);
    const Boundaries boundaries(cut, rank, SkipNet::kLayers, SkipNet::values_before);
    Pp pp;
    if (!NXD_TEST_OK(boundaries.create(ctx, options_of(shape), net.callbacks(false), pp))) return 0;
    double loss = -1;
    int32_t has = -1;
    NXD_TEST_OK(nxd_pp_run(pp.get(), 1, &loss));
    NXD_TEST_OK(nxd_pp_run(pp.get(), 1, nullptr));
    NXD_TEST_OK(nxd_pp_has_loss(pp.get(), &has));
    NXD_TEST_CHECK(has == rank);
    NXD_TEST_CHECK(rank == 1 ? loss > 0 : loss == 0);
    nxd_pp_schedule_t* schedule = nullptr;
    const char* name = nullptr;
    NXD_TEST_OK(nxd_pp_get_schedule(pp.get(), &schedule));
    NXD_TEST_OK(nxd_pp_schedule_get_name(schedule, &name));
    NXD_TEST_CHECK(std::string(name) == "1F1B");
    return 0;
  });
}

// A rank that trains while another evaluates would get the gradients of another run: all ranks of
// the pipeline fail before a message goes, data-parallel ones that share the loss with them, and
// the next run goes well.
void ranks_run_the_same(void**) {
  struct Slip {
    int32_t given;  // by one rank, where the others train
    const char *own, *others;
  };
  for (const Slip slip : {Slip{0, "training: expected the same on all ranks, got 0 on rank 1 and 1",
                               "training: expected the same on all ranks, got 0 on rank 1 and 1"},
                          Slip{2, "training: expected 0 or 1, got 2", "rank 1 rejected"}}) {
    on_ranks<int>(4, [&](nxd_context_t* ctx, int rank, int) {
      if (!NXD_TEST_OK(make_parallel(ctx, 2))) return 0;
      const int stage = rank / 2;
      const Cut cut{2, 1, 2};
      SkipNet net(cut), alone(cut);
      const Boundaries boundaries(cut, stage, SkipNet::kLayers, SkipNet::values_before);
      nxd_pp_callbacks_options_t options = options_of({2, 1, 2, NXD_PP_SCHEDULE_DEFAULT});
      options.broadcast_and_average_loss = 1;
      Pp pp, reference;
      if (!NXD_TEST_OK(boundaries.create(ctx, options, net.callbacks(false), pp))) return 0;
      if (!NXD_TEST_OK(boundaries.create(ctx, options, alone.callbacks(false), reference)))
        return 0;
      double loss = -1, want = -1;
      // The pipelines are ranks 0 and 2, and ranks 1 and 3.
      const bool slips = rank % 2 == 1;
      const char* part = rank == 1 ? slip.own : rank == 3 ? slip.others : "";
      const nxd_status_t status = nxd_pp_run(pp.get(), rank == 1 ? slip.given : 1, &loss);
      NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, part);
      NXD_TEST_CHECK(loss == 0);
      if (slips) NXD_TEST_CHECK(net.grads == alone.grads);
      std::fill(net.grads.begin(), net.grads.end(), 0);
      NXD_TEST_OK(nxd_pp_run(pp.get(), 1, &loss));
      NXD_TEST_OK(nxd_pp_run(reference.get(), 1, &want));
      NXD_TEST_CHECK(loss == want && net.grads == alone.grads);
      return 0;
    });
  }
}

// A layout that comes later has other data-parallel groups. A pipeline shares its loss over those
// of the layout that it was made in.
void losses_after_another_layout(void**) {
  on_ranks<int>(
      4,
      [](nxd_context_t* ctx, int rank, int) {
        if (!NXD_TEST_OK(make_parallel(ctx, 2))) return 0;
        const Cut cut{2, 1, 2};
        SkipNet net(cut);
        const Boundaries boundaries(cut, rank / 2, SkipNet::kLayers, SkipNet::values_before);
        nxd_pp_callbacks_options_t options = options_of({2, 1, 2, NXD_PP_SCHEDULE_DEFAULT});
        options.broadcast_and_average_loss = 1;
        Pp pp;
        if (!NXD_TEST_OK(boundaries.create(ctx, options, net.callbacks(false), pp))) return 0;
        double before = -1, after = -2;
        NXD_TEST_OK(nxd_pp_run(pp.get(), 1, &before));
        NXD_TEST_OK(nxd_destroy_model_parallel(ctx));
        NXD_TEST_OK(nxd_pp_run(pp.get(), 1, &after));
        NXD_TEST_CHECK(before == after);
        nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
        layout.tensor_parallel_size = 2;
        NXD_TEST_OK(nxd_init_model_parallel(ctx, &layout));
        NXD_TEST_OK(nxd_pp_run(pp.get(), 1, &after));
        NXD_TEST_CHECK(before == after);
        return 0;
      },
      10000);
}

// Buffers are as many as the schedule needs at once, from the first run to the last.
void memory_is_bounded(void**) {
  for (const Shape shape :
       {Shape{2, 1, 4, NXD_PP_SCHEDULE_1F1B}, Shape{2, 1, 4, NXD_PP_SCHEDULE_GPIPE}}) {
    on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
      if (!NXD_TEST_OK(make_parallel(ctx, 2))) return 0;
      const Cut cut{2, 1, 4};
      SkipNet net(cut);
      const Boundaries boundaries(cut, rank, SkipNet::kLayers, SkipNet::values_before);
      Pp pp;
      if (!NXD_TEST_OK(boundaries.create(ctx, options_of(shape), net.callbacks(false), pp)))
        return 0;
      uint64_t bytes = 0, after = 0;
      nxd_memory_stats_t stats{}, later{};
      stats.struct_size = later.struct_size = sizeof stats;
      nxd_group_t* world = nullptr;
      NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
      for (int run = 0; run < 3; ++run) NXD_TEST_OK(nxd_pp_run(pp.get(), 1, nullptr));
      NXD_TEST_OK(nxd_pp_get_buffer_bytes(pp.get(), &bytes));
      NXD_TEST_OK(nxd_barrier(world));
      NXD_TEST_OK(nxd_memory_get_stats(&stats));
      NXD_TEST_OK(nxd_barrier(world));
      for (int run = 0; run < 50; ++run) NXD_TEST_OK(nxd_pp_run(pp.get(), 1, nullptr));
      NXD_TEST_OK(nxd_pp_get_buffer_bytes(pp.get(), &after));
      NXD_TEST_OK(nxd_barrier(world));
      NXD_TEST_OK(nxd_memory_get_stats(&later));
      NXD_TEST_OK(nxd_barrier(world));
      const uint64_t of_values = (2 * SkipNet::kCount + SkipNet::kRows) * sizeof(double);
      const bool all_at_once = shape.schedule == NXD_PP_SCHEDULE_GPIPE;
      NXD_TEST_CHECK(bytes == after);
      if (rank == 1) NXD_TEST_CHECK(all_at_once ? bytes == 4 * of_values : bytes <= 3 * of_values);
      // A sent value is let go of when it is taken, sooner or later: but each run leaves nothing.
      const uint64_t under_way = 2 * 2 * 4 * of_values;
      NXD_TEST_CHECK(later.bytes_in_use <= stats.bytes_in_use + under_way);
      NXD_TEST_CHECK(later.arena_bytes_in_use <= stats.arena_bytes_in_use + under_way);
      return 0;
    });
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(against_recorded_losses), cmocka_unit_test(gradients_of_the_network),
      cmocka_unit_test(every_cut_and_schedule),  cmocka_unit_test(losses_stay_or_are_shared),
      cmocka_unit_test(ranks_run_the_same),      cmocka_unit_test(losses_after_another_layout),
      cmocka_unit_test(memory_is_bounded),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

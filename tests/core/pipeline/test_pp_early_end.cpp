// Runs of a pipeline that end early let go of all that they held, and the next one begins anew.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "capi/handles.h"
#include "core/pipeline/pipeline_runner.h"
#include "core/schedule/schedule.h"
#include "core/world/context.h"
#include "support/pipeline_model.h"
#include "support/ranks.h"
#include "support/told.h"

#include "support/check.h"

namespace {

using nxd::PipelineBuffer;
using nxd::PipelineBuffers;
using nxd::PipelineRunner;
using nxd::PipelineValue;
using nxd::Schedule;
using nxd::TaskPlace;
using nxd_test::Told;
using nxd_test::told_by;

// One value of so many floats goes from each stage to the next. Its memory is the stages' own, who
// see when it is let go of.
class Relay : public nxd::PipelineStages {
 public:
  Relay(int ranks, int rank, int chunks) : ranks_(ranks), rank_(rank), chunks_(chunks) {
    set_count(10);
  }

  void set_count(int64_t count) {
    const PipelineValue value{"h", {count}, NXD_DTYPE_F32, true};
    inputs_.assign(static_cast<size_t>(chunks_), {value});
    outputs_ = inputs_;
    if (rank_ == 0) inputs_.front().clear();
    if (rank_ == ranks_ - 1) outputs_.back().clear();
  }
  const std::vector<PipelineValue>& inputs(int chunk) const override { return inputs_[at(chunk)]; }
  const std::vector<PipelineValue>& outputs(int chunk) const override {
    return outputs_[at(chunk)];
  }
  bool splits_backward() const override { return false; }
  void begin_run(bool) override { ++runs; }
  void end_run(bool failed) noexcept override { failed_runs += failed ? 1 : 0; }

  PipelineBuffers forward(const TaskPlace& place, const PipelineBuffers& inputs) override {
    for (const PipelineBuffer& input : inputs) {
      const auto* values = static_cast<const float*>(input.data);
      const int64_t count = inputs_[at(place.chunk)][0].shape[0];
      NXD_TEST_CHECK(std::all_of(values, values + count, [](float x) { return x == 1; }));
    }
    if (fails && place.microbatch == 1) throw nxd::Error(NXD_ERROR_USER, "it was told to");
    return make(outputs_[at(place.chunk)]);
  }
  PipelineBuffers backward(const TaskPlace& place, const PipelineBuffers&, bool) override {
    return make(inputs_[at(place.chunk)]);
  }
  void weight_gradients(const TaskPlace&) override {}

  // How many of all that were made somebody still holds.
  size_t held() const {
    return static_cast<size_t>(std::count_if(made_.begin(), made_.end(),
                                             [](const auto& owner) { return !owner.expired(); }));
  }

  bool fails = false;
  int runs = 0, failed_runs = 0;

 private:
  static size_t at(int chunk) { return static_cast<size_t>(chunk); }

  PipelineBuffers make(const std::vector<PipelineValue>& values) {
    PipelineBuffers buffers;
    for (const PipelineValue& value : values) {
      const auto memory = std::make_shared<std::vector<float>>(value.count(), 1.0F);
      buffers.push_back({memory->data(), memory});
      made_.push_back(memory);
    }
    return buffers;
  }

  const int ranks_, rank_, chunks_;
  std::vector<std::vector<PipelineValue>> inputs_, outputs_;
  std::vector<std::weak_ptr<void>> made_;
};

// fn(runner, relay, rank) on ranks that are the stages of a pipeline.
template <class Function>
void with_pipeline(const Schedule& schedule, Function function) {
  const auto shared = std::make_shared<const Schedule>(schedule);
  const int ranks = schedule.shape().ranks;
  nxd_test::on_ranks<int>(ranks, [&](nxd_context_t* ctx, int rank, int) {
    if (!NXD_TEST_OK(nxd_test::make_parallel(ctx, ranks))) return 0;
    const auto relay = std::make_shared<Relay>(ranks, rank, schedule.shape().chunks);
    PipelineRunner runner(ctx->value, relay, shared);
    function(runner, *relay, rank);
    return 0;
  });
}

// A rank alone leaves values for its next chunk; with several, messages are on their way.
void all_is_let_go(void**) {
  constexpr nxd_pp_task_kind_t kF = NXD_PP_TASK_FORWARD, kB = NXD_PP_TASK_BACKWARD;
  const Schedule alone = Schedule::of_tasks({1, 2, 2}, {{{kF, 0, 0},
                                                         {kF, 1, 0},
                                                         {kF, 0, 1},
                                                         {kF, 1, 1},
                                                         {kB, 0, 1},
                                                         {kB, 1, 1},
                                                         {kB, 0, 0},
                                                         {kB, 1, 0}}});
  for (const Schedule& schedule : {alone, Schedule::make(NXD_PP_SCHEDULE_GPIPE, {2, 2, 3})}) {
    const int last = schedule.shape().ranks - 1;
    with_pipeline(schedule, [&](PipelineRunner& runner, Relay& relay, int rank) {
      relay.fails = rank == last;
      for (int turn = 1; turn <= 2; ++turn) {
        const Told told = told_by([&] { runner.run(); });
        NXD_TEST_CHECK(told.status == NXD_ERROR_USER);
        NXD_TEST_CHECK(relay.held() == 0);
        NXD_TEST_CHECK(relay.runs == turn && relay.failed_runs == turn);
      }
      relay.fails = false;
      runner.run();
      NXD_TEST_CHECK(relay.held() == 0 && relay.failed_runs == 2);
    });
  }
}

// Values of another size are those of training and of evaluation, and the buffers for the old ones
// are gone. Where ranks do not agree on them there is no run.
void new_shapes(void**) {
  const Schedule schedule = Schedule::make(NXD_PP_SCHEDULE_1F1B, {2, 1, 3});
  with_pipeline(schedule, [](PipelineRunner& runner, Relay& relay, int rank) {
    const uint64_t before = runner.buffer_bytes();
    for (const bool training : {true, false}) runner.run(training);
    relay.set_count(rank == 0 ? 20 : 30);
    NXD_TEST_CHECK(told_by([&] { runner.reshape(); }).status == NXD_ERROR_INVALID_ARGUMENT);
    for (const bool training : {true, false}) {
      NXD_TEST_CHECK(told_by([&] { runner.run(training); }).status == NXD_ERROR_INVALID_STATE);
    }
    relay.set_count(20);
    runner.reshape();
    NXD_TEST_CHECK(runner.buffer_bytes() == 2 * before);
    for (const bool training : {true, false}) runner.run(training);
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(all_is_let_go), cmocka_unit_test(new_shapes)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// A rank's part of a pipeline: the order of its messages, as pure functions; ranks that
// do not agree; tasks that fail, after which a run can be made again; timelines; and bad calls.
#include <algorithm>
#include <array>
#include <deque>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/pipeline/p2p_plan.h"
#include "core/pipeline/pipeline_agreement.h"
#include "core/pipeline/task_failure.h"
#include "core/pipeline/timeline_trace.h"
#include "support/pipeline_model.h"
#include "support/ranks.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;
using nxd::Flow;
using nxd::P2pPlan;
using nxd::PipelineShape;
using nxd::PipelineValue;
using nxd::Schedule;

// --- The order of messages ----------------------------------------------------------------------

std::vector<PipelineValue> values_at(int stage, int stages) {
  if (stage == 0 || stage == stages) return {};
  return {{"h", {4, stage}, NXD_DTYPE_F32, true},
          {"ids", {3}, NXD_DTYPE_I64, false},
          {"nothing", {0, 2}, NXD_DTYPE_F32, true}};
}

P2pPlan plan_of(const Schedule& schedule, int rank) {
  const PipelineShape& shape = schedule.shape();
  P2pPlan::Values inputs, outputs;
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    const int stage = shape.stage_of(rank, chunk);
    inputs.push_back(values_at(stage, shape.stages()));
    outputs.push_back(values_at(stage + 1, shape.stages()));
  }
  return {schedule, rank, inputs, outputs};
}

std::vector<Schedule> schedules() {
  std::vector<Schedule> all;
  for (const nxd_pp_schedule_kind_t kind :
       {NXD_PP_SCHEDULE_1F1B, NXD_PP_SCHEDULE_INTERLEAVED, NXD_PP_SCHEDULE_GPIPE,
        NXD_PP_SCHEDULE_ZERO_BUBBLE, NXD_PP_SCHEDULE_INFERENCE}) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      for (const int chunks : {1, 2, 3}) {
        for (const int microbatches : {1, 2, 5, 8, 24}) {
          try {
            all.push_back(Schedule::make(kind, {ranks, chunks, microbatches}));
          } catch (const nxd::Error&) {
            // A shape that this one does not admit.
          }
        }
      }
    }
  }
  return all;
}

// A rank's neighbour receives its messages in the order in which they are sent.
void neighbours_have_one_order(void**) {
  size_t messages = 0;
  for (const Schedule& schedule : schedules()) {
    const PipelineShape& shape = schedule.shape();
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const P2pPlan from = plan_of(schedule, rank);
      for (const Flow flow : nxd::kFlows) {
        const int step = flow == Flow::kValues ? 1 : -1;
        const int to = (rank + step + shape.ranks) % shape.ranks;
        const P2pPlan at = plan_of(schedule, to);
        const auto& sent = from.outgoing(flow);
        const auto& received = at.incoming(flow);
        assert_int_equal(sent.size(), received.size());
        for (size_t i = 0; i < sent.size(); ++i, ++messages) {
          assert_int_equal(shape.stage_of(rank, sent[i].chunk) + step,
                           shape.stage_of(to, received[i].chunk));
          assert_int_equal(sent[i].microbatch, received[i].microbatch);
          assert_int_equal(sent[i].value, received[i].value);
          assert_int_equal(sent[i].bytes(), received[i].bytes());
        }
      }
    }
  }
  assert_true(messages > 10000);
}

// Plays a schedule with the fewest receives that the flow asks for: a task begins when all of its
// messages have been sent, a message is received when it is under way. All tasks get their turn.
void receives_are_enough(void**) {
  for (const Schedule& schedule : schedules()) {
    const PipelineShape& shape = schedule.shape();
    if (shape.ranks == 1) continue;
    std::vector<P2pPlan> plans;
    for (int rank = 0; rank < shape.ranks; ++rank) plans.push_back(plan_of(schedule, rank));
    std::vector<size_t> done(plans.size());
    std::vector<std::array<size_t, 2>> sent(plans.size());  // by the neighbour, of incoming()
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t r = 0; r < plans.size(); ++r) {
        for (; done[r] < plans[r].steps().size(); ++done[r], moved = true) {
          const P2pPlan::Step& step = plans[r].steps()[done[r]];
          const size_t f = P2pPlan::index(step.flow);
          if (step.n_in > 0) {
            assert_true(step.wanted[f] >= step.in + step.n_in);
            if (sent[r][f] < step.in + step.n_in) break;
          }
          const size_t peer =
              (r + plans.size() + (step.flow == Flow::kValues ? 1 : -1)) % plans.size();
          sent[peer][f] += step.n_out;
        }
      }
    }
    for (size_t r = 0; r < plans.size(); ++r) {
      assert_int_equal(done[r], plans[r].steps().size());
      for (const Flow flow : nxd::kFlows) {
        const size_t f = P2pPlan::index(flow);
        assert_int_equal(plans[r].steps().back().wanted[f], plans[r].incoming(flow).size());
      }
    }
  }
}

// The buffers of 1F1B do not grow with the number of microbatches, those of GPipe do.
void buffers_are_counted(void**) {
  const auto bytes = [](nxd_pp_schedule_kind_t kind, int microbatches) {
    size_t sum = 0;
    const Schedule schedule = Schedule::make(kind, {4, 1, microbatches});
    for (const P2pPlan::Need& need : plan_of(schedule, 2).most_incoming()) {
      sum += need.bytes * need.count;
    }
    return sum;
  };
  assert_int_equal(bytes(NXD_PP_SCHEDULE_1F1B, 12), bytes(NXD_PP_SCHEDULE_1F1B, 48));
  assert_true(bytes(NXD_PP_SCHEDULE_GPIPE, 48) > 3 * bytes(NXD_PP_SCHEDULE_GPIPE, 12));
  assert_true(bytes(NXD_PP_SCHEDULE_1F1B, 12) < bytes(NXD_PP_SCHEDULE_GPIPE, 12));
}

void last_tasks_are_marked(void**) {
  for (const Schedule& schedule : schedules()) {
    for (int rank = 0; rank < schedule.shape().ranks; ++rank) {
      std::map<int, int> last;
      std::set<std::pair<int, int>> ended;
      const P2pPlan plan = plan_of(schedule, rank);
      for (const P2pPlan::Step& step : plan.steps()) {
        const bool adds =
            step.task.kind == NXD_PP_TASK_BACKWARD || step.task.kind == NXD_PP_TASK_WEIGHT_GRAD;
        if (adds) assert_int_equal(last[step.task.chunk], 0);
        last[step.task.chunk] += step.last;
        const std::pair<int, int> key{step.task.chunk, step.task.microbatch};
        assert_true(ended.count(key) == 0);
        if (step.is_final) ended.insert(key);
      }
      for (const auto& [chunk, count] : last) assert_int_equal(count, schedule.has_backward());
    }
  }
}

void failures_travel(void**) {
  const nxd::TaskFailure failure{12, NXD_ERROR_IO, "forward of microbatch 3 in stage 1: no disk"};
  const auto found = nxd::TaskFailure::find_in("receive #3: rank 4 rejected its arguments: " +
                                               failure.to_reason());
  assert_true(found.has_value());
  assert_int_equal(found->rank, 12);
  assert_int_equal(found->status, NXD_ERROR_IO);
  assert_string_equal(found->what.c_str(), failure.what.c_str());
  assert_false(nxd::TaskFailure::find_in("rank 4 did not answer within 10 ms").has_value());
  assert_false(nxd::TaskFailure::find_in("a task failed on rank x (status ").has_value());
}

// --- Ranks that do not agree --------------------------------------------------------------------

nxd::PipelineSide side(int rank, int ranks) {
  nxd::PipelineSide s;
  s.shape = {ranks, 1, 8};
  s.schedule = "1F1B";
  s.inputs = {values_at(rank, ranks)};
  s.outputs = {values_at(rank + 1, ranks)};
  return s;
}

void disagreements_are_named(void**) {
  const auto expect = [](const std::function<void(std::vector<nxd::PipelineSide>&)>& change,
                         const char* part) {
    std::vector<nxd::PipelineSide> sides{side(0, 3), side(1, 3), side(2, 3)};
    change(sides);
    const std::string got = nxd::find_disagreement(sides, {1, 3, 5});
    if (got.find(part) == std::string::npos || (*part == '\0') != got.empty()) {
      fail_msg("expected \"%s\", got \"%s\"", part, got.c_str());
    }
  };
  expect([](auto&) {}, "");
  expect([](auto& s) { s[2].inputs[0][0].name = "other"; }, "");
  expect(
      [](auto& s) {
        s[2].inputs[0][0].shape = {4, 3};
      },
      "value 0: stage 1 (rank 3) gives \"h\", f32 [4, 2], with gradient; stage 2 (rank 5) takes "
      "\"h\", f32 [4, 3], with gradient");
  expect([](auto& s) { s[1].outputs[0][1].dtype = NXD_DTYPE_I32; }, "\"ids\", i32 [3]");
  expect([](auto& s) { s[1].inputs[0][0].needs_grad = false; }, "without gradient");
  expect([](auto& s) { s[0].outputs[0].pop_back(); },
         "stage 0 (rank 1) gives 2 values, stage 1 (rank 3) takes 3; the first missing is "
         "\"nothing\"");
  expect([](auto& s) { s[1].shape.microbatches = 4; }, "8 microbatches, rank 3 has");
  expect([](auto& s) { s[2].schedule_hash = 1; }, "rank 5 has the schedule 1F1B of other tasks");
  expect([](auto& s) { s[2].shares_loss = true; },
         "rank 1 has broadcast_and_average_loss 0, rank 5 has 1");
  expect([](auto& s) { s[0].inputs[0] = s[0].outputs[0]; }, "stage 0: expected no inputs");
  expect([](auto& s) { s[2].outputs[0] = s[0].outputs[0]; }, "the last stage: expected no outputs");
}

struct Attempt {
  nxd_pp_callbacks_options_t options = NXD_PP_CALLBACKS_OPTIONS_INIT;
  Cut cut{2, 1, 4};
  Boundaries boundaries;
  SkipNet net;
  nxd_pp_stage_callbacks_t callbacks;

  explicit Attempt(int rank)
      : boundaries(cut, rank, SkipNet::kLayers, SkipNet::values_before),
        net(cut),
        callbacks(net.callbacks(false)) {
    options.num_microbatches = 4;
  }
};

// One rank of two gives something else: both fail, and after that both succeed.
void every_rank_is_refused(void**) {
  using Change = std::function<void(Attempt&)>;
  static const std::array<int64_t, 2> kOther{3, 4};
  const std::vector<std::pair<Change, const char*>> changes{
      {[](Attempt& a) { a.options.num_microbatches = 2; }, "microbatches"},
      {[](Attempt& a) { a.options.schedule = NXD_PP_SCHEDULE_GPIPE; }, "schedule"},
      {[](Attempt& a) { a.options.schedule = 17; }, "NXD_PP_SCHEDULE"},
      {[](Attempt& a) { a.options.virtual_size = -1; }, "virtual_size"},
      {[](Attempt& a) { a.options.struct_size = 3; }, "struct_size"},
      {[](Attempt& a) { a.options.broadcast_and_average_loss = 2; }, "broadcast_and_average_loss"},
      {[](Attempt& a) { a.options.broadcast_and_average_loss = 1; }, "broadcast_and_average_loss"},
      {[](Attempt& a) { a.callbacks.forward = nullptr; }, "callbacks.forward"},
      {[](Attempt& a) { a.callbacks.backward = nullptr; }, "callbacks.backward"},
      {[](Attempt& a) { a.callbacks.struct_size = 8; }, "struct_size"},
      {[](Attempt& a) {
         (a.boundaries.inputs.empty() ? a.boundaries.outputs : a.boundaries.inputs)[0].shape =
             kOther.data();
       },
       "[3, 4]"},
      {[](Attempt& a) {
         (a.boundaries.inputs.empty() ? a.boundaries.outputs : a.boundaries.inputs)[0].reserved = 5;
       },
       "reserved: expected 0, got 5"},
      {[](Attempt& a) {
         (a.boundaries.inputs.empty() ? a.boundaries.outputs : a.boundaries.inputs)[1].dtype = 77;
       },
       "dtype"},
      {[](Attempt& a) {
         (a.boundaries.inputs.empty() ? a.boundaries.outputs : a.boundaries.inputs)[2].needs_grad =
             1;
       },
       "expected floats for a gradient"},
  };
  for (const int odd : {0, 1}) {
    on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
      if (!NXD_TEST_OK(make_parallel(ctx, 2))) return 0;
      for (const auto& [change, part] : changes) {
        Attempt attempt(rank);
        if (rank == odd) change(attempt);
        Pp pp;
        const nxd_status_t status =
            attempt.boundaries.create(ctx, attempt.options, attempt.callbacks, pp);
        const bool abi = std::string(part) == "struct_size";
        NXD_TEST_REFUSED(status, abi ? NXD_ERROR_ABI_MISMATCH : NXD_ERROR_INVALID_ARGUMENT, part);
        NXD_TEST_CHECK(pp == nullptr);
      }
      Attempt good(rank);
      Pp pp;
      NXD_TEST_OK(good.boundaries.create(ctx, good.options, good.callbacks, pp));
      NXD_TEST_OK(nxd_pp_run(pp.get(), 1, nullptr));
      return 0;
    });
  }
}

// --- Tasks that fail ----------------------------------------------------------------------------

// A network in which one call fails.
class FailingNet : public SkipNet {
 public:
  FailingNet(const Cut& cut, int stage, int microbatch, bool in_forward)
      : SkipNet(cut), stage_(stage), microbatch_(microbatch), in_forward_(in_forward) {}

  nxd_status_t forward(const nxd_pp_call_t& call, DLTensor* const* in, DLTensor* const* out,
                       double* loss) override {
    if (fails(call, true)) return NXD_ERROR_USER;
    return SkipNet::forward(call, in, out, loss);
  }
  nxd_status_t backward(const nxd_pp_call_t& call, DLTensor* const* in, DLTensor* const* grad_out,
                        DLTensor* const* grad_in, bool weights) override {
    if (fails(call, false)) return NXD_ERROR_USER;
    return SkipNet::backward(call, in, grad_out, grad_in, weights);
  }
  bool armed = true;

 private:
  bool fails(const nxd_pp_call_t& call, bool forward) const {
    return armed && forward == in_forward_ && call.stage == stage_ &&
           call.microbatch == microbatch_;
  }
  const int stage_, microbatch_;
  const bool in_forward_;
};

// Every rank is told of the task, soon; and the next run gives what it gives elsewhere.
void fail_and_go_on(int ranks, int chunks, int stage, int microbatch, bool in_forward) {
  const Cut cut{ranks, chunks, 4};
  const auto losses = on_ranks<double>(ranks, [&](nxd_context_t* ctx, int rank, int) {
    double loss = 0;
    if (!NXD_TEST_OK(make_parallel(ctx, ranks))) return loss;
    FailingNet net(cut, stage, microbatch, in_forward);
    const Boundaries boundaries(cut, rank, SkipNet::kLayers, SkipNet::values_before);
    nxd_pp_callbacks_options_t pp_options = NXD_PP_CALLBACKS_OPTIONS_INIT;
    pp_options.num_microbatches = 4;
    pp_options.virtual_size = chunks;
    pp_options.broadcast_and_average_loss = 1;
    Pp pp;
    if (!NXD_TEST_OK(boundaries.create(ctx, pp_options, net.callbacks(false), pp))) return loss;
    const std::string task = std::string(in_forward ? "forward" : "backward") + " of microbatch " +
                             std::to_string(microbatch) + " in stage " + std::to_string(stage);
    for (int turn = 0; turn < 2; ++turn) {
      const nxd_status_t status = nxd_pp_run(pp.get(), 1, &loss);
      nxd_error_info_t info{};
      info.struct_size = sizeof info;
      NXD_TEST_OK(nxd_last_error_info(&info));
      // A rank that had ended its part of the run hears of it where the loss is shared.
      NXD_TEST_CHECK(status == NXD_ERROR_USER || status == NXD_ERROR_INVALID_ARGUMENT);
      NXD_TEST_CHECK(std::string(nxd_last_error()).find(task) != std::string::npos);
      NXD_TEST_CHECK(status != NXD_ERROR_USER || rank == stage % ranks ||
                     info.root_rank == stage % ranks);
      NXD_TEST_CHECK(loss == 0);
    }
    net.armed = false;
    NXD_TEST_OK(nxd_pp_run(pp.get(), 1, &loss));
    return loss;
  });
  for (const double loss : losses) assert_true(loss == losses[0] && loss > 0);
}

void failing_tasks(void**) {
  fail_and_go_on(1, 2, 1, 2, true);
  fail_and_go_on(2, 1, 0, 0, true);
  fail_and_go_on(2, 1, 1, 3, true);
  fail_and_go_on(4, 1, 1, 2, true);
  fail_and_go_on(4, 1, 2, 0, false);
  fail_and_go_on(4, 1, 0, 3, false);  // the last task of all
  fail_and_go_on(2, 2, 2, 1, false);
}

// --- Timelines ----------------------------------------------------------------------------------

// Every task is there once, and in a track nothing overlaps.
void check_trace(const nlohmann::json& trace, int ranks, int microbatches) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  std::map<std::string, int> tasks;
  std::map<int, int> sends;
  for (const auto& e : trace.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    const int pid = e.at("pid"), tid = e.at("tid");
    const double begin = e.at("ts"), duration = e.at("dur");
    assert_true(begin >= 0 && duration >= 0);
    tracks[{pid, tid}].push_back({begin, begin + duration});
    if (e.at("cat") == "compute") ++tasks[std::to_string(pid) + e.at("name").get<std::string>()];
    if (e.at("cat") == "communication") ++sends[pid];
  }
  assert_int_equal(tasks.size(), 2 * ranks * microbatches);
  for (const auto& [name, count] : tasks) assert_int_equal(count, 1);
  assert_int_equal(sends.size(), ranks);
  for (auto& [track, spans] : tracks) {
    std::sort(spans.begin(), spans.end());
    for (size_t i = 1; i < spans.size(); ++i) {
      assert_true(spans[i].first >= spans[i - 1].second - 2e-3);
    }
  }
}

void timelines(void**) {
  const TempDir dir;
  const std::string json_path = dir.path() + "/run.json";
  on_ranks<int>(4, [&](nxd_context_t* ctx, int rank, int) {
    if (!NXD_TEST_OK(make_parallel(ctx, 2))) return 0;
    const Cut cut{2, 1, 4};
    SkipNet net(cut);
    const Boundaries boundaries(cut, rank / 2, SkipNet::kLayers, SkipNet::values_before);
    nxd_pp_callbacks_options_t options = NXD_PP_CALLBACKS_OPTIONS_INIT;
    options.num_microbatches = 4;
    Pp pp;
    if (!NXD_TEST_OK(boundaries.create(ctx, options, net.callbacks(false), pp))) return 0;
    NXD_TEST_REFUSED(nxd_pp_write_timeline(pp.get(), json_path.c_str()), NXD_ERROR_INVALID_STATE,
                     "recorded nothing");
    NXD_TEST_OK(nxd_pp_set_timeline(pp.get(), 1));
    NXD_TEST_OK(nxd_pp_run(pp.get(), 1, nullptr));
    NXD_TEST_OK(nxd_pp_set_timeline(pp.get(), 1));  // forgets that one
    NXD_TEST_OK(nxd_pp_run(pp.get(), 1, nullptr));
    NXD_TEST_OK(nxd_pp_set_timeline(pp.get(), 0));
    NXD_TEST_OK(nxd_pp_run(pp.get(), 1, nullptr));
    NXD_TEST_OK(nxd_pp_write_timeline(pp.get(), json_path.c_str()));
    const char* odd = rank == 3 ? "run.svg" : json_path.c_str();
    NXD_TEST_REFUSED(nxd_pp_write_timeline(pp.get(), odd), NXD_ERROR_INVALID_ARGUMENT, "path");
    const char* missing = rank == 2 ? nullptr : json_path.c_str();
    NXD_TEST_REFUSED(nxd_pp_write_timeline(pp.get(), missing), NXD_ERROR_INVALID_ARGUMENT, "path");
    NXD_TEST_REFUSED(nxd_pp_write_timeline(pp.get(), "/no/such/directory/run.json"), NXD_ERROR_IO,
                     "/no/such/directory");
    return 0;
  });
  std::ifstream in(json_path);
  check_trace(nlohmann::json::parse(in), 2, 4);
}

// Writers alone: exact times, and a record without any.
void timeline_writers(void**) {
  const std::vector<nxd::RankTimeline> ranks{{0,
                                              4,
                                              {{"forward", "compute", 0, 3, 1000, 2500},
                                               {"send values", "communication", 0, 3, 2500, 2501}}},
                                             {1, 6, {{"wait", "wait", 1, 3, 500, 2750}}}};
  const auto trace = nlohmann::json::parse(nxd::timeline_trace(ranks));
  std::map<std::string, nlohmann::json> events;
  for (const auto& e : trace.at("traceEvents")) {
    if (e.at("ph") == "X") events[e.at("name")] = e;
  }
  assert_int_equal(events.size(), 3);
  const auto& forward = events.at("forward mb 3 chunk 0");
  assert_true(forward.at("ts") == 0.5 && forward.at("dur") == 1.5 && forward.at("pid") == 0);
  assert_true(events.at("wait mb 3 chunk 1").at("ts") == 0.0);
  assert_true(events.at("send values mb 3 chunk 0").at("dur") == 0.001);
  assert_true(nlohmann::json::parse(nxd::timeline_trace({})).at("traceEvents").empty());
}

// --- Bad calls ----------------------------------------------------------------------------------

void bad_calls(void**) {
  on_ranks<int>(1, [](nxd_context_t* ctx, int, int) {
    const auto refused = [](nxd_status_t status, const char* part) {
      NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, part);
    };
    Attempt attempt(0);
    const size_t none = 0, one = 1;
    nxd_pp_t* pp = reinterpret_cast<nxd_pp_t*>(1);
    const auto create = [&](const nxd_pp_value_t* in, const size_t* n_in, const nxd_pp_value_t* out,
                            const size_t* n_out, const nxd_pp_stage_callbacks_t* callbacks) {
      return nxd_pp_create_callbacks(ctx, &attempt.options, in, n_in, out, n_out, callbacks, &pp);
    };
    NXD_TEST_REFUSED(create(nullptr, &none, nullptr, &none, &attempt.callbacks),
                     NXD_ERROR_INVALID_STATE, "nxd_init_model_parallel");
    NXD_TEST_CHECK(pp == nullptr);
    if (!NXD_TEST_OK(make_parallel(ctx, 1))) return 0;
    refused(nxd_pp_create_callbacks(nullptr, nullptr, nullptr, &none, nullptr, &none,
                                    &attempt.callbacks, &pp),
            "ctx");
    refused(nxd_pp_create_callbacks(ctx, nullptr, nullptr, &none, nullptr, &none,
                                    &attempt.callbacks, nullptr),
            "out_pp");
    refused(create(nullptr, nullptr, nullptr, &none, &attempt.callbacks), "num_inputs");
    refused(create(nullptr, &none, nullptr, nullptr, &attempt.callbacks), "num_outputs");
    refused(create(nullptr, &one, nullptr, &none, &attempt.callbacks), "inputs: expected an array");
    refused(create(nullptr, &none, nullptr, &none, nullptr), "callbacks: expected a struct");
    const std::array<int64_t, 2> huge{int64_t{1} << 40, int64_t{1} << 40}, negative{2, -1};
    const auto with = [&](nxd_pp_value_t value, const char* part) {
      refused(create(nullptr, &none, &value, &one, &attempt.callbacks), part);
    };
    with({nullptr, huge.data(), 1, NXD_DTYPE_F32, 0, 0}, "outputs[0].name");
    with({"x", nullptr, 1, NXD_DTYPE_F32, 0, 0}, "outputs[0] (x).shape");
    with({"x", huge.data(), -1, NXD_DTYPE_F32, 0, 0}, "ndim");
    with({"x", huge.data(), 2, NXD_DTYPE_F32, 0, 0}, "fits in memory");
    with({"x", negative.data(), 2, NXD_DTYPE_F32, 0, 0}, "at least 0");
    with({"x", negative.data(), 1, NXD_DTYPE_F32, 2, 0}, "needs_grad");
    with({"x", negative.data(), 1, NXD_DTYPE_F32, 1, 0}, "the last stage: expected no outputs");
    nxd_pp_stage_callbacks_t half = attempt.net.callbacks(true);
    half.backward_weight = nullptr;
    refused(create(nullptr, &none, nullptr, &none, &half), "both of backward_input");
    attempt.options.schedule = NXD_PP_SCHEDULE_ZERO_BUBBLE;
    refused(create(nullptr, &none, nullptr, &none, &attempt.callbacks), "in two tasks");
    attempt.options.schedule = NXD_PP_SCHEDULE_INFERENCE;
    attempt.callbacks.backward = nullptr;
    if (!NXD_TEST_OK(create(nullptr, &none, nullptr, &none, &attempt.callbacks))) return 0;
    const Pp forwards(pp);
    NXD_TEST_REFUSED(nxd_pp_run(pp, 1, nullptr), NXD_ERROR_INVALID_STATE, "no backward tasks");
    refused(nxd_pp_run(pp, 2, nullptr), "training");
    refused(nxd_pp_run(nullptr, 1, nullptr), "pp: expected a pipeline");
    refused(nxd_pp_set_timeline(pp, 2), "on: expected 0 or 1");
    refused(nxd_pp_set_timeline(nullptr, 1), "pp");
    refused(nxd_pp_write_timeline(nullptr, "a.json"), "pp");
    int32_t has = 0;
    uint64_t bytes = 0;
    nxd_pp_schedule_t* schedule = nullptr;
    refused(nxd_pp_has_loss(pp, nullptr), "out_has");
    refused(nxd_pp_has_loss(nullptr, &has), "pp");
    refused(nxd_pp_get_schedule(pp, nullptr), "out_schedule");
    refused(nxd_pp_get_schedule(nullptr, &schedule), "pp");
    refused(nxd_pp_get_buffer_bytes(pp, nullptr), "out_bytes");
    refused(nxd_pp_get_buffer_bytes(nullptr, &bytes), "pp");
    refused(nxd_pp_callbacks_options_init(nullptr, sizeof(nxd_pp_callbacks_options_t)), "options");
    nxd_pp_callbacks_options_t options{};
    NXD_TEST_REFUSED(nxd_pp_callbacks_options_init(&options, 4), NXD_ERROR_ABI_MISMATCH, "size");
    NXD_TEST_OK(nxd_pp_callbacks_options_init(&options, sizeof options));
    NXD_TEST_CHECK(options.num_microbatches == 1);
    nxd_pp_destroy(nullptr);
    return 0;
  });
}

// The caller's data are given back once, and not at all when there was no pipeline to own them.
void user_data_is_owned(void**) {
  on_ranks<int>(1, [](nxd_context_t* ctx, int, int) {
    if (!NXD_TEST_OK(make_parallel(ctx, 1))) return 0;
    int destroyed = 0;
    nxd_pp_stage_callbacks_t callbacks{};
    callbacks.struct_size = sizeof callbacks;
    callbacks.user_data = &destroyed;
    callbacks.destroy = [](void* data) { ++*static_cast<int*>(data); };
    callbacks.forward = [](const nxd_pp_call_t*, DLTensor* const*, DLTensor* const*, double*,
                           void*) -> nxd_status_t { return NXD_OK; };
    nxd_pp_callbacks_options_t options = NXD_PP_CALLBACKS_OPTIONS_INIT;
    const size_t none = 0;
    nxd_pp_t* pp = nullptr;
    const auto create = [&] {
      return nxd_pp_create_callbacks(ctx, &options, nullptr, &none, nullptr, &none, &callbacks,
                                     &pp);
    };
    NXD_TEST_REFUSED(create(), NXD_ERROR_INVALID_ARGUMENT, "callbacks.backward");
    NXD_TEST_CHECK(destroyed == 0);
    options.schedule = NXD_PP_SCHEDULE_INFERENCE;
    NXD_TEST_OK(create());
    double loss = 0;
    NXD_TEST_OK(nxd_pp_run(pp, 0, &loss));
    NXD_TEST_CHECK(std::isnan(loss));  // the callback did not say
    nxd_pp_destroy(pp);
    NXD_TEST_CHECK(destroyed == 1);
    return 0;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(neighbours_have_one_order),
      cmocka_unit_test(receives_are_enough),
      cmocka_unit_test(buffers_are_counted),
      cmocka_unit_test(last_tasks_are_marked),
      cmocka_unit_test(failures_travel),
      cmocka_unit_test(disagreements_are_named),
      cmocka_unit_test(every_rank_is_refused),
      cmocka_unit_test(failing_tasks),
      cmocka_unit_test(timelines),
      cmocka_unit_test(timeline_writers),
      cmocka_unit_test(bad_calls),
      cmocka_unit_test(user_data_is_owned),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Steps that nxd_mark_step does not wait for: the same bits as those that it waits for, errors at
// the next wait, and calls on groups in program order.
#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "support/device.h"
#include "support/model_support.h"
#include "support/pjrt.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr int kSteps = 6;
constexpr int64_t kLength = 16;

struct Ddp {
  nxd_ddp_t* handle = nullptr;
  ~Ddp() { nxd_ddp_destroy(handle); }
};

// A small Llama on the device with AdamW; of data-parallel ranks with ZeRO-1.
struct Session {
  Module model;
  Ddp ddp;
  Optimizer optimizer;

  Session(nxd_context_t* ctx, int tp, bool sharded) {
    Layout layout{tp, tp > 1};
    layout.device = NXD_DEVICE_XLA;
    nlohmann::json config = nlohmann::json::parse(LlamaOracle().config);
    config["num_hidden_layers"] = 1;
    model = create_model(ctx, config.dump(), layout);
    nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
    adamw.eps = 1e-6;
    nxd_optimizer_t* made = nullptr;
    if (sharded) {
      nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
      options.zero_stage = 1;
      options.bucket_bytes = 20000;
      NXD_TEST_OK(nxd_ddp_create(model.get(), &options, &ddp.handle));
      NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp.handle, &adamw, &made));
    } else {
      NXD_TEST_OK(nxd_optimizer_create_adamw(model.get(), &adamw, &made));
    }
    optimizer.reset(made);
  }

  // Forward and backward; the loss.
  Tensor pass(int number, int64_t first_id = 0) const {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < kLength; ++i) ids.push_back((number * 29 + i * i * 17 + 7 * i) % 90);
    ids[0] += first_id;
    std::vector<Tensor> given;
    given.push_back(make_i64(ids, {1, kLength}));
    given.push_back(make_i64(ids, {1, kLength}));
    const std::vector<Tensor> inputs = moved(given, NXD_DEVICE_XLA);
    nxd_tensor_t* out = nullptr;
    if (!NXD_TEST_OK(nxd_module_forward(model.get(), handles(inputs).data(), 2, &out, 1))) {
      return {};
    }
    Tensor loss(out);
    NXD_TEST_OK(nxd_backward(&out, nullptr, 1, 0));
    return loss;
  }
  nxd_status_t update() const {
    nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
    finish.max_norm = 1;
    const nxd_status_t status = nxd_optimizer_step(optimizer.get(), &finish, nullptr);
    NXD_TEST_OK(nxd_module_zero_grad(model.get()));
    return status;
  }
  Tensor step(int number, int64_t first_id = 0) const {
    Tensor loss = pass(number, first_id);
    NXD_TEST_OK(update());
    return loss;
  }
};

// The callback is asked by the thread that waits.
thread_local bool gives_up = false;
// Called in it, once.
thread_local std::function<void()> in_callback;

nxd_status_t interrupt(void*) {
  if (const auto now = std::exchange(in_callback, nullptr)) now();
  return gives_up ? NXD_ERROR_USER : NXD_OK;
}

using RankBody = std::function<void(nxd_context_t*, int)>;

void run_ranks(int ranks, int tp, int64_t timeout_ms, const RankBody& body) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = timeout_ms;
  options.seed = 7;
  options.interrupt = interrupt;
  nxd_test_run_ranks_with(
      &options, ranks, tp,
      [](nxd_context_t* ctx, int rank, int, void* user_data) {
        (*static_cast<const RankBody*>(user_data))(ctx, rank);
      },
      const_cast<RankBody*>(&body));
}

struct Trained {
  std::vector<double> losses;
  Named parameters;

  bool operator==(const Trained& other) const {
    return losses == other.losses && parameters == other.parameters;
  }
};

// The loss of a step is read when the next one was recorded, and before it was marked.
Trained train(nxd_context_t* ctx, int tp, bool sharded, int rank, bool waits) {
  const Session session(ctx, tp, sharded);
  Trained out;
  Tensor last;
  for (int number = 0; number < kSteps; ++number) {
    Tensor loss = session.step(rank);
    if (number % 2 == 1) out.losses.push_back(item(last.get()));
    NXD_TEST_OK(nxd_mark_step(waits ? 1 : 0));
    last = std::move(loss);
  }
  out.losses.push_back(item(last.get()));
  out.parameters = whole_parameters(session.model.get());
  return out;
}

void trains_as_with_waiting(void**) {
  for (const auto& [tp, dp] : {std::pair{1, 1}, std::pair{2, 1}, std::pair{1, 2}}) {
    const auto run = [tp = tp, dp = dp](bool waits) {
      std::vector<Trained> runs(static_cast<size_t>(tp * dp));
      run_ranks(tp * dp, tp, 60000, [&](nxd_context_t* ctx, int rank) {
        runs[static_cast<size_t>(rank)] = train(ctx, tp, dp > 1, dp > 1 ? rank : 0, waits);
      });
      return runs;
    };
    const std::vector<Trained> want = run(true);
    NXD_TEST_OK(nxd_device_reset_metrics());
    const std::vector<Trained> got = run(false);
    assert_true(got == want);
    assert_true(want[0].losses.back() < want[0].losses.front());
    const nxd_device_metrics_t m = metrics();
    assert_int_equal(m.steps, tp * dp * kSteps);
    assert_int_equal(m.executions, tp * dp * kSteps);
    assert_int_equal(m.implicit_syncs + m.fallbacks, 0);
  }
}

// A rank marks its step, and goes on; the other marks its own only after that.
void does_not_wait(void**) {
  std::atomic<bool> has_marked{false};
  run_ranks(2, 2, 60000, [&](nxd_context_t* ctx, int rank) {
    const Session session(ctx, 2, false);
    const Tensor loss = session.pass(0);
    if (rank == 1) has_marked.wait(false);
    NXD_TEST_OK(nxd_mark_step(rank == 0 ? 0 : 1));
    if (rank == 0) {
      has_marked = true;
      has_marked.notify_all();
    }
    NXD_TEST_CHECK(std::isfinite(item(loss.get())));
  });
}

// Calls of the host on the groups of a step that runs come behind it, on each rank.
void groups_stay_in_program_order(void**) {
  run_ranks(2, 2, 60000, [&](nxd_context_t* ctx, int rank) {
    const Session session(ctx, 2, false);
    nxd_group_t* group = nullptr;
    NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_TENSOR, &group));
    for (int number = 0; number < 5; ++number) {
      session.step(number);
      // One rank waits, and the other does not: their order is that of the program all the same.
      NXD_TEST_OK(nxd_mark_step(rank == 0 ? 1 : 0));
      int64_t sum = number + rank;
      NXD_TEST_OK(nxd_all_reduce(group, &sum, &sum, 1, NXD_DTYPE_I64, NXD_REDUCE_SUM));
      NXD_TEST_CHECK(sum == 2 * number + 1);
    }
    // Everything goes while the last one may still run.
  });
}

// Without the number of the call.
std::string last_error() {
  const std::string message = nxd_last_error();
  return message.substr(std::min(message.find("on group"), message.size()));
}

// An id out of range is found when the graph runs, before it updates anything. The failure is that
// of the next call that waits, which drops what was recorded meanwhile.
void errors_come_at_the_next_wait(void**) {
  enum class By { kMark, kMarkWithoutWait, kRead, kUpdate };
  run_ranks(1, 1, 60000, [&](nxd_context_t* ctx, int) {
    const Session waits(ctx, 1, false);
    waits.step(0);
    NXD_TEST_OK(nxd_mark_step(1));
    waits.step(1, 100000);
    NXD_TEST_REFUSED(nxd_mark_step(1), NXD_ERROR_INVALID_ARGUMENT, "expected ids from 0 to");
    const std::string message = last_error();
    for (const By by : {By::kMark, By::kMarkWithoutWait, By::kRead, By::kUpdate}) {
      const Session session(ctx, 1, false), untouched(ctx, 1, false);
      for (const Session* each : {&session, &untouched}) each->step(0);
      NXD_TEST_OK(nxd_mark_step(0));
      const Tensor lost = session.step(1, 100000);
      NXD_TEST_OK(nxd_mark_step(0));
      const Tensor behind = session.pass(2);
      double value = 0;
      nxd_status_t status = NXD_OK;
      switch (by) {
        case By::kMark: status = nxd_mark_step(1); break;
        case By::kMarkWithoutWait: status = nxd_mark_step(0); break;
        case By::kRead: status = nxd_tensor_get_item(lost.get(), &value); break;
        case By::kUpdate:
          status = nxd_optimizer_step(session.optimizer.get(), nullptr, nullptr);
          break;
      }
      NXD_TEST_CHECK(status == NXD_ERROR_INVALID_ARGUMENT);
      NXD_TEST_CHECK(std::strstr(nxd_last_error(), "expected ids from 0 to") != nullptr);
      if (by != By::kUpdate && message != last_error()) {
        nxd_test_fail(__FILE__, __LINE__, "%s, not %s", nxd_last_error(), message.c_str());
      }
      NXD_TEST_OK(nxd_mark_step(1));  // reported once
      for (const Tensor* each : {&lost, &behind}) {
        NXD_TEST_REFUSED(nxd_tensor_get_item(each->get(), &value), NXD_ERROR_INVALID_STATE,
                         "expected ids from 0 to");
      }
      NXD_TEST_OK(nxd_module_zero_grad(session.model.get()));
      nxd_parameter_state_t state;
      NXD_TEST_OK(nxd_optimizer_get_parameter_state(session.optimizer.get(), &state, nullptr));
      NXD_TEST_CHECK(state == NXD_PARAMETER_STATE_OLD);
      for (const Session* each : {&session, &untouched}) each->step(3);
      NXD_TEST_OK(nxd_mark_step(0));
      NXD_TEST_CHECK(whole_parameters(session.model.get()) ==
                     whole_parameters(untouched.model.get()));
    }
  });
}

struct Calls {
  std::atomic<int> count{0}, destroyed{0};
  std::thread::id thread{};
  nxd_tensor_t* reads = nullptr;
  double seen = NAN;
};

nxd_status_t run_closure(void* user_data) {
  auto& calls = *static_cast<Calls*>(user_data);
  calls.thread = std::this_thread::get_id();
  ++calls.count;
  return calls.reads ? nxd_tensor_get_item(calls.reads, &calls.seen) : NXD_OK;
}

void destroy_closure(void* user_data) { ++static_cast<Calls*>(user_data)->destroyed; }

void closures_follow_their_step(void**) {
  run_ranks(1, 1, 60000, [&](nxd_context_t* ctx, int) {
    const Session session(ctx, 1, false);
    Calls here, there;
    const Tensor first = session.step(0);
    there.reads = first.get();
    NXD_TEST_OK(nxd_add_step_closure_async(run_closure, &there, destroy_closure));
    NXD_TEST_OK(nxd_mark_step(0));
    const Tensor second = session.step(1);
    here.reads = second.get();
    NXD_TEST_OK(nxd_add_step_closure(run_closure, &here, destroy_closure));
    NXD_TEST_OK(nxd_mark_step(0));
    NXD_TEST_CHECK(here.count == 1 && here.thread == std::this_thread::get_id());
    NXD_TEST_CHECK(here.seen == item(second.get()));
    NXD_TEST_OK(nxd_wait_step_closures());
    NXD_TEST_CHECK(there.count == 1 && there.thread != std::this_thread::get_id());
    NXD_TEST_CHECK(there.seen == item(first.get()));
    // The closures of a step that fails are dropped.
    session.step(2, 100000);
    NXD_TEST_OK(nxd_add_step_closure_async(run_closure, &there, destroy_closure));
    NXD_TEST_OK(nxd_mark_step(0));
    NXD_TEST_OK(nxd_wait_step_closures());
    NXD_TEST_CHECK(there.count == 1 && there.destroyed == 2);
    NXD_TEST_CHECK(nxd_mark_step(1) == NXD_ERROR_INVALID_ARGUMENT);
  });
}

// Counts, and the graph, are those of the step that was marked. Another thread's read waits too.
void others_wait(void**) {
  run_ranks(1, 1, 60000, [&](nxd_context_t* ctx, int) {
    const Session session(ctx, 1, false);
    NXD_TEST_OK(nxd_device_reset_metrics());
    const Tensor loss = session.step(0);
    NXD_TEST_OK(nxd_mark_step(0));
    const nxd_device_metrics_t m = metrics();
    NXD_TEST_CHECK(m.executions == 1 && m.steps == 1 && m.implicit_syncs == 0);
    session.step(1);
    NXD_TEST_OK(nxd_mark_step(0));
    double value = NAN;
    std::thread([&] { value = item(loss.get()); }).join();
    NXD_TEST_CHECK(std::isfinite(value));
    size_t needed = 0;
    NXD_TEST_OK(nxd_device_get_step_graph(NXD_GRAPH_FORMAT_TEXT, nullptr, 0, &needed));
    NXD_TEST_CHECK(needed > 1000);
    // A value that the host writes is that of the steps to come.
    session.step(2);
    NXD_TEST_OK(nxd_mark_step(0));
    NXD_TEST_OK(nxd_module_initialize(session.model.get(), 3));
    const Named initial = whole_parameters(session.model.get());
    NXD_TEST_OK(nxd_mark_step(1));
    NXD_TEST_CHECK(whole_parameters(session.model.get()) == initial);
  });
}

// A thread ends, and all that it has goes, with a step that runs.
void ends_with_a_step(void**) {
  std::thread([] {
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    nxd_context_t* ctx = nullptr;
    NXD_TEST_OK(nxd_context_create(&options, &ctx));
    const nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
    NXD_TEST_OK(nxd_init_model_parallel(ctx, &parallel));
    {
      const Session session(ctx, 1, false);
      session.step(0);
      NXD_TEST_OK(nxd_mark_step(0));
    }
    nxd_context_destroy(ctx);
    int64_t shape[] = {3};
    nxd_tensor_t* x = nullptr;
    NXD_TEST_OK(nxd_tensor_create(shape, 1, NXD_DTYPE_F32, NXD_DEVICE_XLA, &x));
    NXD_TEST_OK(nxd_mark_step(0));
    nxd_tensor_destroy(x);
  }).join();
}

void a_lost_peer_ends_the_wait(void**) {
  run_ranks(2, 2, 20000, [&](nxd_context_t* ctx, int rank) {
    const Session session(ctx, 2, false);
    const Tensor first = session.step(0);
    NXD_TEST_OK(nxd_mark_step(0));
    NXD_TEST_CHECK(std::isfinite(item(first.get())));
    const Tensor lost = session.pass(1);
    if (rank == 1) {
      nxd_context_abort(ctx);
      return;
    }
    NXD_TEST_OK(nxd_mark_step(0));
    double value = 0;
    NXD_TEST_REFUSED(nxd_tensor_get_item(lost.get(), &value), NXD_ERROR_PEER_LOST, "rank 1");
    NXD_TEST_CHECK(nxd_tensor_get_item(lost.get(), &value) == NXD_ERROR_INVALID_STATE);
  });
}

void interrupted_in(bool with_closure) {
  std::atomic<bool> has_ended{false};
  Calls calls;
  run_ranks(2, 2, 60000, [&](nxd_context_t* ctx, int rank) {
    const Session session(ctx, 2, false);
    const Tensor loss = session.pass(0);
    if (rank == 1) {
      has_ended.wait(false);
    } else {
      if (with_closure) NXD_TEST_OK(nxd_add_step_closure_async(run_closure, &calls, nullptr));
      NXD_TEST_OK(nxd_mark_step(0));
      gives_up = true;
      double value = 0;
      if (with_closure) NXD_TEST_OK(nxd_wait_step_closures());
      NXD_TEST_CHECK(nxd_tensor_get_item(loss.get(), &value) == NXD_ERROR_USER);
      has_ended = true;
      has_ended.notify_all();
    }
  });
  NXD_TEST_CHECK(calls.count == 0);
}

void an_interrupt_ends_the_wait(void**) { interrupted_in(false); }

// The closure waits for the step, which fails: it is dropped.
void an_interrupt_ends_the_wait_for_closures(void**) { interrupted_in(true); }

// The interrupt callback is asked in a collective of the step: its values are not there before its
// end, nor can it be ended within itself.
void a_callback_cannot_read(void**) {
  std::atomic<bool> has_read{false};
  run_ranks(2, 2, 60000, [&](nxd_context_t* ctx, int rank) {
    const Session session(ctx, 2, false);
    const Tensor three = make_i64({3}, {1}), loss = session.pass(0);
    nxd_tensor_t* there = nullptr;
    NXD_TEST_OK(nxd_tensor_to_device(three.get(), NXD_DEVICE_XLA, &there));
    const Tensor known(there);
    if (rank == 1) {
      has_read.wait(false);
    } else {
      in_callback = [&] {
        double value = 0;
        NXD_TEST_CHECK(nxd_tensor_get_item(loss.get(), &value) != NXD_OK);
        NXD_TEST_CHECK(nxd_tensor_get_item(known.get(), &value) != NXD_OK);
        NXD_TEST_CHECK(nxd_mark_step(1) == NXD_ERROR_INVALID_STATE);
        has_read = true;
        has_read.notify_all();
      };
    }
    NXD_TEST_OK(nxd_mark_step(1));
    NXD_TEST_CHECK(item(loss.get()) > 0 && item(known.get()) == 3);
  });
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trains_as_with_waiting),
      cmocka_unit_test(does_not_wait),
      cmocka_unit_test(groups_stay_in_program_order),
      cmocka_unit_test(errors_come_at_the_next_wait),
      cmocka_unit_test(closures_follow_their_step),
      cmocka_unit_test(others_wait),
      cmocka_unit_test(ends_with_a_step),
      cmocka_unit_test(a_lost_peer_ends_the_wait),
      cmocka_unit_test(an_interrupt_ends_the_wait),
      cmocka_unit_test(an_interrupt_ends_the_wait_for_closures),
      cmocka_unit_test(a_callback_cannot_read),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

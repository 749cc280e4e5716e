#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/profiler.h"
#include "core/kernel_support.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/gemm.h"
#include "core/kernels/optimizer_kernels.h"
#include "nxd.h"
#include "support/ranks.h"

using namespace nxd;

namespace {

nxd_phase_stats_t read(nxd_phase_t phase) {
  nxd_phase_stats_t stats = {};
  stats.struct_size = sizeof(stats);
  assert_int_equal(nxd_profile_get_phase(phase, &stats), NXD_OK);
  return stats;
}

void product(kernels::Trans trans_a, kernels::Trans trans_b) {
  static float x[64];
  static float y[64];
  kernels::GemmArgs args;
  args.trans_a = trans_a;
  args.trans_b = trans_b;
  args.m = args.n = args.k = args.lda = args.ldb = args.ldc = 8;
  args.a = args.b = x;
  args.c = y;
  kernels::gemm(args);
}

void nothing_is_counted_while_off(void**) {
  assert_int_equal(nxd_profile_start(), NXD_OK);
  assert_int_equal(nxd_profile_stop(), NXD_OK);
  product(kernels::Trans::kNo, kernels::Trans::kNo);
  for (nxd_phase_t phase = 0; phase < profiler::kPhases; ++phase) {
    const nxd_phase_stats_t stats = read(phase);
    assert_true(stats.seconds == 0 && stats.operations == 0 && stats.calls == 0);
    assert_true(std::string(stats.name).size() > 3);
  }
}

void products_are_told_apart(void**) {
  using kernels::Trans;
  assert_int_equal(nxd_profile_start(), NXD_OK);
  product(Trans::kNo, Trans::kYes);
  product(Trans::kNo, Trans::kNo);
  product(Trans::kNo, Trans::kNo);
  for (int i = 0; i < 3; ++i) product(Trans::kYes, Trans::kNo);
  assert_int_equal(nxd_profile_stop(), NXD_OK);
  const nxd_phase_t phases[] = {NXD_PHASE_GEMM_FORWARD, NXD_PHASE_GEMM_INPUT_GRAD,
                                NXD_PHASE_GEMM_WEIGHT_GRAD};
  for (uint64_t i = 0; i < 3; ++i) {
    const nxd_phase_stats_t stats = read(phases[i]);
    assert_int_equal(stats.calls, i + 1);
    assert_true(stats.operations == 1024.0 * static_cast<double>(i + 1));
    assert_true(stats.seconds > 0);
  }
  assert_int_equal(nxd_profile_start(), NXD_OK);
  assert_true(read(NXD_PHASE_GEMM_FORWARD).calls == 0);
  assert_int_equal(nxd_profile_stop(), NXD_OK);
}

void losses_and_updates_are_told(void**) {
  constexpr int64_t kRows = 2, kColumns = 4;
  const float logits[kRows * kColumns] = {1, 2, 3, 4};
  const int64_t targets[kRows] = {0, 3};
  float statistics[kernels::kRowStatistics * kRows];
  kernels::LogitShard shard;
  shard.rows = kRows;
  shard.cols = shard.ld = kColumns;
  shard.logits = logits;
  shard.targets = targets;
  float param[4] = {}, grad[4] = {};
  kernels::SgdArgs update;
  update.n = 4;
  update.param = param;
  update.grad = grad;
  assert_int_equal(nxd_profile_start(), NXD_OK);
  kernels::cross_entropy_statistics(shard, statistics);
  for (int i = 0; i < 2; ++i) kernels::sgd(update);
  assert_int_equal(nxd_profile_stop(), NXD_OK);
  const nxd_phase_stats_t loss = read(NXD_PHASE_CROSS_ENTROPY);
  const nxd_phase_stats_t updates = read(NXD_PHASE_OPTIMIZER);
  assert_true(loss.calls == 1 && loss.seconds > 0);
  assert_true(updates.calls == 2 && updates.seconds > 0);
  assert_int_equal(read(NXD_PHASE_ELEMENTWISE).calls, 0);
}

// A phase inside of another on the same thread is part of it; on other threads it is not inside.
void outermost_scope_counts(void**) {
  assert_int_equal(nxd_profile_start(), NXD_OK);
  {
    const PhaseScope outer(NXD_PHASE_ATTENTION, 7);
    product(kernels::Trans::kNo, kernels::Trans::kNo);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::thread([] { product(kernels::Trans::kYes, kernels::Trans::kNo); }).join();
  }
  assert_int_equal(nxd_profile_stop(), NXD_OK);
  assert_int_equal(read(NXD_PHASE_GEMM_INPUT_GRAD).calls, 0);
  assert_int_equal(read(NXD_PHASE_GEMM_WEIGHT_GRAD).calls, 1);
  const nxd_phase_stats_t attention = read(NXD_PHASE_ATTENTION);
  assert_true(attention.calls == 1 && attention.operations == 7 && attention.seconds >= 2e-3);
}

// The threads of a team count nothing: the one that called the team does.
void teams_count_once(void**) {
  std::vector<float> x(1 << 20);
  assert_int_equal(nxd_profile_start(), NXD_OK);
  kernels::scale(NXD_DTYPE_F32, 1 << 20, x.data(), 1.0, x.data());
  assert_int_equal(nxd_profile_stop(), NXD_OK);
  assert_int_equal(read(NXD_PHASE_ELEMENTWISE).calls, 1);
}

// Each thread of a parallel region of the program's calls for itself.
void threads_of_a_region_count(void**) {
  std::atomic<uint64_t> threads{0};
  assert_int_equal(nxd_profile_start(), NXD_OK);
#pragma omp parallel num_threads(2)
  {
    float x[16] = {};
    kernels::scale(NXD_DTYPE_F32, 16, x, 1.0, x);
    ++threads;
  }
  assert_int_equal(nxd_profile_stop(), NXD_OK);
  assert_int_equal(read(NXD_PHASE_ELEMENTWISE).calls, threads.load());
}

// As of fibers, whose calls on one thread end in any order: a wait belongs to the phase that was
// open at its beginning, and goes with it.
void a_wait_outlasts_its_phase(void**) {
  for (const nxd_phase_t next : {NXD_PHASE_COMMUNICATION, NXD_PHASE_ATTENTION, NXD_PHASE_INVALID}) {
    assert_int_equal(nxd_profile_start(), NXD_OK);
    auto phase = std::make_unique<PhaseScope>(NXD_PHASE_COMMUNICATION);
    auto wait = std::make_unique<WaitScope>();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    phase.reset();
    if (next != NXD_PHASE_INVALID) phase = std::make_unique<PhaseScope>(next);
    wait.reset();
    phase.reset();
    assert_int_equal(nxd_profile_stop(), NXD_OK);
    assert_true(read(NXD_PHASE_COMMUNICATION).waiting_seconds == 0);
    assert_true(read(NXD_PHASE_ATTENTION).waiting_seconds == 0);
  }
}

void waits_of_one_phase_count_once(void**) {
  assert_int_equal(nxd_profile_start(), NXD_OK);
  {
    const PhaseScope phase(NXD_PHASE_COMMUNICATION);
    for (int i = 0; i < 2; ++i) {
      const WaitScope wait, of_another_fiber;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  assert_int_equal(nxd_profile_stop(), NXD_OK);
  const nxd_phase_stats_t stats = read(NXD_PHASE_COMMUNICATION);
  assert_true(stats.waiting_seconds >= 4e-3 && stats.waiting_seconds <= stats.seconds);
}

// Whatever carries a call, and whichever thread runs it.
void collectives(nxd_context_t* ctx, int, int, void*) {
  nxd_group_t* world = nullptr;
  nxd_work_t* work = nullptr;
  float x[32] = {};
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_all_reduce(world, x, x, 32, NXD_DTYPE_F32, NXD_REDUCE_SUM));
  NXD_TEST_OK(nxd_all_reduce_async(world, x, x, 32, NXD_DTYPE_F32, NXD_REDUCE_SUM, &work));
  NXD_TEST_OK(nxd_work_wait(work, -1));
  nxd_work_destroy(work);
}

void communication_is_counted(void**) {
  for (const nxd_transport_t transport : {NXD_TRANSPORT_AUTO, NXD_TRANSPORT_GLOO}) {
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    options.transport = transport;
    assert_int_equal(nxd_profile_start(), NXD_OK);
    nxd_test_run_ranks_with(&options, 2, 0, collectives, nullptr);
    assert_int_equal(nxd_profile_stop(), NXD_OK);
    const nxd_phase_stats_t stats = read(NXD_PHASE_COMMUNICATION);
    assert_true(stats.calls >= 4 && stats.seconds > 0);
  }
}

// Rank 1 comes when rank 0 has been asked whether it goes on waiting; what rank 1 does then takes
// no wait.
struct LateRank {
  std::atomic<bool> rank_0_waits{false};
  bool messages = false;
};

// True while the call of this thread is the one that waits for rank 1.
thread_local bool awaits_rank_1 = false;

nxd_status_t asked_while_waiting(void* form) {
  if (awaits_rank_1) static_cast<LateRank*>(form)->rank_0_waits = true;
  return NXD_OK;
}

void late(nxd_context_t* ctx, int rank, int, void* argument) {
  auto& form = *static_cast<LateRank*>(argument);
  nxd_group_t* world = nullptr;
  float x[32] = {};
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_barrier(world));
  if (rank == 0) NXD_TEST_OK(nxd_profile_start());
  awaits_rank_1 = rank == 0;
  while (rank == 1 && !form.rank_0_waits) std::this_thread::yield();
  if (!form.messages) {
    NXD_TEST_OK(nxd_all_reduce(world, x, x, 32, NXD_DTYPE_F32, NXD_REDUCE_SUM));
  } else if (rank == 0) {
    NXD_TEST_OK(nxd_receive(world, x, 32, NXD_DTYPE_F32, 1, 0));
  } else {
    NXD_TEST_OK(nxd_send(world, x, 32, NXD_DTYPE_F32, 0, 0));
  }
  awaits_rank_1 = false;
}

void waits_are_told(void**) {
  for (const nxd_transport_t transport : {NXD_TRANSPORT_AUTO, NXD_TRANSPORT_GLOO}) {
    for (const bool messages : {false, true}) {
      nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
      options.transport = transport;
      LateRank form;
      form.messages = messages;
      options.interrupt = asked_while_waiting;
      options.interrupt_data = &form;
      nxd_test_run_ranks_with(&options, 2, 0, late, &form);
      assert_int_equal(nxd_profile_stop(), NXD_OK);
      const nxd_phase_stats_t stats = read(NXD_PHASE_COMMUNICATION);
      assert_true(stats.waiting_seconds > 0 && stats.waiting_seconds <= stats.seconds);
    }
  }
  assert_int_equal(nxd_profile_start(), NXD_OK);
  product(kernels::Trans::kNo, kernels::Trans::kNo);
  assert_int_equal(nxd_profile_stop(), NXD_OK);
  assert_true(read(NXD_PHASE_GEMM_INPUT_GRAD).waiting_seconds == 0);
  assert_true(read(NXD_PHASE_COMMUNICATION).waiting_seconds == 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(nothing_is_counted_while_off),
      cmocka_unit_test(products_are_told_apart),
      cmocka_unit_test(outermost_scope_counts),
      cmocka_unit_test(teams_count_once),
      cmocka_unit_test(threads_of_a_region_count),
      cmocka_unit_test(a_wait_outlasts_its_phase),
      cmocka_unit_test(waits_of_one_phase_count_once),
      cmocka_unit_test(losses_and_updates_are_told),
      cmocka_unit_test(communication_is_counted),
      cmocka_unit_test(waits_are_told),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

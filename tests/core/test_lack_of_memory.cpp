// Parts of the core where memory or mappings cannot be had.
#include <barrier>
#include <thread>

#include "capi/handles.h"
#include "core/agree/outcome.h"
#include "core/comm/memory/arena.h"
#include "core/comm/net/pending_peers.h"
#include "core/comm/store/tcp_store.h"
#include "core/comm/store/tcp_store_table.h"
#include "core/layout/shard_gather.h"
#include "core/optim/bucket_plan.h"
#include "core/optim/buffer_parameters.h"
#include "core/optim/parameter_gather.h"
#include "core/world/context.h"
#include "exhaustion/failing_calls.h"
#include "support/ranks.h"
#include "support/told.h"

#include "support/check.h"

using namespace nxd;

namespace {

// Blocks whose neighbours are in use need an entry of their own among the free ones.
void freeing_takes_no_memory(void**) {
  Arena arena;
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(arena.allocate(5000));
  fail_calls(kFailMemory, 1, UINT64_MAX);
  bool threw = false;
  try {
    for (size_t i = 0; i < blocks.size(); i += 2) arena.free(blocks[i]);
    for (size_t i = 1; i < blocks.size(); i += 2) arena.free(blocks[i]);
  } catch (...) {
    threw = true;
  }
  fail_no_calls();
  assert_false(threw);
  assert_ptr_equal(arena.allocate(20 * 8192), blocks[0]);  // they are one stretch again
}

// An allocation that fails leaves the arena as it was.
void failed_allocations_change_nothing(void**) {
  Arena arena;
  void* first = arena.allocate(5000);
  arena.free(first);
  const Arena::Stats before = Arena::stats();
  uint64_t failures = 0;
  for (uint64_t n = 1;; ++n) {
    fail_calls(kFailMemory, n, 1);
    void* block = nullptr;
    try {
      block = arena.allocate(5000);
    } catch (const std::bad_alloc&) {
      ++failures;
    }
    const bool failed = calls_failed() > 0;
    fail_no_calls();
    assert_true(failed == (block == nullptr));
    if (!failed) {
      assert_ptr_equal(block, first);
      arena.free(block);
      break;
    }
    assert_int_equal(Arena::stats().bytes_in_use, before.bytes_in_use);
  }
  assert_true(failures >= 2);
}

// A connection that there is no memory for is not listed: the thread that looks for one whose time
// is up would find it for ever.
void connections_without_memory_are_not_pending(void**) {
  uint64_t failures = 0;
  for (bool failed = true; failed; failures += failed) {
    PendingPeers pending(16, 1000);
    bool threw = false;
    fail_calls(kFailMemory, failures + 1, 1);
    try {
      pending.add(7);
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    failed = calls_failed() > 0;
    fail_no_calls();
    assert_true(failed == threw);
    assert_int_equal(pending.size(), failed ? 0 : 1);
    pending.remove(7);
    assert_false(pending.oldest().has_value());
  }
  assert_true(failures >= 2);
}

std::string bytes_of(const std::string& value) {
  const uint64_t size = value.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + value;
}

// A client that waits for a key when there is no memory to tell it: it goes on waiting, so that its
// end takes it out of the table, or it has its answer.
void waits_end_in_full_or_go_on(void**) {
  using namespace nxd::tcp_store;
  const uint64_t one = 1;
  const std::string wait =
      std::string(reinterpret_cast<const char*>(&one), sizeof one) + bytes_of("key");
  const std::string set = bytes_of("key") + bytes_of("value");
  uint64_t failures = 0;
  for (bool failed = true; failed; failures += failed) {
    Table table(1 << 20, 1 << 20);
    Session waiting, setting;
    assert_true(table.serve(waiting, kWait, RequestReader(wait)));
    fail_calls(kFailMemory, failures + 1, 1);
    try {
      table.serve(setting, kSet, RequestReader(set));
    } catch (const std::bad_alloc&) {
    }
    failed = calls_failed() > 0;
    fail_no_calls();
    std::vector<int> woken;
    table.take_woken(woken);
    assert_int_equal(waiting.awaited.size(), woken.empty() ? 1 : 0);
    assert_int_equal(waiting.out.bytes(), woken.size());
    table.leave(waiting);
    assert_true(table.serve(setting, kSet, RequestReader(set)));
    assert_int_equal(waiting.out.bytes(), woken.size());
  }
  assert_true(failures >= 2);
}

// The rest of an answer for which there was no memory is not the answer to the next request.
void answers_without_memory_are_let_go(void**) {
  constexpr int64_t kTimeoutMs = 60000;
  const auto server = std::make_shared<TcpStoreServer>("127.0.0.1", 0);
  TcpStore other("127.0.0.1", server->port(), kTimeoutMs);
  const std::string large(size_t{3} << 20, 'x');
  other.set("large", large);
  other.set("small", "1");
  uint64_t failures = 0;
  for (bool failed = true; failed; failures += failed) {
    TcpStore store("127.0.0.1", server->port(), kTimeoutMs);
    fail_calls(kFailMemory, failures + 1, 1);
    const auto found = [&]() -> std::optional<std::string> {
      try {
        return store.get("large");
      } catch (const std::exception&) {
        return std::nullopt;
      }
    }();
    failed = calls_failed() > 0;
    fail_no_calls();
    if (found) assert_true(*found == large);
    try {
      assert_string_equal(store.get("small").value_or("none").c_str(), "1");
    } catch (const Error& e) {
      assert_int_equal(e.status(), NXD_ERROR_IO);  // the server had no memory, and let it go
    }
  }
  assert_true(failures >= 3);
}

// A rejection that cannot be given a work takes no place in the order.
void rejections_without_memory_are_not_made(void**) {
  nxd_test_run_ranks(
      1, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        const auto world = ctx->value->world();
        nxd_group_t* group = nullptr;
        NXD_TEST_OK(nxd_context_get_world_group(ctx, &group));
        uint64_t failures = 0;
        for (bool failed = true; failed; failures += failed) {
          const auto number_of_last = [&] { return world->record().operations.back().sequence; };
          world->run(Call::barrier());
          const uint64_t before = number_of_last();
          nxd_work_t* work = nullptr;
          fail_calls(kFailMemory, failures + 1, 1);
          const nxd_status_t status =
              nxd_group_reject_async(group, "barrier", 0, 0, "a reason", &work);
          failed = calls_failed() > 0;
          fail_no_calls();
          nxd_work_destroy(work);
          world->wait_for_works();
          if (status != NXD_OK) NXD_TEST_CHECK(number_of_last() == before);
          // The thread of the works, which goes on meanwhile, may have been the one without memory.
          if (!world->record().error.empty()) break;
        }
        NXD_TEST_CHECK(failures >= 5);
      },
      nullptr);
}

// A call that no thread could be had for was not issued: its key is the next one's.
void keys_stay_for_the_next_call(void**) {
  nxd_test_run_ranks(
      2, 0,
      [](nxd_context_t* ctx, int rank, int, void*) {
        nxd_group_t* group = nullptr;
        nxd_work_t* work = nullptr;
        NXD_TEST_OK(nxd_context_get_world_group(ctx, &group));
        NXD_TEST_OK(nxd_group_set_next_key(group, 7));
        if (rank == 0) {
          fail_calls(kFailThread, 1, 1);
          NXD_TEST_CHECK(nxd_barrier_async(group, &work) == NXD_ERROR_OUT_OF_MEMORY);
          fail_no_calls();
          NXD_TEST_OK(nxd_barrier_async(group, &work));
          NXD_TEST_OK(nxd_work_wait(work, -1));
          nxd_work_destroy(work);
        } else {
          NXD_TEST_OK(nxd_barrier(group));
        }
        NXD_TEST_OK(nxd_barrier(group));  // no key is left
      },
      nullptr);
  fail_no_calls();
}

// A rank that cannot see what its peer has makes no rank write there: all gather instead.
void memory_of_peers_that_cannot_be_mapped(void**) {
  nxd_test_run_ranks(
      2, 0,
      [](nxd_context_t* ctx, int rank, int, void*) {
        constexpr int64_t kCount = 4096;
        std::vector<float> value(kCount), grad(kCount);
        int64_t shape[1] = {kCount};
        DLTensor param{value.data(), {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, nullptr, 0};
        DLTensor gradient = param;
        gradient.data = grad.data();
        DLTensor *params[] = {&param}, *grads[] = {&gradient};
        const char* names[] = {"w"};
        const auto context = ctx->value;
        const auto source = std::make_shared<BufferParameters>(context, context->world(), names,
                                                               params, grads, size_t{1});
        const BucketPlan plan({{kCount, NXD_DTYPE_F32, NXD_DTYPE_F32}}, 1 << 20, 2);
        context->arena().free(context->arena().allocate(100));  // so that it has its mapping
        context->world()->run(Call::barrier());
        if (rank == 0) fail_calls(kFailMapping, 1, 1);
        context->world()->run(Call::barrier());
        ParameterGather gather(source, plan, true);
        context->world()->run(Call::barrier());
        if (rank == 0) NXD_TEST_CHECK(calls_failed() == 1);
        NXD_TEST_CHECK(!gather.has_peer_copies());
        gather.begin();
        auto* view = static_cast<float*>(gather.bucket_view(0));
        for (const auto& segment : plan.part(0, rank)) {
          for (int64_t i = 0; i < segment.count; ++i) {
            view[segment.parameter_offset + i] = static_cast<float>(segment.parameter_offset + i);
          }
        }
        gather.gather();
        for (int64_t i = 0; i < kCount; ++i) NXD_TEST_CHECK(view[i] == static_cast<float>(i));
      },
      nullptr);
  fail_no_calls();
}

// A rank that cannot map its peer's memory in the middle of a message fails for a reason of its
// own: it names itself, as its peer does.
void mappings_that_fail_are_no_peers_fault(void**) {
  nxd_test_run_ranks(
      2, 0,
      [](nxd_context_t* ctx, int rank, int, void*) {
        constexpr size_t kBytes = size_t{256} << 10;
        const auto context = ctx->value;
        const auto world = context->world();
        void* const data = context->arena().allocate(kBytes);
        world->run(Call::barrier());
        if (rank == 0) fail_calls(kFailMapping, 1, 1);
        const auto told = nxd_test::told_by([&] {
          world->run(rank == 0 ? Call::receive_from(data, kBytes, NXD_DTYPE_U8, 1, 0)
                               : Call::send_to(data, kBytes, NXD_DTYPE_U8, 0, 0));
        });
        if (rank == 0) NXD_TEST_CHECK(calls_failed() == 1);
        NXD_TEST_CHECK(told.status == (rank == 0 ? NXD_ERROR_OUT_OF_MEMORY : NXD_ERROR_PEER_LOST));
        NXD_TEST_CHECK(told.rank == 0);
        context->arena().free(data);
      },
      nullptr);
  fail_no_calls();
}

// One rank lacks memory at some point of a call of several collectives. Its peer is told so, or the
// world is lost to both, or the rank alone fails, after the last of them. No call takes the place
// of another.
using OneCall = nxd_status_t (*)(nxd_context_t* ctx, int rank);

nxd_status_t meet(nxd_context_t* ctx, int rank) {
  nxd_group_t* world = nullptr;
  nxd_payloads_t* payloads = nullptr;
  const std::string payload(100 + 50 * static_cast<size_t>(rank), 'x');
  nxd_context_get_world_group(ctx, &world);
  const nxd_status_t status =
      nxd_group_rendezvous(world, "here", payload.data(), payload.size(), &payloads);
  nxd_payloads_destroy(payloads);
  return status;
}

nxd_status_t put_together(nxd_context_t* ctx, int rank) {
  const std::vector<float> part(200, 1);
  std::vector<float> whole(400);
  const auto shard_of = [](int64_t at) {
    return ShardSpec::ranges({4, 100}, 1, {{at, at + 25}, {at + 25, at + 50}}, 100);
  };
  static const ShardSpec shards[2] = {shard_of(0), shard_of(50)};  // made before memory lacks
  const Outcome outcome = Outcome::of(rank, [&] {
    gather_shards(ctx->value->world().get(), shards[rank], NXD_DTYPE_F32, part.data(),
                  whole.data());
  });
  nxd_set_last_error(outcome.status, outcome.reason.c_str());
  return outcome.status;
}

struct Lack {
  OneCall call;
  uint64_t number;
  std::barrier<> meeting{2};
  nxd_status_t statuses[2] = {};
  uint64_t failed = 0;
};

void lack_at(nxd_context_t* ctx, int rank, int, void* argument) {
  auto& lack = *static_cast<Lack*>(argument);
  const auto world = ctx->value->world();
  NXD_TEST_OK(lack.call(ctx, rank));
  lack.meeting.arrive_and_wait();
  if (rank == 0) fail_calls(kFailMemory, lack.number, 1);
  lack.meeting.arrive_and_wait();
  lack.statuses[rank] = lack.call(ctx, rank);
  const std::string message = lack.statuses[rank] ? nxd_last_error() : "";
  lack.meeting.arrive_and_wait();
  if (rank == 0) lack.failed = calls_failed();
  if (rank == 0) fail_no_calls();
  lack.meeting.arrive_and_wait();
  const auto after = nxd_test::told_by([&] { world->run(Call::barrier()); });
  const nxd_status_t own = lack.statuses[rank], other = lack.statuses[1 - rank];
  NXD_TEST_CHECK(own != NXD_ERROR_TIMEOUT);
  if (own == NXD_ERROR_INVALID_ARGUMENT) {
    NXD_TEST_CHECK(other == NXD_ERROR_OUT_OF_MEMORY);
    NXD_TEST_CHECK(message.find("rejected its arguments: all_gather: out of memory") !=
                   std::string::npos);
  }
  if (after.status != NXD_OK) {
    NXD_TEST_CHECK(after.status == NXD_ERROR_PEER_LOST || own == NXD_ERROR_OUT_OF_MEMORY);
    NXD_TEST_CHECK(after.status != NXD_ERROR_INVALID_ARGUMENT);
  }
}

void peers_hear_of_a_lack(void**) {
  for (const OneCall call : {meet, put_together}) {
    int told = 0;
    for (uint64_t n = 1;; ++n) {
      Lack lack{call, n};
      nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
      options.timeout_ms = 20000;
      nxd_test_run_ranks_with(&options, 2, 0, lack_at, &lack);
      for (const nxd_status_t status : lack.statuses) told += status == NXD_ERROR_INVALID_ARGUMENT;
      if (lack.failed == 0) break;
    }
    assert_true(told > 0);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(freeing_takes_no_memory),
      cmocka_unit_test(failed_allocations_change_nothing),
      cmocka_unit_test(connections_without_memory_are_not_pending),
      cmocka_unit_test(waits_end_in_full_or_go_on),
      cmocka_unit_test(answers_without_memory_are_let_go),
      cmocka_unit_test(rejections_without_memory_are_not_made),
      cmocka_unit_test(keys_stay_for_the_next_call),
      cmocka_unit_test(memory_of_peers_that_cannot_be_mapped),
      cmocka_unit_test(mappings_that_fail_are_no_peers_fault),
      cmocka_unit_test(peers_hear_of_a_lack),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Quantities that may not grow with the world: a rank's requests to the store, its connections, the
// bytes of an agreement. Ranks are threads.
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include <barrier>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/store/local_store.h"
#include "core/comm/store/store_rate_limit.h"
#include "core/comm/store/tcp_store.h"
#include "core/comm/transports/gloo/call_summary.h"
#include "core/world/context.h"

#include "support/check.h"
#include "support/counting_store.h"

namespace {

using nxd::CallHeader;
using nxd::CallSummary;

int open_sockets() {
  int n = 0;
  DIR* dir = ::opendir("/proc/self/fd");
  assert_non_null(dir);
  while (const dirent* entry = ::readdir(dir)) {
    char target[64];
    const ssize_t size =
        ::readlink((std::string("/proc/self/fd/") + entry->d_name).c_str(), target, sizeof target);
    if (size > 0 && std::string(target, static_cast<size_t>(size)).rfind("socket:", 0) == 0) ++n;
  }
  ::closedir(dir);
  return n;
}

struct Demands {
  double requests = 0;  // per rank, to create its context
  double layout_requests = 0, reduce_requests = 0;
  double sockets = 0;  // per rank, after an all_reduce
  int failures = 0;
};

std::shared_ptr<nxd::Context> join(int rank, int size, std::shared_ptr<nxd::Store> store) {
  nxd::ContextOptions options;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.rank = rank;
  options.size = size;
  options.timeout_ms = 120000;
  options.transport = NXD_TRANSPORT_GLOO;
  options.store = std::move(store);
  return nxd::Context::create(options);
}

Demands demands_of(int size) {
  const auto counts = std::make_shared<StoreCounts>();
  const auto store = std::make_shared<CountingStore>(std::make_shared<nxd::LocalStore>(), counts);
  Demands out;
  std::atomic<int> failures{0};
  const int before = open_sockets();
  std::barrier gate(size + 1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      std::shared_ptr<nxd::Context> context;
      const auto step = [&](auto&& action) {
        try {
          if (failures == 0) action();
        } catch (const std::exception&) {
          ++failures;
        }
        gate.arrive_and_wait();
        gate.arrive_and_wait();
      };
      step([&] { context = join(rank, size, store); });
      step([&] { context->init_model_parallel({}); });
      for (const size_t count : {size_t{8}, size_t{20000}}) {
        step([&] {
          std::vector<float> data(count, 1.0F);
          context->world()->run(nxd::Call::all_reduce(data.data(), data.data(), count,
                                                      NXD_DTYPE_F32, NXD_REDUCE_SUM));
          if (data[count - 1] != static_cast<float>(size)) ++failures;
        });
      }
    });
  }
  double requests[4];
  for (double& r : requests) {
    gate.arrive_and_wait();
    r = static_cast<double>(counts->fruitful.exchange(0)) / size;
    if (&r == &requests[3]) out.sockets = static_cast<double>(open_sockets() - before) / size;
    gate.arrive_and_wait();
  }
  for (std::thread& thread : threads) thread.join();
  out.requests = requests[0];
  out.layout_requests = requests[1];
  out.reduce_requests = requests[2] + requests[3];
  out.failures = failures;
  return out;
}

// Connections of a group's agreement: to the ranks at distances of powers of two, both ways.
double pairs_per_rank(int size) {
  double pairs = 0;
  for (int distance = 1; distance < size; distance *= 2) pairs += 2 * distance == size ? 0.5 : 1;
  return pairs;
}

// A rank's requests to the store grow with its connections alone: one request each, by one end.
void demands_are_bounded(void**) {
  ::setenv("NXD_LARGE_GROUP", "2", 1);
  const Demands few = demands_of(8), many = demands_of(32);
  ::unsetenv("NXD_LARGE_GROUP");
  assert_int_equal(few.failures, 0);
  assert_int_equal(many.failures, 0);
  // It joins, says what it is, which rank 0 reads, hears the outcome, and says where it listens.
  assert_true(few.requests <= 5 + pairs_per_rank(8) + 0.5);
  assert_true(many.requests <= 5 + pairs_per_rank(32) + 0.5);
  // A listener, the event loop's own, and two ways of log2(n) rounds.
  assert_true(few.sockets <= 2 * 3 + 3);
  assert_true(many.sockets <= 2 * 5 + 3);
  // By powers of two, a reduction goes over the connections of the agreement.
  assert_true(few.layout_requests == 0 && many.layout_requests == 0);
  assert_true(few.reduce_requests == 0 && many.reduce_requests == 0);
}

// Every way of joining the words of all ranks comes to the same, of the same size.
void summaries_do_not_grow(void**) {
  CallHeader usual, odd;
  usual.operation = odd.operation = nxd::Operation::kAllReduce;
  usual.count = 1000;
  odd.count = 999;
  const auto join_all = [&](int ranks, bool backwards) {
    CallSummary all(0, usual, std::nullopt);
    for (int i = 1; i < ranks; ++i) {
      const int rank = backwards ? ranks - i : i;
      all.merge(CallSummary(rank, rank == ranks - 2 ? odd : usual, std::nullopt));
      all.merge(all);
    }
    return all;
  };
  const CallSummary two = join_all(3, false), many = join_all(65536, false);
  assert_int_equal(two.size(), CallSummary().size());
  assert_int_equal(many.size(), two.size());
  const CallSummary back = join_all(65536, true);
  assert_memory_equal(&many, &back, sizeof many);
  CallSummary refused = many;
  const auto rejecting = [&](int rank, const std::string& why) {
    return CallSummary(rank, usual, nxd::Rejection{rank, false, why});
  };
  refused.merge(rejecting(40000, std::string(5000, 'x')));
  refused.merge(rejecting(300, "first"));
  refused.merge(rejecting(60000, "last"));
  assert_int_equal(refused.size(), CallSummary().size() + 5);
  assert_true(sizeof(CallSummary) <= 512);
}

// All ranks together ask no more often than a server can answer.
void questions_are_rationed(void**) {
  for (const int ranks : {2, 1000, 65536}) {
    const auto pause = nxd::store_pause(ranks, 3);
    const double per_second = 3.0 * ranks / (static_cast<double>(pause.count() + 1) / 1000);
    assert_true(per_second <= nxd::kStoreRequestsPerSecond);
  }
}

// Many keys are two questions to the server's socket and back, and absent ones are none.
void many_keys_at_once(void**) {
  const auto store = nxd::open_tcp_store("127.0.0.1", 0, true, 10000);
  std::vector<std::string> keys;
  for (int i = 0; i < 3000; ++i) {
    keys.push_back("key/" + std::to_string(i));
    store->set(keys.back(), std::string(static_cast<size_t>(i % 300), static_cast<char>(i)));
  }
  const auto values = store->get_all(keys);
  assert_true(values.has_value());
  for (size_t i = 0; i < keys.size(); ++i) {
    assert_true((*values)[i] == std::string(i % 300, static_cast<char>(i)));
  }
  keys.push_back("absent");
  assert_false(store->get_all(keys).has_value());
  assert_true(store->get("key/7").has_value());  // still in step
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(demands_are_bounded),
      cmocka_unit_test(summaries_do_not_grow),
      cmocka_unit_test(questions_are_rationed),
      cmocka_unit_test(many_keys_at_once),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// A rank that breaks off a call has not completed it, also when the thread that made the call hears
// of the failure before the thread that failed the group has announced the departure.
#include <future>
#include <memory>
#include <thread>

#include "core/comm/store/local_store.h"
#include "core/comm/transports/shm/shm_transport.h"

#include "support/told.h"

// After the rest: it defines fail().
#include "support/check.h"

namespace {

using nxd::Call;
using nxd_test::Told;
using nxd_test::told_by;

std::shared_ptr<nxd::GroupMonitor> monitor_of(const std::shared_ptr<nxd::Store>& store, int rank) {
  auto shared = std::make_shared<nxd::RankShared>();
  shared->store = store;
  shared->world_size = 2;
  shared->failures = std::make_shared<nxd::FailureRegistry>(store, rank, 2, -1, -1);
  return std::make_shared<nxd::GroupMonitor>(shared, "key", "pair", rank, std::vector<int>{0, 1},
                                             60000);
}

// A rank waits for its peer when the record of its call names it.
bool is_waiting(const nxd::GroupMonitor& monitor) {
  const auto operations = monitor.record().operations;
  return !operations.empty() && operations.back().awaited == 1;
}

void test_failure_seen_before_departure(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  const auto monitor = monitor_of(store, 0);
  std::promise<void> call_ended;
  // The transport registers its departure behind this one.
  monitor->on_failure([&] { call_ended.get_future().wait(); });
  nxd::ShmTransport transport(monitor, "key", {0, 1});
  Told of_call;
  std::thread caller([&] {
    of_call = told_by([&] { transport.run(Call::barrier()); });
    call_ended.set_value();
  });
  while (!is_waiting(*monitor)) std::this_thread::yield();
  const Told of_failure = told_by([&] {
    monitor->interrupted("barrier", {NXD_ERROR_USER, "interrupted"});
  });
  caller.join();
  assert_int_equal(of_failure.status, NXD_ERROR_USER);
  assert_int_equal(of_call.status, NXD_ERROR_USER);

  nxd::ShmTransport peer(monitor_of(store, 1), "key", {0, 1});
  const Told of_peer = told_by([&] { peer.run(Call::barrier()); });
  assert_int_equal(of_peer.status, NXD_ERROR_PEER_LOST);
  assert_int_equal(of_peer.rank, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_failure_seen_before_departure)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

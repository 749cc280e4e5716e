// A rank that sends what its peer cannot read is the one that is lost, to itself too: not the peer,
// which leaves because of it.
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "core/comm/store/local_store.h"
#include "core/comm/transports/gloo/gloo_device.h"
#include "core/comm/transports/gloo/gloo_transport.h"

#include "support/told.h"

// After the rest: it defines fail().
#include "support/check.h"

namespace {

using nxd::Call;
using nxd_test::Told;
using nxd_test::told_by;

// Ranks with different numbers of large_group send each other different things.
std::shared_ptr<nxd::GroupMonitor> monitor_of(const std::shared_ptr<nxd::Store>& store, int rank,
                                              int large_group) {
  auto shared = std::make_shared<nxd::RankShared>();
  shared->store = store;
  shared->world_size = 2;
  shared->large_group = large_group;
  shared->failures = std::make_shared<nxd::FailureRegistry>(store, rank, 2, -1, -1);
  shared->timer_thread = std::make_shared<nxd::TimerThread>();
  shared->device = nxd::make_gloo_device("127.0.0.1");
  shared->connector = std::make_shared<nxd::Connector>("127.0.0.1", rank, std::nullopt);
  store->set(nxd::Connector::key(rank), shared->connector->peer_address());
  return std::make_shared<nxd::GroupMonitor>(shared, "key", "pair", rank, std::vector<int>{0, 1},
                                             60000);
}

// The error of a rank's first call that fails.
Told first_error_of(nxd::Transport& transport) {
  std::vector<int32_t> values(64, 7);  // which reads as a rank that there is not
  const Call call =
      Call::all_reduce(values.data(), values.data(), values.size(), NXD_DTYPE_I32, NXD_REDUCE_MAX);
  for (;;) {
    const Told told = told_by([&] { transport.run(call); });
    if (told.status != NXD_OK) return told;
  }
}

void senders_are_to_blame(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  nxd::GlooTransport reader(monitor_of(store, 0, 2), "key", {0, 1});
  nxd::GlooTransport sender(monitor_of(store, 1, 33), "key", {0, 1});
  Told of_sender;
  std::thread sending([&] { of_sender = first_error_of(sender); });
  const Told of_reader = first_error_of(reader);
  sending.join();
  assert_int_equal(of_reader.status, NXD_ERROR_CORRUPT);
  assert_int_equal(of_reader.rank, 1);
  assert_non_null(std::strstr(of_reader.message.c_str(), "rank 1 sent what rank 0 cannot read"));
  assert_int_equal(of_sender.status, NXD_ERROR_PEER_LOST);
  assert_int_equal(of_sender.rank, 1);
  assert_non_null(std::strstr(of_sender.message.c_str(), "rank 1 sent what rank 0 cannot read"));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(senders_are_to_blame)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

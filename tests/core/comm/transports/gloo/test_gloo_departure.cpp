// A rank may leave once it has sent its data: they count, however long a slow connection takes for
// them.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
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
using nxd::Deadline;
using nxd::Fd;
using nxd_test::Told;
using nxd_test::told_by;

constexpr int64_t kTimeoutMs = 60000;
constexpr size_t kPiece = 20000, kBytes = 80 * kPiece;

// A connection to a port that takes seconds for many bytes.
class SlowRelay {
 public:
  explicit SlowRelay(int port)
      : listeners_(nxd::listen_tcp("127.0.0.1", 0, &port_)), thread_([this, port] { run(port); }) {}
  ~SlowRelay() { thread_.join(); }

  int port() const { return port_; }

 private:
  void run(int port) {
    Fd caller;
    while (!caller) {
      pollfd p{listeners_[0].get(), POLLIN, 0};
      ::poll(&p, 1, -1);
      caller = Fd(::accept4(listeners_[0].get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    }
    const Fd listener = nxd::connect_tcp("127.0.0.1", port, Deadline::after_ms(kTimeoutMs));
    bool has_caller = true;
    std::string told;
    while (has_caller || !told.empty()) {
      pollfd ends[] = {{has_caller ? caller.get() : -1, POLLIN, 0}, {listener.get(), POLLIN, 0}};
      ::poll(ends, 2, 50);
      char part[65536];
      ssize_t n = ends[0].revents ? ::recv(caller.get(), part, sizeof part, 0) : -1;
      if (n > 0) told.append(part, static_cast<size_t>(n));
      if (n == 0) has_caller = false;
      n = ends[1].revents ? ::recv(listener.get(), part, sizeof part, 0) : -1;
      if (n == 0) return;
      if (n > 0 && has_caller) {
        nxd::send_all(caller.get(), part, static_cast<size_t>(n), Deadline::after_ms(kTimeoutMs));
      }
      // Many bytes are kept back until the caller has left.
      const bool keeps = has_caller && told.size() >= kPiece;
      const size_t piece = keeps ? 0 : std::min(told.size(), kPiece);
      if (piece == 0) continue;
      nxd::send_all(listener.get(), told.data(), piece, Deadline::after_ms(kTimeoutMs));
      told.erase(0, piece);
    }
  }

  int port_ = 0;
  std::vector<Fd> listeners_;
  std::thread thread_;
};

std::shared_ptr<nxd::GroupMonitor> monitor_of(const std::shared_ptr<nxd::Store>& store, int rank) {
  auto shared = std::make_shared<nxd::RankShared>();
  shared->store = store;
  shared->world_size = 2;
  shared->failures = std::make_shared<nxd::FailureRegistry>(store, rank, 2, -1, -1);
  shared->timer_thread = std::make_shared<nxd::TimerThread>();
  shared->device = nxd::make_gloo_device("127.0.0.1");
  shared->connector = std::make_shared<nxd::Connector>("127.0.0.1", rank, std::nullopt);
  return std::make_shared<nxd::GroupMonitor>(shared, "key", "pair", rank, std::vector<int>{0, 1},
                                             kTimeoutMs);
}

void data_of_a_rank_that_has_left_arrive(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  const auto receiving = monitor_of(store, 0);
  // Rank 1 connects to rank 0.
  auto address = nxd::PeerAddress::decode(receiving->shared().connector->peer_address());
  assert_true(address.has_value());
  SlowRelay relay(std::stoi(address->port));
  address->port = std::to_string(relay.port());
  store->set(nxd::Connector::key(0), address->encode());
  std::thread leaving([&] {
    const std::vector<char> sent(kBytes, 'x');
    nxd::GlooTransport transport(monitor_of(store, 1), "key", {0, 1});
    const Told told =
        told_by([&] { transport.run(Call::send_to(sent.data(), kBytes, NXD_DTYPE_U8, 0, 3)); });
    if (told.status != NXD_OK) std::fprintf(stderr, "%s\n", told.message.c_str());
  });
  std::vector<char> received(kBytes, 0);
  nxd::GlooTransport transport(receiving, "key", {0, 1});
  const Told told = told_by(
      [&] { transport.run(Call::receive_from(received.data(), kBytes, NXD_DTYPE_U8, 1, 3)); });
  leaving.join();
  assert_string_equal(told.message.c_str(), "");
  assert_int_equal(told.status, NXD_OK);
  assert_true(received == std::vector<char>(kBytes, 'x'));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(data_of_a_rank_that_has_left_arrive)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

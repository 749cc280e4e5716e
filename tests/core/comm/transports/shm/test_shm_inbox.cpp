// Many threads wait for messages from one rank, by tag: few at the channel, where each message
// wakes them; and all of them get their messages, or hear why they get none.
#include <algorithm>
#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/callback_thread.h"
#include "core/comm/store/local_store.h"
#include "core/comm/transports/shm/shm_messages.h"

#include "support/told.h"

// After the rest: it defines fail().
#include "support/check.h"

namespace {

using nxd::Call;
using nxd_test::Told;
using nxd_test::told_by;

constexpr int kTags = 12;
constexpr uint32_t kMostAtChannel = 4;

// One rank of two.
struct Rank {
  std::shared_ptr<nxd::RankShared> shared = std::make_shared<nxd::RankShared>();
  std::shared_ptr<nxd::GroupMonitor> monitor;
  std::unique_ptr<nxd::ShmLink> link;
  std::unique_ptr<nxd::ShmMessages> messages;

  Rank(const std::shared_ptr<nxd::Store>& store, int rank, int64_t timeout_ms) {
    shared->store = store;
    shared->world_size = 2;
    shared->failures = std::make_shared<nxd::FailureRegistry>(store, rank, 2, -1, -1);
    monitor = std::make_shared<nxd::GroupMonitor>(shared, "key", "pair", rank,
                                                  std::vector<int>{0, 1}, timeout_ms);
    link = std::make_unique<nxd::ShmLink>(monitor, "key", std::vector<int>{0, 1});
    messages = std::make_unique<nxd::ShmMessages>(*link);
  }
};

// A rank has left once it has come.
void meet(Rank& receiver, Rank& sender) {
  int32_t value = 0;
  std::thread there([&] {
    const int32_t sent = 1;
    sender.messages->run(Call::send_to(&sent, 1, NXD_DTYPE_I32, 0, kTags));
  });
  receiver.messages->run(Call::receive_from(&value, 1, NXD_DTYPE_I32, 1, kTags));
  there.join();
}

// Rank 0 receives, on a thread for each tag, as works do.
struct Receivers {
  Rank& rank;
  std::array<int32_t, kTags> values{};
  std::array<Told, kTags> told;
  std::vector<std::thread> threads;

  explicit Receivers(Rank& of_rank) : rank(of_rank) {
    for (int tag = 0; tag < kTags; ++tag) {
      threads.emplace_back([this, tag] {
        const nxd::InternalThread internal;
        const auto at = static_cast<size_t>(tag);
        told[at] = told_by(
            [&] { rank.messages->run(Call::receive_from(&values[at], 1, NXD_DTYPE_I32, 1, tag)); });
      });
    }
  }
  // A thread waits for its peer when the record of its call names it.
  int waiting() const {
    const auto operations = rank.monitor->record().operations;
    return static_cast<int>(
        std::count_if(operations.begin(), operations.end(), [](const auto& call) {
          return call.awaited == 1 && call.state == nxd::FlightRecord::State::kStarted;
        }));
  }
  void wait_for_all() const {
    while (waiting() < kTags) std::this_thread::yield();
  }
  void join() {
    for (std::thread& thread : threads) thread.join();
  }
  void check_all(nxd_status_t status) const {
    for (const Told& of_call : told) assert_int_equal(of_call.status, status);
  }
};

void receives_in(bool reversed) {
  const auto store = std::make_shared<nxd::LocalStore>();
  Rank receiver(store, 0, 60000), sender(store, 1, 60000);
  Receivers receivers(receiver);
  receivers.wait_for_all();
  const nxd::Futex& posted = receiver.link->segment().channel(1, 0).posted.futex;
  uint32_t most = 0;
  for (int look = 0; look < 200; ++look) {
    most = std::max(most, posted.sleepers.load());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int i = 0; i < kTags; ++i) {
    const int32_t tag = reversed ? kTags - 1 - i : i, value = 100 + tag;
    sender.messages->run(Call::send_to(&value, 1, NXD_DTYPE_I32, 0, tag));
  }
  receivers.join();
  receivers.check_all(NXD_OK);
  for (int tag = 0; tag < kTags; ++tag) {
    assert_int_equal(receivers.values[static_cast<size_t>(tag)], 100 + tag);
  }
  assert_true(most >= 1 && most <= kMostAtChannel);
}

void each_gets_its_message(void**) {
  receives_in(false);
  receives_in(true);
}

void a_lost_peer_ends_all(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  Rank receiver(store, 0, 60000);
  auto sender = std::make_unique<Rank>(store, 1, 60000);
  meet(receiver, *sender);
  Receivers receivers(receiver);
  receivers.wait_for_all();
  sender.reset();
  receivers.join();
  receivers.check_all(NXD_ERROR_PEER_LOST);
}

void each_has_its_timeout(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  Rank receiver(store, 0, 500), sender(store, 1, 500);
  meet(receiver, sender);
  Receivers receivers(receiver);
  receivers.join();
  receivers.check_all(NXD_ERROR_TIMEOUT);
}

thread_local bool is_receiver_of_last = false;

// A thread of the program's is asked also where it sleeps.
void each_is_asked(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  Rank receiver(store, 0, 60000), sender(store, 1, 60000);
  meet(receiver, sender);
  receiver.shared->interrupt.callback = [](void*) -> nxd_status_t {
    return is_receiver_of_last ? NXD_ERROR_USER : NXD_OK;
  };
  Receivers receivers(receiver);
  receivers.wait_for_all();
  int32_t value = 0;
  std::thread([&] {
    is_receiver_of_last = true;
    assert_int_equal(
        told_by([&] {
          receiver.messages->run(Call::receive_from(&value, 1, NXD_DTYPE_I32, 1, kTags));
        }).status,
        NXD_ERROR_USER);
  }).join();
  receivers.join();
  receivers.check_all(NXD_ERROR_USER);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(each_gets_its_message),
      cmocka_unit_test(a_lost_peer_ends_all),
      cmocka_unit_test(each_has_its_timeout),
      cmocka_unit_test(each_is_asked),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Ranks that do not join, and those that learn of it: who is told, who waits for whom, and the rank
// to blame for a store that does not answer.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/monitor/failure_registry.h"
#include "core/comm/store/local_store.h"
#include "core/comm/store/tcp_store.h"
#include "core/world/context.h"
#include "core/world/rendezvous.h"
#include "support/told.h"

#include "support/check.h"

namespace {

using nxd::RankInfo;
using nxd::WorldFacts;
using nxd_test::Told;
using nxd_test::told_by;

constexpr int64_t kTimeoutMs = 4000;

RankInfo member_of(const std::shared_ptr<nxd::Store>& store, int rank, int size) {
  RankInfo member;
  member.rank = rank;
  member.size = size;
  member.store = store;
  return member;
}

// --- A rank that leaves --------------------------------------------------------------------------

bool is_known_to_have_left(const std::shared_ptr<nxd::Store>& world, int rank) {
  nxd::FailureRegistry failures(
      std::make_shared<nxd::PrefixStore>(world, nxd::FailureRegistry::kPrefix), 0, 3, -1, -1);
  return failures.has_left(rank, "world");
}

// Ranks that wait for it in the world's first call look for its name there.
void between_rendezvous_and_world(void**) {
  const auto world = std::make_shared<nxd::LocalStore>();
  assert_false(is_known_to_have_left(world, 2));
  bool has_thrown = false;
  try {
    nxd::or_leave(*world, 2, []() -> int { throw std::runtime_error("no memory"); });
  } catch (const std::runtime_error&) {
    has_thrown = true;
  }
  assert_true(has_thrown);
  assert_true(is_known_to_have_left(world, 2));
  assert_int_equal(nxd::or_leave(*world, 1, [] { return 7; }), 7);
  assert_false(is_known_to_have_left(world, 1));
}

void instead_of_joining(void**) {
  for (const int rank : {0, 1}) {
    const auto store = std::make_shared<nxd::LocalStore>();
    nxd::reject_world(member_of(store, rank, 2), kTimeoutMs);
    assert_true(is_known_to_have_left(std::make_shared<nxd::PrefixStore>(store, "world0/"), rank));
    const Told told = told_by([&] { nxd::join_world(member_of(store, 1 - rank, 2), kTimeoutMs); });
    assert_int_equal(told.status, NXD_ERROR_PEER_LOST);
    assert_int_equal(told.rank, rank);
  }
}

// --- A store that fails one rank -----------------------------------------------------------------

constexpr int64_t kPatientMs = 30000;

// Another rank's way to the store, which fails the first requests.
class FailingStore : public nxd::PrefixStore {
 public:
  FailingStore(std::shared_ptr<nxd::Store> base, int failures)
      : nxd::PrefixStore(std::move(base), ""), failures_(failures) {}

  void set(const std::string& key, const std::string& value) override {
    ask();
    nxd::PrefixStore::set(key, value);
  }
  std::optional<std::string> get(const std::string& key) override {
    ask();
    return nxd::PrefixStore::get(key);
  }
  int64_t add(const std::string& key, int64_t amount) override {
    ask();
    return nxd::PrefixStore::add(key, amount);
  }

 private:
  void ask() {
    if (failures_-- > 0) throw nxd::Error(NXD_ERROR_USER, "out of order");
  }
  int failures_;
};

// As many of them as leave one request by which the others hear of it.
void first_requests_fail(void**) {
  for (const int rank : {0, 1}) {
    for (const int failures : {1, 2, 3}) {
      const auto store = std::make_shared<nxd::LocalStore>();
      const auto failing = std::make_shared<FailingStore>(store, failures);
      Told other;
      std::thread thread([&] {
        other = told_by([&] { nxd::join_world(member_of(store, 1 - rank, 2), kPatientMs); });
      });
      const Told told = told_by([&] { nxd::join_world(member_of(failing, rank, 2), kPatientMs); });
      thread.join();
      assert_int_equal(told.status, NXD_ERROR_USER);
      assert_non_null(std::strstr(told.message.c_str(), "out of order"));
      assert_int_equal(other.status, NXD_ERROR_PEER_LOST);
      assert_int_equal(other.rank, rank);
    }
  }
}

// The world of a process that came first is not disturbed.
void first_request_fails_beside_a_world(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  store->set("world0/world", "announced");
  const auto failing = std::make_shared<FailingStore>(store, 1);
  told_by([&] { nxd::join_world(member_of(failing, 0, 2), kTimeoutMs); });
  assert_string_equal(store->get("world0/world")->c_str(), "announced");
  assert_false(is_known_to_have_left(std::make_shared<nxd::PrefixStore>(store, "world0/"), 0));
}

// --- A rank with bad arguments -------------------------------------------------------------------

// Rank 0 hears of it, and does not wait until its timeout.
void bad_options_of_one_rank(void**) {
  for (const int part : {0, 1}) {
    nxd::ContextOptions options;
    options.rendezvous = NXD_RENDEZVOUS_STORE;
    options.size = 2;
    options.store = std::make_shared<nxd::LocalStore>();
    options.timeout_ms = kPatientMs;
    nxd::ContextOptions bad = options;
    bad.rank = 1;
    if (part == 0) bad.local_rank = -1;
    if (part == 1) bad.rendezvous = static_cast<nxd_rendezvous_t>(7);
    Told other;
    std::thread thread([&] { other = told_by([&] { nxd::Context::create(bad); }); });
    const Told told = told_by([&] { nxd::Context::create(options); });
    thread.join();
    assert_int_equal(other.status, NXD_ERROR_INVALID_ARGUMENT);
    assert_int_equal(told.status, NXD_ERROR_PEER_LOST);
    assert_int_equal(told.rank, 1);
  }
}

// A process that becomes a rank once it reads the port of the store. It ends with the status.
pid_t start_rank(const char* rank, const char* name, const char* value, int ports) {
  const pid_t process = ::fork();
  if (process != 0) return process;
  int port = 0;
  if (::read(ports, &port, sizeof port) != sizeof port) ::_exit(0);
  setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  setenv("RANK", rank, 1);
  if (name) setenv(name, value, 1);
  nxd::ContextOptions options;
  options.timeout_ms = kPatientMs;
  ::_exit(-told_by([&] { nxd::Context::create(options); }).status);
}

int end_of(pid_t process) {
  int status = -1;
  assert_int_equal(::waitpid(process, &status, 0), process);
  return WIFEXITED(status) ? -WEXITSTATUS(status) : WTERMSIG(status);
}

void bad_variables_of_one_rank(void**) {
  for (const char* name : {"MASTER_ADDR", "LOCAL_WORLD_SIZE", "NXD_SECRET"}) unsetenv(name);
  setenv("WORLD_SIZE", "2", 1);
  setenv("NXD_SPAWNED", "1", 1);
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  setenv("TORCHELASTIC_RUN_ID", "nxd_spawn", 1);
  const struct {
    const char *name, *value;
  } table[] = {{"LOCAL_RANK", "7"}, {"GROUP_RANK", "9"}, {"NXD_OPEN_STORE", "x"}};
  for (const auto& row : table) {
    int ports[2];
    assert_int_equal(::pipe(ports), 0);
    const pid_t first = start_rank("0", nullptr, nullptr, ports[0]);
    const pid_t second = start_rank("1", row.name, row.value, ports[0]);
    const nxd::TcpStoreServer server("127.0.0.1", 0);
    const int port = server.port();
    for (int rank = 0; rank < 2; ++rank) {
      assert_int_equal(::write(ports[1], &port, sizeof port), sizeof port);
    }
    assert_int_equal(end_of(second), NXD_ERROR_INVALID_ARGUMENT);
    assert_int_equal(end_of(first), NXD_ERROR_PEER_LOST);
    for (const int fd : ports) ::close(fd);
  }
}

// --- A store of an earlier job -------------------------------------------------------------------

// A rank that is in it already keeps no other waiting.
void rank_of_an_earlier_job(void**) {
  for (const int rank : {0, 1}) {
    const auto store = std::make_shared<nxd::LocalStore>();
    store->add("world0/joined/" + std::to_string(rank), 1);
    Told other;
    std::thread thread([&] {
      other = told_by([&] { nxd::join_world(member_of(store, 1 - rank, 2), kPatientMs); });
    });
    const Told told = told_by([&] { nxd::join_world(member_of(store, rank, 2), kPatientMs); });
    thread.join();
    for (const Told& each : {told, other}) {
      assert_int_equal(each.status, NXD_ERROR_INVALID_ARGUMENT);
      if (each.message.find("is in the store already") == std::string::npos) {
        fail_msg("%s", each.message.c_str());
      }
    }
    assert_int_equal(other.rank, rank);
  }
}

void world_of_an_earlier_job(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  const std::string announced = "ok 1 -1 -1 even 3 3 1\neven 3 3 1";
  store->set("world0/world", announced);
  const Told told = told_by([&] { nxd::join_world(member_of(store, 1, 2), kTimeoutMs); });
  assert_int_equal(told.status, NXD_ERROR_CORRUPT);
  if (told.message.find(
          "a world of 2 ranks, got one of 3: the store holds keys of an earlier job") ==
      std::string::npos) {
    fail_msg("%s", told.message.c_str());
  }
  // The world of a process that came first is not disturbed.
  store->add("world0/joined/0", 1);
  told_by([&] { nxd::join_world(member_of(store, 0, 2), kTimeoutMs); });
  assert_string_equal(store->get("world0/world")->c_str(), announced.c_str());
  assert_false(is_known_to_have_left(std::make_shared<nxd::PrefixStore>(store, "world0/"), 0));
}

// --- Ranks that read why there is no world -------------------------------------------------------

// The keys end with rank 0. The second rank to read waits until rank 0 has looked for it twice.
class WatchedStore : public nxd::LocalStore {
 public:
  bool serves() const override { return true; }
  int64_t add(const std::string& key, int64_t amount) override {
    if (!key.ends_with("readers")) return nxd::LocalStore::add(key, amount);
    if (amount == 0) {
      const auto now = std::chrono::steady_clock::now();
      if (looks++ == 0) first_look_ = now;
      waited_for = now - first_look_;
      return last_seen = nxd::LocalStore::add(key, 0);
    }
    if (readers_++ == 1) await_looks(looks + 2);
    return nxd::LocalStore::add(key, amount);
  }

  std::atomic<int> looks{0};
  std::atomic<int64_t> last_seen{-1};
  std::chrono::nanoseconds waited_for{0};  // by rank 0

 private:
  void await_looks(int count) {
    for (int i = 0; i < 4000 && looks < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::atomic<int> readers_{0};
  std::chrono::steady_clock::time_point first_look_;
};

void rank_0_waits_for_those_who_came(void**) {
  const auto store = std::make_shared<WatchedStore>();
  std::vector<Told> told(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      told[static_cast<size_t>(rank)] =
          told_by([&] { nxd::join_world(member_of(store, rank, 4), kTimeoutMs); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Told& each : told) {
    assert_int_equal(each.status, NXD_ERROR_TIMEOUT);
    assert_int_equal(each.rank, 3);
  }
  // For a second at most, where the machine does not let them come.
  assert_true(store->last_seen == 2 || store->waited_for > std::chrono::milliseconds(900));
}

void a_rank_0_that_rejects_waits_too(void**) {
  const auto store = std::make_shared<WatchedStore>();
  std::thread other([&] {
    const Told told = told_by([&] { nxd::join_world(member_of(store, 1, 2), 60000); });
    if (told.rank != 0) store->looks = -1000000;
  });
  nxd::reject_world(member_of(store, 0, 2), kTimeoutMs);
  other.join();
  assert_true(store->looks > 0);
}

// --- The rank to blame for the store -------------------------------------------------------------

// On this host.
class NearStore : public nxd::LocalStore {
 public:
  std::string server_host() const override { return "127.0.0.1"; }
};

// Ranks 2 and 3 are on another host, which has the store; the first of them is to blame. Nobody is
// where all ranks share that host.
void first_rank_near_the_store(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  for (const int rank : {1, 2, 3}) {
    const std::string host = rank == 1 ? "here" : "there";
    store->set("world0/info/" + std::to_string(rank),
               "4 0 " + std::to_string(rank == 1 ? 0 : 1) + " 33 0\nnetwork of " + host +
                   "\nprocess " + std::to_string(rank) + "\n" + host);
  }
  const WorldFacts facts = nxd::join_world(member_of(store, 0, 4), kTimeoutMs);
  assert_int_equal(facts.near_store, 2);
  assert_int_equal(facts.lost_with_store(0), 2);
  assert_int_equal(facts.lost_with_store(1), 2);
  assert_int_equal(facts.lost_with_store(2), -1);
  assert_int_equal(facts.lost_with_store(3), -1);

  const auto near = std::make_shared<NearStore>();
  std::thread other([&] { nxd::join_world(member_of(near, 1, 2), 60000); });
  assert_int_equal(nxd::join_world(member_of(near, 0, 2), 60000).near_store, -1);
  other.join();
}

// --- Ranks that cannot all be asked for ----------------------------------------------------------

class SlowStore : public nxd::LocalStore {
 public:
  std::optional<std::string> get(const std::string& key) override {
    ++asked;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return LocalStore::get(key);
  }
  int asked = 0;
};

// A size that is a slip: rank 0 gives up within its time, and not when it has asked for all.
void sizes_beyond_reason(void**) {
  constexpr int kSize = 20000;
  const auto store = std::make_shared<SlowStore>();
  const Told few = told_by([&] { nxd::join_world(member_of(store, 0, kSize), 200); });
  assert_int_equal(few.status, NXD_ERROR_TIMEOUT);
  assert_int_equal(few.rank, 1);
  assert_non_null(std::strstr(few.message.c_str(), " of the first "));
  assert_non_null(std::strstr(few.message.c_str(),
                              " of 20000 ranks did not come within 200 ms: rank 1, 2, 3, "));
  assert_true(store->asked < kSize);

  const auto other = std::make_shared<nxd::LocalStore>();
  const Told none = told_by([&] { nxd::join_world(member_of(other, 0, INT_MAX), 200); });
  assert_int_equal(none.status, NXD_ERROR_INVALID_ARGUMENT);
  assert_non_null(
      std::strstr(none.message.c_str(), "expected at most 16777216 ranks, got 2147483647"));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(between_rendezvous_and_world),
      cmocka_unit_test(instead_of_joining),
      cmocka_unit_test(first_requests_fail),
      cmocka_unit_test(first_request_fails_beside_a_world),
      cmocka_unit_test(bad_options_of_one_rank),
      cmocka_unit_test(bad_variables_of_one_rank),
      cmocka_unit_test(rank_of_an_earlier_job),
      cmocka_unit_test(world_of_an_earlier_job),
      cmocka_unit_test(rank_0_waits_for_those_who_came),
      cmocka_unit_test(a_rank_0_that_rejects_waits_too),
      cmocka_unit_test(first_rank_near_the_store),
      cmocka_unit_test(sizes_beyond_reason),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

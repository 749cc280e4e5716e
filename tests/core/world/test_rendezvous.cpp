// Facts that ranks learn at the rendezvous: who shares a host, and why joining failed. Ranks
// are threads.
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "capi/handles.h"
#include "core/comm/monitor/failure_registry.h"
#include "core/comm/monitor/group_rejections.h"
#include "core/comm/net/connector.h"
#include "core/comm/store/local_store.h"
#include "core/comm/store/tcp_store.h"
#include "core/world/rendezvous.h"

#include "support/check.h"
#include "support/patience.h"
#include "support/ranks.h"

namespace {

using nxd::RankInfo;
using nxd::WorldFacts;

struct Outcome {
  WorldFacts world;
  nxd_status_t status = NXD_OK;
  std::string message;
  int root_rank = -1;
};

std::vector<Outcome> join_all(const std::vector<RankInfo>& members, int64_t timeout_ms) {
  std::vector<Outcome> outcomes(members.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < members.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        outcomes[i].world = nxd::join_world(members[i], timeout_ms);
      } catch (const nxd::Error& e) {
        outcomes[i].status = e.status();
        outcomes[i].message = e.what();
        outcomes[i].root_rank = e.context().root_rank;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::vector<RankInfo> members_of(const std::vector<std::string>& hosts) {
  const auto store = std::make_shared<nxd::LocalStore>();
  std::vector<RankInfo> members(hosts.size());
  for (size_t i = 0; i < hosts.size(); ++i) {
    members[i].rank = static_cast<int>(i);
    members[i].size = static_cast<int>(hosts.size());
    members[i].store = store;
    members[i].host_id = hosts[i];
  }
  return members;
}

void assert_hosts(const std::vector<RankInfo>& members, const std::vector<int>& expected) {
  for (const Outcome& o : join_all(members, 30000)) {
    if (o.status != NXD_OK) fail_msg("%s", o.message.c_str());
    assert_true(o.world.hosts == nxd::HostMap(expected));
    // Whatever their hosts are called, these ranks share a loopback.
    assert_true(o.world.one_host);
    assert_int_equal(o.world.server_rank, -1);
    // They are threads.
    assert_int_equal(o.world.ranks_here.size(), members.size());
  }
}

void hosts(void**) {
  assert_hosts(members_of({"", "", ""}), {0, 0, 0});
  assert_hosts(members_of({"a", "a", "b", "b"}), {0, 0, 1, 1});
  assert_hosts(members_of({"a b", "a", "a b", "", "a\nb"}), {0, 1, 0, 2, 3});
}

void host_of_environment(void**) {
  // The caller's name wins over the environment's, which is the same for all ranks here.
  setenv("NXD_HOST_ID", "rack 7", 1);
  assert_hosts(members_of({"", "other", "rack 7"}), {0, 1, 0});
  unsetenv("NXD_HOST_ID");
  assert_hosts(members_of({"", "other", "rack 7"}), {0, 1, 2});
}

// Processes that become ranks once there is a store. Each first makes itself another kind of
// process, if it can.
class Processes {
 public:
  using Prepare = bool (*)();

  explicit Processes(const std::vector<Prepare>& kinds) {
    int from_ranks[2];
    assert_int_equal(::pipe(from_ranks) | ::pipe(to_ranks_), 0);
    for (size_t rank = 0; rank < kinds.size(); ++rank) {
      const pid_t process = ::fork();
      if (process == 0) run(static_cast<int>(rank), kinds[rank], from_ranks[1]);
      processes_.push_back(process);
    }
    ::close(from_ranks[1]);
    char ready[16];
    for (ssize_t n; (n = ::read(from_ranks[0], ready, sizeof ready)) > 0;) ready_ += n;
    ::close(from_ranks[0]);
  }

  // The number of hosts that all have found; 0: one could not become what it was to be.
  int hosts() {
    const bool all_ready = ready_ == static_cast<ssize_t>(processes_.size());
    const nxd::TcpStoreServer server("127.0.0.1", 0);
    const int port = all_ready ? server.port() : 0;
    for (size_t i = 0; i < processes_.size(); ++i) {
      assert_int_equal(::write(to_ranks_[1], &port, sizeof port), sizeof port);
    }
    for (const int fd : to_ranks_) ::close(fd);
    int found = -1;
    for (const pid_t process : processes_) {
      int status = -1;
      assert_int_equal(::waitpid(process, &status, 0), process);
      assert_true(WIFEXITED(status));
      if (found >= 0) assert_int_equal(WEXITSTATUS(status), found);
      found = WEXITSTATUS(status);
    }
    return all_ready ? found : 0;
  }

 private:
  [[noreturn]] void run(int rank, Prepare prepare, int told) {
    if (!prepare() || ::write(told, "", 1) != 1) ::_exit(0);
    ::close(told);
    int port = 0;
    if (::read(to_ranks_[0], &port, sizeof port) != sizeof port || port == 0) ::_exit(0);
    RankInfo member;
    member.rank = rank;
    member.size = 2;
    try {
      member.store = std::make_shared<nxd::TcpStore>("127.0.0.1", port, 30000);
      const nxd::HostMap hosts = nxd::join_world(member, 30000).hosts;
      ::_exit(hosts == nxd::HostMap(std::vector<int>{0, 0}) ? 1 : 2);
    } catch (const nxd::Error& e) {
      std::fprintf(stderr, "%s\n", e.what());
      ::_exit(100);
    }
  }

  int to_ranks_[2] = {-1, -1};
  ssize_t ready_ = 0;
  std::vector<pid_t> processes_;
};

bool as_it_is() { return true; }
// Root takes another user's place, others have a namespace.
bool another_user() {
  return ::geteuid() == 0 ? ::setuid(65534) == 0 : ::unshare(CLONE_NEWUSER) == 0;
}
bool not_to_be_looked_into() {
  return (::geteuid() != 0 || ::setuid(65534) == 0) && ::prctl(PR_SET_DUMPABLE, 0) == 0;
}

// Clocks of its own: the kernel counts from another start there.
bool another_time() {
  constexpr int kNewTime = 0x80;  // CLONE_NEWTIME
  if (::unshare(kNewTime) != 0) return false;
  std::FILE* offsets = std::fopen("/proc/self/timens_offsets", "w");
  if (!offsets || std::fputs("boottime 5000 0\n", offsets) < 0 || std::fclose(offsets) != 0) {
    return false;
  }
  const int fd = ::open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
  return fd >= 0 && ::setns(fd, kNewTime) == 0;
}

// Processes that cannot open one another's memory are as those of several hosts.
void processes_that_share_no_memory(void**) {
  assert_int_equal(Processes({as_it_is, as_it_is}).hosts(), 1);
  assert_int_equal(Processes({not_to_be_looked_into, not_to_be_looked_into}).hosts(), 2);
  const int hosts_of_two_users = Processes({as_it_is, another_user}).hosts();
  if (hosts_of_two_users == 0) {
    std::puts("skip: ranks of two users: no namespaces of users here; run as root");
    skip();
  }
  assert_int_equal(hosts_of_two_users, 2);
}

// Neither could tell whether the other lives.
void processes_of_several_times(void**) {
  const int hosts = Processes({as_it_is, another_time}).hosts();
  if (hosts == 0) {
    std::puts("skip: ranks of two times: no namespaces of time here; run as root");
    skip();
  }
  assert_int_equal(hosts, 2);
}

// More than rank 0 reads at a time, and not a multiple of it.
void many_ranks(void**) {
  std::vector<std::string> names;
  std::vector<int> expected;
  for (int rank = 0; rank < 300; ++rank) {
    names.push_back("host" + std::to_string(rank / 7));
    expected.push_back(rank / 7);
  }
  assert_hosts(members_of(names), expected);
}

// Ranks with different algorithms would not understand one another.
void large_groups_differ(void**) {
  auto members = members_of({"", "", ""});
  members[2].large_group = 2;
  for (const Outcome& o : join_all(members, 30000)) {
    assert_int_equal(o.status, NXD_ERROR_INVALID_ARGUMENT);
    if (o.message.find("NXD_LARGE_GROUP: rank 0 has 33, rank 2 has 2") == std::string::npos) {
      fail_msg("%s", o.message.c_str());
    }
  }
}

void transports_differ(void**) {
  auto members = members_of({"", "", ""});
  members[1].transport = NXD_TRANSPORT_GLOO;
  for (const Outcome& o : join_all(members, 30000)) {
    assert_int_equal(o.status, NXD_ERROR_INVALID_ARGUMENT);
    assert_int_equal(o.root_rank, 1);
    if (o.message.find("the transport: rank 0 has auto, rank 1 has gloo") == std::string::npos) {
      fail_msg("%s", o.message.c_str());
    }
  }
}

// Rank 0 takes its store with it when it gives up, but not before the others have read why.
void reason_outlives_rank_0(void**) {
  auto server = std::make_shared<nxd::TcpStoreServer>("127.0.0.1", 0);
  std::vector<RankInfo> members(3);
  for (int rank = 0; rank < 3; ++rank) {
    RankInfo& m = members[static_cast<size_t>(rank)];
    m.rank = rank;
    m.size = 4;
    m.fresh_keys = true;
    m.store = std::make_shared<nxd::TcpStore>("127.0.0.1", server->port(), 10000,
                                              rank == 0 ? server : nullptr);
  }
  server.reset();
  std::vector<Outcome> outcomes(3);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      outcomes[i] = join_all({members[i]}, 400)[0];
      members[i].store.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Outcome& o : outcomes) {
    assert_int_equal(o.status, NXD_ERROR_TIMEOUT);
    assert_int_equal(o.root_rank, 3);
    if (o.message.find("1 of 4 ranks did not come within 400 ms: rank 3") == std::string::npos) {
      fail_msg("%s", o.message.c_str());
    }
  }
}

// Is gone once there is a reason why there is no world.
class GoneStore : public nxd::LocalStore {
 public:
  int64_t add(const std::string& key, int64_t amount) override {
    if (key.ends_with("readers")) throw nxd::Error(NXD_ERROR_IO, "the store is gone");
    return nxd::LocalStore::add(key, amount);
  }
  bool serves() const override { return true; }
};

void reason_outlives_the_store(void**) {
  auto members = members_of({"", "", ""});
  const auto store = std::make_shared<GoneStore>();
  for (RankInfo& member : members) member.store = store;
  members[2].large_group = 2;
  for (const Outcome& o : join_all(members, 30000)) {
    assert_int_equal(o.status, NXD_ERROR_INVALID_ARGUMENT);
    assert_int_equal(o.root_rank, 2);
  }
}

// Has no memory for the address of rank 1.
class ScarceStore : public nxd::LocalStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    if (key.ends_with(nxd::Connector::key(1))) throw std::bad_alloc();
    nxd::LocalStore::set(key, value);
  }
};

// A rank that gives up behind the rendezvous, for whatever reason, keeps no rank waiting.
void reason_of_a_rank_that_gives_up(void**) {
  nxd::ContextOptions options;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.size = 2;
  options.store = std::make_shared<ScarceStore>();
  options.timeout_ms = 10000;
  options.transport = NXD_TRANSPORT_GLOO;
  Outcome outcomes[2];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&outcomes, options, rank]() mutable {
      options.rank = rank;
      try {
        nxd::Context::create(options);
      } catch (...) {
        const nxd::Error e = nxd::Error::current();
        outcomes[rank] = {{}, e.status(), e.what(), e.context().root_rank};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  assert_int_equal(outcomes[1].status, NXD_ERROR_OUT_OF_MEMORY);
  assert_int_equal(outcomes[0].status, NXD_ERROR_PEER_LOST);
  assert_int_equal(outcomes[0].root_rank, 1);
  if (outcomes[0].message.find("rank 1 gave up: out of memory") == std::string::npos) {
    fail_msg("%s", outcomes[0].message.c_str());
  }
}

// A rank that rank 0 has missed is told that it was late.
void too_late(void**) {
  auto members = members_of({"", ""});
  for (const size_t rank : {0, 1}) {
    const Outcome outcome = join_all({members[rank]}, 400)[0];
    assert_int_equal(outcome.status, NXD_ERROR_TIMEOUT);
    assert_int_equal(outcome.root_rank, 1);
    const bool told = outcome.message.find("came after rank 0 had given up") != std::string::npos;
    if (told != (rank == 1)) fail_msg("%s", outcome.message.c_str());
  }
}

// A store on a Unix socket of this host is a store like any other, and its name ends with it.
void local_socket(void**) {
  const std::string name = "nxd-test-" + std::to_string(getpid());
  for (int turn = 0; turn < 2; ++turn) {
    nxd::TcpStore store(name, 0, 10000, std::make_shared<nxd::TcpStoreServer>(name));
    nxd::TcpStore other(name, 0, 10000);
    store.set("key", "value");
    // Setting is not answered, so another connection may be served before.
    const auto value = other.wait("key", nxd_test::patiently());
    assert_string_equal(value.value_or("").c_str(), "value");
    assert_int_equal(other.open_channel(1000)->add("n", 2), 2);
    assert_string_equal(other.server_host().c_str(), "");
    try {
      nxd::TcpStoreServer second(name);
      fail_msg("a second server took the name");
    } catch (const nxd::Error& e) {
      assert_int_equal(e.status(), NXD_ERROR_IO);
    }
  }
  try {
    nxd::TcpStore nobody(name, 0, 50);
    fail_msg("connected to a name that nobody serves");
  } catch (const nxd::Error& e) {
    assert_int_equal(e.status(), NXD_ERROR_TIMEOUT);
    assert_non_null(strstr(e.what(), name.c_str()));
  }
}

// --- What comes from the store is checked ------------------------------------------------------

// No rank 0 says any of these, and none may be taken for a world or for success.
void unreadable_world(void**) {
  for (const char* words :
       {"", "rubbish", "0 -1 all is well", "5 0 a status of no error", "-99 0 nor this one", "-5",
        "-5 2 a rank that is none", "-5 -2 another", "ok ", "ok 1", "ok 1 2 -1 even 2 2 1",
        "ok 1 -1 -7 even 2 2 1", "ok 1 -1 -1 even 3 3 1", "ok 1 -1 -1 runs 0 1", "ok 1 -1 -1 odd",
        "ok 1 -1 -1 even 2 0 1", "ok 1 -1 -1 even 2 2 1", "ok 1 -1 -1 even 2 2 1\neven 3 3 1"}) {
    auto members = members_of({"", ""});
    members[1].store->set("world0/world", words);
    const Outcome o = join_all({members[1]}, 30000)[0];
    if (o.status != NXD_ERROR_CORRUPT) {
      fail_msg("\"%s\": status %d: %s", words, o.status, o.message.c_str());
    }
  }
}

void unreadable_rank(void**) {
  for (const char* words : {"", "x", "2", "2 0 0 many"}) {
    auto members = members_of({"", ""});
    members[0].store->set("world0/info/1", words);
    const Outcome o = join_all({members[0]}, 30000)[0];
    assert_int_equal(o.status, NXD_ERROR_CORRUPT);
    assert_int_equal(o.root_rank, 1);
  }
}

void nobody_comes(void**) {
  const auto members = members_of({"", "", ""});
  const Outcome o = join_all({members[1]}, 100)[0];
  assert_int_equal(o.status, NXD_ERROR_TIMEOUT);
  assert_int_equal(o.root_rank, 0);
}

// "Never" is a timeout like any other.
class AskedStore : public nxd::LocalStore {
 public:
  std::optional<std::string> get(const std::string& key) override {
    if (key == "world0/world") ++asked;
    return LocalStore::get(key);
  }
  std::atomic<int> asked{0};
};

void never(void**) {
  for (const int64_t timeout_ms : {INT64_MAX, INT64_MAX / 3 * 2 + 1, INT64_MAX / 2}) {
    const auto store = std::make_shared<AskedStore>();
    auto members = members_of({"", ""});
    for (RankInfo& m : members) m.store = store;
    std::atomic<bool> ended{false};
    Outcome later;
    std::thread rank_1([&] {
      later = join_all({members[1]}, timeout_ms)[0];
      ended = true;
    });
    while (store->asked < 3 && !ended) std::this_thread::yield();
    const Outcome first = join_all({members[0]}, timeout_ms)[0];
    rank_1.join();
    if (later.status != NXD_OK) fail_msg("%s", later.message.c_str());
    assert_int_equal(first.status, NXD_OK);
  }
}

void shares_of_timeouts(void**) {
  assert_int_equal(nxd::timeout_share(1000, 3, 2), 1500);
  assert_int_equal(nxd::timeout_share(1000, 1, 8), 125);
  assert_int_equal(nxd::timeout_share(-1, 1, 2), 0);
  assert_int_equal(nxd::timeout_share(INT64_MAX, 7, 4), nxd::kNeverMs);
  assert_true(nxd::Deadline::after_ms(INT64_MAX).remaining_ms() > nxd::kNeverMs / 2);
}

void unreadable_loss(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  nxd::FailureRegistry failures(store, 1, 2, -1, -1);
  for (const char* words : {"", "x", "0 1 x", "5 1 x", "-99 0 x", "-9 0 x", "-6 2 x", "-6 -1 x"}) {
    store->set("lost", words);
    failures.poll();
    if (failures.lost()) fail_msg("\"%s\" was taken for a loss", words);
  }
  for (const char* words : {"", "x", "2", "-1", "9999999999"}) {
    store->set("wait/0", words);
    assert_int_equal(failures.find_culprit(0).rank, 0);
  }
  store->set("lost", "-6 0 left");
  failures.poll();
  assert_true(failures.lost());
  assert_int_equal(failures.loss()->rank, 0);
}

// Has no room for another value.
class FullStore : public nxd::LocalStore {
 public:
  void set(const std::string&, const std::string&) override {
    throw nxd::Error(NXD_ERROR_OUT_OF_MEMORY, "no room");
  }
};

// A rank that can write nothing to its store still hears of losses.
void full_store(void**) {
  const auto store = std::make_shared<FullStore>();
  nxd::FailureRegistry failures(store, 1, 2, 0, 0);
  failures.leave_group("group");
  failures.poll();
  assert_false(failures.lost());
  store->nxd::LocalStore::set("lost", "-6 0 left");
  failures.poll();
  assert_true(failures.lost());
}

// A count that is a lie is an error or passed over, and keeps no rank waiting.
void unreadable_rejections(void**) {
  for (const char* count : {"-1", "16777217", "x", "9999999999999999999999"}) {
    const auto store = std::make_shared<nxd::LocalStore>();
    nxd::GroupRejections rejections(store, 0, 2);
    store->set("count", count);
    nxd::GroupRejections::Attempt attempt(rejections, {0, 1});
    const auto error = attempt.rejection("group");
    assert_true(error.has_value());
    assert_int_equal(error->status(), NXD_ERROR_CORRUPT);
  }
  const auto store = std::make_shared<nxd::LocalStore>();
  nxd::GroupRejections rejections(store, 0, 2);
  store->set("count", "16777216");
  nxd::GroupRejections::Attempt first(rejections, {0, 1});
  assert_false(first.rejection("group").has_value());
  const char* const entries[] = {
      "",          "x",           "1 1 1 0",        "1 1 2147483647 0 0 why",
      "1 1 0 why", "7 1 1 0 0 x", "1 -1 1 0 0 why", "1 1 1 9 0 why"};
  int n = 2;
  for (const char* entry : entries) store->set("entry/" + std::to_string(n++), entry);
  assert_false(first.rejection("group").has_value());
  store->set("entry/" + std::to_string(n + 1), "1 1 1 0 0 why");
  const auto error = first.rejection("group");
  assert_true(error.has_value());
  assert_int_equal(error->status(), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(error->context().root_rank, 1);
}

// An entry may come long after its count, and others before it.
void late_rejections(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  nxd::GroupRejections rejections(store, 0, 4);
  nxd::GroupRejections::Attempt first(rejections, {0, 1}), second(rejections, {0, 2});
  store->set("count", "3");
  for (int look = 0; look < 3; ++look) assert_false(first.rejection("first").has_value());
  store->set("entry/3", "2 2 1 0 0 why");
  const auto behind = second.rejection("second");
  assert_true(behind.has_value());
  assert_int_equal(behind->context().root_rank, 2);
  assert_int_equal(rejections.count_of({0, 2}), 1);
  for (int look = 0; look < 3; ++look) assert_false(first.rejection("first").has_value());
  store->set("entry/1", "1 1 1 0 0 why");
  const auto late = first.rejection("first");
  assert_true(late.has_value());
  assert_int_equal(late->context().root_rank, 1);
  assert_int_equal(rejections.count_of({0, 1}), 1);
}

// --- A server that is late -----------------------------------------------------------------------

// Takes half of the timeout to accept another connection.
class LateStore : public nxd::LocalStore {
 public:
  explicit LateStore(int64_t late_ms) : late_ms_(late_ms) {}
  std::shared_ptr<nxd::Store> open_channel(int64_t timeout_ms) override {
    if (timeout_ms < late_ms_) throw nxd::Error(NXD_ERROR_TIMEOUT, "no answer");
    return shared_from_this();
  }

 private:
  const int64_t late_ms_;
};

void late_server(void**) {
  for (const int64_t timeout_ms : {60000, 2000000}) {
    nxd_store store{std::make_shared<LateStore>(timeout_ms / 2)};
    const auto join = [&](int rank) {
      nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
      options.rendezvous = NXD_RENDEZVOUS_STORE;
      options.rank = rank;
      options.size = 2;
      options.store = &store;
      options.timeout_ms = timeout_ms;
      nxd_context_t* ctx = nullptr;
      if (NXD_TEST_OK(nxd_context_create(&options, &ctx))) NXD_TEST_OK(nxd_context_finalize(ctx));
      nxd_context_destroy(ctx);
    };
    std::thread other(join, 1);
    join(0);
    other.join();
    assert_int_equal(nxd_test_failures(), 0);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(hosts),
      cmocka_unit_test(host_of_environment),
      cmocka_unit_test(processes_that_share_no_memory),
      cmocka_unit_test(processes_of_several_times),
      cmocka_unit_test(many_ranks),
      cmocka_unit_test(large_groups_differ),
      cmocka_unit_test(transports_differ),
      cmocka_unit_test(reason_outlives_rank_0),
      cmocka_unit_test(reason_outlives_the_store),
      cmocka_unit_test(reason_of_a_rank_that_gives_up),
      cmocka_unit_test(too_late),
      cmocka_unit_test(local_socket),
      cmocka_unit_test(unreadable_world),
      cmocka_unit_test(unreadable_rank),
      cmocka_unit_test(nobody_comes),
      cmocka_unit_test(never),
      cmocka_unit_test(shares_of_timeouts),
      cmocka_unit_test(unreadable_loss),
      cmocka_unit_test(full_store),
      cmocka_unit_test(unreadable_rejections),
      cmocka_unit_test(late_rejections),
      cmocka_unit_test(late_server),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

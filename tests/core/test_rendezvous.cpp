// What ranks learn of one another when they meet: who shares a host, and why joining failed. Ranks
// are threads.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <vector>

#include "core/comm/local_store.h"
#include "core/comm/tcp_store.h"
#include "core/parallel/rendezvous.h"

#include "support/check.h"

namespace {

using nxd::Membership;
using nxd::World;

struct Outcome {
  World world;
  nxd_status_t status = NXD_OK;
  std::string message;
};

std::vector<Outcome> meet_all(const std::vector<Membership>& members, int64_t timeout_ms) {
  std::vector<Outcome> outcomes(members.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < members.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        outcomes[i].world = nxd::meet(members[i], timeout_ms);
      } catch (const nxd::Error& e) {
        outcomes[i].status = e.status();
        outcomes[i].message = e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::vector<Membership> members_of(const std::vector<std::string>& hosts) {
  const auto store = std::make_shared<nxd::LocalStore>();
  std::vector<Membership> members(hosts.size());
  for (size_t i = 0; i < hosts.size(); ++i) {
    members[i].rank = static_cast<int>(i);
    members[i].size = static_cast<int>(hosts.size());
    members[i].store = store;
    members[i].host_id = hosts[i];
  }
  return members;
}

void assert_hosts(const std::vector<Membership>& members, const std::vector<int>& expected) {
  for (const Outcome& o : meet_all(members, 30000)) {
    if (o.status != NXD_OK) fail_msg("%s", o.message.c_str());
    assert_true(o.world.hosts == nxd::HostMap(expected));
    // Whatever their hosts are called, these ranks share a loopback.
    assert_true(o.world.one_host);
    assert_int_equal(o.world.server_rank, -1);
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
  for (const Outcome& o : meet_all(members, 30000)) {
    assert_int_equal(o.status, NXD_ERROR_INVALID_ARGUMENT);
    if (o.message.find("NXD_LARGE_GROUP: rank 0 has 33, rank 2 has 2") == std::string::npos) {
      fail_msg("%s", o.message.c_str());
    }
  }
}

// Rank 0 takes its store with it when it gives up, but not before the others have read why.
void reason_outlives_rank_0(void**) {
  auto server = std::make_shared<nxd::TcpStoreServer>("127.0.0.1", 0);
  std::vector<Membership> members(3);
  for (int rank = 0; rank < 3; ++rank) {
    Membership& m = members[static_cast<size_t>(rank)];
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
      outcomes[i] = meet_all({members[i]}, 400)[0];
      members[i].store.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Outcome& o : outcomes) {
    assert_int_equal(o.status, NXD_ERROR_TIMEOUT);
    if (o.message.find("1 of 4 ranks did not come within 400 ms: rank 3") == std::string::npos) {
      fail_msg("%s", o.message.c_str());
    }
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
    const auto value = other.wait("key", nxd::Deadline::after_ms(10000));
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

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(hosts),
      cmocka_unit_test(host_of_environment),
      cmocka_unit_test(many_ranks),
      cmocka_unit_test(large_groups_differ),
      cmocka_unit_test(reason_outlives_rank_0),
      cmocka_unit_test(local_socket),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

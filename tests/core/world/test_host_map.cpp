// Which ranks share a host: numbering, lookups, and the text that rank 0 hands to everyone.

#include <algorithm>
#include <random>

#include "core/base/error.h"
#include "core/world/host_map.h"

#include "support/check.h"

namespace {

using nxd::HostMap;

std::vector<int> even(int size, int block, int hosts) {
  std::vector<int> out;
  for (int rank = 0; rank < size; ++rank) out.push_back(rank / block % hosts);
  return out;
}

template <class Function>
nxd_status_t status_of(Function function) {
  try {
    function();
    return NXD_OK;
  } catch (const nxd::Error& e) {
    return e.status();
  }
}

void lookups(void**) {
  // Names are any numbers; hosts are numbered by their lowest ranks.
  const HostMap map({70, -3, 70, 5, -3, 70});
  assert_int_equal(map.size(), 6);
  assert_int_equal(map.host_count(), 3);
  const int hosts[] = {0, 1, 0, 2, 1, 0}, locals[] = {0, 0, 1, 0, 1, 2};
  for (int rank = 0; rank < 6; ++rank) {
    assert_int_equal(map.host_of(rank), hosts[rank]);
    assert_int_equal(map.local_rank(rank), locals[rank]);
  }
  assert_true(map.ranks_of(0) == (std::vector<int>{0, 2, 5}));
  assert_true(map.ranks_of(1) == (std::vector<int>{1, 4}));
  assert_true(map.ranks_of(2) == (std::vector<int>{3}));
  assert_int_equal(HostMap().size(), 1);
  assert_int_equal(HostMap().host_count(), 1);
}

void bad_arguments(void**) {
  const HostMap map({0, 1});
  assert_int_equal(status_of([&] { map.host_of(2); }), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(status_of([&] { map.host_of(-1); }), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(status_of([&] { map.ranks_of(2); }), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(status_of([&] { map.local_rank(9); }), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(status_of([] { HostMap{std::vector<int>()}; }), NXD_ERROR_INVALID_ARGUMENT);
}

// The same relation between any two ranks, not merely equal text.
void assert_same(const HostMap& a, const std::vector<int>& b) {
  assert_int_equal(a.size(), b.size());
  for (int r = 0; r < a.size(); ++r) {
    const auto& together = a.ranks_of(a.host_of(r));
    size_t expected = 0;
    for (const int host : b) expected += host == b[static_cast<size_t>(r)];
    assert_int_equal(together.size(), expected);
    for (const int other : together) {
      assert_int_equal(b[static_cast<size_t>(other)], b[static_cast<size_t>(r)]);
    }
  }
}

void round_trip(void**) {
  std::mt19937 random(7);
  for (int turn = 0; turn < 300; ++turn) {
    const int size = 1 + static_cast<int>(random() % 40);
    std::vector<int> hosts(static_cast<size_t>(size));
    const auto names = 1 + random() % 6;
    for (int& host : hosts) host = static_cast<int>(random() % names) * 11;
    if (turn % 3 == 0) std::sort(hosts.begin(), hosts.end());
    const HostMap back = HostMap::decode(HostMap(hosts).encode());
    assert_true(back == HostMap(hosts));
    assert_same(back, hosts);
  }
}

// 65,536 ranks read this text.
void size_of_text(void**) {
  const struct {
    int size, block, hosts;
  } layouts[] = {{65536, 8, 8192}, {65536, 64, 1024}, {65536, 1, 65536}, {65536, 65536, 1},
                 {65536, 1, 1024}, {65536, 4, 1024},  {65531, 8, 8192},  {65536, 1, 1}};
  for (const auto& l : layouts) {
    const HostMap map(even(l.size, l.block, l.hosts));
    const std::string text = map.encode();
    assert_true(text.size() < 40);
    assert_true(HostMap::decode(text) == map);
  }
  // Hosts of unlike sizes cost a run each.
  std::vector<int> uneven;
  for (int host = 0; host < 1000; ++host) {
    uneven.insert(uneven.end(), static_cast<size_t>(host == 500 ? 63 : 64), host);
  }
  const std::string text = HostMap(uneven).encode();
  assert_true(text.size() < 1000 * 9);
  assert_true(HostMap::decode(text) == HostMap(uneven));
}

void garbled(void**) {
  const char* const texts[] = {"",
                               "even",
                               "even 4 2",
                               "even 0 1 1",
                               "even 4 0 1",
                               "even 4 2 0",
                               "even -4 2 2",
                               "even x 2 2",
                               "runs",
                               "runs 0",
                               "runs 0 2 1",
                               "runs 0 0",
                               "runs 0 -1",
                               "runs 0 2 1 x",
                               "runs 0 2 x",
                               "other 4 2 2",
                               "even 2000000000 1 1",
                               "runs 0 999999999"};
  for (const char* text : texts) {
    assert_int_equal(status_of([&] { HostMap::decode(text); }), NXD_ERROR_CORRUPT);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(lookups),      cmocka_unit_test(bad_arguments), cmocka_unit_test(round_trip),
      cmocka_unit_test(size_of_text), cmocka_unit_test(garbled),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Places of groups on hosts, and the time of their messages there.
#include "core/planner/plan_machine.h"

#include <initializer_list>
#include <utility>

#include "support/planner_predictions.h"

#include "support/check.h"

namespace {

void assert_places(int per_host, int size, int stride, const nxd::GroupPlaces& expected,
                   int world = 1000) {
  nxd_plan_machine_t machine = round_machine();
  machine.ranks_per_host = per_host;
  const nxd::GroupPlaces places = nxd::group_places(machine, world, size, stride);
  assert_int_equal(places.on_host, expected.on_host);
  assert_int_equal(places.hosts, expected.hosts);
  assert_int_equal(places.groups, expected.groups);
}

// Ranks that are two apart on hosts of five begin at another place on each second host: no two of
// them are counted as neighbours.
void places(void**) {
  assert_places(0, 8, 2, {8, 1, 1});
  assert_places(4, 4, 2, {2, 2, 2});
  assert_places(4, 2, 4, {1, 2, 4});
  assert_places(6, 4, 2, {1, 4, 6});
  assert_places(6, 3, 2, {3, 1, 2});
  assert_places(5, 4, 2, {1, 4, 5});
}

// A host that has all ranks has every group, whether or not its size divides the host's places.
void places_of_a_small_world(void**) {
  assert_places(8, 3, 1, {3, 1, 1}, 3);
  assert_places(8, 3, 2, {3, 1, 1}, 6);
  assert_places(8, 7, 1, {7, 1, 1}, 8);
  assert_places(8, 3, 1, {1, 3, 8}, 9);
}

// A message stays on the host as long as that has all ranks.
void messages(void**) {
  nxd_plan_machine_t machine = round_machine();
  machine.ranks_per_host = 4;
  const double near = 1e-3 + 1000 / 1e6;
  assert_near(nxd::message_time(machine, 3, 1, 1000), near);
  assert_near(nxd::message_time(machine, 4, 1, 1000), near);
  assert_near(nxd::message_time(machine, 5, 1, 1000), 1e-2 + 1000 / 1e5);
  assert_near(nxd::message_time(machine, 8, 2, 1000), 1e-2 + 2 * 1000 / 1e5);
  assert_near(nxd::message_time(machine, 32, 16, 1000), 1e-2 + 4 * 1000 / 1e5);
  machine.ranks_per_host = 0;
  assert_near(nxd::message_time(machine, 1000, 1, 1000), near);
}

// Three hosts take two rounds, as four do.
void rounds(void**) {
  const nxd_plan_machine_t machine = round_machine();
  for (const auto& [hosts, rounds] : {std::pair{1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}}) {
    const auto time = nxd::reduce_scatter_time(machine, {1, hosts, 1}, 0);
    assert_true(time.host == 0);
    assert_near(time.link, rounds * 1e-2);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(places), cmocka_unit_test(places_of_a_small_world),
                              cmocka_unit_test(messages), cmocka_unit_test(rounds)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

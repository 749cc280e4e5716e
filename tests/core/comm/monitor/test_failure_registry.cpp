// The first loss is named, also where the rank that was to publish it could not. Ranks that wait
// for each other alone are found.
#include "core/comm/monitor/failure_registry.h"

#include "core/comm/store/local_store.h"

// After the rest: it defines fail().
#include "support/check.h"

namespace {

using nxd::FailureRegistry;

constexpr int kSize = 4;

// Rank 2 has claimed the word and does not say it. Rank 1 sees rank 3 end, and leaves because of
// it; rank 0 sees rank 1 leave.
void word_that_is_not_said(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  store->add("lost_claims", 1);
  FailureRegistry first(store, 1, kSize, -1, -1), second(store, 0, kSize, -1, -1);
  first.report({NXD_ERROR_PEER_LOST, 3, "ended"});
  assert_int_equal(first.loss()->rank, 3);
  second.report({NXD_ERROR_PEER_LOST, 1, "left before it answered"});
  assert_int_equal(second.loss()->rank, 3);
  assert_string_equal(second.loss()->reason.c_str(), "ended");
}

// Losses that name one another, or are no rank's word, lead nowhere.
void causes_without_end(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  store->add("lost_claims", 1);
  store->set("lost_to/1", "-6 2 left");
  store->set("lost_to/2", "-6 1 left");
  FailureRegistry failures(store, 0, kSize, -1, -1);
  failures.report({NXD_ERROR_PEER_LOST, 1, "left"});
  assert_int_equal(failures.loss()->rank, 2);
  for (const char* words : {"", "x", "0 2 x", "1 2 x", "-6 4 x", "-6 -1 x"}) {
    store->set("lost_to/3", words);
    FailureRegistry other(store, 0, kSize, -1, -1);
    other.report({NXD_ERROR_PEER_LOST, 3, "ended"});
    assert_int_equal(other.loss()->rank, 3);
  }
}

// The edges lead to the rank that waits for no other. Where they lead back to this rank, it names
// the one that it waits for, and never itself.
void culprits(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  FailureRegistry own(store, 0, kSize, -1, -1);
  const auto check = [&](int rank, bool is_certain) {
    const auto culprit = own.find_culprit(1);
    assert_int_equal(culprit.rank, rank);
    assert_int_equal(culprit.certain, is_certain);
  };
  check(1, true);
  store->set("wait/1", "2");
  check(2, false);
  store->set("wait/2", "0");
  check(1, true);
  store->set("wait/0", "1");
  check(1, true);
  store->set("wait/2", "1");
  check(1, false);
}

// Calls do not end by a loss that is none.
void losses_without_a_failure(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  for (const char* words : {"0 2 well", "1 2 well"}) {
    store->set("lost", words);
    FailureRegistry own(store, 0, kSize, -1, -1);
    own.poll();
    assert_false(own.lost());
  }
}

// By rank: number, rounds, and the awaited ranks.
void publish(const std::shared_ptr<nxd::Store>& store, int rank, uint64_t number, uint64_t rounds,
             std::set<int> awaited) {
  FailureRegistry(store, rank, kSize, -1, -1).publish_waits({number, rounds, std::move(awaited)});
}

void circles(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  FailureRegistry own(store, 0, kSize, -1, -1);
  assert_false(own.find_circle(1).has_value());
  publish(store, 1, 1, 1, {2});
  assert_false(own.find_circle(1).has_value());
  publish(store, 2, 1, 1, {0});
  assert_false(own.find_circle(1).has_value());
  publish(store, 0, 1, 1, {1});
  const auto circle = own.find_circle(1);
  assert_true(circle.has_value());
  assert_string_equal(own.find_circle(1)->waits.c_str(), circle->waits.c_str());
  // A wait that has ended, and the next one for the same rank.
  publish(store, 2, 3, 1, {0});
  assert_string_not_equal(own.find_circle(1)->waits.c_str(), circle->waits.c_str());
  // Other threads of a rank wait for ranks that go on, or for such as wait in the circle.
  publish(store, 2, 4, 1, {0, 3});
  assert_false(own.find_circle(1).has_value());
  publish(store, 3, 1, 1, {1});
  assert_true(own.find_circle(1).has_value());
  publish(store, 0, 2, 1, {1, 3});
  assert_true(own.find_circle(1).has_value());
  // One that this rank is no part of.
  publish(store, 2, 5, 1, {1});
  assert_false(own.find_circle(1).has_value());
  // No rank's word.
  for (const char* words : {"", "1", "1 1", "x 1 0", "1 1 4", "1 1 -1"}) {
    store->set("waits/1", words);
    assert_false(own.find_circle(1).has_value());
  }
}

// Each rank looks once more from start to end.
void confirmed_circles(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  FailureRegistry own(store, 0, kSize, -1, -1);
  publish(store, 0, 1, 5, {1});
  publish(store, 1, 1, 5, {0});
  const auto circle = own.find_circle(1);
  const auto is_confirmed = [&](uint64_t own_rounds, uint64_t number, uint64_t rounds) {
    publish(store, 0, 1, own_rounds, {1});
    publish(store, 1, number, rounds, {0});
    return circle->is_confirmed_by(*own.find_circle(1));
  };
  assert_false(is_confirmed(5, 1, 5));
  assert_false(is_confirmed(9, 1, 5));
  assert_false(is_confirmed(9, 1, 6));
  assert_true(is_confirmed(9, 1, 7));
  assert_false(is_confirmed(9, 2, 9));
}

void rejections(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  FailureRegistry own(store, 0, kSize, -1, -1), other(store, 1, kSize, -1, -1);
  assert_false(other.has_rejections());
  own.begin_rejection();
  other.begin_rejection();
  own.end_rejection();
  assert_true(own.has_rejections());
  other.end_rejection();
  assert_false(own.has_rejections());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(word_that_is_not_said),
      cmocka_unit_test(causes_without_end),
      cmocka_unit_test(culprits),
      cmocka_unit_test(losses_without_a_failure),
      cmocka_unit_test(circles),
      cmocka_unit_test(confirmed_circles),
      cmocka_unit_test(rejections),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// The first loss is named, also where the rank that was to publish it could not.
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
  for (const char* words : {"", "x", "0 3 x", "-6 4 x"}) {
    store->set("lost_to/3", words);
    FailureRegistry other(store, 0, kSize, -1, -1);
    other.report({NXD_ERROR_PEER_LOST, 3, "ended"});
    assert_int_equal(other.loss()->rank, 3);
  }
}

void circles(void**) {
  const auto store = std::make_shared<nxd::LocalStore>();
  FailureRegistry own(store, 0, kSize, -1, -1), next(store, 1, kSize, -1, -1);
  FailureRegistry last(store, 2, kSize, -1, -1);
  const int first_call = 0, second_call = 0;
  assert_string_equal(own.find_circle(1).c_str(), "");
  next.publish_wait(&first_call, 2);
  assert_string_equal(own.find_circle(1).c_str(), "");
  last.publish_wait(&first_call, 0);
  const std::string circle = own.find_circle(1);
  assert_string_not_equal(circle.c_str(), "");
  assert_string_equal(own.find_circle(1).c_str(), circle.c_str());
  // A wait that has ended, and the next one for the same rank.
  last.clear_wait(&first_call);
  assert_string_equal(own.find_circle(1).c_str(), "");
  last.publish_wait(&second_call, 0);
  assert_string_not_equal(own.find_circle(1).c_str(), circle.c_str());
  assert_string_not_equal(own.find_circle(1).c_str(), "");
  // One that this rank is no part of.
  last.clear_wait(&second_call);
  last.publish_wait(&first_call, 1);
  assert_string_equal(own.find_circle(1).c_str(), "");
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
      cmocka_unit_test(circles),
      cmocka_unit_test(rejections),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

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

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(word_that_is_not_said),
      cmocka_unit_test(causes_without_end),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

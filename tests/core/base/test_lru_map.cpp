// Maps that the least recently used entry leaves.
#include "core/base/lru_map.h"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

extern "C" {
#include <cmocka.h>
}

namespace {

int hashes_left = -1;  // below 0: no end

struct ScarceHash {
  size_t operator()(int key) const {
    if (hashes_left == 0) throw std::bad_alloc();
    if (hashes_left > 0) --hashes_left;
    return static_cast<size_t>(key);
  }
};

using Names = nxd::LruMap<int, std::string, ScarceHash>;

void the_least_recently_used_leaves(void**) {
  Names names(2);
  assert_false(names.add(1, "one").has_value());
  assert_false(names.add(2, "two").has_value());
  assert_string_equal(names.find(1)->c_str(), "one");
  const auto leaves = names.add(3, "three");
  assert_true(leaves.has_value());
  assert_int_equal(leaves->first, 2);
  assert_null(names.find(2));
  assert_int_equal(names.take(1)->first, 1);
  assert_false(names.take(1).has_value());
  assert_string_equal(names.take_oldest()->second.c_str(), "three");
  assert_false(names.take_oldest().has_value());
}

// An entry that could not be added whole would be the oldest one for good, and none would leave.
void an_entry_that_is_not_added_leaves_no_trace(void**) {
  Names names(2);
  names.add(1, "one");
  hashes_left = 0;
  bool has_failed = false;
  try {
    names.add(2, "two");
  } catch (const std::bad_alloc&) {
    has_failed = true;
  }
  hashes_left = -1;
  assert_true(has_failed);
  assert_int_equal(names.size(), 1);
  for (int key = 2; key < 10; ++key) names.add(key, "more");
  assert_int_equal(names.size(), 2);
  assert_int_equal(names.take_oldest()->first, 8);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_least_recently_used_leaves),
      cmocka_unit_test(an_entry_that_is_not_added_leaves_no_trace),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

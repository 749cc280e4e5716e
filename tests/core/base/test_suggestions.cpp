// Near names in messages about unknown ones.
#include "core/base/suggestions.h"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

extern "C" {
#include <cmocka.h>
}

using nxd::suggestions;

namespace {

void the_nearest_come_first(void**) {
  const std::vector<std::string> known = {"aten::log_softmax", "aten::softmax", "aten::softmix",
                                          "aten::relu"};
  assert_string_equal(suggestions("aten::sofmax", known).c_str(),
                      "; near names: aten::softmax, aten::softmix");
}

void nothing_near_says_nothing(void**) {
  assert_string_equal(suggestions("weight", {"bias", "gamma"}).c_str(), "");
  assert_string_equal(suggestions("", {"bias"}).c_str(), "");
  assert_string_equal(suggestions("bias", {}).c_str(), "");
}

void names_are_given_once_and_not_too_many(void**) {
  const std::vector<std::string> known = {"dim", "dim", "dip", "dir", "din", "dia", "di"};
  assert_string_equal(suggestions("dix", known).c_str(), "; near names: di, dia, dim, din");
}

void insertions_deletions_and_replacements_count_alike(void**) {
  for (const char* wanted : {"keepdims", "kepdim", "keepdin"}) {
    assert_string_equal(suggestions(wanted, {"keepdim"}).c_str(), "; near names: keepdim");
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_nearest_come_first),
      cmocka_unit_test(nothing_near_says_nothing),
      cmocka_unit_test(names_are_given_once_and_not_too_many),
      cmocka_unit_test(insertions_deletions_and_replacements_count_alike),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Near names in messages about unknown ones.
#include "core/base/suggestions.h"

#include "core/base/error.h"

#include <algorithm>
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

void a_part_of_a_check_is_looked_for_when_the_message_is_made(void**) {
  std::vector<std::string> known;
  const nxd::Suggestions near("dix", known);
  known.push_back("dim");
  assert_string_equal(nxd::text("no dix", near).c_str(), "no dix; near names: dim");
}

// All places of the two would be 10^12.
void long_names_are_compared_around_the_diagonal(void**) {
  const std::string wanted(1 << 20, 'n');
  std::string known = wanted;
  known[7] = 'm';
  assert_string_equal(suggestions(wanted, {known}).c_str(), ("; near names: " + known).c_str());
  known.insert(0, "ab");
  known.pop_back();
  assert_string_equal(suggestions(wanted, {known}).c_str(), ("; near names: " + known).c_str());
}

// The whole matrix of Levenshtein's distance.
size_t distance_of(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const size_t replaced = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({replaced, d[i - 1][j] + 1, d[i][j - 1] + 1});
    }
  }
  return d[a.size()][b.size()];
}

// Letters put in and taken out at places near the front.
void near_names_are_those_within_the_limit(void**) {
  for (const std::string wanted : {"aab", "abbaab", "babababa", "aabbaabbaabbaab"}) {
    const size_t limit = std::min<size_t>(wanted.size() / 3, 4);
    for (size_t bits = 0; bits < size_t{1} << 12; ++bits) {
      std::string name = wanted;
      for (size_t edit = 0; edit < 4; ++edit) {
        const size_t place = (bits >> (3 * edit) & 7) % (name.size() + 1);
        if (edit % 2 == 0) name.insert(place, "b");
        if (edit % 2 == 1) name.erase(std::min(place, name.size() - 1), 1);
      }
      const std::string expected =
          distance_of(wanted, name) <= limit ? "; near names: " + name : "";
      assert_string_equal(suggestions(wanted, {name}).c_str(), expected.c_str());
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_nearest_come_first),
      cmocka_unit_test(nothing_near_says_nothing),
      cmocka_unit_test(names_are_given_once_and_not_too_many),
      cmocka_unit_test(insertions_deletions_and_replacements_count_alike),
      cmocka_unit_test(a_part_of_a_check_is_looked_for_when_the_message_is_made),
      cmocka_unit_test(long_names_are_compared_around_the_diagonal),
      cmocka_unit_test(near_names_are_those_within_the_limit),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Patterns of names.
#include "core/base/name_pattern.h"

#include <clocale>
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

extern "C" {
#include <cmocka.h>
}

using nxd::matches_pattern;

namespace {

void names_match(void**) {
  const std::pair<const char*, const char*> matching[] = {
      {"", ""},         {"*", ""},        {"*", "a.b"},           {"**", "a"},
      {"?", "a"},       {"a*", "a"},      {"*.bias", "a.b.bias"}, {"a*c*e", "abcde"},
      {"a[b]", "a[b]"}, {"a\\b", "a\\b"}, {"*a*a*b", "aaab"},     {"?*?", "ab"},
      {"*ab", "aab"},   {"*", "/.x"},     {"a?c*", "abc"},        {"*a?", "aaab"}};
  for (const auto& [pattern, name] : matching) {
    if (!matches_pattern(pattern, name)) fail_msg("\"%s\" and \"%s\"", pattern, name);
  }
  const std::pair<const char*, const char*> others[] = {
      {"", "a"},   {"?", ""},     {"?", "ab"}, {"a", "b"},   {"a", "ab"},
      {"ab", "a"}, {"[ab]", "a"}, {"*b", "a"}, {"?*?", "a"}, {"a*c", "abcd"}};
  for (const auto& [pattern, name] : others) {
    if (matches_pattern(pattern, name)) fail_msg("\"%s\" and \"%s\"", pattern, name);
  }
}

// The definition, which takes a time that grows without bounds.
bool matches_plainly(const std::string& pattern, const std::string& name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return matches_plainly(pattern.substr(1), name) ||
           (!name.empty() && matches_plainly(pattern, name.substr(1)));
  }
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         matches_plainly(pattern.substr(1), name.substr(1));
}

std::vector<std::string> words_over(const std::string& letters, size_t longest) {
  std::vector<std::string> words{""};
  for (size_t begin = 0, length = 0; length < longest; ++length) {
    const size_t end = words.size();
    for (size_t i = begin; i < end; ++i) {
      for (const char letter : letters) words.push_back(words[i] + letter);
    }
    begin = end;
  }
  return words;
}

void short_words_match_by_definition(void**) {
  for (const std::string& pattern : words_over("ab?*", 5)) {
    for (const std::string& name : words_over("ab", 5)) {
      if (matches_pattern(pattern, name) != matches_plainly(pattern, name)) {
        fail_msg("\"%s\" and \"%s\"", pattern.c_str(), name.c_str());
      }
    }
  }
}

// In the locale that a program begins with, and in one of UTF-8.
void a_character_has_several_bytes(void**) {
  for (const char* locale : {"C", "C.UTF-8"}) {
    assert_non_null(std::setlocale(LC_ALL, locale));
    assert_true(matches_pattern("?", "\u00e9") && matches_pattern("*?\u20ac", "\u00e9\u20ac"));
    assert_false(matches_pattern("??", "\u00e9"));
    assert_true(matches_pattern("?", "\xff") && matches_pattern("*", "\xff\xc3"));
  }
  assert_non_null(std::setlocale(LC_ALL, "C"));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(names_match),
                              cmocka_unit_test(short_words_match_by_definition),
                              cmocka_unit_test(a_character_has_several_bytes)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

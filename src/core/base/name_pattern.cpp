#include "core/base/name_pattern.h"

#include <algorithm>
#include <optional>

#include "core/base/utf8.h"

namespace nxd {
namespace {

size_t size_of_first(std::string_view text) {
  return std::max(first_character(text).bytes, size_t{1});
}

}  // namespace

// Only the last * has to try again: what the ones before it stand for need never grow.
bool matches_pattern(std::string_view pattern, std::string_view name) {
  std::optional<std::string_view> behind_star;
  std::string_view behind_tried;  // the name behind what the last * stands for
  while (!name.empty() || !pattern.empty()) {
    if (!pattern.empty() && pattern.front() == '*') {
      pattern.remove_prefix(1);
      behind_star = pattern;
      behind_tried = name;
    } else if (!pattern.empty() && !name.empty() && pattern.front() == '?') {
      pattern.remove_prefix(1);
      name.remove_prefix(size_of_first(name));
    } else if (!pattern.empty() && !name.empty() && pattern.front() == name.front()) {
      pattern.remove_prefix(1);
      name.remove_prefix(1);
    } else {
      if (!behind_star || behind_tried.empty()) return false;
      behind_tried.remove_prefix(size_of_first(behind_tried));
      pattern = *behind_star;
      name = behind_tried;
    }
  }
  return true;
}

}  // namespace nxd

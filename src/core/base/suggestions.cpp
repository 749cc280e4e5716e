#include "core/base/suggestions.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace nxd {
namespace {

constexpr size_t kMostNames = 4;

// Fewest insertions, deletions and replacements between two strings (Levenshtein 1966), or more
// than limit as soon as that is certain. Prefixes whose lengths differ by more than the limit are
// further apart than it: only places around the diagonal are computed (Ukkonen 1985).
size_t edit_distance(std::string_view a, std::string_view b, size_t limit) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > limit) return limit + 1;
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    const size_t first = i > limit ? i - limit : 1, last = std::min(i + limit, b.size());
    size_t diagonal = row[first - 1];
    row[first - 1] = first == 1 ? i : limit + 1;
    size_t least = row[first - 1];
    for (size_t j = first; j <= last; ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      least = std::min(least, row[j]);
    }
    if (least > limit) return limit + 1;
  }
  return row[b.size()];
}

// The part after the last dot or colon. Names of one family share the part before it, such as a
// namespace or a module path, so it says nothing about nearness.
std::string_view last_part(std::string_view name) {
  const size_t end = name.find_last_of(".:");
  return end == std::string_view::npos ? name : name.substr(end + 1);
}

}  // namespace

std::string suggestions(std::string_view wanted, const std::vector<std::string>& known) {
  const size_t limit = std::clamp<size_t>(last_part(wanted).size() / 3, 1, 4);
  std::vector<std::pair<size_t, std::string_view>> near;
  for (const std::string& name : known) {
    const size_t distance = edit_distance(wanted, name, limit);
    if (distance <= limit) near.emplace_back(distance, name);
  }
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  if (near.size() > kMostNames) near.resize(kMostNames);
  std::string out;
  for (const auto& [distance, name] : near) {
    out += out.empty() ? "; near names: " : ", ";
    out += name;
  }
  return out;
}

std::ostream& operator<<(std::ostream& out, const Suggestions& near) {
  return out << suggestions(near.wanted_, near.known_);
}

}  // namespace nxd

#include "core/launch/slurm_lists.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <optional>

#include "core/base/environment.h"

namespace nxd {
namespace {

using env::parse_int;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The numbers of "1-3,07" behind a prefix; false when it is malformed.
bool expand_numbers(const std::string& prefix, const std::string& ranges,
                    std::vector<std::string>& out) {
  constexpr int64_t kMostHosts = 1 << 16;  // of a whole list, as of Slurm itself
  for (size_t at = 0; at <= ranges.size();) {
    const size_t end = std::min(ranges.find(',', at), ranges.size());
    const std::string range = ranges.substr(at, end - at);
    const size_t dash = range.find('-');
    const std::string low = range.substr(0, dash);
    const std::string high = dash == std::string::npos ? low : range.substr(dash + 1);
    const auto first = parse_int(low), last = parse_int(high);
    if (!first || !last || !is_digit(low[0]) || !is_digit(high[0])) return false;
    const int64_t room = kMostHosts - static_cast<int64_t>(out.size());
    if (*last < *first || *last - *first >= room) return false;
    for (int64_t more = 0; more <= *last - *first; ++more) {
      std::string digits = std::to_string(*first + more);
      if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
      out.push_back(prefix + digits);
    }
    at = end + 1;
  }
  return true;
}

}  // namespace

std::vector<std::string> expand_host_list(const std::string& list) {
  std::vector<std::string> hosts;
  for (size_t at = 0; at < list.size();) {
    const size_t stop = list.find_first_of(",[", at);
    if (stop == std::string::npos || list[stop] == ',') {
      const size_t end = std::min(stop, list.size());
      if (end == at) return {};
      hosts.push_back(list.substr(at, end - at));
      at = end + 1;
      if (end + 1 == list.size()) return {};
      continue;
    }
    const size_t close = list.find(']', stop);
    if (close == std::string::npos) return {};
    if (!expand_numbers(list.substr(at, stop - at), list.substr(stop + 1, close - stop - 1), hosts))
      return {};
    if (close + 1 < list.size() && list[close + 1] != ',') return {};
    at = close + 2;
    if (at == list.size()) return {};
  }
  return hosts;
}

int tasks_of_node(const std::string& tasks_per_node, int index) {
  if (index < 0) return -1;
  int64_t nodes = 0;
  for (size_t at = 0; at < tasks_per_node.size();) {
    const size_t end = std::min(tasks_per_node.find(',', at), tasks_per_node.size());
    const std::string part = tasks_per_node.substr(at, end - at);
    const size_t times = part.find("(x");
    const auto tasks = parse_int(part.substr(0, times));
    std::optional<int64_t> count = 1;
    if (times != std::string::npos) {
      if (part.back() != ')') return -1;
      count = parse_int(part.substr(times + 2, part.size() - times - 3));
    }
    if (!tasks || !count || *tasks < 1 || *tasks > INT_MAX || *count < 1) return -1;
    nodes += std::min<int64_t>(*count, INT_MAX);
    if (index < nodes) return static_cast<int>(*tasks);
    at = end + 1;
  }
  return -1;
}

}  // namespace nxd

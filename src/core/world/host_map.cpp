#include "core/world/host_map.h"

#include <algorithm>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/text_stream.h"

namespace nxd {
namespace {

[[noreturn]] void fail_corrupt(const std::string& text) {
  fail(NXD_ERROR_CORRUPT, "map of hosts: cannot read \"", text.substr(0, 80), "\"");
}

// "even SIZE BLOCK HOSTS": host = rank / BLOCK mod HOSTS.
std::vector<int> decode_even(TextReader& in) {
  int size = 0, block = 0, hosts = 0;
  in >> size >> block >> hosts;
  if (!in || size < 1 || size > HostMap::kMostRanks || block < 1 || hosts < 1) return {};
  std::vector<int> host_of(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    host_of[static_cast<size_t>(rank)] = rank / block % hosts;
  }
  return host_of;
}

// "runs HOST LENGTH HOST LENGTH ...".
std::vector<int> decode_runs(TextReader& in) {
  std::vector<int> host_of;
  for (int host = 0, length = 0; in >> host;) {
    if (!(in >> length) || length < 1 ||
        length > HostMap::kMostRanks - static_cast<int>(host_of.size()))
      return {};
    host_of.insert(host_of.end(), static_cast<size_t>(length), host);
  }
  if (!in.eof()) return {};
  return host_of;
}

}  // namespace

HostMap::HostMap(const std::vector<int>& given) {
  check_argument(!given.empty(), "hosts: expected at least one rank, got none");
  std::unordered_map<int, int> numbers;
  host_of_.reserve(given.size());
  for (const int name : given) {
    const int host = numbers.try_emplace(name, static_cast<int>(numbers.size())).first->second;
    if (host == host_count()) ranks_of_.emplace_back();
    ranks_of_[static_cast<size_t>(host)].push_back(size());
    host_of_.push_back(host);
  }
}

int HostMap::host_of(int rank) const {
  check_argument(rank >= 0 && rank < size(), "rank: expected 0 to ", size() - 1, ", got ", rank);
  return host_of_[static_cast<size_t>(rank)];
}

const std::vector<int>& HostMap::ranks_of(int host) const {
  check_argument(host >= 0 && host < host_count(), "host: expected 0 to ", host_count() - 1,
                 ", got ", host);
  return ranks_of_[static_cast<size_t>(host)];
}

int HostMap::local_rank(int rank) const {
  const auto& ranks = ranks_of(host_of(rank));
  return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

std::string HostMap::encode() const {
  // Hosts are numbered by their lowest ranks, so the first block is host 0's.
  const int block = static_cast<int>(
      std::find_if(host_of_.begin(), host_of_.end(), [](int host) { return host != 0; }) -
      host_of_.begin());
  bool even = true;
  for (int rank = 0; rank < size() && even; ++rank) {
    even = host_of_[static_cast<size_t>(rank)] == rank / block % host_count();
  }
  if (even) return text("even ", size(), " ", block, " ", host_count());
  TextWriter out;
  out << "runs";
  for (size_t start = 0; start < host_of_.size();) {
    size_t end = start;
    while (end < host_of_.size() && host_of_[end] == host_of_[start]) ++end;
    out << ' ' << host_of_[start] << ' ' << end - start;
    start = end;
  }
  check_stream(out);
  return out.str();
}

HostMap HostMap::decode(const std::string& text) {
  TextReader in(text);
  std::string form;
  in >> form;
  const std::vector<int> host_of = form == "even"   ? decode_even(in)
                                   : form == "runs" ? decode_runs(in)
                                                    : std::vector<int>();
  if (host_of.empty()) fail_corrupt(text);
  return HostMap(host_of);
}

}  // namespace nxd

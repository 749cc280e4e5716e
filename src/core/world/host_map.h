#pragma once

#include <string>
#include <vector>

namespace nxd {

// Says which ranks of the world share a host. Hosts are numbered in the order of their lowest
// ranks.
class HostMap {
 public:
  static constexpr int kMostRanks = 1 << 24;

  HostMap() : HostMap(std::vector<int>{0}) {}
  // The host of every rank, as any distinct numbers.
  explicit HostMap(const std::vector<int>& host_of_rank);

  int size() const { return static_cast<int>(host_of_.size()); }
  int host_count() const { return static_cast<int>(ranks_of_.size()); }
  int host_of(int rank) const;
  // In ascending order.
  const std::vector<int>& ranks_of(int host) const;
  // Place of a rank among those of its host.
  int local_rank(int rank) const;

  // As text without line ends. Hosts that take blocks of equal length, be it in turns, need a size
  // that does not grow with the world; others need one of the number of runs of ranks on one host.
  std::string encode() const;
  // CORRUPT when it is not what encode made.
  static HostMap decode(const std::string& text);

  bool operator==(const HostMap& other) const { return host_of_ == other.host_of_; }

 private:
  std::vector<int> host_of_;
  std::vector<std::vector<int>> ranks_of_;
};

}  // namespace nxd

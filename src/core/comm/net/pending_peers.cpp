#include "core/comm/net/pending_peers.h"

#include <sys/resource.h>

#include <algorithm>

namespace nxd {

// All memory is taken before anything changes: a descriptor is in both tables or in none.
void PendingPeers::add(int fd) {
  std::list<Peer> added{{fd, Deadline::after_ms(timeout_ms_)}};
  places_[fd] = added.begin();
  order_.splice(order_.end(), added);
}

void PendingPeers::remove(int fd) {
  const auto found = places_.find(fd);
  if (found == places_.end()) return;
  order_.erase(found->second);
  places_.erase(found);
}

std::optional<int> PendingPeers::oldest() const {
  if (order_.empty()) return std::nullopt;
  return order_.front().fd;
}

std::optional<int> PendingPeers::overdue() const {
  if (order_.empty() || !order_.front().deadline.expired()) return std::nullopt;
  return order_.front().fd;
}

int64_t PendingPeers::next_ms() const {
  return order_.empty() ? -1 : order_.front().deadline.remaining_ms();
}

size_t PendingPeers::usual_limit() {
  constexpr size_t kFewest = 16, kMost = 1024;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kFewest;
  return std::clamp<size_t>(limit.rlim_cur / 4, kFewest, kMost);
}

}  // namespace nxd

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

#include "core/comm/net/deadline.h"

namespace nxd {

// Connections, by descriptor, that have not said their rank yet, in the order in which they came.
// When they are too many, or take too long, the oldest is to be closed, so that silent peers keep
// no rank out.
class PendingPeers {
 public:
  PendingPeers(size_t limit, int64_t timeout_ms) : limit_(limit), timeout_ms_(timeout_ms) {}

  void add(int fd);
  void remove(int fd);
  size_t size() const { return order_.size(); }
  bool is_full() const { return order_.size() >= limit_; }
  std::optional<int> oldest() const;
  // One whose time is up.
  std::optional<int> overdue() const;
  // Until the next one's time is up; -1: there is none.
  int64_t next_ms() const;

  // As many as leave most of this process's descriptors to others.
  static size_t usual_limit();

 private:
  struct Peer {
    int fd;
    Deadline deadline;
  };
  const size_t limit_;
  const int64_t timeout_ms_;
  std::list<Peer> order_;
  std::unordered_map<int, std::list<Peer>::iterator> places_;
};

}  // namespace nxd

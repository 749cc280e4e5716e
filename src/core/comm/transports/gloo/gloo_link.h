#pragma once

#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/comm/monitor/group_monitor.h"
#include "core/comm/net/connector.h"

namespace nxd {

class GlooConnections;
class GlooPair;

// Connections of one rank to the others of a group, over Gloo's transport. Peers are ranks in the
// group. Both ends of a connection are made on first use, which both ends reach together.
//
// Several threads may use a link at once, as long as each slot of a peer has one user.
//
// Gloo cannot take back operations in flight, so a failed link is closed for good. A message that
// is longer than its receive makes Gloo abort the process; all lengths must have been agreed on.
class GlooLink {
 public:
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;  // a GlooBuffer

  // Serves the monitor's group or a part of it; ranks are world ranks, and key names the part.
  GlooLink(std::shared_ptr<GroupMonitor> monitor, std::string key, std::vector<int> ranks);
  ~GlooLink();

  GroupMonitor& monitor() const { return *monitor_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }
  // An error of the call in progress.
  Error error(nxd_status_t status, int root_rank, const std::string& message) const {
    return monitor_->error(status, root_rank, message);
  }

  // Fails for good: a peer has sent bytes that no rank of this group sends. All lose that peer.
  [[noreturn]] void fail_unreadable(int peer) const;

  // Makes the missing ones of these connections. Every peer must be about to connect to this rank.
  void connect(std::vector<int> peers);
  void connect_all();
  Buffer buffer(void* data, size_t size);
  void post_send(int peer, uint64_t slot, gloo::transport::UnboundBuffer& buffer, size_t size);
  void post_receive(int peer, uint64_t slot, gloo::transport::UnboundBuffer& buffer, size_t size);
  // The same, but false when the peer has gone: it may rightly leave after its last call.
  bool try_post_receive(int peer, uint64_t slot, gloo::transport::UnboundBuffer& buffer,
                        size_t size) noexcept;
  void wait_sent(int peer, gloo::transport::UnboundBuffer& buffer);
  void wait_received(int peer, gloo::transport::UnboundBuffer& buffer);

 private:
  enum class Stage : char { kAbsent, kClaimed, kConnected };

  Stage stage(int peer) const {
    return stages_[static_cast<size_t>(peer)].load(std::memory_order_acquire);
  }
  bool claim(int peer);
  template <class Function>
  void own_part(int peer, const Function& function);
  void adopt(int peer, Fd socket);
  void wait_until_connected(int peer);
  // The addresses of these peers.
  std::vector<std::string> addresses_of(const std::vector<int>& peers);
  std::string address_of(int peer);
  void watch_connection(int peer);
  bool is_broken(int peer);
  // The peer, among those that a buffer was posted to, whose connection failed it.
  int broken_among(int awaited);
  void wait(int peer, gloo::transport::UnboundBuffer& buffer, TimerThread::Watch::Kind kind);
  void poll(int peer);
  int world_rank(int peer) const { return ranks_[static_cast<size_t>(peer)]; }
  [[noreturn]] void connection_failed(int peer, const char* what);
  [[noreturn]] void memory_failed();
  void close() noexcept;

  const std::shared_ptr<GroupMonitor> monitor_;
  const std::string key_;
  const std::vector<int> ranks_;
  const int rank_;

  const std::shared_ptr<GlooConnections> transport_;
  std::mutex pairs_mutex_;  // the table of pairs against abort, and making connections
  std::condition_variable connected_;
  std::vector<GlooPair*> pairs_;            // by peer; null before the connection is made
  std::vector<std::atomic<Stage>> stages_;  // by peer; of making the connection
  // By peer: a receive that is never sent to, for Gloo to fail it when the connection ends. Gloo
  // forgets the sends it has queued and the message it is reading.
  std::vector<Buffer> sentinels_;
  char sentinel_data_ = 0;
  bool all_connected_ = false;
};

}  // namespace nxd

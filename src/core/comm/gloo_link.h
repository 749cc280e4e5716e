#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/fork_stamp.h"
#include "core/comm/failure_board.h"
#include "core/comm/ticker.h"

namespace nxd {

// What the groups of one rank share.
struct LinkShared {
  // Says goodbye: a peer that waits for this rank need not wait to the end.
  ~LinkShared() {
    if (board) board->leave();
  }

  std::shared_ptr<Store> store;  // keys of this world
  std::shared_ptr<FailureBoard> board;
  std::shared_ptr<Ticker> ticker;
  std::shared_ptr<gloo::transport::Device> device;
  const ForkStamp stamp;  // of the context
  mutable std::atomic<bool> finalized{false};
};

// Connections of one rank to the others of a group, over Gloo's transport. Peers are ranks in the
// group. Both ends of a connection are made on first use, which both ends reach together.
//
// Once a call has failed the link is closed for good and every later call gives the same error:
// Gloo cannot take back operations in flight, so the connections are of no more use. A message that
// is longer than its receive makes Gloo abort the process; all lengths must have been agreed on.
class GlooLink {
 public:
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

  GlooLink(std::shared_ptr<const LinkShared> shared, std::string key, std::string name, int rank,
           std::vector<int> ranks, int64_t timeout_ms);
  ~GlooLink();

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }
  void set_timeout_ms(int64_t timeout_ms) { timeout_ms_ = timeout_ms; }
  void abort() noexcept;

  // Starts a call, which must end by the timeout. Fails when the link has failed before.
  void begin(const char* operation, uint64_t sequence);
  // An error of the call, with what it was doing in front of the message.
  Error error(nxd_status_t status, int root_rank, const std::string& message) const;

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
  void connect_pair(int peer, const std::string& address);
  void watch_connection(int peer);
  bool is_broken(int peer);
  void wait(int peer, gloo::transport::UnboundBuffer& buffer, Ticker::Watch::Kind kind);
  void look_around(int peer);
  void look_for_departure(int peer);
  void check_running();
  [[noreturn]] void timed_out(int peer);
  [[noreturn]] void connection_failed(int peer, const char* what);
  [[noreturn]] void fail_with_loss();
  [[noreturn]] void fail_for_good(const Error& error);
  void close() noexcept;
  std::string address_key(int from, int to) const;

  const std::shared_ptr<const LinkShared> shared_;
  const std::string key_, name_;
  const int rank_;
  const std::vector<int> ranks_;
  std::atomic<int64_t> timeout_ms_;
  std::atomic<bool> aborted_{false};
  std::optional<Error> first_error_;

  std::mutex pairs_mutex_;  // the table of pairs against abort
  std::shared_ptr<gloo::transport::Context> transport_;
  std::vector<gloo::transport::Pair*> pairs_;  // by peer; null before the connection is made
  std::vector<std::atomic<char>> heard_from_;  // by peer
  // By peer: a receive that is never sent to, for Gloo to fail it when the connection ends. Gloo
  // forgets the sends it has queued and the message it is reading.
  std::vector<Buffer> sentinels_;
  char sentinel_data_ = 0;
  bool all_connected_ = false;

  // The call in progress.
  const char* operation_ = "";
  uint64_t sequence_ = 0;
  int64_t call_timeout_ms_ = 0;
  Deadline::Clock::time_point start_;
  Deadline::Clock::time_point next_look_;
  std::chrono::milliseconds look_pause_{0};
  bool wait_published_ = false;
  int departed_ = -1;  // peer that was found to have left, at departed_at_
  Deadline::Clock::time_point departed_at_;
};

}  // namespace nxd

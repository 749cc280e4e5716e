#include "core/comm/gloo_link.h"

#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>

#include <algorithm>
#include <future>
#include <numeric>
#include <thread>

#include "core/comm/slots.h"
#include "core/comm/socket.h"

namespace nxd {
namespace {

using std::chrono::milliseconds;

constexpr auto kForever = std::chrono::hours(24 * 365);
// Gloo's own bound on making a connection. Ours come sooner, and know whom to blame.
constexpr auto kGlooTimeout = std::chrono::hours(24);
// What a peer sent before it left may still be on its way.
constexpr auto kDepartureGrace = milliseconds(500);

// One connection in the making. Gloo blocks until the peer has come, so it does on a thread of its
// own, and the caller can look around. Nobody but Gloo is called there.
class Connecting {
 public:
  Connecting(gloo::transport::Pair& pair, const std::string& address)
      : pair_(pair), done_(promise_.get_future()) {
    const BlockedSignals blocked;
    thread_ = std::thread([this, bytes = std::vector<char>(address.begin(), address.end())] {
      try {
        pair_.connect(bytes);
        promise_.set_value();
      } catch (...) {
        promise_.set_exception(std::current_exception());
      }
    });
  }
  ~Connecting() {
    // A connection that is all but made is let be: see GlooLink::close.
    if (done_.valid() && done_.wait_for(milliseconds(100)) != std::future_status::ready) {
      try {
        pair_.close();  // wakes Gloo
      } catch (...) {
      }
    }
    thread_.join();
  }
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;

  // Whether the connection is there. Throws what Gloo threw.
  bool wait(milliseconds duration) {
    if (done_.wait_for(duration) != std::future_status::ready) return false;
    done_.get();
    return true;
  }

 private:
  gloo::transport::Pair& pair_;
  std::promise<void> promise_;
  std::future<void> done_;
  std::thread thread_;
};

}  // namespace

GlooLink::GlooLink(std::shared_ptr<const LinkShared> shared, std::string key, std::string name,
                   int rank, std::vector<int> ranks, int64_t timeout_ms)
    : shared_(std::move(shared)),
      key_(std::move(key)),
      name_(std::move(name)),
      rank_(rank),
      ranks_(std::move(ranks)),
      timeout_ms_(timeout_ms),
      pairs_(ranks_.size(), nullptr),
      heard_from_(ranks_.size()),
      sentinels_(ranks_.size()) {
  // A context shows the size of the group; only pairs that are used cost a connection.
  transport_ = shared_->device->createContext(rank_, size());
  transport_->setTimeout(kGlooTimeout);
}

GlooLink::~GlooLink() = default;

Error GlooLink::error(nxd_status_t status, int root_rank, const std::string& message) const {
  return Error(
      status,
      text(operation_, " #", sequence_, " on group \"", name_, "\" (rank ", rank_, " of ",
           ranks_.size(), ", world rank ", ranks_[static_cast<size_t>(rank_)], "): ", message),
      {root_rank, sequence_, name_, operation_});
}

void GlooLink::begin(const char* operation, uint64_t sequence) {
  if (shared_->stamp.is_foreign()) {
    fail(NXD_ERROR_INVALID_STATE, operation, " on group \"", name_,
         "\": this process was forked from the one that made the context; groups cannot be used "
         "in it");
  }
  if (first_error_) throw *first_error_;
  check_state(!shared_->finalized, operation, " on group \"", name_,
              "\": the context was finalized");
  operation_ = operation;
  sequence_ = sequence;
  call_timeout_ms_ = timeout_ms_;
  start_ = Deadline::Clock::now();
  look_pause_ = milliseconds(40);
  next_look_ = start_ + look_pause_;
  departed_ = -1;
  check_running();
}

void GlooLink::check_running() {
  if (aborted_.load(std::memory_order_relaxed)) {
    fail_for_good(error(NXD_ERROR_ABORTED, -1, "the group was aborted"));
  }
  if (shared_->board->lost()) fail_with_loss();
}

void GlooLink::fail_with_loss() {
  const auto loss = shared_->board->loss();
  check_internal(loss.has_value(), "a loss without a rank");
  fail_for_good(error(loss->status, loss->rank, text("rank ", loss->rank, " ", loss->reason)));
}

void GlooLink::fail_for_good(const Error& error) {
  if (!first_error_) first_error_ = error;
  close();
  throw *first_error_;
}

// Gloo resets what it closes, and a peer that is still accepting a connection that was reset dies
// of it on Gloo's thread. So only those are closed at once that something has come in by; the
// others end in good order with the link, and their peers learn from the board.
void GlooLink::close() noexcept {
  std::lock_guard<std::mutex> lock(pairs_mutex_);
  for (size_t peer = 0; peer < pairs_.size(); ++peer) {
    if (!pairs_[peer] || !heard_from_[peer]) continue;
    try {
      pairs_[peer]->close();
    } catch (...) {
    }
  }
}

void GlooLink::abort() noexcept {
  if (aborted_.exchange(true)) return;
  // In a forked child closing would reach into the parent's event loop.
  if (shared_->stamp.is_foreign()) return;
  close();
  shared_->ticker->kick();
  shared_->board->leave_group(key_);
}

std::string GlooLink::address_key(int from, int to) const { return text(key_, "/", from, "-", to); }

// Gloo's listening side waits for the connecting side, and which is which depends on ports. In
// ascending order the first connection still to be made always has both its ends at it.
void GlooLink::connect(std::vector<int> peers) {
  std::erase_if(peers, [&](int peer) {
    return peer == rank_ || pairs_[static_cast<size_t>(peer)] != nullptr;
  });
  if (peers.empty()) return;
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  int current = peers.front();
  try {
    for (const int peer : peers) {
      current = peer;
      std::unique_lock<std::mutex> lock(pairs_mutex_);
      auto* pair = pairs_[static_cast<size_t>(peer)] = transport_->createPair(peer).get();
      lock.unlock();
      const auto address = pair->address().bytes();
      shared_->store->set(address_key(rank_, peer), std::string(address.begin(), address.end()));
    }
    for (const int peer : peers) {
      current = peer;
      std::optional<std::string> other;
      while (!(other = shared_->store->wait(address_key(peer, rank_), Deadline::after_ms(20)))) {
        look_around(peer);
      }
      connect_pair(peer, *other);
      watch_connection(peer);
    }
  } catch (const Error& e) {
    if (first_error_) throw;
    // The store failed in the middle of making connections, which cannot be made twice.
    shared_->board->look();
    if (shared_->board->lost()) fail_with_loss();
    fail_for_good(error(e.status(), -1, e.what()));
  } catch (const std::exception& e) {
    connection_failed(current, e.what());
  }
  check_running();
}

void GlooLink::connect_pair(int peer, const std::string& address) {
  Connecting connecting(*pairs_[static_cast<size_t>(peer)], address);
  while (!connecting.wait(milliseconds(20))) look_around(peer);
}

void GlooLink::watch_connection(int peer) {
  Buffer& sentinel = sentinels_[static_cast<size_t>(peer)];
  sentinel = transport_->createUnboundBuffer(&sentinel_data_, 1);
  pairs_[static_cast<size_t>(peer)]->recv(sentinel.get(), kSentinelSlot, 0, 1);
}

bool GlooLink::is_broken(int peer) {
  auto& sentinel = *sentinels_[static_cast<size_t>(peer)];
  try {
    sentinel.abortWaitRecv();  // so that the wait only looks
    sentinel.waitRecv(nullptr, kForever);
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

void GlooLink::connect_all() {
  if (all_connected_) return;
  std::vector<int> peers(ranks_.size());
  std::iota(peers.begin(), peers.end(), 0);
  connect(std::move(peers));
  all_connected_ = true;
}

GlooLink::Buffer GlooLink::buffer(void* data, size_t size) {
  return transport_->createUnboundBuffer(data, size);
}

void GlooLink::post_send(int peer, uint64_t slot, gloo::transport::UnboundBuffer& buffer,
                         size_t size) {
  try {
    pairs_[static_cast<size_t>(peer)]->send(&buffer, slot, 0, size);
  } catch (const std::exception& e) {
    connection_failed(peer, e.what());
  }
}

void GlooLink::post_receive(int peer, uint64_t slot, gloo::transport::UnboundBuffer& buffer,
                            size_t size) {
  try {
    pairs_[static_cast<size_t>(peer)]->recv(&buffer, slot, 0, size);
  } catch (const std::exception& e) {
    connection_failed(peer, e.what());
  }
}

bool GlooLink::try_post_receive(int peer, uint64_t slot, gloo::transport::UnboundBuffer& buffer,
                                size_t size) noexcept {
  try {
    pairs_[static_cast<size_t>(peer)]->recv(&buffer, slot, 0, size);
    return true;
  } catch (...) {
    return false;
  }
}

void GlooLink::wait_sent(int peer, gloo::transport::UnboundBuffer& buffer) {
  wait(peer, buffer, Ticker::Watch::kSend);
}

void GlooLink::wait_received(int peer, gloo::transport::UnboundBuffer& buffer) {
  wait(peer, buffer, Ticker::Watch::kReceive);
}

namespace {

bool wait_for(gloo::transport::UnboundBuffer& buffer, Ticker::Watch::Kind kind,
              milliseconds timeout) {
  return kind == Ticker::Watch::kSend ? buffer.waitSend(nullptr, timeout)
                                      : buffer.waitRecv(nullptr, timeout);
}

// Whether an operation on a connection that is known to have ended was completed before.
bool was_completed(gloo::transport::UnboundBuffer& buffer, Ticker::Watch::Kind kind) {
  try {
    // An interruption may or may not be left over; after one more there is none.
    kind == Ticker::Watch::kSend ? buffer.abortWaitSend() : buffer.abortWaitRecv();
    wait_for(buffer, kind, kForever);
    return wait_for(buffer, kind, milliseconds(1));
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

void GlooLink::wait(int peer, gloo::transport::UnboundBuffer& buffer, Ticker::Watch::Kind kind) {
  for (;;) {
    bool done = false;
    try {
      const Ticker::Watch watch(*shared_->ticker, buffer, kind);
      done = wait_for(buffer, kind, kForever);
    } catch (const std::exception& e) {
      connection_failed(peer, e.what());
    }
    if (!done && is_broken(peer)) {
      done = was_completed(buffer, kind);
      if (!done) connection_failed(peer, "in the middle of a message");
    }
    if (done) break;
    look_around(peer);
  }
  if (kind == Ticker::Watch::kReceive) heard_from_[static_cast<size_t>(peer)] = 1;
  if (wait_published_) {
    shared_->board->clear_wait();
    wait_published_ = false;
  }
}

void GlooLink::look_around(int peer) {
  check_running();
  const auto now = Deadline::Clock::now();
  FailureBoard& board = *shared_->board;
  if (now >= next_look_) {
    board.look();
    check_running();
    look_for_departure(peer);
    // Rarer with time: thousands of ranks may be asking one store.
    const milliseconds slowest(std::clamp<int64_t>(call_timeout_ms_ / 8, 40, 2000));
    look_pause_ = std::min(look_pause_ * 3 / 2, slowest);
    next_look_ = now + look_pause_;
  }
  const int64_t waited = ms_since(start_);
  if (!wait_published_ && waited >= call_timeout_ms_ / 8) {
    board.publish_wait(ranks_[static_cast<size_t>(peer)]);
    wait_published_ = true;
  }
  if (waited >= call_timeout_ms_) timed_out(peer);
}

void GlooLink::look_for_departure(int peer) {
  const int awaited = ranks_[static_cast<size_t>(peer)];
  if (departed_ != peer) {
    if (!shared_->board->has_left(awaited, key_)) return;
    departed_ = peer;
    departed_at_ = Deadline::Clock::now();
  }
  if (Deadline::Clock::now() - departed_at_ < kDepartureGrace) return;
  shared_->board->report({NXD_ERROR_PEER_LOST, awaited,
                          text("left before it answered rank ", ranks_[static_cast<size_t>(rank_)],
                               " in ", operation_, " #", sequence_, " on group \"", name_, "\"")});
  fail_with_loss();
}

// Everybody who waits has said so an eighth of the timeout after it started to. So after as much
// again the edges are complete, and the rank next to the culprit can report it.
void GlooLink::timed_out(int peer) {
  FailureBoard& board = *shared_->board;
  const int awaited = ranks_[static_cast<size_t>(peer)];
  if (!wait_published_) board.publish_wait(awaited);
  const int64_t grace = call_timeout_ms_ + call_timeout_ms_ / 8;
  const int64_t last = call_timeout_ms_ + call_timeout_ms_ * 3 / 4;
  for (;;) {
    board.look();
    check_running();
    const int64_t waited = ms_since(start_);
    if (waited >= grace) {
      const FailureBoard::Culprit culprit = board.find_culprit(awaited);
      if (culprit.certain || waited >= last) {
        board.report({NXD_ERROR_TIMEOUT, culprit.rank,
                      text("did not answer within ", call_timeout_ms_, " ms (awaited by rank ",
                           ranks_[static_cast<size_t>(rank_)], " in ", operation_, " #", sequence_,
                           " on group \"", name_, "\")")});
        fail_with_loss();
      }
    }
    std::this_thread::sleep_for(milliseconds(std::clamp<int64_t>(call_timeout_ms_ / 50, 2, 20)));
  }
}

void GlooLink::connection_failed(int peer, const char* what) {
  if (aborted_) check_running();
  const int lost = ranks_[static_cast<size_t>(peer)];
  shared_->board->look();
  shared_->board->report({NXD_ERROR_PEER_LOST, lost,
                          text("closed its connection to rank ", ranks_[static_cast<size_t>(rank_)],
                               " (", what, ")")});
  fail_with_loss();
}

}  // namespace nxd

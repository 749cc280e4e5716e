#include "core/comm/transports/gloo/gloo_link.h"

#include <gloo/transport/pair.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <new>
#include <numeric>

#include "core/base/sleep.h"
#include "core/comm/net/socket.h"
#include "core/comm/store/store_rate_limit.h"
#include "core/comm/store/store_timeout.h"
#include "core/comm/transports/gloo/gloo_buffer.h"
#include "core/comm/transports/gloo/gloo_pair.h"
#include "core/comm/transports/gloo/slots.h"

namespace nxd {
namespace {

using std::chrono::milliseconds;

// Gloo's own bounds. Ours come sooner, and know which rank to blame.
constexpr auto kForever = std::chrono::hours(24 * 365);
constexpr auto kSlice = milliseconds(20);

}  // namespace

GlooLink::GlooLink(std::shared_ptr<GroupMonitor> monitor, std::string key, std::vector<int> ranks)
    : monitor_(std::move(monitor)),
      key_(std::move(key)),
      ranks_(std::move(ranks)),
      rank_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), monitor_->world_rank()) -
                             ranks_.begin())),
      transport_(std::make_shared<GlooConnections>(monitor_->shared().device, rank_, size())),
      pairs_(ranks_.size(), nullptr),
      stages_(ranks_.size()),
      sentinels_(ranks_.size()) {
  transport_->setTimeout(kForever);
  monitor_->on_failure([this] { close(); });
}

GlooLink::~GlooLink() { monitor_->clear_on_failure(); }

// Peers that wait learn at once. They find the reason in the failure registry.
void GlooLink::close() noexcept {
  std::lock_guard<std::mutex> lock(pairs_mutex_);
  for (auto* pair : pairs_) {
    if (!pair) continue;
    try {
      pair->close();
    } catch (...) {
    }
  }
}

// The later rank connects, which needs no other rank: so it does to all such peers before any end
// waits for the other. A thread claims a connection that a peer is to make only when it comes to
// it, so that it holds none up that another thread could wait for.
void GlooLink::connect(std::vector<int> peers) {
  std::erase_if(peers, [&](int peer) { return peer == rank_ || stage(peer) == Stage::kConnected; });
  if (peers.empty()) return;
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  int current = peers.front();
  // A store that is silent ends the call as a peer would.
  const StoreTimeout bounded(monitor_->timeout_ms());
  try {
    std::vector<int> earlier;
    for (const int peer : peers) {
      if (peer < rank_ && claim(peer)) earlier.push_back(peer);
    }
    const std::vector<std::string> addresses = addresses_of(earlier);
    std::map<int, Connector::Dial> dials;
    for (size_t i = 0; i < earlier.size(); ++i) {
      current = earlier[i];
      own_part(current, [&] {
        dials.try_emplace(current, *monitor_->shared().connector, addresses[i], world_rank(current),
                          key_);
      });
    }
    for (auto& [peer, dial] : dials) {
      current = peer;
      Fd socket;
      while (!(socket = dial.wait(kSlice))) poll(peer);
      adopt(peer, std::move(socket));
    }
    for (const int peer : peers) {
      current = peer;
      if (peer > rank_ && claim(peer)) {
        Fd socket;
        Connector& connector = *monitor_->shared().connector;
        while (!(socket = connector.take(world_rank(peer), key_, kSlice))) poll(peer);
        adopt(peer, std::move(socket));
      }
      wait_until_connected(peer);
    }
  } catch (const Connector::Refused& e) {
    connection_failed(current, e.what());
  } catch (const Connector::Unproven& e) {
    monitor_->peer_lost(world_rank(current), e.what());
  } catch (const Error& e) {
    if (monitor_->has_failed()) throw;
    monitor_->store_failed(e);  // in the middle of making connections, which cannot be made twice
  } catch (const std::bad_alloc&) {
    throw;  // which is no fault of the peer's
  } catch (const std::exception& e) {
    connection_failed(current, e.what());
  }
  monitor_->check_running();
}

// True for the one thread that is to make the connection.
bool GlooLink::claim(int peer) {
  const std::lock_guard<std::mutex> lock(pairs_mutex_);
  if (stage(peer) != Stage::kAbsent) return false;
  stages_[static_cast<size_t>(peer)] = Stage::kClaimed;
  return true;
}

// Runs this rank's own part of making a connection: no peer is to blame when it fails.
template <class Function>
void GlooLink::own_part(int peer, const Function& function) {
  try {
    function();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const Connector::Refused&) {
    throw;
  } catch (const Connector::Unproven&) {
    throw;
  } catch (const std::exception& e) {
    monitor_->fail_for_good(monitor_->error(
        NXD_ERROR_IO, monitor_->world_rank(),
        text("rank ", monitor_->world_rank(), " cannot make its connection to rank ",
             world_rank(peer), ": ", e.what())));
  }
}

void GlooLink::adopt(int peer, Fd socket) {
  own_part(peer, [&] {
    const std::lock_guard<std::mutex> lock(pairs_mutex_);
    pairs_[static_cast<size_t>(peer)] = transport_->adopt(peer, std::move(socket));
  });
  watch_connection(peer);
  const std::lock_guard<std::mutex> lock(pairs_mutex_);
  stages_[static_cast<size_t>(peer)] = Stage::kConnected;
  connected_.notify_all();
}

void GlooLink::wait_until_connected(int peer) {
  std::unique_lock<std::mutex> lock(pairs_mutex_);
  while (stage(peer) != Stage::kConnected) {
    connected_.wait_for(lock, kSlice);
    lock.unlock();
    poll(peer);
    lock.lock();
  }
}

// All at once when all are there already. Otherwise one by one, as a wait is for one peer.
std::vector<std::string> GlooLink::addresses_of(const std::vector<int>& peers) {
  if (peers.empty()) return {};
  std::vector<std::string> keys;
  for (const int peer : peers) keys.push_back(Connector::key(world_rank(peer)));
  auto all = ask_store([&] { return monitor_->shared().store->get_all(keys); },
                       [&] { poll(peers.front()); });
  if (all) return std::move(*all);
  std::vector<std::string> addresses;
  for (const int peer : peers) addresses.push_back(address_of(peer));
  return addresses;
}

std::string GlooLink::address_of(int peer) {
  using std::chrono::microseconds;
  const RankShared& shared = monitor_->shared();
  const std::string key = Connector::key(world_rank(peer));
  const microseconds longest = std::max(kSlice, store_pause(shared.world_size, 1));
  microseconds pause(200);
  for (;;) {
    const auto found = ask_store([&] { return shared.store->get(key); }, [&] { poll(peer); });
    if (found) return *found;
    const Deadline next = Deadline::after_ms(std::chrono::ceil<milliseconds>(pause).count());
    do {
      poll(peer);
      sleep_for(std::min<microseconds>(pause, kSlice));
    } while (!next.expired());
    pause = std::min(pause * 3 / 2, longest);
  }
}

void GlooLink::watch_connection(int peer) {
  Buffer& sentinel = sentinels_[static_cast<size_t>(peer)];
  sentinel = transport_->createUnboundBuffer(&sentinel_data_, 1);
  pairs_[static_cast<size_t>(peer)]->recv(sentinel.get(), kSentinelSlot, 0, 1);
}

bool GlooLink::is_broken(int peer) {
  return static_cast<GlooBuffer&>(*sentinels_[static_cast<size_t>(peer)]).has_failed();
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
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    connection_failed(peer, e.what());
  }
}

void GlooLink::post_receive(int peer, uint64_t slot, gloo::transport::UnboundBuffer& buffer,
                            size_t size) {
  try {
    pairs_[static_cast<size_t>(peer)]->recv(&buffer, slot, 0, size);
  } catch (const std::bad_alloc&) {
    throw;
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
  wait(peer, buffer, TimerThread::Watch::kSend);
}

void GlooLink::wait_received(int peer, gloo::transport::UnboundBuffer& buffer) {
  wait(peer, buffer, TimerThread::Watch::kReceive);
}

namespace {

bool wait_for(gloo::transport::UnboundBuffer& buffer, TimerThread::Watch::Kind kind) {
  return kind == TimerThread::Watch::kSend ? buffer.waitSend(nullptr, kForever)
                                           : buffer.waitRecv(nullptr, kForever);
}

// True if an operation on a connection that is known to have ended was completed before.
bool was_completed(gloo::transport::UnboundBuffer& buffer, TimerThread::Watch::Kind kind) {
  auto& ours = static_cast<GlooBuffer&>(buffer);
  return kind == TimerThread::Watch::kSend ? ours.take_sent() : ours.take_received();
}

}  // namespace

// A buffer that is received from one peer and sent on to another fails with either connection, and
// Gloo does not say with which. It fails the connection's sentinel in the same go, if not before; a
// busy machine may let its thread stand between the two.
int GlooLink::broken_among(int awaited) {
  const int64_t bound_ms = timeout_share(monitor_->timeout_ms(), 1, 4);
  const Deadline deadline = Deadline::after_ms(std::clamp<int64_t>(bound_ms, 50, 2000));
  for (;;) {
    if (is_broken(awaited)) return awaited;
    for (int peer = 0; peer < static_cast<int>(ranks_.size()); ++peer) {
      if (peer != rank_ && stage(peer) == Stage::kConnected && is_broken(peer)) return peer;
    }
    if (deadline.expired()) return awaited;
    sleep_for(milliseconds(1));
  }
}

void GlooLink::wait(int peer, gloo::transport::UnboundBuffer& buffer,
                    TimerThread::Watch::Kind kind) {
  for (;;) {
    bool done = false;
    try {
      const TimerThread::Watch watch(*monitor_->shared().timer_thread, buffer, kind);
      done = wait_for(buffer, kind);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& e) {
      connection_failed(broken_among(peer), e.what());
    }
    if (!done && is_broken(peer)) {
      done = was_completed(buffer, kind);
      if (!done) connection_failed(peer, "in the middle of a message");
    }
    if (done) break;
    poll(peer);
  }
  monitor_->wait_ended();
}

void GlooLink::fail_unreadable(int peer) const {
  monitor_->fail_because_of(world_rank(peer), NXD_ERROR_CORRUPT,
                            text("sent what rank ", monitor_->world_rank(),
                                 " cannot read: expected one version of the library on all ranks"));
}

// Peers count this rank as lost as soon as they see the end of its connection. By then it knows the
// reason.
void GlooLink::poll(int peer) {
  if (transport_->had_bad_memory()) memory_failed();
  const bool is_connected = stage(peer) == Stage::kConnected;
  const uint64_t heard = is_connected ? pairs_[static_cast<size_t>(peer)]->reads() : 0;
  monitor_->poll(world_rank(peer), heard);
}

void GlooLink::memory_failed() {
  monitor_->fail_because_of(
      monitor_->world_rank(), NXD_ERROR_IO,
      text("gave Gloo an array that the kernel cannot read, or cannot write: ",
           std::strerror(EFAULT),
           " (such as of memory that the program protects; the kernel calls no "
           "handler of SIGSEGV)"));
}

void GlooLink::connection_failed(int peer, const char* what) {
  if (transport_->had_bad_memory()) memory_failed();
  if (stage(peer) == Stage::kConnected && pairs_[static_cast<size_t>(peer)]->had_bad_memory()) {
    memory_failed();
  }
  monitor_->peer_lost(world_rank(peer), text("closed its connection to rank ",
                                             monitor_->world_rank(), " (", what, ")"));
}

}  // namespace nxd

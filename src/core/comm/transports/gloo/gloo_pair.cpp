#include "core/comm/transports/gloo/gloo_pair.h"

#include <gloo/transport/tcp/device.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "core/base/fork_closed.h"
#include "core/base/sleep.h"
#include "core/base/yield.h"
#include "core/comm/transports/gloo/gloo_buffer.h"

namespace nxd {

using gloo::transport::tcp::Address;

namespace {
// The event loop sleeps so long where others compute on its core.
constexpr auto kNap = std::chrono::microseconds(20);

// True on Gloo's event loop.
thread_local bool is_loop = false;

// Gloo keeps the words of an error, not its number.
bool tells_of_bad_memory(const std::exception_ptr& failure) noexcept {
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    return std::strstr(e.what(), std::strerror(EFAULT)) != nullptr;
  } catch (...) {
  }
  return false;
}
}  // namespace

GlooPair::GlooPair(gloo::transport::tcp::Context* context, gloo::transport::tcp::Device* device,
                   int rank, std::chrono::milliseconds timeout, Fd socket)
    : Pair(context, device, rank, timeout) {
  std::lock_guard<std::mutex> lock(m_);
  if (fd_ >= 0) {  // that Gloo has begun to listen at
    device_->unregisterDescriptor(fd_, this);
    ::close(fd_);
  }
  // Until the event loop has the socket, it is not this pair's: Gloo's destructor would take it
  // from the loop, and end the process because it is not there.
  fd_ = -1;
  const state listening = state_;
  state_ = CLOSED;
  const int fd = socket.get();
  self_ = Address::fromSockName(fd);
  try {
    peer_ = Address::fromPeerName(fd);
  } catch (const std::exception&) {
    peer_ = self_;  // it has gone, as reading is going to tell
  }
  close_in_forked_children(fd);
  try {
    device_->registerDescriptor(fd, EPOLLIN, this);
  } catch (...) {
    forget_in_forked_children(fd);
    throw;
  }
  state_ = listening;
  fd_ = socket.release();
  Pair::changeState(CONNECTED);
}

GlooPair::~GlooPair() {
  std::lock_guard<std::mutex> lock(m_);
  if (state_ != CLOSED) changeState(CLOSED);
}

bool GlooPair::write(gloo::transport::tcp::Op& op) {
  struct Writing {
    explicit Writing(bool& flag) : flag(flag) { flag = true; }
    ~Writing() { flag = false; }
    bool& flag;
  } writing(is_writing_);
  return Pair::write(op);
}

bool GlooPair::read() {
  ++reads_;
  return Pair::read();
}

void GlooPair::changeState(state next) noexcept {
  if (next == CLOSED && tells_of_bad_memory(ex_)) {
    had_bad_memory_ = true;
    static_cast<GlooConnections*>(context_)->had_bad_memory_ = true;
  }
  // A thread that sends has locked the context, and closing waits for the loop, which may be
  // waiting for that lock: the loop closes the connection when it sees its end.
  if (next == CLOSED && is_writing_ && !is_loop) {
    ::shutdown(fd_, SHUT_RDWR);
    return;
  }
  if (next == CLOSED && fd_ >= 0) forget_in_forked_children(fd_);
  Pair::changeState(next);
}

// Gloo wakes those who wait for its buffers before it changes the state, under one lock.
bool GlooPair::had_bad_memory() {
  const std::lock_guard<std::mutex> lock(m_);
  return had_bad_memory_;
}

template <class... Arguments>
void GlooPair::handle(Arguments&... arguments) {
  is_loop = true;
  // Where another thread has the lock, Gloo returns, and the event comes again at once: on the core
  // of the lock's holder the loop would spin for a time slice. It cannot wait for the lock, whose
  // holder may be waiting for this very loop.
  {
    const std::unique_lock<std::mutex> lock(m_, std::try_to_lock);
    if (!lock) {
      if (!try_yield()) sleep_for(kNap);
      return;
    }
    if (ex_ != nullptr && state_ != CLOSED) return changeState(CLOSED);
  }
  try {
    if constexpr (requires(Pair & pair) { pair.handleEvents(arguments...); }) {
      Pair::handleEvents(arguments...);
    }
  } catch (...) {
    // The holder of the lock may be waiting for this very loop. The event will come again.
    std::unique_lock<std::mutex> lock(m_, std::try_to_lock);
    if (lock && ex_ == nullptr && state_ != CLOSED) signalException(std::current_exception());
  }
}

void GlooPair::handleEvents(int events) { handle(events); }

void GlooPair::handleEvents(gloo::transport::tcp::Loop& loop, int events) { handle(loop, events); }

// Connections that are still open tell of their end as they close.
GlooConnections::~GlooConnections() { pairs_.clear(); }

GlooPair* GlooConnections::adopt(int rank, Fd socket) {
  auto pair =
      std::make_unique<GlooPair>(this, device_.get(), rank, getTimeout(), std::move(socket));
  GlooPair* const adopted = pair.get();
  pairs_[static_cast<size_t>(rank)] = std::move(pair);
  return adopted;
}

std::unique_ptr<gloo::transport::UnboundBuffer> GlooConnections::createUnboundBuffer(void* data,
                                                                                     size_t size) {
  return std::make_unique<GlooBuffer>(shared_from_this(), data, size);
}

}  // namespace nxd

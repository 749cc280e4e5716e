#include "core/comm/monitor/timer_thread.h"

#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>

#include "core/base/start_thread.h"
#include "core/comm/net/socket.h"

namespace nxd {
namespace {
constexpr auto kBeat = std::chrono::milliseconds(20);
}

TimerThread::TimerThread() : thread_(start_thread("that wakes waiting calls", [this] { run(); })) {}

TimerThread::~TimerThread() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void TimerThread::kick() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    kicked_ = true;
  }
  wake_.notify_all();
}

void TimerThread::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    wake_.wait_for(lock, kBeat, [this] { return stop_ || kicked_; });
    kicked_ = false;
    for (Watch* watch : watches_) {
      if (watch->kind_ == Watch::kSend) {
        watch->buffer_.abortWaitSend();
      } else {
        watch->buffer_.abortWaitRecv();
      }
    }
  }
}

TimerThread::Watch::Watch(TimerThread& timer, gloo::transport::UnboundBuffer& buffer, Kind kind)
    : timer_(timer), buffer_(buffer), kind_(kind) {
  std::lock_guard<std::mutex> lock(timer_.mutex_);
  timer_.watches_.push_back(this);
}

TimerThread::Watch::~Watch() {
  std::lock_guard<std::mutex> lock(timer_.mutex_);
  std::erase(timer_.watches_, this);
}

}  // namespace nxd

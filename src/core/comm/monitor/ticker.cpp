#include "core/comm/monitor/ticker.h"

#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>

#include "core/base/start_thread.h"
#include "core/comm/net/socket.h"

namespace nxd {
namespace {
constexpr auto kBeat = std::chrono::milliseconds(20);
}

Ticker::Ticker() : thread_(start_thread("that wakes waiting calls", [this] { run(); })) {}

Ticker::~Ticker() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Ticker::kick() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    kicked_ = true;
  }
  wake_.notify_all();
}

void Ticker::run() {
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

Ticker::Watch::Watch(Ticker& ticker, gloo::transport::UnboundBuffer& buffer, Kind kind)
    : ticker_(ticker), buffer_(buffer), kind_(kind) {
  std::lock_guard<std::mutex> lock(ticker_.mutex_);
  ticker_.watches_.push_back(this);
}

Ticker::Watch::~Watch() {
  std::lock_guard<std::mutex> lock(ticker_.mutex_);
  std::erase(ticker_.watches_, this);
}

}  // namespace nxd

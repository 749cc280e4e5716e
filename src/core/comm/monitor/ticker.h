#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace gloo::transport {
class UnboundBuffer;
}

namespace nxd {

// Wakes threads that wait for Gloo. Gloo's waits cannot be bounded by slices: one that times out
// closes every connection of its context. So a thread here interrupts them at a steady beat, and
// the waiting thread looks around and waits on. It touches nothing else, and makes no calls.
class Ticker {
 public:
  Ticker();
  ~Ticker();

  // Interrupts all waits at once, for abort.
  void kick();

  // Makes one wait interruptible while it lives. The buffer must outlive it.
  class Watch {
   public:
    enum Kind { kSend, kReceive };
    Watch(Ticker& ticker, gloo::transport::UnboundBuffer& buffer, Kind kind);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    friend class Ticker;
    Ticker& ticker_;
    gloo::transport::UnboundBuffer& buffer_;
    Kind kind_;
  };

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  bool kicked_ = false;
  std::vector<Watch*> watches_;
  std::thread thread_;
};

}  // namespace nxd

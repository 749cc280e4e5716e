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
// the waiting thread polls and waits on. It touches nothing else, and makes no calls.
class TimerThread {
 public:
  TimerThread();
  ~TimerThread();

  // Interrupts all waits at once, for abort.
  void kick();

  // Makes one wait interruptible while it lives. The buffer must outlive it.
  class Watch {
   public:
    enum Kind { kSend, kReceive };
    Watch(TimerThread& timer, gloo::transport::UnboundBuffer& buffer, Kind kind);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    friend class TimerThread;
    TimerThread& timer_;
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

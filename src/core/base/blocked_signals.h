#pragma once

namespace nxd {

// Blocks every signal on this thread while it lives, so that threads made meanwhile never run the
// program's signal handlers.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  unsigned long saved_[16];  // a sigset_t
};

}  // namespace nxd

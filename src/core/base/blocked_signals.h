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

// Blocks one signal on this thread while it lives, and swallows one that a call has raised
// meanwhile: SIGPIPE, of a write to a peer that has gone, or SIGXFSZ, of a file beyond the limit on
// sizes. The call itself fails.
class HeldSignal {
 public:
  explicit HeldSignal(int signal) noexcept;
  ~HeldSignal();
  HeldSignal(const HeldSignal&) = delete;
  HeldSignal& operator=(const HeldSignal&) = delete;

 private:
  const int signal_;
  bool was_blocked_ = false;
  bool was_pending_ = false;
};

}  // namespace nxd

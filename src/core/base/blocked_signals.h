#pragma once

namespace nxd {

// Blocks signals on this thread while it lives, so that threads made meanwhile do not run the
// program's signal handlers. Signals of faults stay as they are: a program may have protected the
// memory that such a thread reads and writes for it, and open it up in a handler.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  unsigned long saved_[16];  // a sigset_t
};

// The signals that a thread of the program's blocks as it hands over a callback. Runtimes that
// collect garbage, such as Mono's and D's, stop each thread that has run code of theirs by a
// signal, and wait for its answer.
class CallbackSignals {
 public:
  CallbackSignals() noexcept;
  // For a thread of the library's that is to run the callback: it has these signals blocked alone
  // from then on, as a thread has that the program starts.
  void apply() const noexcept;

 private:
  unsigned long blocked_[16];  // a sigset_t
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

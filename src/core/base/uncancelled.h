#pragma once

namespace nxd {

// While it lives, a pthread_cancel of this thread waits. Cancellation unwinds the stack like an
// exception that no code may stop: it would end the process at the first function that lets nothing
// through, and leave a group's peers with half a call before that. Several of a thread, such as
// those of calls on several fibers, end in any order; libnxd_core counts them.
class Uncancelled {
 public:
  Uncancelled() noexcept;
  ~Uncancelled();
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;
};

}  // namespace nxd

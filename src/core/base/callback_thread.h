#pragma once

namespace nxd {

// The user's callbacks run only on threads that are inside a call of the user's. A thread of the
// library's own marks itself with this for as long as it lives.
class InternalThread {
 public:
  InternalThread() noexcept { here() = true; }
  ~InternalThread() { here() = false; }
  InternalThread(const InternalThread&) = delete;
  InternalThread& operator=(const InternalThread&) = delete;

  static bool is_current() noexcept { return here(); }

 private:
  static bool& here() noexcept {
    thread_local bool internal = false;
    return internal;
  }
};

}  // namespace nxd

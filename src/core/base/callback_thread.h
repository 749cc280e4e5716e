#pragma once

namespace nxd {

// The user's callbacks run only on threads that are inside a call of the user's. A thread of the
// library's own marks itself with this for as long as it lives. The mark is libnxd_core's: one in
// a header would be another variable in each of the two libraries.
class InternalThread {
 public:
  InternalThread() noexcept;
  ~InternalThread();
  InternalThread(const InternalThread&) = delete;
  InternalThread& operator=(const InternalThread&) = delete;

  static bool is_current() noexcept;
};

}  // namespace nxd

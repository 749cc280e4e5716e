#include "core/base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace nxd {

void Futex::wake_all() noexcept {
  ::syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// The order of the two, the sleepers before the value, and the reverse in wake_sleepers, see to it
// that a thread about to sleep either sees the new value or is seen. The kernel reads the value.
void Futex::sleep(uint32_t seen, int milliseconds) noexcept {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const timespec timeout{milliseconds / 1000, (milliseconds % 1000) * 1000000L};
  ::syscall(SYS_futex, &value, FUTEX_WAIT, seen, milliseconds < 0 ? nullptr : &timeout, nullptr, 0);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace nxd

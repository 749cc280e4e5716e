#include "core/comm/transports/shm/eager_message.h"

#include <cstring>

namespace nxd {

void EagerMessage::write(void* place, const void* data, size_t bytes, uint64_t flag) noexcept {
  auto* line = static_cast<Line*>(place);
  const char* from = static_cast<const char*>(data);
  for (; bytes >= kLineBytes; bytes -= kLineBytes, from += kLineBytes, ++line) {
    std::memcpy(line->data, from, kLineBytes);
    line->flag.store(flag, std::memory_order_release);
  }
  if (bytes == 0) return;
  std::memcpy(line->data, from, bytes);
  line->flag.store(flag, std::memory_order_release);
}

bool EagerMessage::read(const void* place, void* data, size_t bytes, uint64_t flag,
                        int looks) noexcept {
  const auto* line = static_cast<const Line*>(place);
  char* to = static_cast<char*>(data);
  const auto has_come = [&] {
    for (int look = 0; line->flag.load(std::memory_order_acquire) != flag; ++look) {
      if (look == looks) return false;
    }
    return true;
  };
  for (; bytes >= kLineBytes; bytes -= kLineBytes, to += kLineBytes, ++line) {
    if (!has_come()) return false;
    std::memcpy(to, line->data, kLineBytes);
  }
  if (bytes == 0) return true;
  if (!has_come()) return false;
  std::memcpy(to, line->data, bytes);
  return true;
}

}  // namespace nxd

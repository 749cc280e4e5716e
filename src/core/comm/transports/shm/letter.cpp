#include "core/comm/transports/shm/letter.h"

#include <cstring>

namespace nxd {

void Letter::write(void* place, const void* data, size_t bytes, uint64_t mark) noexcept {
  auto* line = static_cast<Line*>(place);
  const char* from = static_cast<const char*>(data);
  for (; bytes >= kLineBytes; bytes -= kLineBytes, from += kLineBytes, ++line) {
    std::memcpy(line->data, from, kLineBytes);
    line->mark.store(mark, std::memory_order_release);
  }
  if (bytes == 0) return;
  std::memcpy(line->data, from, bytes);
  line->mark.store(mark, std::memory_order_release);
}

bool Letter::read(const void* place, void* data, size_t bytes, uint64_t mark, int looks) noexcept {
  const auto* line = static_cast<const Line*>(place);
  char* to = static_cast<char*>(data);
  const auto has_come = [&] {
    for (int look = 0; line->mark.load(std::memory_order_acquire) != mark; ++look) {
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

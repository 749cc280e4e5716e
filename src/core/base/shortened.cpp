#include "core/base/shortened.h"

#include <algorithm>
#include <cstring>

namespace nxd {
namespace {

bool is_within_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U; }

}  // namespace

size_t copy_shortened(std::string_view text, char* out, size_t room) noexcept {
  if (text.empty() || room == 0) return 0;
  if (text.size() <= room) {
    std::memmove(out, text.data(), text.size());
    return text.size();
  }
  constexpr std::string_view kGap = " ... ";
  const size_t gap = std::min(kGap.size(), room);
  size_t begin = text.size() - (room - gap) / 3;  // of the end
  while (begin < text.size() && is_within_character(text[begin])) ++begin;
  const size_t end = text.size() - begin;
  size_t start = room - gap - end;  // the size of what comes first
  while (start > 0 && is_within_character(text[start])) --start;
  std::memcpy(out, text.data(), start);
  std::memcpy(out + start, kGap.data(), gap);
  std::memcpy(out + start + gap, text.data() + begin, end);
  return start + gap + end;
}

}  // namespace nxd

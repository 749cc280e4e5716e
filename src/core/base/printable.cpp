#include "core/base/printable.h"

#include <cstdio>

#include "core/base/utf8.h"

namespace nxd {

std::string printable(std::string_view text, size_t limit) {
  constexpr std::string_view kCut = "...";
  std::string out;
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    const size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    const bool controls = character.code < 0x20 ||
                          (character.code >= 0x7f && character.code < 0xa0) ||
                          character.code == 0x2028 || character.code == 0x2029;
    char escape[16];
    std::string_view shown = text.substr(0, bytes);
    if (character.bytes == 0 || controls) {
      const unsigned value =
          character.bytes == 0 ? static_cast<unsigned char>(text[0]) : character.code;
      const int size =
          std::snprintf(escape, sizeof escape, character.bytes == 0 ? "\\x%02x" : "\\u%04x", value);
      shown = {escape, static_cast<size_t>(size)};
    }
    const size_t room = text.size() == bytes ? limit : limit - kCut.size();
    if (out.size() + shown.size() > room) return out.append(kCut);
    out.append(shown);
    text.remove_prefix(bytes);
  }
  return out;
}

}  // namespace nxd

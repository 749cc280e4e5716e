#include "core/base/json_writer.h"

#include <cstdio>

#include "core/base/utf8.h"

namespace nxd {

void JsonWriter::separate() {
  if (!first_) out_ += ',';
  first_ = false;
}

void JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  first_ = true;
}

void JsonWriter::close(char bracket) {
  out_ += bracket;
  first_ = false;
}

void JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  out_ += ':';
  first_ = true;
}

void JsonWriter::string(std::string_view value) {
  separate();
  quote(value);
}

void JsonWriter::number(int64_t value) {
  separate();
  out_ += std::to_string(value);
}

void JsonWriter::natural(uint64_t value) {
  separate();
  out_ += std::to_string(value);
}

void JsonWriter::thousandths(int64_t value) {
  separate();
  const auto magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  char digits[32];
  std::snprintf(digits, sizeof digits, "%s%llu.%03llu", value < 0 ? "-" : "",
                static_cast<unsigned long long>(magnitude / 1000),
                static_cast<unsigned long long>(magnitude % 1000));
  out_ += digits;
}

void JsonWriter::quote(std::string_view text) {
  constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  out_ += '"';
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    const size_t letter = kEscaped.find(text[0]);
    if (character.bytes == 0) {
      out_ += "\xef\xbf\xbd";
    } else if (letter != std::string_view::npos) {
      out_ += {'\\', kLetters[letter]};
    } else if (character.code < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", character.code);
      out_ += escape;
    } else {
      out_ += text.substr(0, character.bytes);
    }
    text.remove_prefix(character.bytes == 0 ? 1 : character.bytes);
  }
  out_ += '"';
}

}  // namespace nxd

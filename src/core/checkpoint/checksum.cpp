#include "core/checkpoint/checksum.h"

#include <array>
#include <cinttypes>
#include <cstdio>

#include "core/checkpoint/file.h"

namespace nxd {

Checksum& Checksum::add(std::string_view bytes) {
  hash_.add(bytes);
  return *this;
}

Checksum& Checksum::add(const InputFile& file) {
  file.for_each_part([this](std::string_view part) { add(part); });
  return *this;
}

std::string Checksum::hex() const {
  const auto [high, low] = hash_.value();
  std::array<char, kChecksumDigits + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%016" PRIx64 "%016" PRIx64, high, low);
  return digits.data();
}

}  // namespace nxd

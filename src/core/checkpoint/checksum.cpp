#include "core/checkpoint/checksum.h"

// The hash becomes part of this library, which then needs no other one at run time.
#define XXH_INLINE_ALL
#include <sodium.h>
#include <xxhash.h>

#include <array>

#include "core/checkpoint/file.h"

namespace nxd {

struct Checksum::State {
  XXH3_state_t xxh;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }

Checksum::~Checksum() = default;

Checksum& Checksum::add(std::string_view bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
  return *this;
}

Checksum& Checksum::add(const InputFile& file) {
  file.for_each_part([this](std::string_view part) { add(part); });
  return *this;
}

std::string Checksum::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh));
  static_assert(kChecksumDigits == 2 * sizeof canonical.digest);
  std::array<char, kChecksumDigits + 1> digits{};
  ::sodium_bin2hex(digits.data(), digits.size(), canonical.digest, sizeof canonical.digest);
  return digits.data();
}

}  // namespace nxd

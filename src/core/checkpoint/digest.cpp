#include "core/checkpoint/digest.h"

#include <sodium.h>

#include <array>

#include "core/checkpoint/file.h"

namespace nxd {

struct Digest::State {
  crypto_generichash_state sodium;
};

Digest::Digest() : state_(std::make_unique<State>()) {
  static const bool is_ready = ::sodium_init() >= 0;  // with the machine's fastest form
  check_internal(is_ready, "libsodium cannot be used");
  ::crypto_generichash_init(&state_->sodium, nullptr, 0, crypto_generichash_BYTES);
}

Digest::~Digest() = default;

Digest& Digest::add(std::string_view bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  ::crypto_generichash_update(&state_->sodium, data, bytes.size());
  return *this;
}

Digest& Digest::add(const InputFile& file) {
  file.for_each_part([this](std::string_view part) { add(part); });
  return *this;
}

std::string Digest::hex() {
  std::array<unsigned char, crypto_generichash_BYTES> digest{};
  ::crypto_generichash_final(&state_->sodium, digest.data(), digest.size());
  std::array<char, kDigestDigits + 1> digits{};
  static_assert(kDigestDigits == 2 * crypto_generichash_BYTES);
  ::sodium_bin2hex(digits.data(), digits.size(), digest.data(), digest.size());
  return digits.data();
}

}  // namespace nxd

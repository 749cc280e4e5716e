#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace nxd {

// Two ends of a connection prove to each other that they know the secret of their job. Each sends a
// nonce; each answers with a keyed hash (HMAC-SHA256, of libsodium) of both nonces, of what it was
// told, and of which end it is. An answer is therefore useless on another connection, and to the
// end that gave it. Neither the secret nor a key made of it is ever sent.
using Nonce = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, 32>;
using Key = std::array<unsigned char, 32>;

class Secret {
 public:
  // NXD_SECRET, or the first line of the file that NXD_SECRET_FILE names; none when neither is set.
  // INVALID_ARGUMENT when both are, when it is too short to be a secret, or when the file can be
  // read by others than its owner.
  static std::optional<Secret> of_environment();
  static Secret random();
  explicit Secret(std::string text) : text_(std::move(text)) {}

  // As NXD_SECRET has it.
  const std::string& text() const { return text_; }
  // Keys for different purposes tell nothing of one another.
  Key key(std::string_view purpose) const;
  Key store_key() const { return key("store"); }

 private:
  std::string text_;
};

// The key to the stores of this process's job; none when they are open to all that reach them.
std::optional<Key> store_key_of_environment();

Nonce make_nonce();
// Made by one end of a connection: different ends give different sides.
Proof prove(const Key& key, std::string_view side,
            std::initializer_list<std::string_view> transcript);
// In a time that does not depend on where they differ.
bool is_same(std::string_view a, std::string_view b);
bool is_same(const Proof& a, const Proof& b);
// In hexadecimal digits.
std::string hex_of(const Proof& bytes);

template <class T>
std::string_view view_of(const T& bytes) {
  static_assert(std::has_unique_object_representations_v<T>);
  return {reinterpret_cast<const char*>(&bytes), sizeof bytes};
}

inline bool is_same(const Proof& a, const Proof& b) { return is_same(view_of(a), view_of(b)); }

}  // namespace nxd

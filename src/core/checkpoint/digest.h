#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace nxd {

class InputFile;

// BLAKE2b of 32 bytes: for content that is read back, where base/hash.h would miss changes.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest& add(std::string_view bytes);
  // All of the file, from its start.
  Digest& add(const InputFile& file);
  // 64 hexadecimal digits. To be called once, at the end.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

constexpr size_t kDigestDigits = 64;

}  // namespace nxd

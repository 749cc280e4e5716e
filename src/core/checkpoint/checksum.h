#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/hash128.h"

namespace nxd {

class InputFile;

// XXH3 of 128 bits, as the program xxh128sum prints it: finds content that a disk or a network has
// changed. It keeps up with writing files, which no cryptographic hash does. None guards against a
// writer of the directory, who can change the checksum as well.
class Checksum {
 public:
  Checksum& add(std::string_view bytes);
  // All of the file, from its start.
  Checksum& add(const InputFile& file);
  // 32 hexadecimal digits, of what has been added so far.
  std::string hex() const;

 private:
  Hash128 hash_;
};

constexpr size_t kChecksumDigits = 32;

}  // namespace nxd

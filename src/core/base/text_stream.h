#pragma once

#include <locale>
#include <sstream>
#include <string>
#include <utility>

namespace nxd {

// Streams whose numbers have the same form in every program. A program may have given all of C++ a
// locale (std::locale::global) that groups digits: ranks could not read each other's ports.
class TextWriter : public std::ostringstream {
 public:
  TextWriter() { imbue(std::locale::classic()); }
};

class TextReader : public std::istringstream {
 public:
  explicit TextReader(std::string text) : std::istringstream(std::move(text)) {
    imbue(std::locale::classic());
  }
};

}  // namespace nxd

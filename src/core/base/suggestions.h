#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace nxd {

// Suggestions for messages about an unknown name: "; near names: a, b" with the known names that
// differ from it least, nearest first, or "" when none is near.
std::string suggestions(std::string_view wanted, const std::vector<std::string>& known);

// The same as a part of a check's message: looked for where the message is made, as a check that
// holds has no use for them, and takes its parts all the same.
class Suggestions {
 public:
  Suggestions(std::string_view wanted, const std::vector<std::string>& known)
      : wanted_(wanted), known_(known) {}
  friend std::ostream& operator<<(std::ostream& out, const Suggestions& near);

 private:
  std::string_view wanted_;
  const std::vector<std::string>& known_;
};

}  // namespace nxd

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nxd {

// Suggestions for messages about an unknown name: "; near names: a, b" with the known names that
// differ from it least, nearest first, or "" when none is near.
std::string suggestions(std::string_view wanted, const std::vector<std::string>& known);

}  // namespace nxd

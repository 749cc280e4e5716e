#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nxd {

// For messages about an unknown name: "; near names: a, b" with the known names that differ from
// it least, nearest first, or "" when none is near.
std::string near_names(std::string_view wanted, const std::vector<std::string>& known);

}  // namespace nxd

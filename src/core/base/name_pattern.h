#pragma once

#include <string_view>

namespace nxd {

// True where * in the pattern stands for any characters, ? for one, and all else for itself. Names
// are UTF-8, whatever the locale is; a byte that begins no character of it counts as one.
bool matches_pattern(std::string_view pattern, std::string_view name);

}  // namespace nxd

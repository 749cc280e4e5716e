#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nxd {

// Text of a file or of a peer as a message shows it: control characters and bytes that are no UTF-8
// are escaped, and it is cut at the limit, in bytes.
std::string printable(std::string_view text, size_t limit = 200);

}  // namespace nxd

#pragma once

#include <string>

namespace nxd {

// Where the program is that the calling thread works for, in one word: the function of the header
// that it is in, or, where it came in through libtorch, the nearest code outside libnxd and
// libtorch as FUNCTION, or FILE+OFFSET where that has no name. It walks the stack then, which takes
// some microseconds.
std::string call_site();

}  // namespace nxd

#pragma once

#include <cstddef>
#include <string_view>

namespace nxd {

// Copies a message, and where it does not fit cuts a piece out of its middle, between characters of
// UTF-8: its end says why something failed, often behind a long name. Gives the number of bytes,
// and writes no terminator. Neither the text nor a part of it may be in the room when it is cut.
size_t copy_shortened(std::string_view text, char* out, size_t room) noexcept;

}  // namespace nxd

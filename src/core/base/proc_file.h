#pragma once

#include <optional>
#include <string>

namespace nxd {

// All of a file below /proc; none when there is no such file, or this user may not read it. IO or
// OUT_OF_MEMORY when this process lacks what reading takes, which says nothing about the file.
std::optional<std::string> read_proc(const std::string& path);

}  // namespace nxd

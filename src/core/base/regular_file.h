#pragma once

#include <sys/types.h>

#include <string>

namespace nxd {

// IO, with the path, when st_mode of a stat is not a regular file's.
void check_regular_file(const std::string& path, mode_t mode);

}  // namespace nxd

#pragma once

#include <string>

namespace nxd {

// The path from the root on, for use after the program may have changed its working directory. No
// link of it is followed, and "" stays. IO where the working directory has been removed, or cannot
// be found.
std::string absolute_path(const std::string& path);

}  // namespace nxd

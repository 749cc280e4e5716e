#pragma once

#include <dirent.h>

#include <memory>

namespace nxd {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

using OpenDirectory = std::unique_ptr<DIR, CloseDirectory>;

}  // namespace nxd

#include "core/base/absolute_path.h"

#include <filesystem>
#include <system_error>

#include "core/base/error.h"

namespace nxd {

std::string absolute_path(const std::string& path) {
  if (path.empty() || path.front() == '/') return path;
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::current_path(error);
  if (error) {
    fail(NXD_ERROR_IO, path, ": cannot find the working directory: ", error.message());
  }
  return (directory / path).string();
}

}  // namespace nxd

#include "core/base/regular_file.h"

#include <sys/stat.h>

#include "core/base/error.h"

namespace nxd {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

void check_regular_file(const std::string& path, mode_t mode) {
  if (!S_ISREG(mode)) fail(NXD_ERROR_IO, path, ": expected a regular file, got ", kind_of(mode));
}

}  // namespace nxd

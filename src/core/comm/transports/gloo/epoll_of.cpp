#include "core/comm/transports/gloo/epoll_of.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include "core/base/error.h"
#include "core/base/open_directory.h"
#include "core/base/proc_file.h"

namespace nxd {
namespace {

// The kernel has a line for each descriptor that the instance watches.
bool watches(const std::string& info, int watched) {
  for (size_t at = 0; (at = info.find("tfd:", at)) != std::string::npos; ++at) {
    int found = -1;
    if (std::sscanf(info.c_str() + at, "tfd: %d", &found) == 1 && found == watched) return true;
  }
  return false;
}

}  // namespace

int epoll_of(int watched) {
  const std::string path = own_proc("fdinfo");
  const OpenDirectory descriptors(::opendir(path.c_str()));
  if (!descriptors && errno == ENOMEM) throw std::bad_alloc();
  if (!descriptors && (errno == EMFILE || errno == ENFILE)) {
    fail(NXD_ERROR_IO, path, ": cannot list it: ", std::strerror(errno));
  }
  while (const dirent* entry = descriptors ? ::readdir(descriptors.get()) : nullptr) {
    const std::string name = entry->d_name;
    int fd = -1;  // "." and ".." are no numbers
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (fd < 0) continue;
    // Another thread may have closed it meanwhile.
    const auto info = read_proc(path + "/" + name);
    if (info && watches(*info, watched)) return fd;
  }
  return -1;
}

}  // namespace nxd

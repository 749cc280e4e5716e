#include "core/base/proc_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace nxd {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

std::optional<std::string> read_proc(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) {
    if (errno != EMFILE && errno != ENFILE && errno != ENOMEM) return std::nullopt;
    fail(NXD_ERROR_IO, "cannot open ", path, ": ", std::strerror(errno));
  }
  std::string content;
  char chunk[4096];
  for (;;) {
    const ssize_t n = ::read(file.fd, chunk, sizeof chunk);
    if (n > 0) {
      content.append(chunk, static_cast<size_t>(n));
    } else if (n == 0) {
      return content;
    } else if (errno != EINTR) {
      return std::nullopt;  // such as of a process that has ended meanwhile
    }
  }
}

}  // namespace nxd

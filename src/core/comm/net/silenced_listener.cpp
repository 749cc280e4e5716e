#include "core/comm/net/silenced_listener.h"

#include <fcntl.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/open_directory.h"
#include "core/base/proc_file.h"
#include "core/comm/net/socket.h"

namespace nxd {
namespace {

bool listens_at(int fd, const sockaddr_storage& address) {
  int listens = 0;
  socklen_t size = sizeof listens;
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens &&
         ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
         std::memcmp(&own, &address, length) == 0;
}

// Not by std::filesystem, whose iterators end the process where they find no memory.
int listening_at(const sockaddr_storage& address) {
  const std::string path = own_proc("fd");
  const OpenDirectory descriptors(::opendir(path.c_str()));
  if (!descriptors && errno == ENOMEM) throw std::bad_alloc();
  if (!descriptors) fail(NXD_ERROR_IO, path, ": cannot list it: ", std::strerror(errno));
  errno = 0;
  while (const dirent* entry = ::readdir(descriptors.get())) {
    const std::string_view name = entry->d_name;
    int fd = -1;  // "." and ".." are no numbers
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (fd >= 0 && listens_at(fd, address)) return fd;
    errno = 0;
  }
  if (errno != 0) fail(NXD_ERROR_IO, path, ": cannot list it: ", std::strerror(errno));
  fail(NXD_ERROR_INTERNAL, "expected a socket that listens at the address, found none");
}

// Listens at a name that the system chooses, in the abstract namespace.
Fd quiet_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un any{};
  any.sun_family = AF_UNIX;
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(sa_family_t)) != 0 ||
      ::listen(fd.get(), 0) != 0) {
    fail(NXD_ERROR_IO, "cannot make a socket: ", std::strerror(errno));
  }
  return fd;
}

void replace(int fd, const Fd& by) {
  if (::dup3(by.get(), fd, O_CLOEXEC) >= 0) return;
  fail(NXD_ERROR_IO, "cannot replace a socket: ", std::strerror(errno));
}

}  // namespace

void silence_listener(const sockaddr_storage& address, const std::function<void(int)>& then) {
  const int fd = listening_at(address);
  // Where it waits for events it is still the one with this descriptor, until it is closed.
  const Fd original(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!original) fail(NXD_ERROR_IO, "cannot copy a descriptor: ", std::strerror(errno));
  replace(fd, quiet_socket());
  try {
    then(fd);
  } catch (...) {
    replace(fd, original);
    throw;
  }
}

}  // namespace nxd

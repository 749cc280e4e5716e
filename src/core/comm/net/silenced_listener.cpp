#include "core/comm/net/silenced_listener.h"

#include <fcntl.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "core/base/error.h"
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

int listening_at(const sockaddr_storage& address) {
  try {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int fd = std::stoi(entry.path().filename());
      if (listens_at(fd, address)) return fd;
    }
  } catch (const std::filesystem::filesystem_error& error) {
    fail(NXD_ERROR_IO, error.what());
  }
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

#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace nxd {

// The same file by a descriptor that the program does not take for standard input, output or error.
// A program that has closed these, as daemons do, would get them from the next open, and then write
// its messages to a peer, or into a checkpoint. errno stays.
inline int above_stdio(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int before = errno;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (moved >= 0) ::close(fd);
  errno = before;
  return moved >= 0 ? moved : fd;
}

// Holds these places, where they are free, while code of others opens files.
class StdioHeld {
 public:
  StdioHeld() noexcept {
    for (int& held : held_) {
      held = ::open("/dev/null", O_RDWR | O_CLOEXEC);
      if (held > STDERR_FILENO) {
        ::close(held);
        held = -1;
      }
      if (held < 0) return;
    }
  }
  ~StdioHeld() {
    for (const int held : held_) {
      if (held >= 0) ::close(held);
    }
  }
  StdioHeld(const StdioHeld&) = delete;
  StdioHeld& operator=(const StdioHeld&) = delete;

 private:
  int held_[STDERR_FILENO + 1] = {-1, -1, -1};
};

}  // namespace nxd

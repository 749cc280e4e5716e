#include "core/base/above_stdio.h"

#include <fcntl.h>
#include <pthread.h>

#include <cerrno>
#include <mutex>
#include <new>

namespace nxd {
namespace {

struct Hold {
  std::mutex mutex;
  bool watches_forks = false;
  int holders = 0;
  bool held[STDERR_FILENO + 1] = {};

  void begin() noexcept {
    for (int fd; (fd = ::open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0;) {
      if (fd > STDERR_FILENO) {
        ::close(fd);
        return;
      }
      held[fd] = true;
    }
  }

  // A file that was opened before the hold began leaves its place, which must not be free now.
  void leave(int fd) noexcept {
    const int null = holders > 0 ? ::open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
    if (null >= 0 && ::dup3(null, fd, O_CLOEXEC) == fd) {
      held[fd] = true;
    } else {
      ::close(fd);
    }
    if (null >= 0) ::close(null);
  }

  void end() noexcept {
    holders = 0;
    for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
      if (held[fd]) ::close(fd);
      held[fd] = false;
    }
  }
};

// Never destroyed, as threads may outlive main. Takes no memory.
Hold& hold() noexcept {
  alignas(Hold) static char place[sizeof(Hold)];
  static Hold* const instance = new (place) Hold;
  return *instance;
}

// Where there is no memory for it, a child may keep /dev/null in these places.
void watch_forks(Hold& h) noexcept {
  if (h.watches_forks) return;
  h.watches_forks = pthread_atfork([] { hold().mutex.lock(); }, [] { hold().mutex.unlock(); },
                                   [] {
                                     hold().end();
                                     hold().mutex.unlock();
                                   }) == 0;
}

}  // namespace

int move_above_stdio(int fd) noexcept {
  const int before = errno;
  Hold& h = hold();
  const std::lock_guard<std::mutex> lock(h.mutex);
  watch_forks(h);
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (moved >= 0) h.leave(fd);
  errno = before;
  return moved >= 0 ? moved : fd;
}

StdioHeld::StdioHeld() noexcept {
  Hold& h = hold();
  const std::lock_guard<std::mutex> lock(h.mutex);
  watch_forks(h);
  if (h.holders++ == 0) h.begin();
}

StdioHeld::~StdioHeld() {
  Hold& h = hold();
  const std::lock_guard<std::mutex> lock(h.mutex);
  if (--h.holders == 0) h.end();
}

}  // namespace nxd

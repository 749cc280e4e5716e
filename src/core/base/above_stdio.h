#pragma once

#include <unistd.h>

namespace nxd {

int move_above_stdio(int fd) noexcept;

// The same file by a descriptor that the program does not take for standard input, output or error.
// A program that has closed these, as daemons do, would get them from the next open, and then write
// its messages to a peer, or into a checkpoint. errno stays.
inline int above_stdio(int fd) noexcept {
  return fd < 0 || fd > STDERR_FILENO ? fd : move_above_stdio(fd);
}

// Holds these places, where they are free, while code of others opens files. Threads share one
// hold, which the last of them ends. A forked child ends the hold of its parent's other threads.
class StdioHeld {
 public:
  StdioHeld() noexcept;
  ~StdioHeld();
  StdioHeld(const StdioHeld&) = delete;
  StdioHeld& operator=(const StdioHeld&) = delete;
};

}  // namespace nxd

#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "core/comm/net/socket.h"

namespace nxd {

// Identifies a process by its id and its start: the system reuses process ids.
struct ProcessId {
  int32_t pid = 0;
  uint64_t start_time = 0;  // in clock ticks since boot

  static ProcessId own();
};

// Tells which ranks of this host have ended with their processes. Any thread.
//
// The system tells by a descriptor of the process. Sandboxes, valgrind and older kernels have none:
// /proc is read there, at each look.
class ProcessWatch {
 public:
  // Starts to watch a rank, early: a process that has ended already could be mistaken for a later
  // one with its number. Does nothing for this process.
  void add(int world_rank, const ProcessId& process);
  // False for a rank that is not watched.
  bool has_ended(int world_rank);

 private:
  struct Watched {
    ProcessId process;
    Fd descriptor;  // none: /proc is read
    bool has_ended = false;
  };

  static bool looks_ended(const Watched& watched);

  std::mutex mutex_;
  std::map<int, Watched> ranks_;
};

}  // namespace nxd

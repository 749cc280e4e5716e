#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "core/comm/net/socket.h"

namespace nxd {

// A process of the library's own that is the parent of a job's processes and tells how they end.
// They cannot be children of the program: if it ignores SIGCHLD, the kernel forgets how a child
// ended; if it waits for any child, it takes the exit code away.
//
// It is forked, not executed, so it keeps the memory that the program changes while the job runs;
// it holds no other resource of the program's. It takes no signal but SIGKILL, and ends when the
// last process has ended. The kernel ends it with the thread that made it, and the processes with
// it.
class Supervisor {
 public:
  struct Program {
    std::string path;
    std::vector<std::string> arguments, environment;
  };

  // Starts the programs, in order. To be called with all signals blocked, on a thread that lives as
  // long as the processes are to. IO when one cannot be started: then none is left.
  explicit Supervisor(std::vector<Program> programs);
  // Waits until the supervisor has ended, which it does when all processes have.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  const std::vector<pid_t>& pids() const { return pids_; }

  struct End {
    int number;     // of the process, in the order of the programs
    int exit_code;  // or the number of the signal that ended it
    bool by_signal;
  };
  // The next process that has ended, if there is one. Does not wait.
  std::optional<End> next_end();
  // True if the supervisor has ended, and there is nothing more to learn.
  bool is_gone() const { return gone_; }
  // Sleeps until a process has ended, or so long.
  void await_end(int at_most_ms) const;

 private:
  struct Event;
  bool read_event(Event& event);
  void wait_for_starts(const std::vector<Program>& programs);
  void wait_for_own_end();

  Fd events_;  // from the supervisor
  pid_t pid_ = -1;
  bool gone_ = false;
  std::vector<pid_t> pids_;
};

}  // namespace nxd

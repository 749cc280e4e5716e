#pragma once

#include <sys/types.h>

#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/fork_guard.h"
#include "core/comm/net/deadline.h"
#include "core/comm/net/secret.h"
#include "core/comm/store/tcp_store_server.h"
#include "core/launch/supervisor.h"

namespace nxd {

// Processes started together on this host, one per rank. This process serves the store of
// their rendezvous, so that no free port has to be guessed, and makes the secret that keeps other
// processes out.
//
// The kernel ends them and their supervisor with the thread that started the supervisor. The job
// therefore has a thread of its own for that, which lives as long as the job does. The caller's
// thread may end before, and the processes cannot outlive this one.
class Job {
 public:
  // Empty arguments: this program, executed again with its own.
  Job(int size, int omp_num_threads, std::vector<std::string> arguments);
  ~Job();

  int size() const { return static_cast<int>(ranks_.size()); }
  // PEER_LOST when a process failed and all have ended, TIMEOUT when some still run. A negative
  // timeout has no bound. Calls go on with the end of the others where the last one left it.
  void wait(int64_t timeout_ms);
  void kill(int signal_number);

  struct Ended {
    bool running;
    int exit_code;
  };
  Ended exit_code(int rank);
  pid_t pid(int rank) const;

 private:
  struct Process {
    pid_t pid = -1;
    Fd handle;  // a pidfd; empty where there are too many
    bool running = false;
    bool by_signal = false;  // how it ended
    int exit_code = 0;
  };

  void start_all(const std::vector<std::string>& arguments, int omp_num_threads);
  std::vector<Supervisor::Program> programs_of(const std::vector<std::string>& arguments,
                                               int omp_num_threads) const;
  std::vector<std::string> environment_of(int rank, int omp_num_threads) const;
  void watch_all();
  void check_rank(int rank) const;
  void ended(size_t rank, int exit_code, bool by_signal);
  bool reap();  // whether any process still runs
  void await_any_end(int64_t at_most_ms) const;
  int64_t go_on_ending();  // takes the steps that are due; milliseconds to the next
  void send_all(int signal_number) const;
  void terminate_all() const;
  void end_all();
  std::string how_ended(int rank) const;
  [[noreturn]] void fail_with(int rank) const;

  const Secret secret_ = Secret::random();
  std::unique_ptr<TcpStoreServer> server_;
  std::vector<Process> ranks_;
  std::optional<Supervisor> supervisor_;
  int first_failed_ = -1;
  // How far the end of the others is when a process has failed.
  enum class Ending { kNot, kReporting, kTerminated, kKilled } ending_ = Ending::kNot;
  Deadline ending_until_ = Deadline::after_ms(0);
  std::latch started_{1}, over_{1};  // which take no memory, as a promise does to be broken
  std::thread parent_;               // of the supervisor
};

}  // namespace nxd

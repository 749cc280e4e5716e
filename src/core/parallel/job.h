#pragma once

#include <sys/types.h>

#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/fork_stamp.h"
#include "core/comm/deadline.h"
#include "core/comm/tcp_store_server.h"

namespace nxd {

// Processes started together on this host, one per rank. This process serves the store they meet
// through, so that no port has to be found and then lost again.
//
// The kernel ends them with the thread that started them. So that is one of the job's own, which
// lives as long as the job does: neither does the caller's thread matter, nor can the processes
// outlive this one.
class Job {
 public:
  // Empty arguments: this program, executed again with its own.
  Job(int size, int omp_num_threads, std::vector<std::string> arguments);
  ~Job();

  int size() const { return static_cast<int>(ranks_.size()); }
  // PEER_LOST when a process failed, TIMEOUT when some still run. A negative timeout has no bound.
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
    bool running = false;
    int exit_code = 0;
  };

  void start_all(const std::vector<std::string>& arguments, int omp_num_threads);
  void start(int rank, const std::vector<std::string>& arguments, int omp_num_threads);
  void check_rank(int rank) const;
  bool reap();  // whether any process still runs
  void await_any_end(std::chrono::milliseconds at_most) const noexcept;
  void end_all();
  [[noreturn]] void fail_with(int rank) const;

  std::unique_ptr<TcpStoreServer> server_;
  std::vector<Process> ranks_;
  int first_failed_ = -1;
  std::latch started_{1}, over_{1};  // which take no memory, as a promise does to be broken
  std::thread parent_;               // of the processes
};

}  // namespace nxd

struct nxd_job {
  std::unique_ptr<nxd::Job> value;
  nxd::ForkStamp stamp{};
};

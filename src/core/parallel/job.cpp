#include "core/parallel/job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>

#include "core/base/environment.h"
#include "core/base/proc_file.h"
#include "core/base/start_thread.h"
#include "core/parallel/launcher.h"

extern char** environ;

namespace nxd {
namespace {

using std::chrono::milliseconds;

// How long the others may go on when one process has failed, so that they can say what they saw;
// and how long a process may take to heed SIGTERM.
constexpr int64_t kReportGraceMs = 3000;
constexpr int64_t kTermGraceMs = 2000;

std::vector<std::string> own_arguments() {
  const std::string all = read_proc("/proc/self/cmdline").value_or("");
  std::vector<std::string> arguments;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\0', at), all.size());
    arguments.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  check_internal(!arguments.empty(), "/proc/self/cmdline is empty");
  return arguments;
}

// The environment with some variables set.
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& settings) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text(*entry);
    const std::string name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(settings.begin(), settings.end(),
                                      [&](const auto& setting) { return setting.first == name; });
    if (!replaced) out.push_back(text);
  }
  for (const auto& [name, value] : settings) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

// Between fork and exec only async-signal-safe calls are allowed: everything was made before.
[[noreturn]] void execute(const char* program, char* const* arguments, char* const* environment,
                          int report, pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent ended before the request
  execvpe(program, arguments, environment);
  const int error = errno;
  const ssize_t written = write(report, &error, sizeof error);
  static_cast<void>(written);
  _exit(127);
}

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Job::Job(int size, int omp_num_threads, std::vector<std::string> arguments) {
  const std::string evidence = launch_evidence();
  check_state(evidence.empty(), "nxd_spawn: this process was itself started by a launcher (",
              evidence, " is set), and must not start another job");
  check_argument(size >= 0, "options.n_processes: expected 0 or more, got ", size);
  if (size == 0) size = static_cast<int>(env::get_int("NEURON_NUM_DEVICES").value_or(1));
  check_argument(size >= 1 && size <= 65536, "NEURON_NUM_DEVICES: expected 1 to 65536, got ", size);
  check_argument(omp_num_threads >= 0, "options.omp_num_threads: expected 0 or more, got ",
                 omp_num_threads);
  server_ = std::make_unique<TcpStoreServer>(0);
  ranks_.resize(static_cast<size_t>(size));
  start_all(arguments, omp_num_threads);
}

Job::~Job() {
  end_all();
  over_.count_down();
  parent_.join();
}

void Job::start_all(const std::vector<std::string>& arguments, int omp_num_threads) {
  std::exception_ptr failure;
  parent_ = start_thread("for the processes", [this, &failure, &arguments, omp_num_threads] {
    try {
      for (int rank = 0; rank < size(); ++rank) start(rank, arguments, omp_num_threads);
    } catch (...) {
      failure = std::current_exception();
    }
    started_.count_down();
    over_.wait();
  });
  started_.wait();
  if (!failure) return;
  end_all();
  over_.count_down();
  parent_.join();
  std::rethrow_exception(failure);
}

void Job::start(int rank, const std::vector<std::string>& given, int omp_num_threads) {
  std::vector<std::string> arguments = given.empty() ? own_arguments() : given;
  const std::string program = given.empty() ? "/proc/self/exe" : arguments[0];
  std::vector<std::pair<std::string, std::string>> settings = {
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(size())},
      {"LOCAL_RANK", std::to_string(rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(size())},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(server_->port())},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TORCHELASTIC_RUN_ID", "nxd_spawn"},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"NXD_SPAWNED", "1"}};
  if (omp_num_threads > 0) {
    settings.emplace_back("OMP_NUM_THREADS", std::to_string(omp_num_threads));
  } else if (size() > 1 && !env::get("OMP_NUM_THREADS")) {
    settings.emplace_back("OMP_NUM_THREADS", "1");
  }
  std::vector<std::string> environment = environment_with(settings);
  const std::vector<char*> argv = pointers_to(arguments);
  const std::vector<char*> envp = pointers_to(environment);

  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail(NXD_ERROR_IO, "pipe: ", std::strerror(errno));
  Fd report_read(ends[0]), report_write(ends[1]);
  const pid_t parent = ::getpid();
  // All signals are blocked on this thread: no handler of the program may run in the child before
  // it is another program.
  const pid_t child = ::fork();
  if (child == 0) execute(program.c_str(), argv.data(), envp.data(), ends[1], parent);
  if (child < 0) fail(NXD_ERROR_IO, "fork: ", std::strerror(errno));
  Process& process = ranks_[static_cast<size_t>(rank)];
  process.pid = child;
  process.running = true;
  report_write.reset();
  // The pipe closes when the program is executed, and carries the error when it cannot be.
  int error = 0;
  ssize_t n;
  do {
    n = ::read(report_read.get(), &error, sizeof error);
  } while (n < 0 && errno == EINTR);
  if (n == sizeof error) {
    fail(NXD_ERROR_IO, "cannot execute \"", program, "\": ", std::strerror(error));
  }
}

bool Job::reap() {
  bool any = false;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    Process& process = ranks_[rank];
    if (!process.running) continue;
    int status = 0;
    const pid_t pid = ::waitpid(process.pid, &status, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR)) {
      any = true;
      continue;
    }
    process.running = false;
    // Somebody else has collected the process, as with SIGCHLD ignored; how it ended is unknown.
    process.exit_code = pid < 0 ? 127 : exit_code_of(status);
    if (process.exit_code != 0 && first_failed_ < 0) first_failed_ = static_cast<int>(rank);
  }
  return any;
}

// Sleeps until a process may have ended. Where processes cannot be watched, or are too many, and in
// any case now and then, the caller looks by itself. Takes no memory.
void Job::await_any_end(milliseconds at_most) const noexcept {
  constexpr size_t kMostWatched = 256;
  constexpr milliseconds kUnwatched(10), kWatched(200);
  std::array<Fd, kMostWatched> watches;
  std::array<pollfd, kMostWatched> polls;
  size_t watched = 0;
  milliseconds pause = kWatched;
  for (const Process& process : ranks_) {
    if (!process.running) continue;
    Fd watch;
    if (watched < kMostWatched) {
      watch = Fd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
    }
    if (!watch) {
      pause = kUnwatched;
      break;
    }
    polls[watched] = {watch.get(), POLLIN, 0};
    watches[watched++] = std::move(watch);
  }
  ::poll(polls.data(), watched, static_cast<int>(std::min(pause, at_most).count()));
}

void Job::fail_with(int rank) const {
  const int code = ranks_[static_cast<size_t>(rank)].exit_code;
  throw Error(NXD_ERROR_PEER_LOST,
              text("nxd_job_wait: rank ", rank, " of ", size(),
                   code > 128 ? " was ended by signal " : " ended with exit code ",
                   code > 128 ? code - 128 : code),
              {rank, 0, "", "job_wait"});
}

void Job::wait(int64_t timeout_ms) {
  const Deadline deadline = Deadline::after_ms(timeout_ms < 0 ? INT64_MAX : timeout_ms);
  while (reap() && first_failed_ < 0) {
    if (deadline.expired()) {
      fail(NXD_ERROR_TIMEOUT, "nxd_job_wait: processes still run after ", timeout_ms, " ms");
    }
    await_any_end(milliseconds(deadline.remaining_ms()));
  }
  if (first_failed_ < 0) return;
  const int failed = first_failed_;
  const Deadline grace = Deadline::after_ms(kReportGraceMs);
  while (reap() && !grace.expired()) await_any_end(milliseconds(grace.remaining_ms()));
  end_all();
  fail_with(failed);
}

void Job::kill(int signal_number) {
  check_argument(signal_number > 0 && signal_number < NSIG, "signal_number: expected 1 to ",
                 NSIG - 1, ", got ", signal_number);
  reap();
  for (const Process& process : ranks_) {
    if (process.running) ::kill(process.pid, signal_number);
  }
}

Job::Ended Job::exit_code(int rank) {
  check_rank(rank);
  reap();
  const Process& process = ranks_[static_cast<size_t>(rank)];
  return {process.running, process.running ? 0 : process.exit_code};
}

pid_t Job::pid(int rank) const {
  check_rank(rank);
  return ranks_[static_cast<size_t>(rank)].pid;
}

void Job::check_rank(int rank) const {
  check_argument(rank >= 0 && rank < size(), "rank: expected 0 to ", size() - 1, ", got ", rank);
}

void Job::end_all() {
  if (!reap()) return;
  for (const Process& process : ranks_) {
    // A stopped process heeds SIGTERM only when it goes on.
    if (process.running) ::kill(process.pid, SIGTERM), ::kill(process.pid, SIGCONT);
  }
  const Deadline grace = Deadline::after_ms(kTermGraceMs);
  while (reap() && !grace.expired()) await_any_end(milliseconds(grace.remaining_ms()));
  for (Process& process : ranks_) {
    if (!process.running) continue;
    ::kill(process.pid, SIGKILL);
    int status = 0;
    while (::waitpid(process.pid, &status, 0) < 0 && errno == EINTR) {
    }
    process.running = false;
    process.exit_code = exit_code_of(status);
  }
}

}  // namespace nxd

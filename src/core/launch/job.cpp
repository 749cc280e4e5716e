#include "core/launch/job.h"

#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include "core/base/environment.h"
#include "core/base/proc_file.h"
#include "core/base/start_thread.h"
#include "core/comm/net/socket.h"
#include "core/launch/launcher.h"

extern char** environ;

namespace nxd {
namespace {

// How long the others may go on when one process has failed, so that they can say what they saw;
// and how long a process may take to heed SIGTERM.
constexpr int64_t kReportGraceMs = 3000;
constexpr int64_t kTermGraceMs = 2000;

constexpr int kMostProcesses = 65536;

const char* const kLoopback = "127.0.0.1";

// As they were when the library was loaded: programs cut their arguments up in place, and write
// titles over them. Never destroyed, for a program may start jobs while it ends.
std::string& loaded_arguments() {
  static auto* const arguments = new std::string(read_proc(own_proc("cmdline")).value_or(""));
  return *arguments;
}

__attribute__((constructor)) void load_arguments() noexcept {
  try {
    loaded_arguments();
  } catch (...) {
    // Without memory they are read when a job is started.
  }
}

std::vector<std::string> own_arguments() {
  const std::string& all = loaded_arguments();
  std::vector<std::string> arguments;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\0', at), all.size());
    arguments.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  if (arguments.empty()) {
    fail(NXD_ERROR_IO,
         "nxd_spawn: /proc/self/cmdline has no arguments of this program: expected /proc, or "
         "options.argv");
  }
  return arguments;
}

// Processes are called after the path that they are executed by: by that in /proc they would all be
// "exe" to top and pkill. It is right where the program's own path leads elsewhere by now.
std::string own_program() {
  const std::string in_proc = own_proc("exe");
  char path[PATH_MAX];
  const ssize_t size = ::readlink(in_proc.c_str(), path, sizeof path);
  if (size <= 0 || static_cast<size_t>(size) == sizeof path) return "/proc/self/exe";
  std::string own(path, static_cast<size_t>(size));
  struct stat here = {}, there = {};
  const bool is_same = ::stat(in_proc.c_str(), &here) == 0 && ::stat(own.c_str(), &there) == 0 &&
                       here.st_dev == there.st_dev && here.st_ino == there.st_ino;
  return is_same ? own : "/proc/self/exe";
}

// The environment with some variables set.
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& settings) {
  std::vector<std::string> out;
  // None at all after clearenv().
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text(*entry);
    const std::string name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(settings.begin(), settings.end(),
                                      [&](const auto& setting) { return setting.first == name; });
    if (!replaced) out.push_back(text);
  }
  for (const auto& [name, value] : settings) out.push_back(name + "=" + value);
  return out;
}

// A signal to a process, and to no later one with its number.
void send_signal(const Fd& handle, pid_t pid, int signal_number) {
  if (handle) {
    ::syscall(SYS_pidfd_send_signal, handle.get(), signal_number, nullptr, 0);
  } else {
    ::kill(pid, signal_number);
  }
}

// NxD's variable, or PyTorch/XLA's.
int default_size() {
  const auto of_nxd = env::get_int("NEURON_NUM_DEVICES");
  const int64_t size = of_nxd ? *of_nxd : env::get_int("NEURONCORE_NUM_DEVICES").value_or(1);
  check_argument(size >= 1 && size <= kMostProcesses,
                 of_nxd ? "NEURON_NUM_DEVICES" : "NEURONCORE_NUM_DEVICES", ": expected 1 to ",
                 kMostProcesses, ", got ", size);
  return static_cast<int>(size);
}

}  // namespace

Job::Job(int size, int omp_num_threads, std::vector<std::string> arguments) {
  // Before the arguments: Julia's is_rank asks with a number that is none.
  const std::string evidence = launch_evidence();
  check_state(evidence.empty(), "nxd_spawn: this process was itself started by a launcher (",
              evidence, " is set), and must not start another job");
  check_argument(size >= 0 && size <= kMostProcesses, "options.num_processes: expected 0 to ",
                 kMostProcesses, ", got ", size);
  if (size == 0) size = default_size();
  check_argument(omp_num_threads >= 0, "options.omp_num_threads: expected 0 or more, got ",
                 omp_num_threads);
  // Several ranks would look for the store until their timeout.
  if (size > 1 && local_address_toward(kLoopback).empty()) {
    fail(NXD_ERROR_IO, "nxd_spawn: ", kLoopback,
         " cannot be reached in this network namespace; expected its loopback to be up (ip link "
         "set lo "
         "up)");
  }
  std::optional<Key> key;
  if (!env::open_store()) key = secret_.store_key();
  server_ = std::make_unique<TcpStoreServer>(kLoopback, 0, key);
  ranks_.resize(static_cast<size_t>(size));
  start_all(arguments, omp_num_threads);
}

Job::~Job() {
  end_all();
  over_.count_down();
  parent_.join();
}

void Job::start_all(const std::vector<std::string>& arguments, int omp_num_threads) {
  std::optional<Error> failure;
  parent_ = start_thread("for the processes", [this, &failure, &arguments, omp_num_threads] {
    try {
      supervisor_.emplace(programs_of(arguments, omp_num_threads));
    } catch (...) {
      failure = Error::current();
    }
    started_.count_down();
    over_.wait();
  });
  started_.wait();
  try {
    if (failure) throw Error(*failure);
    return watch_all();
  } catch (...) {
    failure = Error::current();
  }
  end_all();
  over_.count_down();
  parent_.join();
  throw Error(*failure);
}

std::vector<Supervisor::Program> Job::programs_of(const std::vector<std::string>& given,
                                                  int omp_num_threads) const {
  std::vector<Supervisor::Program> programs;
  const std::vector<std::string> arguments = given.empty() ? own_arguments() : given;
  const std::string path = given.empty() ? own_program() : arguments[0];
  for (int rank = 0; rank < size(); ++rank) {
    programs.push_back({path, arguments, environment_of(rank, omp_num_threads)});
  }
  return programs;
}

std::vector<std::string> Job::environment_of(int rank, int omp_num_threads) const {
  std::vector<std::pair<std::string, std::string>> settings = {
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(size())},
      {"LOCAL_RANK", std::to_string(rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(size())},
      {"MASTER_ADDR", kLoopback},
      {"MASTER_PORT", std::to_string(server_->port())},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TORCHELASTIC_RUN_ID", kRunOfSpawn},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"NXD_SPAWNED", "1"},
      {"NXD_SECRET", secret_.text()},
      {"NXD_SECRET_FILE", ""}};  // counts as not set
  if (omp_num_threads > 0) {
    settings.emplace_back("OMP_NUM_THREADS", std::to_string(omp_num_threads));
  } else if (size() > 1 && !env::get("OMP_NUM_THREADS")) {
    settings.emplace_back("OMP_NUM_THREADS", "1");
  }
  return environment_with(settings);
}

// Ranks beyond kMostWatched are known by their process numbers alone.
void Job::watch_all() {
  constexpr size_t kMostWatched = 256;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    Process& process = ranks_[rank];
    process.pid = supervisor_->pids()[rank];
    process.running = true;
    if (rank < kMostWatched) {
      process.handle = Fd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
    }
  }
}

void Job::ended(size_t rank, int exit_code, bool by_signal) {
  Process& process = ranks_[rank];
  if (!process.running) return;
  process.running = false;
  process.handle.reset();
  process.by_signal = by_signal;
  process.exit_code = by_signal ? 128 + exit_code : exit_code;
  if (process.exit_code != 0 && first_failed_ < 0) first_failed_ = static_cast<int>(rank);
}

bool Job::reap() {
  if (!supervisor_) return false;
  while (const auto end = supervisor_->next_end()) {
    ended(static_cast<size_t>(end->number), end->exit_code, end->by_signal);
  }
  bool any = false;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    // The processes of a supervisor that was killed end with it.
    if (supervisor_->is_gone()) ended(rank, SIGKILL, true);
    any = any || ranks_[rank].running;
  }
  return any;
}

void Job::await_any_end(int64_t at_most_ms) const {
  supervisor_->await_end(static_cast<int>(std::clamp<int64_t>(at_most_ms, 0, 1000)));
}

std::string Job::how_ended(int rank) const {
  const Process& process = ranks_[static_cast<size_t>(rank)];
  return text(" of ", size(),
              process.by_signal ? " was ended by signal " : " ended with exit code ",
              process.by_signal ? process.exit_code - 128 : process.exit_code);
}

void Job::fail_with(int rank) const {
  throw Error(NXD_ERROR_PEER_LOST, text("nxd_job_wait: rank ", rank, how_ended(rank)),
              {rank, 0, "", "job_wait"});
}

void Job::wait(int64_t timeout_ms) {
  const Deadline deadline = Deadline::after_ms(timeout_ms < 0 ? INT64_MAX : timeout_ms);
  while (reap()) {
    const int64_t step_ms = first_failed_ < 0 ? INT64_MAX : go_on_ending();
    if (deadline.expired()) {
      fail(NXD_ERROR_TIMEOUT, "nxd_job_wait: processes still run after ", timeout_ms, " ms",
           first_failed_ < 0
               ? ""
               : text(", and are being ended, for rank ", first_failed_, how_ended(first_failed_)));
    }
    await_any_end(std::min(deadline.remaining_ms(), step_ms));
  }
  if (first_failed_ >= 0) fail_with(first_failed_);
}

int64_t Job::go_on_ending() {
  if (ending_ == Ending::kNot) {
    ending_ = Ending::kReporting;
    ending_until_ = Deadline::after_ms(kReportGraceMs);
  }
  if (ending_ == Ending::kReporting && ending_until_.expired()) {
    terminate_all();
    ending_ = Ending::kTerminated;
    ending_until_ = Deadline::after_ms(kTermGraceMs);
  }
  if (ending_ == Ending::kTerminated && ending_until_.expired()) {
    send_all(SIGKILL);
    ending_ = Ending::kKilled;
  }
  return ending_ == Ending::kKilled ? INT64_MAX : ending_until_.remaining_ms();
}

void Job::send_all(int signal_number) const {
  for (const Process& process : ranks_) {
    if (process.running) send_signal(process.handle, process.pid, signal_number);
  }
}

// A stopped process heeds SIGTERM only when it goes on.
void Job::terminate_all() const {
  send_all(SIGTERM);
  send_all(SIGCONT);
}

void Job::kill(int signal_number) {
  check_argument(signal_number > 0 && signal_number < NSIG, "signal_number: expected 1 to ",
                 NSIG - 1, ", got ", signal_number);
  reap();
  send_all(signal_number);
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
  terminate_all();
  const Deadline grace = Deadline::after_ms(kTermGraceMs);
  while (reap() && !grace.expired()) await_any_end(grace.remaining_ms());
  send_all(SIGKILL);
  while (reap()) await_any_end(1000);
}

}  // namespace nxd

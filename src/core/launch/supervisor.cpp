#include "core/launch/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace nxd {

namespace {

enum EventKind : int32_t { kStarted, kNotForked, kNotExecuted, kEnded, kSignalled };

}  // namespace

struct Supervisor::Event {
  int32_t kind;
  int32_t number;  // of the process
  int32_t value;   // its pid; errno; its exit code; the signal
};

namespace {

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

struct Pipe {
  Fd read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail(NXD_ERROR_IO, "pipe: ", std::strerror(errno));
  return {Fd(ends[0]), Fd(ends[1])};
}

// Whole, or false at the end of the pipe.
bool read_whole(int fd, void* out, size_t size) {
  auto* bytes = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t n = ::read(fd, bytes, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

// --- In the forked processes -------------------------------------------------------------------
// Other threads of the program may have held any lock: only async-signal-safe calls are allowed,
// and everything was made before.

struct Plan {
  size_t size;
  const char* const* paths;
  char* const* const* arguments;
  char* const* const* environments;
  pid_t* pids;
  int events, permission;
};

void send_event(int fd, EventKind kind, size_t number, int32_t value) {
  const int32_t event[3] = {kind, static_cast<int32_t>(number), value};
  ssize_t n;
  do {
    n = ::write(fd, event, sizeof event);
  } while (n < 0 && errno == EINTR);
}

// A signal that comes before the program begins is for the program. A handler of the caller's would
// take it here, and it would be lost.
void drop_handlers() {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action;
    if (::sigaction(number, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
    action.sa_flags = 0;
    action.sa_handler = SIG_DFL;
    ::sigaction(number, &action, nullptr);
  }
}

[[noreturn]] void execute(const char* path, char* const* arguments, char* const* environment,
                          int report, pid_t parent) {
  drop_handlers();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent ended before the request
  execvpe(path, arguments, environment);
  const int error = errno;
  const ssize_t written = write(report, &error, sizeof error);
  static_cast<void>(written);
  _exit(127);
}

// True if it runs.
bool start_one(const Plan& plan, size_t number) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    send_event(plan.events, kNotForked, number, errno);
    return false;
  }
  const pid_t parent = ::getpid();
  // vfork shares this process's memory until the program is executed, so that no rank takes another
  // copy of the page tables, which are large where libtorch is loaded. The child only calls the
  // system, from a function that does not return.
  const pid_t child = ::vfork();
  if (child == 0) {
    execute(plan.paths[number], plan.arguments[number], plan.environments[number], ends[1], parent);
  }
  const int not_forked = child < 0 ? errno : 0;
  ::close(ends[1]);
  // The pipe closes when the program is executed, and carries the error when it cannot be.
  int error = 0;
  const bool failed = child > 0 && read_whole(ends[0], &error, sizeof error);
  ::close(ends[0]);
  plan.pids[number] = child;
  if (child < 0) {
    send_event(plan.events, kNotForked, number, not_forked);
    return false;
  }
  send_event(plan.events, failed ? kNotExecuted : kStarted, number, failed ? error : child);
  return !failed;
}

[[noreturn]] void end_started(const Plan& plan, size_t started) {
  for (size_t i = 0; i < started; ++i) {
    if (plan.pids[i] > 0) ::kill(plan.pids[i], SIGKILL);
  }
  while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
  ::_exit(0);
}

void close_between(int first, int last) {
  if (first > last) return;
  if (::syscall(SYS_close_range, first, last, 0) == 0) return;
  for (int fd = first; fd <= std::min(last, 65535); ++fd) ::close(fd);
}

[[noreturn]] void supervise(const Plan& plan, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  ::signal(SIGCHLD, SIG_DFL);  // here alone, and in the programs
  for (size_t i = 0; i < plan.size; ++i) {
    if (!start_one(plan, i)) end_started(plan, i + 1);
  }
  // The program's descriptors were for its own children to inherit. Kept here they would hold pipes
  // open that others wait to close.
  const int low = std::min(plan.events, plan.permission);
  const int high = std::max(plan.events, plan.permission);
  close_between(0, low - 1);
  close_between(low + 1, high - 1);
  close_between(high + 1, INT32_MAX);
  char byte;
  if (!read_whole(plan.permission, &byte, 1)) end_started(plan, plan.size);
  for (size_t left = plan.size; left > 0; --left) {
    int status = 0;
    pid_t ended;
    do {
      ended = ::waitpid(-1, &status, 0);
    } while (ended < 0 && errno == EINTR);
    if (ended < 0) break;
    size_t number = 0;
    while (number < plan.size && plan.pids[number] != ended) ++number;
    if (number == plan.size) continue;
    const bool by_signal = WIFSIGNALED(status);
    send_event(plan.events, by_signal ? kSignalled : kEnded, number,
               by_signal ? WTERMSIG(status) : WEXITSTATUS(status));
  }
  ::_exit(0);
}

}  // namespace

Supervisor::Supervisor(std::vector<Program> programs) : pids_(programs.size()) {
  std::vector<const char*> paths;
  std::vector<std::vector<char*>> pointers;
  for (Program& program : programs) {
    paths.push_back(program.path.c_str());
    pointers.push_back(pointers_to(program.arguments));
    pointers.push_back(pointers_to(program.environment));
  }
  std::vector<char*const*> arguments, environments;
  for (size_t i = 0; i < programs.size(); ++i) {
    arguments.push_back(pointers[2 * i].data());
    environments.push_back(pointers[2 * i + 1].data());
  }
  Pipe events = make_pipe(), permission = make_pipe();
  const Plan plan = {programs.size(), paths.data(),       arguments.data(),     environments.data(),
                     pids_.data(),    events.write.get(), permission.read.get()};
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::close(permission.write.get());
    supervise(plan, parent);
  }
  if (pid_ < 0) fail(NXD_ERROR_IO, "fork: ", std::strerror(errno));
  events.write.reset();
  events_ = std::move(events.read);
  try {
    wait_for_starts(programs);
    ::fcntl(events_.get(), F_SETFL, O_NONBLOCK);
  } catch (...) {
    permission.write.reset();
    wait_for_own_end();
    throw;
  }
  // Until now none was waited for, so all pids are still theirs.
  const ssize_t written = ::write(permission.write.get(), "x", 1);
  static_cast<void>(written);
}

void Supervisor::wait_for_starts(const std::vector<Program>& programs) {
  for (size_t i = 0; i < programs.size(); ++i) {
    Event event;
    if (!read_whole(events_.get(), &event, sizeof event)) {
      fail(NXD_ERROR_IO, "the process that starts the job's others has ended");
    }
    if (event.kind == kStarted) {
      pids_[i] = event.value;
    } else if (event.kind == kNotForked) {
      fail(NXD_ERROR_IO, "cannot start \"", programs[i].path, "\": ", std::strerror(event.value));
    } else {
      fail(NXD_ERROR_IO, "cannot execute \"", programs[i].path, "\": ", std::strerror(event.value));
    }
  }
}

Supervisor::~Supervisor() { wait_for_own_end(); }

// The program may have waited for it already.
void Supervisor::wait_for_own_end() {
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// Events are written whole, as they are shorter than PIPE_BUF.
bool Supervisor::read_event(Event& event) {
  if (gone_) return false;
  ssize_t n;
  do {
    n = ::read(events_.get(), &event, sizeof event);
  } while (n < 0 && errno == EINTR);
  if (n == sizeof event) return true;
  gone_ = n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  return false;
}

std::optional<Supervisor::End> Supervisor::next_end() {
  Event event;
  if (!read_event(event)) return std::nullopt;
  return End{event.number, event.value, event.kind == kSignalled};
}

void Supervisor::await_end(int at_most_ms) const {
  pollfd poll{events_.get(), POLLIN, 0};
  ::poll(&poll, 1, at_most_ms);
}

}  // namespace nxd

#include "core/base/process_status.h"

#include <cerrno>
#include <csignal>
#include <string>

#include "core/base/error.h"
#include "core/base/proc_file.h"
#include "core/base/text_stream.h"

namespace nxd {
namespace {

// Fields of /proc/PID/stat, by the numbers that proc(5) gives them.
struct ProcessStatus {
  char state = 0;           // 3
  pid_t parent = 0;         // 4
  int threads = 0;          // 20
  uint64_t start_time = 0;  // 22
};

std::optional<ProcessStatus> status_of(pid_t pid) {
  const std::string line = read_proc(text("/proc/", pid, "/stat")).value_or("");
  // The second field, a name in parentheses, may itself have blanks and parentheses.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  TextReader in(line.substr(name_end + 1));
  ProcessStatus status;
  std::string skipped;
  in >> status.state >> status.parent;
  for (int field = 5; field < 20; ++field) in >> skipped;
  in >> status.threads >> skipped >> status.start_time;
  check_stream(in);
  return status;
}

}  // namespace

pid_t parent_of(pid_t pid) { return status_of(pid).value_or(ProcessStatus()).parent; }

uint64_t start_time_of(pid_t pid) { return status_of(pid).value_or(ProcessStatus()).start_time; }

bool has_ended(pid_t pid, uint64_t start_time) {
  const auto status = status_of(pid);
  if (!status) return ::kill(pid, 0) != 0 && errno == ESRCH;
  if (status->start_time != start_time) return true;
  // A first thread that has ended is a zombie, too, while the process's others go on.
  return (status->state == 'Z' || status->state == 'X') && status->threads <= 1;
}

}  // namespace nxd

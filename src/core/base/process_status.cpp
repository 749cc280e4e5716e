#include "core/base/process_status.h"

#include <string>

#include "core/base/error.h"
#include "core/base/proc_file.h"
#include "core/base/text_stream.h"

namespace nxd {
namespace {

// proc(5): fields of stat are counted from 1. The second, a name in parentheses, may itself have
// blanks and parentheses, so that reading begins behind it.
constexpr int kFirstField = 3, kParentField = 4, kStartTimeField = 22;

uint64_t status_field(pid_t pid, int number) {
  const std::string line = read_proc(text("/proc/", pid, "/stat")).value_or("");
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  TextReader in(line.substr(name_end + 1));
  std::string skipped;
  for (int field = kFirstField; field < number; ++field) in >> skipped;
  uint64_t value = 0;
  in >> value;
  check_stream(in);
  return value;
}

}  // namespace

pid_t parent_of(pid_t pid) { return static_cast<pid_t>(status_field(pid, kParentField)); }

uint64_t start_time_of(pid_t pid) { return status_field(pid, kStartTimeField); }

}  // namespace nxd

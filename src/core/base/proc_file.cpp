#include "core/base/proc_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "core/base/open_directory.h"

namespace nxd {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

bool is_lack(int code) { return code == EMFILE || code == ENFILE || code == ENOMEM; }

}  // namespace

std::optional<std::string> read_proc(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) {
    if (!is_lack(errno)) return std::nullopt;
    fail(NXD_ERROR_IO, "cannot open ", path, ": ", std::strerror(errno));
  }
  std::string content;
  char chunk[4096];
  for (;;) {
    const ssize_t n = ::read(file.fd, chunk, sizeof chunk);
    if (n > 0) {
      content.append(chunk, static_cast<size_t>(n));
    } else if (n == 0) {
      return content;
    } else if (errno != EINTR) {
      return std::nullopt;  // such as of a process that has ended meanwhile
    }
  }
}

// Linux before 3.17, and some sandboxes, have no directory of the thread that asks.
std::string own_proc(const std::string& name) {
  const int code = errno;
  const bool has_threads = ::access("/proc/thread-self", F_OK) == 0;
  std::string path = (has_threads ? "/proc/thread-self/" : "/proc/self/") + name;
  errno = code;
  return path;
}

namespace {

std::vector<std::string> threads_of(const std::string& process) {
  const std::string path = process + "/task";
  const OpenDirectory entries(::opendir(path.c_str()));
  if (!entries && is_lack(errno)) {
    fail(NXD_ERROR_IO, "cannot list ", path, ": ", std::strerror(errno));
  }
  std::vector<std::string> threads;
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
    if (entry->d_name[0] != '.') threads.push_back(path + "/" + entry->d_name);
  }
  return threads;
}

}  // namespace

// A thread may end between the list and the look: then the next one has what it had. The list is
// closed by then, since its descriptor would be found as one of this process.
bool find_in_proc(pid_t pid, const std::function<bool(const std::string& directory)>& take) {
  const std::string process = text("/proc/", pid);
  if (take(process)) return true;
  const std::vector<std::string> threads = threads_of(process);
  return std::any_of(threads.begin(), threads.end(), take);
}

}  // namespace nxd

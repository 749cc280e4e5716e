#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

namespace nxd {

// All of a file below /proc; none when there is no such file, or this user may not read it. IO or
// OUT_OF_MEMORY when this process lacks what reading takes, which says nothing about the file.
std::optional<std::string> read_proc(const std::string& path);

// The path of a file about this process, such as "fd", for the thread that asks. The directory of a
// process shows its first thread: without descriptors, memory or namespaces once that has ended,
// while the others go on. Leaves errno as it is.
std::string own_proc(const std::string& name);

// Offers the directory of a process, and then those of its threads, until one is taken. Says
// whether one was. IO or OUT_OF_MEMORY as read_proc.
bool find_in_proc(pid_t pid, const std::function<bool(const std::string& directory)>& take);

}  // namespace nxd

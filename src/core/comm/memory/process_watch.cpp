#include "core/comm/memory/process_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"
#include "core/base/process_status.h"

namespace nxd {

ProcessId ProcessId::own() {
  const auto pid = static_cast<int32_t>(::getpid());
  return {pid, start_time_of(pid)};
}

void ProcessWatch::add(int world_rank, const ProcessId& process) {
  if (process.pid == ::getpid()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (processes_.count(world_rank)) return;
  Fd descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!descriptor && errno != ESRCH) {
    fail(NXD_ERROR_IO, "cannot watch process ", process.pid, " of rank ", world_rank, ": ",
         std::strerror(errno));
  }
  if (descriptor && start_time_of(process.pid) != process.start_time) descriptor.reset();
  processes_.emplace(world_rank, std::move(descriptor));
}

bool ProcessWatch::has_ended(int world_rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = processes_.find(world_rank);
  if (it == processes_.end()) return false;
  if (!it->second) return true;
  pollfd poll{it->second.get(), POLLIN, 0};
  return ::poll(&poll, 1, 0) > 0;
}

}  // namespace nxd

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
  if (ranks_.count(world_rank)) return;
  Watched watched{process, Fd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0))), false};
  const bool lacks_descriptors = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
  if (!watched.descriptor && lacks_descriptors) {
    fail(NXD_ERROR_IO, "cannot watch process ", process.pid, " of rank ", world_rank, ": ",
         std::strerror(errno));
  }
  watched.has_ended = nxd::has_ended(process.pid, process.start_time);
  ranks_.emplace(world_rank, std::move(watched));
}

bool ProcessWatch::has_ended(int world_rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = ranks_.find(world_rank);
  if (it == ranks_.end()) return false;
  Watched& watched = it->second;
  if (!watched.has_ended) watched.has_ended = looks_ended(watched);
  return watched.has_ended;
}

bool ProcessWatch::looks_ended(const Watched& watched) {
  if (watched.descriptor) {
    pollfd poll{watched.descriptor.get(), POLLIN, 0};
    return ::poll(&poll, 1, 0) > 0;
  }
  // A look that lacks a descriptor or memory tells nothing, and the next one may have them.
  try {
    return nxd::has_ended(watched.process.pid, watched.process.start_time);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace nxd

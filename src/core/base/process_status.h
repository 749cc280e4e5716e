#pragma once

#include <sys/types.h>

#include <cstdint>

namespace nxd {

// 0 when there is no such process. IO or OUT_OF_MEMORY as read_proc.
pid_t parent_of(pid_t pid);

// In clock ticks since boot: tells a process from later ones with its number. 0 when there is no
// such process. IO or OUT_OF_MEMORY as read_proc.
uint64_t start_time_of(pid_t pid);

// False while the process that was started at that time runs, and where that cannot be told. IO or
// OUT_OF_MEMORY as read_proc.
bool has_ended(pid_t pid, uint64_t start_time);

}  // namespace nxd

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/launch/launcher.h"

namespace nxd {

// Name of the Unix socket at which the ranks of a job on this host rendezvous, for jobs whose
// launcher names no address. All ranks of the job find the same name, and no other job on this host
// has it. The socket lives in the abstract namespace: it ends with the process that serves it, so
// that a job that crashed leaves nothing behind to mislead the next one. With the job's secret no
// other user can tell the name. Without one he can, and take it before the job does, which then
// cannot start. INVALID_ARGUMENT where nothing tells the job from others.
std::string rendezvous_endpoint(const Launch& launch);

// The process that started a rank: its nearest ancestor without one of the rank's own NAME=VALUE.
// There may be shells and wrappers in between, and the launcher may itself be a rank of another
// job's. 0 when it cannot be seen from here.
pid_t launching_process(pid_t rank_process, const std::vector<std::string>& settings);

}  // namespace nxd

#pragma once

#include "core/comm/transports/shm/shm_agreement.h"

namespace nxd {

// All-reduce of buffers that all lie in arenas, after an agreement on the zero-copy protocol.
void all_reduce_in_arenas(ShmAgreement& agreement, const Call& call);

}  // namespace nxd

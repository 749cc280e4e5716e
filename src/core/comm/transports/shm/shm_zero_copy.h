#pragma once

#include "core/comm/transports/shm/shm_agreement.h"

namespace nxd {

// All-reduce of buffers that all lie in arenas: each rank reduces one part of all ranks' buffers,
// and stores the result to all of them. For example, ranks A, B and C with 9 elements: A adds
// elements 0 to 2 of A, B and C, in this order, and writes the sums into all three; B does so with
// elements 3 to 5, and C with 6 to 8. A barrier then says that all parts are there.
void all_reduce_in_arenas(ShmAgreement& agreement, const Call& call);

}  // namespace nxd

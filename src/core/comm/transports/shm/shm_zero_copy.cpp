// The zero-copy protocol: all buffers are in arenas, which every rank of the host maps.
//
// The agreement's barrier says that all data are there. Each rank then reduces one part of all
// ranks' buffers and stores the result in all of them. A second barrier says that all parts are
// there. No copy is made, and no rank reads an element that another one writes. The collectives
// that move blocks read the others' arenas in the same way (ShmStaged::exchange).
//
// Example: ranks A, B and C all-reduce 600 f32. Parts are whole cache lines: 256, 256, 88 elements.
//   A   adds elements 0 to 255 of A, B and C, in this order, and stores them in all three buffers
//   B   does so with elements 256 to 511, C with 512 to 599
//   all meet at the barrier
#include "core/comm/transports/shm/shm_zero_copy.h"

#include "core/base/dtype.h"
#include "core/comm/pattern.h"
#include "core/comm/reduction.h"

namespace nxd {

void all_reduce_in_arenas(ShmAgreement& agreement, const Call& call) {
  const size_t item = dtype_size(call.dtype);
  const Share own = share_of(call.count, static_cast<size_t>(agreement.size()),
                             static_cast<size_t>(agreement.rank()));
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (int r = 0; r < agreement.size(); ++r) {
    inputs.push_back(agreement.sent_by(r, call) + own.begin * item);
    outputs.push_back(agreement.received_by(r, call) + own.begin * item);
  }
  if (own.count > 0) reduce_to_all(inputs, outputs, own.count, call.dtype, call.reduce);
  agreement.barrier();
}

}  // namespace nxd

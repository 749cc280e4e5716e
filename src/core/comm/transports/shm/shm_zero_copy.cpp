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

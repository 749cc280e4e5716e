#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/pattern.h"
#include "core/comm/transport.h"
#include "core/comm/transports/shm/shm_eager.h"
#include "core/comm/transports/shm/shm_messages.h"
#include "core/comm/transports/shm/shm_staged.h"

namespace nxd {

// Carries calls among ranks of one host, over shared memory. A call starts with an agreement, which
// also says by which protocol its data go: eager, zero-copy or staged.
class ShmTransport : public Transport {
 public:
  // Serves the monitor's group or a part of it, which key names; see ShmLink.
  ShmTransport(std::shared_ptr<GroupMonitor> monitor, std::string key, std::vector<int> ranks);

  nxd_transport_t kind() const override { return NXD_TRANSPORT_SHARED_MEMORY; }
  void run(const Call& call) override;
  std::shared_ptr<Arena> arena() const override { return link_.share_arena(); }
  void* peer_memory(int peer, const ArenaPlace& place) override {
    return place.inode == 0 ? nullptr : link_.try_address(peer, place);
  }

  // For groups that this one is part of.

  // Compares headers, and no more. A rejection of this rank's is the others' too.
  std::optional<Rejection> compare(const Call& call, const std::optional<Rejection>& own);
  // Leaves in out what all ranks' data have in shares[rank], reduced; 16-bit floats as f32.
  void reduce_shares(const void* data, size_t count, const std::vector<Share>& shares, void* out,
                     nxd_dtype_t dtype, nxd_reduce_t reduce);
  // Gives every rank what each has: bytes[r] bytes of rank r, to outs[r].
  void gather_blocks(const void* own, const std::vector<size_t>& bytes,
                     const std::vector<char*>& outs);

 private:
  void exchange(const Call& call);

  ShmLink link_;
  ShmAgreement agreement_;
  ShmEager eager_;
  ShmStaged staged_;
  ShmMessages messages_;
};

}  // namespace nxd

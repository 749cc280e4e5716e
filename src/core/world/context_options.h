#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/comm/net/interrupt.h"
#include "core/comm/store/store.h"

namespace nxd {

// How a rank joins its world; see nxd_context_create. The environment has the values that are
// absent.
struct ContextOptions {
  nxd_rendezvous_t rendezvous = NXD_RENDEZVOUS_ENVIRONMENT;
  // With RENDEZVOUS_STORE. A world of one needs no store.
  int rank = 0, size = 0, local_rank = 0;
  std::shared_ptr<Store> store;

  std::optional<int64_t> timeout_ms;
  std::optional<std::string> interface_name;
  std::optional<uint64_t> seed;
  std::optional<bool> plain_kernels;
  nxd_transport_t transport = NXD_TRANSPORT_AUTO;  // AUTO: the environment's, or by topology
  std::string host_id;                             // "": the environment's, or what the system says
  int large_group = 0;                             // of the environment alone
  Interrupt interrupt;
};

}  // namespace nxd

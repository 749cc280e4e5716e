#pragma once

#include <cstddef>

#include "core/pjrt/pjrt_client.h"

namespace nxd {

// The client of the plug-in that the environment names (find_pjrt_plugin). UNSUPPORTED where there
// is none, or it cannot be used.
PjrtClient& pjrt_client();

// A client for the time of a run. A client runs one program at a time, and the program of a rank
// may wait for that of another rank, which is a thread of this process: runs that overlap have a
// client each. The first is pjrt_client().
class ClientLease {
 public:
  ClientLease();
  ~ClientLease();
  ClientLease(const ClientLease&) = delete;
  ClientLease& operator=(const ClientLease&) = delete;

  PjrtClient& client() const { return client_; }

 private:
  const size_t number_;
  PjrtClient& client_;
};

}  // namespace nxd

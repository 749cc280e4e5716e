#pragma once

#include "core/comm/transport.h"

namespace nxd {

// Transport of a group of one rank: nothing to send, but the same checks.
class SoloTransport : public Transport {
 public:
  explicit SoloTransport(std::shared_ptr<GroupMonitor> monitor) : monitor_(std::move(monitor)) {}

  nxd_transport_t kind() const override { return NXD_TRANSPORT_SHARED_MEMORY; }
  void run(const Call& call) override;

 private:
  std::string rejection(const Call& call) const;

  const std::shared_ptr<GroupMonitor> monitor_;
};

}  // namespace nxd

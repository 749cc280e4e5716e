#pragma once

#include <memory>
#include <string>

namespace gloo::transport::tcp {
class Device;
}

namespace nxd {

// The event loop of this rank's connections. address: one of this host's.
std::shared_ptr<gloo::transport::tcp::Device> make_gloo_device(const std::string& address);

}  // namespace nxd

#include "core/comm/transports/gloo/gloo_device.h"

#include <gloo/transport/tcp/device.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cstring>
#include <new>

#include "core/base/blocked_signals.h"
#include "core/base/error.h"
#include "core/comm/net/socket.h"

namespace nxd {

// Gloo makes every connection listen for a moment before
// it is given its socket; on the loopback, where there is one, no other host can interfere.
std::shared_ptr<gloo::transport::tcp::Device> make_gloo_device(const std::string& address) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = is_local_address("127.0.0.1") ? "127.0.0.1" : address;
  // Gloo's own look-up crashes where it finds nothing, also for lack of memory.
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(attributes.hostname.c_str(), nullptr, &hints, &list);
  if (error == EAI_MEMORY) throw std::bad_alloc();
  if (error != 0) fail(NXD_ERROR_IO, attributes.hostname, ": ", gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(list, &freeaddrinfo);
  attributes.ai_family = found->ai_family;
  attributes.ai_socktype = found->ai_socktype;
  attributes.ai_protocol = found->ai_protocol;
  std::memcpy(&attributes.ai_addr, found->ai_addr, found->ai_addrlen);
  attributes.ai_addrlen = static_cast<int>(found->ai_addrlen);
  try {
    // The device's thread must never run the program's signal handlers.
    const BlockedSignals blocked;
    return std::make_shared<gloo::transport::tcp::Device>(attributes);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    fail(NXD_ERROR_IO, "cannot use the address ", attributes.hostname, ": ", e.what());
  }
}

}  // namespace nxd

#include "core/comm/transports/gloo/gloo_device.h"

#include <fcntl.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/loop.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <type_traits>

#include "core/base/above_stdio.h"
#include "core/base/blocked_signals.h"
#include "core/base/error.h"
#include "core/comm/net/silenced_listener.h"
#include "core/comm/net/socket.h"
#include "core/comm/transports/gloo/epoll_of.h"

namespace nxd {
namespace {

using gloo::transport::tcp::Device;

struct NoEvents final : gloo::transport::tcp::Handler {
  void handleEvents(int) {}
  void handleEvents(gloo::transport::tcp::Loop&, int) {}
};

// The devices of later releases of Gloo listen at a port, for connections that are never made here:
// GlooPair has sockets of the connector's. Any process of the host could reach it, and an error of
// accept, such as a lack of descriptors, ends the process.
class QuietDevice final : public Device {
 public:
  template <class... More>
  explicit QuietDevice(const gloo::transport::tcp::attr& attributes, More... more)
      : Device(attributes, more...) {
    stop_listening(*this);
    close_on_exec();
  }

 private:
  // Gloo makes its event loop's descriptor without the flag: programs that this process starts
  // would have it, too. The loop is the one that watches a descriptor of ours for a moment.
  void close_on_exec() {
    static NoEvents no_events;
    const Fd watched(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!watched) fail(NXD_ERROR_IO, "cannot make an event descriptor: ", std::strerror(errno));
    registerDescriptor(watched.get(), 0, &no_events);
    const int loop = epoll_of(watched.get());
    if (loop >= 0) static_cast<void>(::fcntl(loop, F_SETFD, FD_CLOEXEC));
  }
  // The device expects its descriptor in the event loop when it closes it.
  template <class Any>
  static void stop_listening(Any& device) {
    if constexpr (requires { device.nextAddress(); }) {
      static NoEvents no_events;
      silence_listener(device.nextAddress().getSockaddr(),
                       [&](int fd) { device.registerDescriptor(fd, 0, &no_events); });
    }
  }
};

// Since 2025 it is told whether pairs connect when they are used first.
template <class Attributes>
std::shared_ptr<Device> quiet_device(const Attributes& attributes) {
  if constexpr (std::is_constructible_v<Device, const Attributes&>) {
    return std::make_shared<QuietDevice>(attributes);
  } else {
    return std::make_shared<QuietDevice>(attributes, false);
  }
}

}  // namespace

// Where Gloo makes a connection, or a device, listen for a moment, no other host can interfere: on
// the loopback, if there is one.
std::shared_ptr<Device> make_gloo_device(const std::string& address) {
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
    const StdioHeld stdio;
    return quiet_device(attributes);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    fail(NXD_ERROR_IO, "cannot use the address ", attributes.hostname, ": ", e.what());
  }
}

}  // namespace nxd

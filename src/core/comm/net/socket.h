#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/above_stdio.h"
#include "core/base/blocked_signals.h"
#include "core/comm/net/deadline.h"

namespace nxd {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(above_stdio(fd)) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

// Listens where other processes find a server by a name or an address of this host: at these
// addresses alone. Listens on all addresses when the host is "" or none of this one's, as where an
// outer address is translated. It does so too when a name other than localhost stands for the
// loopback, since other hosts then know another address by that name. Port 0 picks a free one,
// which is given back.
std::vector<Fd> listen_tcp(const std::string& host, int port, int* out_port);

// Connects to a server, asking again while no process listens there. Names that do not resolve are
// IO; a server that does not answer by the deadline is TIMEOUT.
Fd connect_tcp(const std::string& host, int port, const Deadline& deadline);

// The same over a Unix socket in the abstract namespace, which ends with its server. Only a server
// of this user's is connected to.
Fd listen_local(const std::string& name);
Fd connect_local(const std::string& name, const Deadline& deadline);
// True if the other end of a Unix socket is a process of this user's.
bool is_own_user(int fd);

// Transfers all bytes of a non-blocking socket. False when the peer closed or reset the connection;
// TIMEOUT when the deadline passes first. Neither raises SIGPIPE.
bool send_all(int fd, const void* data, size_t size, const Deadline& deadline);
bool receive_all(int fd, void* data, size_t size, const Deadline& deadline);

// The following are IO when this process may not open a socket to look.
//
// Address of this host from which a host is reached; "" when there is no route.
std::string local_address_toward(const std::string& host);
// Address of the first interface that is up and not the loopback: one of IPv4, if any has such, or
// of IPv6. "" when there is none.
std::string first_external_address();
bool is_interface_name(const std::string& name);
// First address of an interface, IPv4 before IPv6; "" when it has none.
std::string address_of_interface(const std::string& name);
// True if a name resolves to an address of this host, and of no other: not that of any interface
// or of several hosts, such as 0.0.0.0.
bool is_local_address(const std::string& host);

// Gloo writes to sockets with writev, which raises SIGPIPE when the peer has gone.
class NoSigpipe : public HeldSignal {
 public:
  NoSigpipe() noexcept : HeldSignal(SIGPIPE) {}
};

}  // namespace nxd

#include "core/world/rank_address.h"

#include "core/base/error.h"
#include "core/comm/net/socket.h"

namespace nxd {
namespace {

std::string find_address(const std::string& interface_name, const WorldFacts& world,
                         const RankInfo& rank_info) {
  if (!interface_name.empty()) {
    return is_interface_name(interface_name) ? address_of_interface(interface_name)
                                             : interface_name;
  }
  if (world.one_host) return "127.0.0.1";
  // The address the store's host is reached from is one the other hosts can reach.
  const std::string server = rank_info.store->server_host();
  const std::string address = server.empty() ? "" : local_address_toward(server);
  const bool loopback = address.rfind("127.", 0) == 0 || address == "::1";
  return address.empty() || loopback ? first_external_address() : address;
}

}  // namespace

std::string rank_address(const std::string& interface_name, const WorldFacts& world,
                         const RankInfo& rank_info) {
  const std::string address = find_address(interface_name, world, rank_info);
  check_argument(interface_name.empty() || (!address.empty() && is_local_address(address)),
                 "interface_name: expected a network interface or an address of this host, got \"",
                 interface_name, "\"");
  if (address.empty() || !is_local_address(address)) {
    fail(NXD_ERROR_IO,
         "no network interface reaches the other hosts; name one by interface_name "
         "or NXD_SOCKET_IFNAME");
  }
  return address;
}

}  // namespace nxd

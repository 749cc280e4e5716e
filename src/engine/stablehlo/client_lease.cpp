#include "engine/stablehlo/client_lease.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/error.h"
#include "core/pjrt/pjrt_search.h"

namespace nxd {
namespace {

// The clients that a run has, by their numbers.
struct LeasedClients {
  std::mutex mutex{};
  std::vector<bool> leased{};
};

LeasedClients& leased_clients() {
  static auto* clients = new LeasedClients;
  return *clients;
}

// A plug-in that cannot call the host has programs that wait for no rank of this process.
size_t take_client() {
  if (!pjrt_client().has_custom_calls()) return 0;
  LeasedClients& clients = leased_clients();
  const std::lock_guard<std::mutex> lock(clients.mutex);
  const auto free = std::find(clients.leased.begin(), clients.leased.end(), false);
  const auto number = static_cast<size_t>(free - clients.leased.begin());
  if (free == clients.leased.end()) clients.leased.push_back(false);
  clients.leased[number] = true;
  return number;
}

void give_client_back(size_t number) {
  LeasedClients& clients = leased_clients();
  const std::lock_guard<std::mutex> lock(clients.mutex);
  if (number < clients.leased.size()) clients.leased[number] = false;
}

PjrtClient& client_of_number(size_t number) {
  if (number == 0) return pjrt_client();
  try {
    return *PjrtClient::load(pjrt_client().plugin().path(), 1, static_cast<int>(number));
  } catch (...) {
    give_client_back(number);
    throw;
  }
}

}  // namespace

PjrtClient& pjrt_client() {
  static const std::shared_ptr<PjrtClient> client = [] {
    auto loaded = PjrtClient::load(find_pjrt_plugin());
    if (loaded->platform() == "cpu" && !loaded->has_custom_calls()) {
      fail(NXD_ERROR_UNSUPPORTED, "device xla: the plug-in ", loaded->description(),
           " has no custom calls, which collectives need");
    }
    return loaded;
  }();
  return *client;
}

ClientLease::ClientLease() : number_(take_client()), client_(client_of_number(number_)) {}

ClientLease::~ClientLease() { give_client_back(number_); }

}  // namespace nxd

#include "core/base/environment.h"

#include <cerrno>
#include <cstdlib>

#include "core/base/error.h"

namespace nxd::env {

std::optional<std::string> get(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return std::string(value);
}

std::optional<int64_t> get_int(const char* name) {
  const auto value = get(name);
  if (!value) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(value->c_str(), &end, 10);
  check_argument(errno == 0 && *end == '\0', "environment variable ", name,
                 ": expected an integer, got \"", *value, "\"");
  return number;
}

bool cpu_mode() { return get("NXD_CPU_MODE") == "1"; }

int64_t timeout_ms() {
  const int64_t ms = get_int("NXD_TIMEOUT_MS").value_or(30 * 60 * 1000);
  check_argument(ms > 0, "environment variable NXD_TIMEOUT_MS: expected a positive number, got ",
                 ms);
  return ms;
}

uint64_t seed() { return static_cast<uint64_t>(get_int("NXD_SEED").value_or(0)); }

bool plain_kernels() { return get_int("NXD_PLAIN_KERNELS").value_or(0) != 0; }

std::string log_level() { return get("NXD_LOG_LEVEL").value_or("warn"); }

std::string socket_interface() { return get("NXD_SOCKET_IFNAME").value_or(""); }

const char* table() {
  return "NXD_CPU_MODE\t0\t1: train on the CPU, eagerly; otherwise a Neuron device is asked for\n"
         "NXD_LOG_LEVEL\twarn\tdebug, info, warn, error or off\n"
         "NXD_PLAIN_KERNELS\t0\t1: every layer through plain ATen operators\n"
         "NXD_SEED\t0\tseed of initial weights and random bits\n"
         "NXD_SOCKET_IFNAME\t\tnetwork interface or address for connections between ranks\n"
         "NXD_TIMEOUT_MS\t1800000\tbound of every collective, milliseconds\n"
         "RANK\t\trank in the world, set by torchrun and nxdrun\n"
         "WORLD_SIZE\t\tranks in the world, set by torchrun and nxdrun\n"
         "LOCAL_RANK\t0\trank on this host, set by torchrun and nxdrun\n"
         "LOCAL_WORLD_SIZE\t\tranks on this host, set by torchrun and nxdrun\n"
         "MASTER_ADDR\t127.0.0.1\thost of the rendezvous store\n"
         "MASTER_PORT\t\tport of the rendezvous store\n"
         "TORCHELASTIC_USE_AGENT_STORE\t\tTrue: the launcher serves the store, rank 0 connects\n"
         "TORCHELASTIC_RUN_ID\t-\tjob, whose keys in the store it sets apart; set by torchrun\n"
         "TORCHELASTIC_RESTART_COUNT\t0\tattempt of the job; set by torchrun\n"
         "OMP_NUM_THREADS\t\tthreads per rank; nxd_spawn sets 1 for several ranks when unset\n"
         "NXD_SPAWNED\t\tset by nxd_spawn in the processes it starts\n"
         "NEURON_NUM_DEVICES\t1\tprocesses nxd_spawn starts by default\n";
}

}  // namespace nxd::env

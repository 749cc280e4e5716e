#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace nxd::env {

// The environment variables the library reads. One row each in the table of environment.cpp; the
// launchers' own variables are read by core/parallel/rendezvous.
std::optional<std::string> get(const char* name);

// Parse failures are INVALID_ARGUMENT naming the variable and its value.
std::optional<int64_t> get_int(const char* name);

bool cpu_mode();                 // NXD_CPU_MODE
int64_t timeout_ms();            // NXD_TIMEOUT_MS, default 30 minutes
uint64_t seed();                 // NXD_SEED, default 0
bool plain_kernels();            // NXD_PLAIN_KERNELS
std::string log_level();         // NXD_LOG_LEVEL
std::string socket_interface();  // NXD_SOCKET_IFNAME, default ""

// The table as text, one variable a line.
const char* table();

}  // namespace nxd::env

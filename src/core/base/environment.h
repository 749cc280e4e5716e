#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "nxd.h"

namespace nxd::env {

// The environment variables the library reads. One row each in the table of environment.cpp; the
// launchers' own variables are read by core/launch/launcher. Empty ones count as unset.
std::optional<std::string> get(const char* name);

// A decimal integer and nothing else.
std::optional<int64_t> parse_int(const std::string& text);

// Parse failures are INVALID_ARGUMENT naming the variable and its value.
std::optional<int64_t> get_int(const char* name);

bool cpu_mode();                  // NXD_CPU_MODE
int64_t timeout_ms();             // NXD_TIMEOUT_MS, default 30 minutes
uint64_t seed();                  // NXD_SEED, default 0
bool plain_kernels();             // NXD_PLAIN_KERNELS
std::optional<bool> aten_pool();  // NXD_ATEN_POOL
nxd_log_level_t log_level();      // NXD_LOG_LEVEL, default warn
std::string flight_record();      // NXD_FLIGHT_RECORD, default ""
int large_group();                // NXD_LARGE_GROUP, default 33
std::string socket_interface();   // NXD_SOCKET_IFNAME, default ""
bool open_store();                // NXD_OPEN_STORE
nxd_transport_t transport();      // NXD_TRANSPORT, default auto
uint64_t most_graph_nodes();      // NXD_MAX_GRAPH_NODES
size_t most_graphs();             // XLA_COMPILATION_CACHE_SIZE, default 1024
bool pjrt_fast_compile();         // NXD_PJRT_FAST_COMPILE

// As NXD_TRANSPORT has it.
const char* name_of(nxd_transport_t transport) noexcept;

// The table as text, one variable a line.
const char* table();

}  // namespace nxd::env

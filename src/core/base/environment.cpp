#include "core/base/environment.h"

#include <charconv>
#include <cstdlib>
#include <utility>

#include "core/base/error.h"

namespace nxd::env {

std::optional<std::string> get(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return std::string(value);
}

std::optional<int64_t> parse_int(const std::string& text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

std::optional<int64_t> get_int(const char* name) {
  const auto value = get(name);
  if (!value) return std::nullopt;
  const auto number = parse_int(*value);
  check_argument(number.has_value(), "environment variable ", name, ": expected an integer, got \"",
                 *value, "\"");
  return number;
}

namespace {

int64_t get_positive(const char* name, int64_t otherwise) {
  const int64_t number = get_int(name).value_or(otherwise);
  check_argument(number > 0, "environment variable ", name, ": expected a number above 0, got ",
                 number);
  return number;
}

std::optional<bool> get_flag(const char* name) {
  const auto value = get(name);
  if (!value) return std::nullopt;
  check_argument(*value == "0" || *value == "1", "environment variable ", name,
                 ": expected 0 or 1, got \"", *value, "\"");
  return *value == "1";
}

}  // namespace

bool cpu_mode() { return get("NXD_CPU_MODE") == "1"; }

int64_t timeout_ms() { return get_positive("NXD_TIMEOUT_MS", 30 * 60 * 1000); }

uint64_t seed() {
  const std::string text = get("NXD_SEED").value_or("0");
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end) return number;
  const auto negative = parse_int(text);
  check_argument(
      negative.has_value(),
      "environment variable NXD_SEED: expected an integer from -2^63 to 2^64 - 1, got \"", text,
      "\"");
  return static_cast<uint64_t>(*negative);
}

bool plain_kernels() { return get_flag("NXD_PLAIN_KERNELS").value_or(false); }

std::optional<bool> aten_pool() { return get_flag("NXD_ATEN_POOL"); }

nxd_log_level_t log_level() {
  const std::string name = get("NXD_LOG_LEVEL").value_or("warn");
  for (const auto& [known, level] : {std::pair{"debug", NXD_LOG_DEBUG},
                                     {"info", NXD_LOG_INFO},
                                     {"warn", NXD_LOG_WARN},
                                     {"error", NXD_LOG_ERROR},
                                     {"off", NXD_LOG_OFF}}) {
    if (name == known) return level;
  }
  fail(NXD_ERROR_INVALID_ARGUMENT, "environment variable NXD_LOG_LEVEL: expected debug, info, ",
       "warn, error or off, got \"", name, "\"");
}

std::string flight_record() { return get("NXD_FLIGHT_RECORD").value_or(""); }

int large_group() {
  const int64_t ranks = get_int("NXD_LARGE_GROUP").value_or(33);
  check_argument(ranks >= 2 && ranks <= INT32_MAX,
                 "environment variable NXD_LARGE_GROUP: expected 2 or more, got ", ranks);
  return static_cast<int>(ranks);
}

std::string socket_interface() { return get("NXD_SOCKET_IFNAME").value_or(""); }

bool open_store() { return get_flag("NXD_OPEN_STORE").value_or(false); }

const char* name_of(nxd_transport_t transport) noexcept {
  switch (transport) {
    case NXD_TRANSPORT_AUTO: return "auto";
    case NXD_TRANSPORT_GLOO: return "gloo";
    case NXD_TRANSPORT_SHARED_MEMORY: return "shared_memory";
    case NXD_TRANSPORT_HIERARCHICAL: return "hierarchical";
    default: return "invalid";
  }
}

nxd_transport_t transport() {
  const std::string name = get("NXD_TRANSPORT").value_or("auto");
  for (nxd_transport_t known = NXD_TRANSPORT_AUTO; known <= NXD_TRANSPORT_HIERARCHICAL; ++known) {
    if (name == name_of(known)) return known;
  }
  fail(NXD_ERROR_INVALID_ARGUMENT, "environment variable NXD_TRANSPORT: expected auto, gloo, ",
       "shared_memory or hierarchical, got \"", name, "\"");
}

uint64_t most_graph_nodes() {
  return static_cast<uint64_t>(get_positive("NXD_MAX_GRAPH_NODES", 200000));
}

size_t most_graphs() {
  return static_cast<size_t>(get_positive("XLA_COMPILATION_CACHE_SIZE", 1024));
}

bool pjrt_fast_compile() { return get_flag("NXD_PJRT_FAST_COMPILE").value_or(false); }

const char* table() {
  return "NXD_ATEN_POOL\t\t1 or 0: whether ATen takes memory from the pool; by default when libnxd "
         "brought libtorch into the process\n"
         "NXD_COMPILE_CACHE_MB\t4096\tmegabytes of compiled programs that are kept; 0: none\n"
         "NXD_CPU_MODE\t0\t1: train on the CPU, eagerly; otherwise device xla is asked for\n"
         "NXD_FLIGHT_RECORD\t\tpath that the rank is appended to: file that takes the last "
         "operations of each group that fails, a line of JSON each\n"
         "NXD_HOST_ID\t\tname of this host: ranks with the same one share a host\n"
         "NXD_LARGE_GROUP\t33\tranks from which a group over Gloo uses algorithms for many ranks; "
         "the same on all ranks\n"
         "NXD_LOG_LEVEL\twarn\tdebug, info, warn, error or off\n"
         "NXD_MAX_GRAPH_NODES\t200000\toperators that device xla records before it runs them as a "
         "graph, also within a step\n"
         "NXD_OPEN_STORE\t0\t1: TCP stores are served and used without the secret, as torch's are; "
         "ranks still prove it to each other\n"
         "NXD_PJRT_FAST_COMPILE\t0\t1: graphs are compiled several times faster, and run slower\n"
         "NXD_PJRT_PLUGIN\t\tpath of the PJRT plug-in that compiles and runs the graphs of device "
         "xla; by default that of NEURON_LIBRARY_PATH, or libneuronpjrt.so where the loader finds "
         "it or in /opt/aws/neuron/lib\n"
         "NXD_PLAIN_KERNELS\t0\t1: every layer through plain ATen operators, with libtorch's "
         "products\n"
         "NXD_SECRET\t\tsecret of the job, which its processes prove to each other; nxd_spawn "
         "makes "
         "one; see docs/security.md\n"
         "NXD_SECRET_FILE\t\tfile with that secret, which only its owner may read\n"
         "NXD_SEED\t0\tseed of initial weights and random bits, of 64 bits\n"
         "NXD_SOCKET_IFNAME\t\tnetwork interface or address for connections between ranks\n"
         "NXD_TIMEOUT_MS\t1800000\tbound of every collective, milliseconds\n"
         "NXD_TRANSPORT\tauto\tauto, gloo, shared_memory or hierarchical; see nxd_transport_t\n"
         "NXD_XLA_BACKEND\t\tbackend that runs the graphs of device xla: replay, on the CPU, or "
         "pjrt, by a plug-in; by default the latter where there is one; device xla is the one to "
         "train on when NXD_CPU_MODE is not 1, and this is set or there is a plug-in\n"
         "RANK\t\trank in the world, set by torchrun and nxdrun\n"
         "WORLD_SIZE\t\tranks in the world, set by torchrun and nxdrun\n"
         "LOCAL_RANK\t\trank on this host, set by torchrun and nxdrun\n"
         "LOCAL_WORLD_SIZE\t\tranks on this host, set by torchrun and nxdrun\n"
         "GROUP_RANK\t\tnumber of this host, set by torchrun\n"
         "MASTER_ADDR\t127.0.0.1\thost of the rendezvous store; wins over what mpirun and srun "
         "say\n"
         "MASTER_PORT\t\tport of the rendezvous store\n"
         "TORCHELASTIC_USE_AGENT_STORE\t\tTrue: the launcher serves the store, rank 0 connects\n"
         "TORCHELASTIC_RUN_ID\t-\tjob, whose keys in the store it sets apart; set by torchrun\n"
         "TORCHELASTIC_RESTART_COUNT\t0\tattempt of the job; set by torchrun\n"
         "OMPI_COMM_WORLD_RANK\t\trank in the world, set by Open MPI's mpirun\n"
         "OMPI_COMM_WORLD_SIZE\t\tranks in the world, set by Open MPI's mpirun\n"
         "OMPI_COMM_WORLD_LOCAL_RANK\t\trank on this host, set by Open MPI's mpirun\n"
         "OMPI_COMM_WORLD_LOCAL_SIZE\t\tranks on this host, set by Open MPI's mpirun\n"
         "OMPI_MCA_orte_hnp_uri\t\taddress of mpirun, which names the job; set by Open MPI's "
         "mpirun\n"
         "PMIX_NAMESPACE\t\tname of the job, set by Open MPI's mpirun\n"
         "PMI_RANK\t\trank in the world, set by MPICH's mpirun and its kin\n"
         "PMI_SIZE\t\tranks in the world, set by MPICH's mpirun and its kin\n"
         "MPI_LOCALRANKID\t\trank on this host, set by MPICH's mpirun\n"
         "MPI_LOCALNRANKS\t\tranks on this host, set by MPICH's mpirun\n"
         "SLURM_STEP_ID\t\tnumber of the step; without it the other SLURM_* are not read\n"
         "SLURM_PROCID\t\trank in the world, set by srun\n"
         "SLURM_STEP_NUM_TASKS\t\tranks in the world, set by srun\n"
         "SLURM_NTASKS\t\tthe same, where SLURM_STEP_NUM_TASKS is not set\n"
         "SLURM_LOCALID\t\trank on this host, set by srun\n"
         "SLURM_STEP_TASKS_PER_NODE\t\tranks on each host, set by srun\n"
         "SLURM_NODEID\t\tnumber of this host, set by srun\n"
         "SLURM_JOB_ID\t\tname of the job, set by srun\n"
         "SLURM_STEP_NUM_NODES\t\thosts of the step, set by srun\n"
         "SLURM_STEP_NODELIST\t\tthese hosts; ranks meet on the first, set by srun\n"
         "SLURM_LAUNCH_NODE_IPADDR\t\thost to meet on without SLURM_STEP_NODELIST, set by srun\n"
         "OMP_NUM_THREADS\t\tthreads per rank; nxd_spawn sets 1 for several ranks when unset\n"
         "GLIBC_TUNABLES\t\twhere this or one of the next three is set, libnxd leaves malloc's "
         "settings alone\n"
         "MALLOC_TRIM_THRESHOLD_\t\tthe same\n"
         "MALLOC_MMAP_THRESHOLD_\t\tthe same\n"
         "MALLOC_TOP_PAD_\t\tthe same\n"
         "NXD_SPAWNED\t\tset by nxd_spawn in the processes it starts\n"
         "XDG_CACHE_HOME\t\twhere compiled programs are kept, in nxd/compiled\n"
         "HOME\t\twhere they are kept without it, in .cache/nxd/compiled\n"
         "NEURON_COMPILE_CACHE_URL\t\tdirectory where they are kept instead, or file:// and it\n"
         "NEURON_CC_FLAGS\t\tflags of Neuron's compiler; these hold for every plug-in: "
         "--cache_dir DIR, --no_cache, --retry_failed_compilation\n"
         "NEURON_EXTRACT_GRAPHS_ONLY\t0\t1: graphs of device xla are compiled into the cache, and "
         "do not run\n"
         "XLA_COMPILATION_CACHE_SIZE\t1024\tgraphs of device xla that a process keeps compiled; "
         "the least recently used leave\n"
         "XLA_FLAGS\t\tread by XLA's plug-ins; compiled programs are kept apart by it\n"
         "NEURON_RT_STOCHASTIC_ROUNDING_EN\t0\t1: device xla, replayed on the CPU, rounds results "
         "to bf16 stochastically\n"
         "NEURON_RT_STOCHASTIC_ROUNDING_SEED\t\tseed of that; NXD_SEED's by default\n"
         "NEURON_LIBRARY_PATH\t\tpath of the plug-in, where NXD_PJRT_PLUGIN is not set\n"
         "NEURON_RT_VISIBLE_CORES\t\tcores of this host, of which each rank takes one for Neuron's "
         "plug-in\n"
         "NEURON_RT_ROOT_COMM_ID\t\tset for ranks before Neuron's plug-in is loaded, unless it is "
         "set already\n"
         "NEURON_PJRT_PROCESSES_NUM_DEVICES\t\tthe same\n"
         "NEURON_PJRT_PROCESS_INDEX\t\tthe same\n"
         "NEURON_PLATFORM_TARGET_OVERRIDE\t\tread by Neuron's compiler; compiled programs are kept "
         "apart by it\n"
         "NEURON_LOGICAL_NC_CONFIG\t\tthe same\n"
         "XLA_USE_32BIT_LONG\t0\t1: programs for Neuron's plug-in have i32 for i64\n"
         "NEURON_NUM_DEVICES\t1\tprocesses nxd_spawn starts by default\n"
         "NEURONCORE_NUM_DEVICES\t1\tthe same, where NEURON_NUM_DEVICES is not set\n";
}

}  // namespace nxd::env

#include "core/pjrt/neuron_environment.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/text_stream.h"

namespace nxd {
namespace {

constexpr const char* kVisibleCores = "NEURON_RT_VISIBLE_CORES";
constexpr const char* kRootAddress = "NEURON_RT_ROOT_COMM_ID";
constexpr const char* kDevicesOfProcesses = "NEURON_PJRT_PROCESSES_NUM_DEVICES";
constexpr const char* kProcessIndex = "NEURON_PJRT_PROCESS_INDEX";
constexpr int kNeuronRootPort = 62182;
constexpr int64_t kMostCores = 65536;

// The cores of a list such as "0-3,8". It names no more than there can be: a variable of a few
// kilobytes would take gigabytes otherwise.
std::vector<int64_t> cores_of(const std::string& list) {
  std::vector<int64_t> cores;
  TextReader parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const auto first = env::parse_int(part.substr(0, dash));
    const auto last = dash == std::string::npos ? first : env::parse_int(part.substr(dash + 1));
    const bool is_range = first && last && *first >= 0 && *first <= *last && *last < kMostCores;
    const auto known = static_cast<int64_t>(cores.size());
    check_argument(is_range && known + (*last - *first) < kMostCores, "environment variable ",
                   kVisibleCores, ": expected cores such as 0-3 or 0,2, got \"", list, "\"");
    for (int64_t core = *first; core <= *last; ++core) cores.push_back(core);
  }
  return cores;
}

std::string core_of(const Launch& launch, const std::optional<std::string>& visible) {
  check_state(launch.local_rank >= 0, launch.launcher, " does not say which rank of its host this ",
              "process is, so that no Neuron core can be chosen; set ", kVisibleCores);
  if (!visible) return std::to_string(launch.local_rank);
  const auto cores = cores_of(*visible);
  // One core is this rank's own: the launcher or the user has chosen.
  if (cores.size() == 1) return std::to_string(cores.front());
  check_argument(static_cast<size_t>(launch.local_rank) < cores.size(), "environment variable ",
                 kVisibleCores, ": expected a core for each rank of the host, of which this is ",
                 launch.local_rank, ", got \"", *visible, "\"");
  return std::to_string(cores[static_cast<size_t>(launch.local_rank)]);
}

}  // namespace

bool is_neuron_plugin(const std::string& path) {
  return std::filesystem::path(path).filename().string().find("neuronpjrt") != std::string::npos;
}

std::map<std::string, std::string> neuron_environment(const Launch& launch,
                                                      const Variables& variables) {
  std::map<std::string, std::string> wanted;
  if (launch.size == 1) return wanted;
  const bool is_ipv6 = launch.address.find(':') != std::string::npos;
  const std::string host = is_ipv6 ? "[" + launch.address + "]" : launch.address;
  std::string devices;
  for (int rank = 0; rank < launch.size; ++rank) devices += rank == 0 ? "1" : ",1";
  wanted[kRootAddress] = host + ":" + std::to_string(kNeuronRootPort);
  wanted[kDevicesOfProcesses] = devices;
  wanted[kProcessIndex] = std::to_string(launch.rank);
  std::erase_if(wanted, [&](const auto& entry) { return variables(entry.first.c_str()); });
  const auto visible = variables(kVisibleCores);
  const std::string core = core_of(launch, visible);
  if (visible != core) wanted[kVisibleCores] = core;
  return wanted;
}

void set_neuron_environment() {
  for (const auto& entry : neuron_environment(detect_launch(), &env::get)) {
    log(NXD_LOG_INFO, "Neuron: ", entry.first, "=", entry.second);
    ::setenv(entry.first.c_str(), entry.second.c_str(), 1);
  }
}

}  // namespace nxd

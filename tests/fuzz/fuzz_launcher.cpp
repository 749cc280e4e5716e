// Variables of a launcher, a NAME=VALUE each line, and Slurm's two short forms.
#include "core/launch/launcher.h"
#include "core/launch/slurm_lists.h"
#include "fuzz.h"

namespace {

void check(const nxd::Launch& launch) {
  using nxd_fuzz::expect;
  expect(launch.size >= 1 && launch.rank >= 0 && launch.rank < launch.size, "a rank of the world");
  expect(launch.local_rank >= -1 && launch.local_rank < launch.size, "a local rank");
  expect(launch.local_size >= -1 && launch.local_size != 0, "a size of this host");
  expect(launch.port >= 0 && launch.port <= 65535, "a port");
  expect(launch.port == 0 || !launch.address.empty(), "a port without an address");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nxd_fuzz::Input in(data, size);
  std::map<std::string, std::string> values;
  while (in.left() > 0) {
    const std::string line = in.until('\n');
    const size_t equals = line.find('=');
    if (equals != std::string::npos) values[line.substr(0, equals)] = line.substr(equals + 1);
  }
  const nxd::Variables variables = [&](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
  nxd_fuzz::parse([&] { check(nxd::detect_launch(variables)); });
  nxd_fuzz::parse([&] { nxd::launch_evidence(variables); });
  for (const auto& [name, value] : values) {
    const auto hosts = nxd::expand_host_list(value);
    for (const std::string& host : hosts) nxd_fuzz::expect(!host.empty(), "a host without a name");
    for (const int node : {-1, 0, 1, 1 << 30}) {
      const int tasks = nxd::tasks_of_node(value, node);
      nxd_fuzz::expect(tasks == -1 || tasks >= 1, "tasks of a node");
    }
  }
  return 0;
}

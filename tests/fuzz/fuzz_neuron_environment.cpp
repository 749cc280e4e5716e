// Variables that a launcher and a user have set, a NAME=VALUE each line, and what ranks make of
// them for Neuron's runtime.
#include "core/pjrt/neuron_environment.h"
#include "fuzz.h"

namespace {

using Map = std::map<std::string, std::string>;

constexpr const char* kCores = "NEURON_RT_VISIBLE_CORES";

void check(const nxd::Launch& launch, const Map& set, const Map& made) {
  using nxd_fuzz::expect;
  for (const auto& [name, value] : made) {
    expect(!value.empty(), "a variable without a value", name);
    expect(set.count(name) == 0 || set.at(name).empty() || name == kCores,
           "a variable that was set is set anew", name);
    if (name == "NEURON_PJRT_PROCESSES_NUM_DEVICES") {
      expect(std::count(value.begin(), value.end(), ',') == launch.size - 1, "a device each");
    } else if (name == "NEURON_PJRT_PROCESS_INDEX") {
      expect(value == std::to_string(launch.rank), "a rank");
    } else if (name == "NEURON_RT_ROOT_COMM_ID") {
      expect(value.find(launch.address) != std::string::npos && value.ends_with(":62182"),
             "the address where ranks meet", value);
    } else {
      expect(name == kCores, "a variable that is none of Neuron's", name);
      expect(value.size() <= 5 && value.find_first_not_of("0123456789") == std::string::npos,
             "one core", value);
    }
  }
  expect(made.empty() == (launch.size == 1) || set.size() >= 4, "all that is not set");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nxd_fuzz::Input in(data, size);
  Map values;
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
  nxd::Launch launch;
  if (!nxd_fuzz::parse([&] { launch = nxd::detect_launch(variables); })) return 0;
  // The list of devices has an entry for each process: of more processes there is no machine.
  if (launch.size > 1 << 16) return 0;
  nxd_fuzz::parse([&] { check(launch, values, nxd::neuron_environment(launch, variables)); });
  return 0;
}

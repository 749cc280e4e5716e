// Variables of Neuron's and XLA's programs: those without effect are warned of by name, each once,
// and docs/neuron.md has a row for each variable.
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/device_variables.h"
#include "core/base/log.h"
#include "support/paths.h"

#include "support/check.h"

namespace {

using nxd::DeviceBackend;
using nxd::VariableUse;

std::vector<std::string> lines;
DeviceBackend asked_for;

// The variables that the warnings since the last call name.
std::set<std::string> warned(DeviceBackend backend) {
  lines.clear();
  asked_for = backend;
  nxd::warn_of_device_variables(backend);
  std::set<std::string> names;
  for (const std::string& line : lines) {
    std::istringstream words(line);
    std::string word;
    words >> word >> word >> word;
    assert_true(line.find("environment variable " + word + " has no effect: ") == 0);
    assert_true(names.insert(word).second);
  }
  return names;
}

void warns_once_by_name(void**) {
  nxd::set_log_callback(
      [](nxd_log_level_t level, const char* line, void*) {
        if (level == NXD_LOG_WARN) lines.push_back(line);
        // As where the callback makes a context.
        nxd::warn_of_device_variables(asked_for);
      },
      nullptr, nullptr);
  std::set<std::string> without_effect, of_neuron, of_neuron_alone;
  for (const auto& variable : nxd::device_variables()) {
    ::unsetenv(variable.name);
    if (variable.use == VariableUse::kWithoutEffect) without_effect.insert(variable.name);
    if (variable.use == VariableUse::kNeuronOrReplay) of_neuron.insert(variable.name);
    if (variable.use == VariableUse::kNeuron) of_neuron_alone.insert(variable.name);
  }
  assert_true(without_effect.contains("XLA_USE_BF16"));
  assert_true(of_neuron.contains("NEURON_RT_STOCHASTIC_ROUNDING_EN"));
  assert_true(warned(DeviceBackend::kOther).empty());
  // NXD_CPU_MODE and NEURON_CC_FLAGS are read where they belong; here all are set at once.
  for (const auto& variable : nxd::device_variables()) ::setenv(variable.name, "1", 1);
  assert_true(warned(DeviceBackend::kUndecided) == without_effect);
  assert_true(warned(DeviceBackend::kNeuron).empty());
  assert_true(of_neuron_alone.contains("XLA_USE_32BIT_LONG"));
  assert_true(warned(DeviceBackend::kReplay) == of_neuron_alone);
  assert_true(warned(DeviceBackend::kOther) == of_neuron);
  assert_true(warned(DeviceBackend::kEager).empty());
  nxd::set_log_callback(nullptr, nullptr, nullptr);
}

void is_documented(void**) {
  const std::map<VariableUse, std::string> words = {
      {VariableUse::kRead, "read"},
      {VariableUse::kPassedOn, "passed on"},
      {VariableUse::kNeuron, "Neuron"},
      {VariableUse::kNeuronOrReplay, "Neuron, replay"},
      {VariableUse::kWithoutEffect, "no effect"}};
  std::vector<std::string> wanted, found;
  for (const auto& variable : nxd::device_variables()) {
    wanted.push_back(std::string("| `") + variable.name + "` | " + words.at(variable.use) + " | " +
                     variable.note + " |");
  }
  std::ifstream page(nxd_test::oracles() + "/../../docs/neuron.md");
  for (std::string line; std::getline(page, line);) {
    const bool is_row = line.starts_with("| `") && line.find('_') != std::string::npos;
    if (is_row) found.push_back(line);
  }
  for (size_t i = 0; i < wanted.size() && i < found.size(); ++i) {
    assert_string_equal(found[i].c_str(), wanted[i].c_str());
  }
  assert_int_equal(found.size(), wanted.size());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(warns_once_by_name),
                              cmocka_unit_test(is_documented)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

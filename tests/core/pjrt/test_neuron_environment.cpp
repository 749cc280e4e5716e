// Variables that ranks set for Neuron's runtime: as functions of the launcher's word, and by a
// plug-in that has the name of Neuron's.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "core/pjrt/neuron_environment.h"
#include "core/pjrt/pjrt_client.h"
#include "pjrt_support.h"

#include "support/check.h"
#include "support/temp_dir.h"

namespace {

using nxd_test::expect_error;
using Map = std::map<std::string, std::string>;

nxd::Launch rank_of(int rank, int size, int local_rank, const std::string& address = "10.0.0.1") {
  nxd::Launch launch;
  launch.launcher = "a launcher";
  launch.rank = rank;
  launch.size = size;
  launch.local_rank = local_rank;
  launch.address = address;
  return launch;
}

Map given(const nxd::Launch& launch, const Map& set = {}) {
  return nxd::neuron_environment(launch, [&](const char* name) -> std::optional<std::string> {
    const auto found = set.find(name);
    if (found == set.end()) return std::nullopt;
    return found->second;
  });
}

void is_a_function_of_ranks(void**) {
  assert_true(given(rank_of(0, 1, -1)).empty());
  assert_true(given(rank_of(2, 3, 1)) == (Map{{"NEURON_RT_ROOT_COMM_ID", "10.0.0.1:62182"},
                                              {"NEURON_PJRT_PROCESSES_NUM_DEVICES", "1,1,1"},
                                              {"NEURON_PJRT_PROCESS_INDEX", "2"},
                                              {"NEURON_RT_VISIBLE_CORES", "1"}}));
  assert_true(given(rank_of(0, 2, 0, "fe80::1")).at("NEURON_RT_ROOT_COMM_ID") == "[fe80::1]:62182");
  // Variables that are set stay as they are.
  const Map set = {{"NEURON_RT_ROOT_COMM_ID", "elsewhere:1"}, {"NEURON_PJRT_PROCESS_INDEX", "7"}};
  const Map rest = given(rank_of(1, 2, 1), set);
  assert_false(rest.contains("NEURON_RT_ROOT_COMM_ID"));
  assert_false(rest.contains("NEURON_PJRT_PROCESS_INDEX"));
  assert_true(rest.at("NEURON_PJRT_PROCESSES_NUM_DEVICES") == "1,1");
}

void shares_cores(void**) {
  const char* const name = "NEURON_RT_VISIBLE_CORES";
  const auto core = [&](int local_rank, const char* cores) {
    const Map wanted = given(rank_of(local_rank, 4, local_rank), {{name, cores}});
    const auto found = wanted.find(name);
    return found == wanted.end() ? std::string("as it is") : found->second;
  };
  assert_true(core(0, "4-7") == "4");
  assert_true(core(3, "4-7") == "7");
  assert_true(core(2, "0,2,8-9") == "8");
  assert_true(core(3, "5") == "as it is");
  const auto bad = NXD_ERROR_INVALID_ARGUMENT;
  for (const char* cores : {"x", "1-", "-1", "3-1", "1,,2", "0-99999"}) {
    expect_error(bad, "expected cores such as 0-3", [&] { core(0, cores); });
  }
  expect_error(bad, "of which this is 3", [&] { core(3, "0-2"); });
  // Bytes of a variable never take more than the cores there are.
  assert_true(core(3, "0-65535") == "3");
  for (const char* cores : {"0-65535,0", "1-65535,2,3", "0-65535,0-65535"}) {
    expect_error(bad, "expected cores such as 0-3", [&] { core(3, cores); });
  }
  expect_error(NXD_ERROR_INVALID_STATE, "does not say which rank of its host",
               [] { given(rank_of(1, 2, -1)); });
}

void sets_them_before_the_plugin(void**) {
  const nxd_test::TempDir dir;
  const std::string neuron = dir.path() + "/libneuronpjrt.so", other = dir.path() + "/other.so";
  assert_true(nxd::is_neuron_plugin(neuron));
  assert_true(nxd::is_neuron_plugin("libneuronpjrt.so"));
  assert_false(nxd::is_neuron_plugin("/neuronpjrt/xla_cpu_pjrt.so"));
  for (const std::string& path : {neuron, other}) {
    std::filesystem::copy_file(NXD_FAKE_PJRT_PLUGIN, path);
    const pid_t child = ::fork();
    if (child == 0) {
      const Map rank = {{"RANK", "1"},
                        {"WORLD_SIZE", "2"},
                        {"LOCAL_RANK", "1"},
                        {"LOCAL_WORLD_SIZE", "2"},
                        {"MASTER_ADDR", "10.0.0.9"},
                        {"MASTER_PORT", "29500"},
                        {"NEURON_RT_VISIBLE_CORES", "8-9"}};
      for (const auto& entry : rank) ::setenv(entry.first.c_str(), entry.second.c_str(), 1);
      nxd::PjrtClient::load(path);
      const char* const address = ::getenv("NEURON_RT_ROOT_COMM_ID");
      const std::string cores = ::getenv("NEURON_RT_VISIBLE_CORES");
      const bool is_set = address && std::string(address) == "10.0.0.9:62182" && cores == "9";
      const bool is_unset = !address && cores == "8-9";
      ::_exit((path == neuron ? is_set : is_unset) ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(is_a_function_of_ranks),
                              cmocka_unit_test(shares_cores),
                              cmocka_unit_test(sets_them_before_the_plugin)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

#include "core/launch/launcher.h"

#include <climits>
#include <cstdint>
#include <initializer_list>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/launch/slurm_lists.h"

namespace nxd {
namespace {

// The variables, with checks that name them.
class Environment {
 public:
  explicit Environment(const Variables& variables) : variables_(variables) {}

  std::optional<std::string> get(const char* name) const { return variables_(name); }
  std::optional<int> get_int(const char* name, int64_t low, int64_t high) const {
    const auto value = get(name);
    if (!value) return std::nullopt;
    const auto number = env::parse_int(*value);
    check_argument(number.has_value(), "environment variable ", name,
                   ": expected an integer, got \"", *value, "\"");
    check_argument(*number >= low && *number <= high, "environment variable ", name, ": expected ",
                   low, " to ", high, ", got ", *number);
    return static_cast<int>(*number);
  }

 private:
  const Variables& variables_;
};

int required(std::optional<int> value, const char* name) {
  check_argument(value.has_value(), "environment variable ", name,
                 ": expected an integer, is not set");
  return *value;
}

// Checks a pair that only makes sense together.
void check_both(const Environment& env, const char* rank, const char* size) {
  const bool has_rank = env.get(rank).has_value(), has_size = env.get(size).has_value();
  check_argument(has_rank && has_size, "environment: ", has_rank ? rank : size, "=",
                 env.get(has_rank ? rank : size).value_or(""), " is set but ",
                 has_rank ? size : rank, " is not; expected both or neither");
}

// A number of this host's; -1 where the launcher does not say, or says one that cannot be.
int number_here(const Environment& env, Launch& l, const char* name, int64_t low, int64_t high) {
  try {
    return env.get_int(name, low, high).value_or(-1);
  } catch (const Error& e) {
    if (l.fault.empty()) l.fault = e.what();
    return -1;
  }
}

// The ranks on this host, and the rank among them.
void read_place(const Environment& env, Launch& l, const char* rank, const char* size) {
  l.local_size = number_here(env, l, size, 1, l.size);
  l.local_rank = number_here(env, l, rank, 0, (l.local_size > 0 ? l.local_size : l.size) - 1);
}

std::vector<std::string> settings_of(const Environment& env,
                                     std::initializer_list<const char*> names) {
  std::vector<std::string> settings;
  for (const char* name : names) {
    if (const auto value = env.get(name)) settings.push_back(text(name, "=", *value));
  }
  return settings;
}

bool spans_hosts(const Launch& l) { return l.local_size >= 0 && l.local_size < l.size; }

// A launcher inside of a job of nxd_spawn's inherits NXD_SPAWNED, and names its own job.
bool is_of_spawn(const Environment& env) {
  return env.get("NXD_SPAWNED") && env.get("TORCHELASTIC_RUN_ID") == kRunOfSpawn;
}

std::optional<Launch> torchrun(const Environment& env) {
  if (!env.get("RANK") && !env.get("WORLD_SIZE")) return std::nullopt;
  check_both(env, "RANK", "WORLD_SIZE");
  Launch l;
  l.launcher = is_of_spawn(env) ? "nxd_spawn" : "torchrun";
  l.size = *env.get_int("WORLD_SIZE", 1, INT_MAX);
  l.rank = *env.get_int("RANK", 0, l.size - 1);
  read_place(env, l, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  l.host = number_here(env, l, "GROUP_RANK", 0, l.size - 1);
  if (l.size == 1) return l;
  l.address = env.get("MASTER_ADDR").value_or("127.0.0.1");
  l.port = required(env.get_int("MASTER_PORT", 1, 65535), "MASTER_PORT");
  const auto served = env.get("TORCHELASTIC_USE_AGENT_STORE");
  l.store_is_served = served == "True" || served == "true" || served == "1";
  l.store_is_of_torch = l.store_is_served && !is_of_spawn(env);
  l.key_prefix = text("nxd/", env.get("TORCHELASTIC_RUN_ID").value_or("-"), "/",
                      env.get("TORCHELASTIC_RESTART_COUNT").value_or("0"), "/");
  return l;
}

// MASTER_ADDR and MASTER_PORT win over what a launcher lets us guess, which is handed in.
void choose_endpoint(const Environment& env, Launch& l, bool several_hosts,
                     const std::string& guessed_address, int guessed_port) {
  const auto address = env.get("MASTER_ADDR");
  const auto port = env.get_int("MASTER_PORT", 1, 65535);
  if (!address && !port && !several_hosts) return;  // at a point of this host
  l.address = address ? *address : several_hosts ? guessed_address : "127.0.0.1";
  l.port = port.value_or(several_hosts ? guessed_port : 0);
  check_argument(!l.address.empty(), "environment: ", l.launcher, " runs ", l.size,
                 " ranks on several hosts (", l.local_size,
                 " on this one) and does not say where they can meet; set MASTER_ADDR to the host "
                 "of rank 0 and MASTER_PORT to a free port of it");
  check_argument(l.port > 0, "environment: MASTER_ADDR=", l.address,
                 " is set but MASTER_PORT is not; set it to a free port of that host");
}

std::optional<Launch> open_mpi(const Environment& env) {
  if (!env.get("OMPI_COMM_WORLD_RANK") && !env.get("OMPI_COMM_WORLD_SIZE")) return std::nullopt;
  check_both(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  Launch l;
  l.launcher = "Open MPI";
  l.size = *env.get_int("OMPI_COMM_WORLD_SIZE", 1, INT_MAX);
  l.rank = *env.get_int("OMPI_COMM_WORLD_RANK", 0, l.size - 1);
  // Not OMPI_COMM_WORLD_NODE_RANK, which is no number of a host.
  read_place(env, l, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  // The job's number alone is a hash of 16 bits; the address of mpirun makes it unique.
  const auto mpirun = env.get("OMPI_MCA_orte_hnp_uri");
  const auto number = env.get("PMIX_NAMESPACE");
  if (mpirun && number) l.job = text("ompi ", *mpirun, " ", *number);
  l.settings = settings_of(
      env, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"});
  if (l.size > 1) choose_endpoint(env, l, spans_hosts(l), "", 0);
  return l;
}

std::optional<Launch> pmi(const Environment& env) {
  if (!env.get("PMI_RANK") && !env.get("PMI_SIZE")) return std::nullopt;
  check_both(env, "PMI_RANK", "PMI_SIZE");
  Launch l;
  l.launcher = "MPICH";
  l.size = *env.get_int("PMI_SIZE", 1, INT_MAX);
  l.rank = *env.get_int("PMI_RANK", 0, l.size - 1);
  read_place(env, l, "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  l.settings = settings_of(env, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_FD", "PMI_PORT"});
  if (l.size > 1) choose_endpoint(env, l, spans_hosts(l), "", 0);
  return l;
}

// Slurm sets SLURM_PROCID and SLURM_NTASKS in places where one process runs for all tasks. Only a
// step that srun made has a number of its own; those of batch scripts, of interactive shells and of
// containers are at the end of the range.
bool is_slurm_step(const Environment& env) {
  const auto value = env.get("SLURM_STEP_ID");
  if (!value) return false;
  constexpr int64_t kReserved = 0xfffffff0;
  const auto number = env::parse_int(*value);
  check_argument(number.has_value(),
                 "environment variable SLURM_STEP_ID: expected an integer, got ", "\"", *value,
                 "\"");
  return *number < kReserved;
}

// The name of the variable that has the number of a step's tasks.
const char* tasks_variable(const Environment& env) {
  return env.get("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

// Below the range that kernels take ports for outgoing connections from.
int port_of_step(const std::string& step) {
  return static_cast<int>(16384 + Hash().add(step).folded() % 16000);
}

std::optional<Launch> slurm(const Environment& env) {
  if (!is_slurm_step(env)) return std::nullopt;
  Launch l;
  l.launcher = "Slurm";
  const char* const tasks = tasks_variable(env);
  l.size = required(env.get_int(tasks, 1, INT_MAX), tasks);
  l.rank = required(env.get_int("SLURM_PROCID", 0, l.size - 1), "SLURM_PROCID");
  l.host = number_here(env, l, "SLURM_NODEID", 0, l.size - 1);
  l.local_rank = number_here(env, l, "SLURM_LOCALID", 0, l.size - 1);
  l.local_size = tasks_of_node(env.get("SLURM_STEP_TASKS_PER_NODE").value_or(""), l.host);
  if (l.size == 1) return l;
  const std::string step =
      text(env.get("SLURM_JOB_ID").value_or("-"), ".", env.get("SLURM_STEP_ID").value_or("-"));
  l.job = "slurm " + step;
  const auto nodes = env.get_int("SLURM_STEP_NUM_NODES", 1, INT_MAX);
  const bool several = nodes ? *nodes > 1 : spans_hosts(l);
  std::string first;
  if (several) {
    const auto list = env.get("SLURM_STEP_NODELIST");
    const auto hosts = expand_host_list(list.value_or(""));
    check_argument(!list || !hosts.empty(), "environment variable SLURM_STEP_NODELIST: expected a ",
                   "list of hosts, got \"", list.value_or(""), "\"");
    first = hosts.empty() ? env.get("SLURM_LAUNCH_NODE_IPADDR").value_or("") : hosts[0];
  }
  choose_endpoint(env, l, several, first, port_of_step(step));
  return l;
}

// Slurm's own PMI sets PMI_RANK beside SLURM_PROCID. Not so mpirun inside of an allocation: there
// the step is that of its helpers, and its ranks inherit their variables. In a step of several
// tasks a PMI_SIZE of 1 comes from the shell that the step was started in, itself a world of one.
bool slurm_wins_over_pmi(const Environment& env) {
  if (!is_slurm_step(env)) return false;
  const auto tasks = env.get(tasks_variable(env)), size = env.get("PMI_SIZE");
  if (size == "1" && tasks && tasks != "1") return true;
  return env.get("SLURM_PROCID") == env.get("PMI_RANK") && tasks == size;
}

}  // namespace

Launch find_launch(const Variables& variables) {
  const Environment env(variables);
  if (auto l = torchrun(env)) return *l;
  if (auto l = open_mpi(env)) return *l;
  if (!slurm_wins_over_pmi(env)) {
    if (auto l = pmi(env)) return *l;
  }
  return slurm(env).value_or(Launch());
}

Launch find_launch() { return find_launch(&env::get); }

Launch detect_launch(const Variables& variables) {
  Launch launch = find_launch(variables);
  check_argument(launch.fault.empty(), launch.fault);
  return launch;
}

Launch detect_launch() { return detect_launch(&env::get); }

std::string launch_evidence(const Variables& variables) {
  // A program that sets these means to start ranks, be it one.
  for (const char* name : {"NXD_SPAWNED", "RANK", "WORLD_SIZE"}) {
    if (variables(name)) return name;
  }
  // A world of one under the others may be a shell that srun or mpirun was asked for.
  const auto is_several = [&](const char* name) {
    const auto value = variables(name);
    return value && *value != "1";
  };
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (is_several(name)) return name;
  }
  const Environment env(variables);
  if (env.get("SLURM_STEP_ID") && is_slurm_step(env) && is_several(tasks_variable(env))) {
    return "SLURM_STEP_ID";
  }
  return "";
}

std::string launch_evidence() { return launch_evidence(&env::get); }

}  // namespace nxd

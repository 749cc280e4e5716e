#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace nxd {

// Looks an environment variable up; one that is unset or empty has no value.
using Variables = std::function<std::optional<std::string>(const char* name)>;

// TORCHELASTIC_RUN_ID in the processes of nxd_spawn.
constexpr const char* kRunOfSpawn = "nxd_spawn";

// Facts that a launcher's variables give a process. docs/launchers.md has the table of them.
struct Launch {
  std::string launcher;  // such as "Slurm"; "": none, this process is a world of its own
  int rank = 0;
  int size = 1;
  // -1: the launcher does not say.
  int local_rank = -1;
  int local_size = -1;
  int host = -1;

  // The rendezvous endpoint: address:port or, with port 0, one of this host that the job names.
  std::string address;
  int port = 0;
  // A name of the job that no other job on this host has; "": only the launching process tells it.
  std::string job;
  // NAME=VALUE of this rank's place, which the launching process itself does not have.
  std::vector<std::string> settings;
  // The first fault of a variable that says nothing of where the ranks meet, so that they can be
  // told of it: LOCAL_RANK, GROUP_RANK and their kin. "": none.
  std::string fault;
  // The launcher serves the store there; otherwise rank 0 does.
  bool store_is_served = false;
  // By torchrun's agent, whose store knows no secret.
  bool store_is_of_torch = false;
  // Tells the keys of this job and attempt from others in a store that outlives them.
  std::string key_prefix = "nxd/-/0/";
};

// Asks for torchrun's variables first, since nxd_spawn and wrappers set them on purpose; then Open
// MPI's, Slurm's and those of PMI. Contradictions are INVALID_ARGUMENT and name the variable.
Launch detect_launch(const Variables& variables);
// The same of this process's environment.
Launch detect_launch();
// The same with the fault, which is not thrown.
Launch find_launch(const Variables& variables);
Launch find_launch();

// The variable that says that this process is one of several that a launcher started; "" when none
// does. Unlike detect_launch it does not check that the variables make sense.
std::string launch_evidence(const Variables& variables);
std::string launch_evidence();

}  // namespace nxd

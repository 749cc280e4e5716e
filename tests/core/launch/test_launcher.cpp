// Meaning of each launcher's variables. The environments are those the launchers were seen to set.
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "core/base/error.h"
#include "core/base/process_status.h"
#include "core/launch/launcher.h"
#include "core/launch/rendezvous_endpoint.h"
#include "core/launch/slurm_lists.h"

#include "support/check.h"

namespace {

using Settings = std::map<std::string, std::string>;

nxd::Variables lookup(const Settings& settings) {
  return [&settings](const char* name) -> std::optional<std::string> {
    const auto found = settings.find(name);
    if (found == settings.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
}

nxd::Launch detect(const Settings& settings) { return nxd::detect_launch(lookup(settings)); }

// The message with which the settings are refused.
std::string refusal(const Settings& settings) {
  try {
    detect(settings);
  } catch (const nxd::Error& e) {
    assert_int_equal(e.status(), NXD_ERROR_INVALID_ARGUMENT);
    return e.what();
  }
  fail_msg("expected a refusal");
  return "";
}

void assert_refused(const Settings& settings, const char* part) {
  const std::string message = refusal(settings);
  if (message.find(part) == std::string::npos) {
    fail_msg("expected \"%s\" in: %s", part, message.c_str());
  }
}

void assert_place(const nxd::Launch& l, const char* launcher, int rank, int size, int local_rank,
                  int local_size, int host) {
  assert_string_equal(l.launcher.c_str(), launcher);
  assert_int_equal(l.rank, rank);
  assert_int_equal(l.size, size);
  assert_int_equal(l.local_rank, local_rank);
  assert_int_equal(l.local_size, local_size);
  assert_int_equal(l.host, host);
}

void assert_endpoint(const nxd::Launch& l, const char* address, int port) {
  assert_string_equal(l.address.c_str(), address);
  assert_int_equal(l.port, port);
}

Settings with(Settings base, const Settings& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

const Settings kTorchrun = {{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"GROUP_RANK", "1"},
                            {"MASTER_ADDR", "10.0.0.1"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                            {"TORCHELASTIC_RUN_ID", "none"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Settings kMpich = {{"PMI_RANK", "1"},        {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"},
                         {"MPI_LOCALNRANKS", "2"}, {"PMI_FD", "8"},   {"HYDI_CONTROL_FD", "7"}};
// The node rank is no number of a host: it was 0 and 1 on one.
const Settings kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                           {"OMPI_MCA_orte_hnp_uri", "1570373632.0;tcp://192.0.2.2:58011"},
                           {"PMIX_NAMESPACE", "1570373633"},
                           {"PMIX_RANK", "1"}};
// Four tasks on two nodes.
const Settings kSlurm = {{"SLURM_JOB_ID", "3"},
                         {"SLURM_STEP_ID", "1"},
                         {"SLURM_PROCID", "2"},
                         {"SLURM_NTASKS", "4"},
                         {"SLURM_STEP_NUM_TASKS", "4"},
                         {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                         {"SLURM_STEP_NODELIST", "n[07,12]"},
                         {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}};
const Settings kSlurmOneNode = with(
    kSlurm,
    {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_NODEID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "4"}});

void none(void**) {
  const nxd::Launch l = detect({});
  assert_place(l, "", 0, 1, -1, -1, -1);
  assert_endpoint(l, "", 0);
  assert_string_equal(nxd::launch_evidence(lookup({})).c_str(), "");
  // A master alone is no world.
  assert_place(detect({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}), "", 0, 1, -1, -1, -1);
}

void torchrun(void**) {
  const nxd::Launch l = detect(kTorchrun);
  assert_place(l, "torchrun", 5, 8, 1, 4, 1);
  assert_endpoint(l, "10.0.0.1", 29500);
  assert_true(l.store_is_served);
  assert_string_equal(l.key_prefix.c_str(), "nxd/none/2/");
  assert_true(l.store_is_of_torch);
  const Settings spawned =
      with(kTorchrun, {{"NXD_SPAWNED", "1"}, {"TORCHELASTIC_RUN_ID", "nxd_spawn"}});
  assert_place(detect(spawned), "nxd_spawn", 5, 8, 1, 4, 1);
  assert_false(detect(spawned).store_is_of_torch);
  // torchrun in a shell of nxdrun's.
  const nxd::Launch inner = detect(with(kTorchrun, {{"NXD_SPAWNED", "1"}}));
  assert_place(inner, "torchrun", 5, 8, 1, 4, 1);
  assert_true(inner.store_is_of_torch);

  const Settings least = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "7"}};
  assert_place(detect(least), "torchrun", 1, 2, -1, -1, -1);
  assert_endpoint(detect(least), "127.0.0.1", 7);
  assert_false(detect(least).store_is_served);
  // A rank alone meets no other.
  assert_place(detect({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "torchrun", 0, 1, -1, -1, -1);
}

void mpirun(void**) {
  assert_place(detect(kMpich), "MPICH", 1, 2, 1, 2, -1);
  assert_endpoint(detect(kMpich), "", 0);
  assert_string_equal(detect(kMpich).job.c_str(), "");
  assert_string_equal(detect(kMpich).settings.front().c_str(), "PMI_RANK=1");
  assert_place(detect({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}), "MPICH", 0, 3, -1, -1, -1);

  const nxd::Launch l = detect(kOpenMpi);
  assert_place(l, "Open MPI", 1, 2, 1, 2, -1);
  assert_endpoint(l, "", 0);
  // Two jobs of one mpirun, and two of different ones, have different names.
  assert_string_not_equal(l.job.c_str(),
                          detect(with(kOpenMpi, {{"PMIX_NAMESPACE", "1570373634"}})).job.c_str());
  assert_string_not_equal(
      l.job.c_str(),
      detect(with(kOpenMpi, {{"OMPI_MCA_orte_hnp_uri", "1570373632.0;tcp://192.0.2.2:1"}}))
          .job.c_str());
}

void mpirun_on_several_hosts(void**) {
  const Settings there = {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "4000"}};
  for (const Settings& one :
       {with(kMpich, {{"PMI_SIZE", "4"}}), with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}})}) {
    assert_refused(one, "set MASTER_ADDR to the host of rank 0 and MASTER_PORT");
    assert_refused(with(one, {{"MASTER_ADDR", "head"}}), "MASTER_ADDR=head is set but MASTER_PORT");
    assert_refused(with(one, {{"MASTER_PORT", "4000"}}), "set MASTER_ADDR");
    assert_endpoint(detect(with(one, there)), "head", 4000);
  }
  // On one host they win as well.
  for (const Settings& one : {kMpich, kOpenMpi, kSlurmOneNode}) {
    assert_endpoint(detect(with(one, there)), "head", 4000);
    assert_endpoint(detect(with(one, {{"MASTER_PORT", "4000"}})), "127.0.0.1", 4000);
    assert_refused(with(one, {{"MASTER_ADDR", "head"}}), "MASTER_PORT is not");
    assert_false(detect(with(one, there)).store_is_served);
  }
}

void srun(void**) {
  const nxd::Launch l = detect(kSlurm);
  assert_place(l, "Slurm", 2, 4, 0, 2, 1);
  assert_string_equal(l.address.c_str(), "n07");
  assert_in_range(l.port, 16384, 32383);
  assert_int_equal(detect(kSlurm).port, l.port);
  assert_int_not_equal(detect(with(kSlurm, {{"SLURM_STEP_ID", "2"}})).port, l.port);
  assert_int_not_equal(detect(with(kSlurm, {{"SLURM_JOB_ID", "4"}})).port, l.port);
  assert_endpoint(detect(with(kSlurm, {{"MASTER_ADDR", "m"}, {"MASTER_PORT", "9"}})), "m", 9);
  assert_endpoint(detect(with(kSlurm, {{"MASTER_PORT", "9"}})), "n07", 9);
  assert_endpoint(detect(with(kSlurm, {{"MASTER_ADDR", "m"}})), "m", l.port);
  assert_string_equal(detect(with(kSlurm, {{"SLURM_STEP_NODELIST", ""}})).address.c_str(),
                      "10.0.0.9");

  assert_place(detect(kSlurmOneNode), "Slurm", 2, 4, 0, 4, 0);
  assert_endpoint(detect(kSlurmOneNode), "", 0);
  assert_string_equal(detect(kSlurmOneNode).job.c_str(), "slurm 3.1");

  // With Slurm's own PMI the same; PMIx alone says less than Slurm.
  const Settings pmi2 = {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"PMI_JOBID", "3.1"}};
  assert_place(detect(with(kSlurm, pmi2)), "Slurm", 2, 4, 0, 2, 1);
  assert_place(detect(with(kSlurm, {{"PMIX_RANK", "2"}})), "Slurm", 2, 4, 0, 2, 1);
}

// A step inherits the variables of the shell that it was started in: a world of one under Slurm's
// PMI or mpirun.
void srun_in_a_world_of_one(void**) {
  const Settings shell = {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}};
  for (const char* rank : {"0", "2"}) {
    const Settings step = with(with(kSlurm, {{"SLURM_PROCID", rank}}), shell);
    assert_place(detect(step), "Slurm", std::atoi(rank), 4, 0, 2, 1);
    assert_string_equal(nxd::launch_evidence(lookup(step)).c_str(), "SLURM_STEP_ID");
  }
  // mpirun's helpers are a step of one task where it starts one rank.
  const Settings helper = {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}};
  assert_place(detect(with(with(with(kSlurm, helper), kMpich),
                           {{"PMI_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}})),
               "MPICH", 1, 4, 1, 2, -1);
}

// Places where Slurm's variables are set for one process that stands for all tasks.
void not_a_step(void**) {
  Settings batch = kSlurm;
  batch.erase("SLURM_STEP_ID");
  assert_place(detect(batch), "", 0, 1, -1, -1, -1);
  assert_string_equal(nxd::launch_evidence(lookup(batch)).c_str(), "");
  for (const char* reserved : {"4294967290", "4294967291", "4294967292"}) {
    const Settings shell = with(kSlurm, {{"SLURM_STEP_ID", reserved}});
    assert_place(detect(shell), "", 0, 1, -1, -1, -1);
    assert_string_equal(nxd::launch_evidence(lookup(shell)).c_str(), "");
  }
}

void order(void**) {
  assert_place(detect(with(with(with(kTorchrun, kOpenMpi), kMpich), kSlurm)), "torchrun", 5, 8, 1,
               4, 1);
  // mpirun inside of an allocation starts its helpers as a step.
  const Settings helper = {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  const Settings step = with(kSlurm, helper);
  assert_place(detect(with(step, kOpenMpi)), "Open MPI", 1, 2, 1, 2, -1);
  assert_place(
      detect(
          with(with(step, kMpich),
               {{"PMI_RANK", "3"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}, {"PMI_SIZE", "4"}})),
      "MPICH", 3, 4, 1, 2, -1);
}

void contradictions(void**) {
  assert_refused({{"RANK", "1"}}, "RANK=1 is set but WORLD_SIZE is not");
  assert_refused({{"WORLD_SIZE", "2"}}, "WORLD_SIZE=2 is set but RANK is not");
  assert_refused(with(kTorchrun, {{"RANK", "8"}}), "RANK: expected 0 to 7, got 8");
  assert_refused(with(kTorchrun, {{"RANK", "1x"}}), "RANK: expected an integer, got \"1x\"");
  assert_refused(with(kTorchrun, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE: expected 1 to");
  assert_refused(with(kTorchrun, {{"LOCAL_RANK", "4"}}), "LOCAL_RANK: expected 0 to 3, got 4");
  assert_refused(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE: expected 1 to 8");
  assert_refused(with(kTorchrun, {{"MASTER_PORT", "70000"}}), "MASTER_PORT: expected 1 to 65535");
  assert_refused(with(kTorchrun, {{"MASTER_PORT", ""}}), "MASTER_PORT: expected an integer");
  assert_refused({{"PMI_RANK", "0"}}, "PMI_RANK=0 is set but PMI_SIZE is not");
  assert_refused(with(kMpich, {{"PMI_RANK", "2"}}), "PMI_RANK: expected 0 to 1, got 2");
  assert_refused(with(kMpich, {{"MPI_LOCALRANKID", "2"}}), "MPI_LOCALRANKID: expected 0 to 1");
  assert_refused(with(kMpich, {{"MPI_LOCALNRANKS", "3"}}), "MPI_LOCALNRANKS: expected 1 to 2");
  assert_refused({{"OMPI_COMM_WORLD_SIZE", "2"}},
                 "OMPI_COMM_WORLD_SIZE=2 is set but OMPI_COMM_WORLD_RANK is not");
  assert_refused(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "-1"}}), "OMPI_COMM_WORLD_RANK");
  assert_refused(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "5"}}),
                 "OMPI_COMM_WORLD_LOCAL_SIZE: expected 1 to 2, got 5");
  assert_refused(with(kSlurm, {{"SLURM_PROCID", "4"}}), "SLURM_PROCID: expected 0 to 3, got 4");
  assert_refused(with(kSlurm, {{"SLURM_PROCID", ""}}), "SLURM_PROCID: expected an integer");
  assert_refused(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", ""}, {"SLURM_NTASKS", ""}}),
                 "SLURM_NTASKS");
  assert_refused(with(kSlurm, {{"SLURM_STEP_ID", "x"}}), "SLURM_STEP_ID");
  assert_refused(with(kSlurm, {{"SLURM_STEP_NODELIST", "n[1-"}}),
                 "SLURM_STEP_NODELIST: expected a list of hosts, got \"n[1-\"");
}

void evidence(void**) {
  const auto of = [](const Settings& s) { return nxd::launch_evidence(lookup(s)); };
  assert_string_equal(of(kTorchrun).c_str(), "RANK");
  assert_string_equal(of({{"WORLD_SIZE", "1"}}).c_str(), "WORLD_SIZE");
  assert_string_equal(of({{"NXD_SPAWNED", "1"}}).c_str(), "NXD_SPAWNED");
  assert_string_equal(of(kMpich).c_str(), "PMI_SIZE");
  assert_string_equal(of(kOpenMpi).c_str(), "OMPI_COMM_WORLD_SIZE");
  assert_string_equal(of(kSlurm).c_str(), "SLURM_STEP_ID");
  assert_string_equal(of(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", ""}})).c_str(), "SLURM_STEP_ID");
  // "srun --pty sh" is a place to work from.
  assert_string_equal(of(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}})).c_str(), "");
  assert_string_equal(of({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).c_str(), "");
}

void host_lists(void**) {
  const auto expand = [](const char* list) {
    std::string out;
    for (const std::string& host : nxd::expand_host_list(list)) out += host + " ";
    return out;
  };
  assert_string_equal(expand("na").c_str(), "na ");
  assert_string_equal(expand("na,nb").c_str(), "na nb ");
  assert_string_equal(expand("n[1-3,7]").c_str(), "n1 n2 n3 n7 ");
  assert_string_equal(expand("a,n-1[08-11],b").c_str(), "a n-108 n-109 n-110 n-111 b ");
  assert_string_equal(expand("x[1],y[2-2]").c_str(), "x1 y2 ");
  assert_string_equal(expand("n[0008-0010]").c_str(), "n0008 n0009 n0010 ");
  for (const char* bad : {"", ",", "a,", ",a", "n[", "n[]", "n[1", "n[1-]", "n[3-1]", "n[1]x",
                          "n[a-b]", "n[1,]", "n[1],", "n[-1]", "n[0-99999999]"}) {
    assert_string_equal(expand(bad).c_str(), "");
  }
  const struct {
    const char* list;
    int index, tasks;
  } rows[] = {{"4", 0, 4},       {"4", 1, -1},       {"2(x3),1", 0, 2}, {"2(x3),1", 2, 2},
              {"2(x3),1", 3, 1}, {"2(x3),1", 4, -1}, {"1,16", 1, 16},   {"", 0, -1},
              {"2(x", 0, -1},    {"x", 0, -1},       {"2(x2)", -1, -1}, {"0", 0, -1}};
  for (const auto& row : rows) {
    assert_int_equal(nxd::tasks_of_node(row.list, row.index), row.tasks);
  }
}

// Shells and wrappers between the launcher and the rank are passed over.
void launching_process(void**) {
  int told[2], held[2];
  assert_int_equal(pipe(told), 0);
  assert_int_equal(pipe2(held, O_CLOEXEC), 0);
  const pid_t shell = fork();
  if (shell == 0) {
    dup2(told[1], 1);
    dup2(held[0], 0);
    setenv("PMI_RANK", "3", 1);
    setenv("PMI_SIZE", "4", 1);
    // The rank is the third process in a row with the variable. It tells its number, and waits.
    execlp("sh", "sh", "-c", "sh -c 'sh -c \"echo \\$\\$; read line; true\"; true'; true", nullptr);
    _exit(127);
  }
  char line[32] = "";
  assert_true(read(told[0], line, sizeof line - 1) > 0);
  const pid_t rank = atoi(line);
  assert_int_not_equal(rank, shell);
  assert_int_equal(nxd::launching_process(rank, {"PMI_RANK=3"}), getpid());
  assert_int_equal(nxd::launching_process(rank, {"PMI_RANK=3", "PMI_SIZE=4"}), getpid());
  // A rank whose parent has another place was started by that parent: a launcher that is a rank of
  // another job's has its rank and its size.
  const pid_t parent = nxd::parent_of(rank);
  assert_int_equal(nxd::launching_process(rank, {"PMI_RANK=4"}), parent);
  assert_int_equal(nxd::launching_process(rank, {"PMI_RANK=3", "PMI_SIZE=2"}), parent);
  close(held[1]);
  assert_int_equal(waitpid(shell, nullptr, 0), shell);
  for (const int fd : {told[0], told[1], held[0]}) close(fd);
}

void rendezvous_endpoints(void**) {
  const std::string one = nxd::rendezvous_endpoint(detect(kSlurmOneNode));
  assert_string_equal(nxd::rendezvous_endpoint(detect(kSlurmOneNode)).c_str(), one.c_str());
  assert_string_not_equal(
      nxd::rendezvous_endpoint(detect(with(kSlurmOneNode, {{"SLURM_STEP_ID", "2"}}))).c_str(),
      one.c_str());
  assert_true(one.size() < 60);
  // Without a name of the job the launching process gives one.
  assert_string_equal(nxd::rendezvous_endpoint(detect(kMpich)).c_str(),
                      nxd::rendezvous_endpoint(detect(with(kMpich, {{"PMI_RANK", "0"}}))).c_str());
  // Users who do not know the secret cannot tell the name.
  std::set<std::string> names = {one};
  for (const char* secret : {"a secret of some job", "a secret of another job"}) {
    setenv("NXD_SECRET", secret, 1);
    const std::string name = nxd::rendezvous_endpoint(detect(kSlurmOneNode));
    assert_string_equal(nxd::rendezvous_endpoint(detect(kSlurmOneNode)).c_str(), name.c_str());
    assert_true(name.size() < 60);
    names.insert(name);
    names.insert(nxd::rendezvous_endpoint(detect(with(kSlurmOneNode, {{"SLURM_STEP_ID", "2"}}))));
  }
  unsetenv("NXD_SECRET");
  assert_int_equal(names.size(), 5);
}

// The first process of a namespace has no parent that it can see: all jobs would have one name.
int endpoints_of_first_process() {
  try {
    nxd::rendezvous_endpoint(detect(kMpich));
    return 1;
  } catch (const nxd::Error& error) {
    if (error.status() != NXD_ERROR_INVALID_ARGUMENT) return 2;
    if (!std::strstr(error.what(), "nothing else tells this job from others")) return 3;
  }
  setenv("NXD_SECRET", "a secret of some job", 1);
  return nxd::rendezvous_endpoint(detect(kMpich)).empty() ? 4 : 0;
}

void launching_process_out_of_sight(void**) {
  constexpr int kNoNamespace = 99;
  const pid_t child = fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
      _exit(kNoNamespace);
    }
    const pid_t first = fork();
    if (first == 0) _exit(endpoints_of_first_process());
    int status = -1;
    _exit(waitpid(first, &status, 0) == first && WIFEXITED(status) ? WEXITSTATUS(status) : 5);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoNamespace) {
    std::puts("skip: a launcher out of sight: no namespaces of processes here; run as root");
    skip();
  }
  assert_int_equal(WEXITSTATUS(status), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(none),
      cmocka_unit_test(torchrun),
      cmocka_unit_test(mpirun),
      cmocka_unit_test(mpirun_on_several_hosts),
      cmocka_unit_test(srun),
      cmocka_unit_test(srun_in_a_world_of_one),
      cmocka_unit_test(not_a_step),
      cmocka_unit_test(order),
      cmocka_unit_test(contradictions),
      cmocka_unit_test(evidence),
      cmocka_unit_test(host_lists),
      cmocka_unit_test(launching_process),
      cmocka_unit_test(rendezvous_endpoints),
      cmocka_unit_test(launching_process_out_of_sight),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

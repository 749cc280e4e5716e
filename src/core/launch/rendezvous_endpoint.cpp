#include "core/launch/rendezvous_endpoint.h"

#include <unistd.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/proc_file.h"
#include "core/base/process_status.h"
#include "core/comm/net/secret.h"

namespace nxd {
namespace {

// As it was when the process was executed. False also when it cannot be read: then the process
// belongs to another user, and is no wrapper of ours.
bool was_started_with(pid_t pid, const std::vector<std::string>& settings) {
  std::string all;
  find_in_proc(pid, [&all](const std::string& directory) {
    all = read_proc(directory + "/environ").value_or("");
    return !all.empty();
  });
  all.insert(all.begin(), '\0');
  return std::all_of(settings.begin(), settings.end(), [&all](const std::string& setting) {
    return all.find('\0' + setting + '\0') != std::string::npos;
  });
}

// Names of sockets are short.
std::string name_of(const std::string& job) {
  constexpr size_t kDigits = 32;
  if (const auto secret = Secret::of_environment()) {
    return hex_of(secret->key("rendezvous of " + job)).substr(0, kDigits);
  }
  return text(std::hex, Hash().add(job).value());
}

}  // namespace

pid_t launching_process(pid_t rank_process, const std::vector<std::string>& settings) {
  pid_t pid = parent_of(rank_process);
  while (pid > 1 && was_started_with(pid, settings)) pid = parent_of(pid);
  return pid;
}

std::string rendezvous_endpoint(const Launch& launch) {
  std::string job = launch.job;
  if (job.empty()) {
    const pid_t pid = launching_process(::getpid(), launch.settings);
    check_argument(pid > 0 || Secret::of_environment(), "environment: ", launch.launcher,
                   "'s process that started this rank cannot be seen (another namespace of "
                   "processes, or no /proc), and nothing else tells this job from others; set "
                   "MASTER_ADDR to this host and MASTER_PORT to a free port of it, or NXD_SECRET");
    job = text(launch.launcher, " ", pid, " ", start_time_of(pid));
  }
  return text("nxd-", ::geteuid(), "-", name_of(job));
}

}  // namespace nxd

// nxd/job.h: jobs.
#include "capi/handles.h"
#include "capi/options.h"
#include "core/base/last_error.h"

using namespace nxd;

namespace {

const nxd_spawn_options_t kSpawnDefaults = NXD_SPAWN_OPTIONS_INIT;

}  // namespace

nxd_status_t nxd_spawn_options_init(nxd_spawn_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kSpawnDefaults, "options"); });
}

nxd_status_t nxd_spawn(const nxd_spawn_options_t* options, nxd_job_t** out_job) {
  return guard([&] {
    auto& out = output(out_job, "out_job");
    const auto known = read_options(options, kSpawnDefaults, "options");
    std::vector<std::string> arguments;
    for (const char* const* a = known.argv; a && *a; ++a) arguments.emplace_back(*a);
    check_argument(!known.argv || !arguments.empty(),
                   "options.argv: expected a program, got an empty list");
    out = new nxd_job{
        std::make_unique<Job>(known.num_processes, known.omp_num_threads, std::move(arguments))};
  });
}

nxd_status_t nxd_job_wait(nxd_job_t* job, int64_t timeout_ms) {
  return guard([&] { unwrap(job).wait(timeout_ms); });
}

nxd_status_t nxd_job_kill(nxd_job_t* job, int32_t signal_number) {
  return guard([&] { unwrap(job).kill(signal_number); });
}

nxd_status_t nxd_job_get_size(nxd_job_t* job, int32_t* out_size) {
  return guard([&] {
    auto& out = output(out_size, "out_size");
    out = unwrap(job).size();
  });
}

nxd_status_t nxd_job_get_exit_code(nxd_job_t* job, int32_t rank, int32_t* out_running,
                                   int32_t* out_exit_code) {
  return guard([&] {
    clear_each(out_running, out_exit_code);
    auto& running = output(out_running, "out_running");
    auto& code = output(out_exit_code, "out_exit_code");
    const Job::Ended ended = unwrap(job).exit_code(rank);
    running = ended.running ? 1 : 0;
    code = ended.exit_code;
  });
}

nxd_status_t nxd_job_get_pid(nxd_job_t* job, int32_t rank, int64_t* out_pid) {
  return guard([&] {
    auto& out = output(out_pid, "out_pid");
    out = unwrap(job).pid(rank);
  });
}

// In a forked child the processes are the parent's.
void nxd_job_destroy(nxd_job_t* job) {
  const Uncancelled whole_call;
  if (job && !job->fork_guard.is_foreign()) delete job;
}

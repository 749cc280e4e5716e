// nxd/base.h: versions, errors, logging.
#include <cstring>

#include "capi/arguments.h"
#include "core/base/build_info.h"
#include "core/base/environment.h"
#include "core/base/last_error.h"
#include "core/base/log.h"
#include "core/base/python_capsule.h"
#include "core/optim/step_outcome.h"

using namespace nxd;

uint32_t nxd_abi_version(void) { return NXD_ABI_VERSION; }

const char* nxd_version(void) { return build_info::version(); }

const char* nxd_status_string(nxd_status_t status) { return status_name(status); }

const char* nxd_last_error(void) { return last_error_message(); }

size_t nxd_last_error_copy(char* buf, size_t cap) {
  const char* message = last_error_message();
  const size_t size = std::strlen(message) + 1;
  if (buf && cap > 0) {
    const size_t copied = size < cap ? size : cap;
    std::memcpy(buf, message, copied);
    buf[copied - 1] = '\0';
  }
  return size;
}

void nxd_set_last_error(nxd_status_t status, const char* message) {
  if (status != NXD_OK) leave_error(status, message ? message : "");
}

nxd_status_t nxd_last_error_info(nxd_error_info_t* out_info) {
  // Reading the last error must not replace it, unless the reading itself fails.
  return guard([&] {
    output_error_info(out_info, [](nxd_error_info_t& info) {
      fill_last_error_info(info);
      const StepOutcome outcome = StepOutcome::of(last_error_payload());
      info.step = outcome.step;
      info.parameters = outcome.parameters;
    });
  });
}

void nxd_python_capsule_destroy(void* capsule) { destroy_python_capsule(capsule); }

nxd_status_t nxd_log_set_callback(nxd_log_fn callback, void* user_data, nxd_destroy_fn destroy) {
  return guard([&] { set_log_callback(callback, user_data, destroy); });
}

nxd_status_t nxd_log_set_level(nxd_log_level_t level) {
  return guard([&] { set_log_level(level); });
}

const char* nxd_build_info(void) { return build_info::json(); }

const char* nxd_environment_table(void) { return env::table(); }

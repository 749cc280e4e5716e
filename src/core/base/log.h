#pragma once

#include <string>

#include "core/base/error.h"

namespace nxd {

// Process-wide logging. Lines of the library's own threads wait for a thread that is inside an nxd
// call: the next to log, or to wait for work of theirs.
bool log_enabled(nxd_log_level_t level) noexcept;
void log_line(nxd_log_level_t level, const std::string& message) noexcept;
void flush_log() noexcept;
void set_log_level(nxd_log_level_t level);
void set_log_callback(nxd_log_fn callback, void* user_data, nxd_destroy_fn destroy);

template <class... Parts>
void log(nxd_log_level_t level, const Parts&... parts) noexcept {
  if (!log_enabled(level)) return;
  try {
    log_line(level, text(parts...));
  } catch (...) {
    // A line that there is no memory for is left out.
  }
}

}  // namespace nxd

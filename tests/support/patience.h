// How long tests wait for what is to come.
#pragma once

#include <cstdint>

#include "core/comm/net/deadline.h"

namespace nxd_test {

// Ends what hangs, however slow and busy the machine: no test is about how long it is.
constexpr int64_t kPatienceMs = 300000;

inline nxd::Deadline patiently() { return nxd::Deadline::after_ms(kPatienceMs); }

}  // namespace nxd_test

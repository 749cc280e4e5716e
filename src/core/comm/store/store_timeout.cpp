#include "core/comm/store/store_timeout.h"

#include <algorithm>

namespace nxd {
namespace {

thread_local int64_t innermost_ms = INT64_MAX;

}  // namespace

StoreTimeout::StoreTimeout(int64_t ms) : outer_ms_(innermost_ms) { innermost_ms = ms; }
StoreTimeout::~StoreTimeout() { innermost_ms = outer_ms_; }

int64_t StoreTimeout::bound_ms(int64_t own_ms) { return std::min(own_ms, innermost_ms); }

}  // namespace nxd

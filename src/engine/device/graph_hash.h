#pragma once

#include <cstddef>

#include "core/base/hash128.h"

namespace nxd {

// Two graphs share it only if they are the same: a wrong plan would give wrong numbers without a
// word.
using GraphHash = Hash128;

struct HashOfGraphHash {
  size_t operator()(const GraphHash::Value& value) const { return value[0]; }
};

}  // namespace nxd

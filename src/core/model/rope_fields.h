#pragma once

#include <cstdint>
#include <optional>

#include "core/model/config_fields.h"
#include "core/model/rope_frequencies.h"

namespace nxd {

// The object of a config.json that describes rotary positions: "rope_parameters" in newer files,
// "rope_scaling" in older ones. With both, transformers takes the older one, unless it is empty.
// UNSUPPORTED for parameters that differ from layer to layer.
std::optional<ConfigFields> rope_fields(const ConfigFields& fields);

// Rotary positions that turn whole heads, from that object and from the base's frequency, which
// older files have at the top under a family's own name.
RopeOptions read_rope(const ConfigFields& fields, int64_t max_positions,
                      const char* theta_name = "rope_theta");

}  // namespace nxd

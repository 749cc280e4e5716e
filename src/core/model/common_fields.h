#pragma once

#include "core/base/config_fields.h"

namespace nxd {

// Refuses fields of any family's configuration by which transformers makes another model, or reads
// other weights, than this library would: UNSUPPORTED names the field.
void check_common_fields(const ConfigFields& fields);

}  // namespace nxd

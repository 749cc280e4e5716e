#include "draw.h"

namespace nxd_fuzz {

void furnish(Draw&, nxd_context_t*) {}

}  // namespace nxd_fuzz

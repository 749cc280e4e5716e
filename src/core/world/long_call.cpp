#include "core/world/long_call.h"

#include "core/comm/process_group.h"

namespace nxd {

void check_interrupt(const Context& context, const char* operation) {
  context.world()->check_interrupt(operation);
}

}  // namespace nxd

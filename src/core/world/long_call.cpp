#include "core/world/long_call.h"

#include "core/comm/ordered_group.h"

namespace nxd {

// Every group of a context is an ordered one.
void check_interrupt(const Context& context, const char* operation) {
  static_cast<const OrderedGroup&>(*context.world()).check_interrupt(operation);
}

}  // namespace nxd

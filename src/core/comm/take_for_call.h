#pragma once

#include "core/comm/process_group.h"

namespace nxd {

// Takes what the next call on a group needs, such as memory. A rank that fails in it rejects the
// call, so that its peers fail too and do not wait for it. group may be null.
template <class Take>
void take_for_call(ProcessGroup* group, const char* operation, Take&& take) {
  if (!group || group->size() == 1) return take();
  try {
    take();
  } catch (...) {
    const Error error = Error::current();
    try {
      group->reject(Call::named(operation), error.what());
    } catch (const Error& told) {
      if (told.status() != NXD_ERROR_INVALID_ARGUMENT) throw;
    }
    throw;
  }
}

}  // namespace nxd

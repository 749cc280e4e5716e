#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace nxd {

// Lets run_on_views run the operators that others' code calls on this thread, such as libtorch's
// interpreter, for a scope. An operator runs the ones that it calls itself as it always does.
class OnViewsScope {
 public:
  OnViewsScope();

 private:
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace nxd

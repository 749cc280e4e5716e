#pragma once

#include <ATen/core/Tensor.h>

namespace nxd {

// Gives a view on the recorded device the history that it has on the CPU after a write to its base
// which requires no gradient any more: one that leads nowhere. libtorch makes the view again from
// its base there, which has no history, and fails by an assertion of its own. Other tensors stay as
// they are. To be called where libtorch is about to ask for the history.
void renew_history(const at::Tensor& tensor);

}  // namespace nxd

#pragma once

#include <ATen/core/Tensor.h>

namespace nxd {

// Gives a view on the recorded device the history that it has on the CPU after a write to its base
// which requires no gradient any more: one that leads nowhere. libtorch makes the view again from
// its base there, which has no history, and fails by an assertion of its own. Other tensors stay as
// they are. To be called where libtorch is about to ask for the history.
void renew_history(const at::Tensor& tensor);

// Once: has libtorch's operators that change a view's shape in place note it. libtorch makes a view
// on the recorded device again by the functions that it was made by, and left these out: the
// gradient of a later write went to other elements. Where a release of libtorch lets nobody add to
// these functions, such writes are rejected, with those to views of the view.
void note_shape_changes();

}  // namespace nxd

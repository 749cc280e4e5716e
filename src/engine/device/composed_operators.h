#pragma once

namespace nxd {

// Has operators made of others that the recorded device has: fill_diagonal_ is a write to a view,
// as libtorch's goes over the memory that the device has none of; ldexp_ is a product in place, as
// libtorch's gives a tensor other sizes; polygamma_ and lift, which libtorch cannot record, are a
// copy and the tensor itself.
void add_composed_operators();

}  // namespace nxd

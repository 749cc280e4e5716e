#pragma once

namespace nxd {

// Mends how libtorch writes through views of the recorded device that see an element several times
// or not at all: it adds up what an expanded or unfolded view has of an element, and loses the
// elements that no window has. On the CPU a write that is allowed there, such as fill_ or one of no
// elements, leaves each element with the value that the view shows.
void mend_view_inverses();

}  // namespace nxd
